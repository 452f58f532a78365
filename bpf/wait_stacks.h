/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a wait is for: the kernel stack with which the thread left its CPU. The map below holds each
 * distinct stack once; a WAIT_STACK record after the WAIT has its id. Readers find the reason by the
 * names of the functions.
 *
 * A walk costs some 3 us. A thread that waits again in the same call and state, as deep in its kernel
 * stack as before, came there by the same functions: it is not walked again for a second.
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

#define BT_STACKS_SHIFT 27 /* a span is 2^27 ns, 134 ms */
#define BT_STACKS_MOST 2000 /* in a span and on a CPU: 14,900 a second, 4 % of it */
#define BT_WALK_AGAIN (1ULL << 30) /* ns until a stack is walked again though nothing changed */
#define BT_EAGAIN 11 /* errno of a stack that was not asked for, as there were too many */

/* How many stacks a CPU has taken in the span of time `span`. */
struct bt_stacks_taken {
	__u64 span;
	__u64 count;
	__u64 pad[6]; /* a cache line of its own */
};
struct bt_stacks_taken bt_stacks_taken[BT_PATH_CPUS] = {};

/* Whether this CPU may take one more stack: one costs about 3 us. */
static __always_inline bool bt_may_take_stack(__u64 now)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct bt_stacks_taken *taken = &bt_stacks_taken[cpu & (BT_PATH_CPUS - 1)];

	if (taken->span != now >> BT_STACKS_SHIFT) {
		taken->span = now >> BT_STACKS_SHIFT;
		taken->count = 0;
	}
	return taken->count++ < BT_STACKS_MOST;
}

/* The running thread's kernel stack in bt_wait_stacks; negative: an errno. */
static __always_inline int bt_wait_stack_id(void *ctx, __u64 now)
{
	int id;

	if (!bt_may_take_stack(now))
		return -BT_EAGAIN;
	id = bpf_get_stackid(ctx, &bt_wait_stacks, 0);
	for (int skip = 1; skip <= BT_OWN_FRAMES && id == -BT_EEXIST; skip++)
		id = bpf_get_stackid(ctx, &bt_wait_stacks, skip);
	return id;
}

/*
 * Sets slot->stack to the stack with which the running thread leaves its CPU. Where ctx lies tells how
 * deep the kernel stack is: it is in the tracepoint's frame, always as far from the scheduler's. Of a
 * timed call it is told from where the program of sys_enter had its ctx, as the kernel may begin each
 * call elsewhere (randomize_kstack_offset).
 */
static __always_inline void bt_take_stack(void *ctx, struct bt_call_slot *slot, __u32 tid,
					  bool inside)
{
	volatile __u64 *frame = &slot->frame; /* what was stored is a scalar to the verifier */
	__u64 before = *frame;

	*frame = (__u64)ctx;
	if (inside)
		*frame = slot->base - *frame;
	if (slot->stack >= 0 && slot->walked == tid && *frame == before &&
	    slot->walked_number == slot->wait_number && slot->walked_state == slot->state &&
	    slot->out - slot->walked_at < BT_WALK_AGAIN)
		return;
	slot->stack = bt_wait_stack_id(ctx, slot->out);
	slot->walked = tid;
	slot->walked_number = slot->wait_number;
	slot->walked_state = slot->state;
	slot->walked_at = slot->out;
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
