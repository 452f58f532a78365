/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a bio is queued from: a STACK record behind its Q, with the ids of stacks that the
 * kernel keeps once each. The recorder reads them from the maps, and removes none while it
 * records, so that an id means one stack for as long.
 */
#ifndef BIOTRAIL_STACKS_H
#define BIOTRAIL_STACKS_H

#include "ring.h"

#define BT_NOT_ASKED (-1)
#define BT_EEXIST 17
#define BT_OWN_FRAMES 3 /* the program's and the tracepoint's, above the block layer's first */

/* Sizes are set before loading where stacks are asked for. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} bt_kernel_stacks SEC(".maps");

/* By build id and offset: they name a place in a file for good, an address only in a process. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(map_flags, BPF_F_STACK_BUILD_ID);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 32);
} bt_user_stacks SEC(".maps");

/*
 * The id is a hash, and the place of another stack is not taken. Without its first frames, which
 * are the tracing's own in every stack, the same stack has another hash.
 */
static __always_inline int bt_kernel_stack(void *ctx)
{
	int id = bpf_get_stackid(ctx, &bt_kernel_stacks, 0);

	for (int skip = 1; skip <= BT_OWN_FRAMES && id == -BT_EEXIST; skip++)
		id = bpf_get_stackid(ctx, &bt_kernel_stacks, skip);
	return id;
}

static __always_inline void bt_stack(struct bt_writer *w, void *ctx, struct bio *bio)
{
	struct bt_stack *r;

	if (!config.kernel_stacks)
		return;
	r = bt_reserve(w, BT_STACK, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->kernel = bt_kernel_stack(ctx);
	r->user = BT_NOT_ASKED;
	/* By the hash alone once a stack is known: comparing would look up every frame's file. */
	if (config.user_stacks)
		r->user = bpf_get_stackid(ctx, &bt_user_stacks,
					  BPF_F_USER_STACK | BPF_F_FAST_STACK_CMP);
}

#endif
