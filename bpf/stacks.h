/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Call stacks at Q: a STACK record after the Q has the ids of kernel and user stack in the maps
 * below, which hold each distinct stack once. The recorder reads new stacks from the maps and
 * removes none while it records, so an id never changes its meaning.
 */
#ifndef BIOTRAIL_STACKS_H
#define BIOTRAIL_STACKS_H

#include "ring.h"

#define BT_NOT_ASKED (-1)
#define BT_EEXIST 17
#define BT_OWN_FRAMES 3 /* innermost frames, of program and tracepoint, in every stack */

/* The loader sets the sizes of both maps if stacks are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} bt_kernel_stacks SEC(".maps");

/* Frames as build id and file offset: unlike addresses, valid after the process has ended. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(map_flags, BPF_F_STACK_BUILD_ID);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 32);
} bt_user_stacks SEC(".maps");

/*
 * Returns the kernel stack's id, or a negative errno. The id is the stack's hash; if another stack
 * is in that bucket, bpf_get_stackid() returns -EEXIST. Then it is called again without the
 * innermost frames, which are tracing's in every stack: that changes the hash.
 */
static __always_inline int bt_kernel_stack(void *ctx)
{
	int id = bpf_get_stackid(ctx, &bt_kernel_stacks, 0);

	for (int skip = 1; skip <= BT_OWN_FRAMES && id == -BT_EEXIST; skip++)
		id = bpf_get_stackid(ctx, &bt_kernel_stacks, skip);
	return id;
}

/* Writes the STACK record of a bio if stacks are recorded. ctx: the program's. */
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
	/*
	 * BPF_F_FAST_STACK_CMP compares hashes only; comparing the stacks would look up the build
	 * id of every frame's file each time.
	 */
	if (config.user_stacks)
		r->user = bpf_get_stackid(ctx, &bt_user_stacks,
					  BPF_F_USER_STACK | BPF_F_FAST_STACK_CMP);
}

#endif
