/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a wait is for: the kernel stack with which the thread left its CPU. The map below holds each
 * distinct stack once; a WAIT_STACK record after the WAIT has its id. Readers find the reason by the
 * names of the functions.
 *
 * A walk costs some 3 us. A thread that waits in the same call and state, as deep in its kernel
 * stack as before, came there by the same functions: it is not walked again for a second. A call
 * waits in a few places in turn, so a table keeps the stacks of several.
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
#define BT_EAGAIN 11 /* errno of a stack that was not asked for, as there were too many */

/* How many stacks a CPU has taken in the span of time `span`. */
struct bt_stacks_taken {
	__u64 span;
	__u64 count;
	__u64 pad[6]; /* a cache line of its own */
};
struct bt_stacks_taken bt_stacks_taken[BT_PATH_CPUS] = {};

/*
 * Stacks that need not be walked again, a word each, 0 if it is free: a tag of thread, call, state and
 * depth; when it was walked; its id.
 *
 *   63         28 27              14 13      0
 *   |    tag     | time in 2^28 ns  |  stack  |
 */
#define BT_WALKED_BITS 12
#define BT_WALKED_TAG 28
#define BT_WALKED_TIME 14
#define BT_WALKED_SHIFT 28
#define BT_WALKED_TIMES ((1ULL << (BT_WALKED_TAG - BT_WALKED_TIME)) - 1)
#define BT_WALK_AGAIN 4 /* units of that time until a stack is walked again */
/*
 * Of the stack so many words are looked at in each part, as a program has little stack of its own.
 * Few parts: each read takes 22 ns, and eight bytes more take 1.
 */
#define BT_CODE_WORDS 20
#define BT_CODE_PARTS 2
#define BT_WALKED_HASH 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */
__u64 bt_walked[1 << BT_WALKED_BITS] = {};

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

/* Returns a hash of the addresses of the kernel's code that are on the stack from `at` on. */
static __noinline __u64 bt_code_on_stack(__u64 at)
{
	__u64 words[BT_CODE_WORDS], hash = 0;

	for (int part = 0; part < BT_CODE_PARTS; part++) {
		if (bpf_probe_read_kernel(words, sizeof(words), (void *)at))
			break;
		for (int i = 0; i < BT_CODE_WORDS; i++)
			if (words[i] - path.text < path.text_bytes)
				hash = (hash ^ words[i]) * BT_WALKED_HASH;
		at += sizeof(words);
	}
	return hash;
}

/*
 * Sets slot->stack to the stack with which the running thread leaves its CPU. Where ctx lies tells how
 * deep the kernel stack is: it is in the tracepoint's frame, always as far from the scheduler's. Of a
 * timed call it is told from where the program of sys_enter had its ctx, as the kernel may begin each
 * call elsewhere (randomize_kstack_offset). Of another call that is not known, and two places may be
 * as deep by chance: of such only the newest stack is kept.
 */
static __always_inline void bt_take_stack(void *ctx, struct bt_call_slot *slot, __u32 tid,
					  bool inside, bool kernel)
{
	volatile __u64 *word = &bt_runs()->word; /* what was stored is a scalar to the verifier */
	__u64 time = slot->out >> BT_WALKED_SHIFT, thread, tag, found;
	__u32 place;

	*word = (__u64)ctx;
	thread = tid * BT_WALKED_HASH;
	tag = inside ? slot->base - *word : *word;
	tag ^= bt_code_on_stack(*word);
	tag ^= (__u64)slot->wait_number << 48 ^ (__u64)slot->state << 20;
	tag = (tag ^ thread) * BT_WALKED_HASH;
	tag = (tag ^ tag >> 32) * BT_WALKED_HASH;
	place = (path.text_bytes && (inside || kernel) ? tag : thread >> 32) &
		((1U << BT_WALKED_BITS) - 1);
	tag >>= BT_WALKED_TAG;
	found = bt_walked[place];
	if (found >> BT_WALKED_TAG == tag &&
	    ((time - (found >> BT_WALKED_TIME)) & BT_WALKED_TIMES) < BT_WALK_AGAIN) {
		slot->stack = found & ((1U << BT_WALKED_TIME) - 1);
		return;
	}
	slot->stack = bt_wait_stack_id(ctx, slot->out);
	if (slot->stack >= 0)
		bt_walked[place] = tag << BT_WALKED_TAG | (time & BT_WALKED_TIMES) << BT_WALKED_TIME |
				   slot->stack;
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
