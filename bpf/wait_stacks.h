/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a wait inside a timed call is for: the kernel stack with which the thread left its CPU.
 * The map below holds each distinct stack once; a WAIT_STACK record behind the WAIT has its id.
 * Readers find the reason by the names of the functions.
 */
#ifndef BIOTRAIL_WAIT_STACKS_H
#define BIOTRAIL_WAIT_STACKS_H

#include "path.h"
#include "stacks.h"

/* The loader sets the sizes if reasons are recorded: few frames, as the innermost ones tell. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} bt_wait_stacks SEC(".maps");

/* The running thread's kernel stack in bt_wait_stacks, as bt_kernel_stack() has it. */
static __always_inline int bt_wait_stack_id(void *ctx)
{
	int id = bpf_get_stackid(ctx, &bt_wait_stacks, 0);

	for (int skip = 1; skip <= BT_OWN_FRAMES && id == -BT_EEXIST; skip++)
		id = bpf_get_stackid(ctx, &bt_wait_stacks, skip);
	return id;
}

/* Writes the WAIT_STACK record of a wait whose WAIT record was just written. */
static __always_inline void bt_reason(struct bt_writer *w, __u32 tid, __s32 stack)
{
	struct bt_wait_stack *r;

	if (!path.fs)
		return;
	r = bt_reserve(w, BT_WAIT_STACK, sizeof(*r));
	if (!r)
		return;
	r->tid = tid;
	r->stack = stack;
}

#endif
