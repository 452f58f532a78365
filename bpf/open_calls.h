/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls with a followed object that have not returned yet, by thread: which return belongs to which
 * entry.
 *
 * A thread's calls end in the reverse order of their beginning, as do those of the interrupts that
 * run on top of it. A return is that of the newest open call of its function whose program ran at
 * about the same depth of the same kernel stack; an interrupt's stack is another one. Where a return
 * was not seen, the call is recognized as over by the next one above it, and counted.
 */
#ifndef BIOTRAIL_OPEN_CALLS_H
#define BIOTRAIL_OPEN_CALLS_H

#include "sites.h"

#define BT_CALL_THREADS 4096 /* threads with open calls, by a hash of their id */
#define BT_OPEN_CALLS 48 /* of one thread */
#define BT_STALE_NS 60000000000ULL
/* Programs at entry and return of one call run at most 2^10 bytes apart on the stack. */
#define BT_NEAR_BITS 10
/* Places that are further apart than a stack is large are on two stacks. */
#define BT_STACK_BITS 14

struct bt_open_call {
	__u64 at; /* where its program ran on the stack */
	__u64 object;
	__u64 detail;
	__u32 life;
	__u32 slot;
	__u32 site;
	__u32 zero;
};

struct bt_open_calls {
	__u64 touched; /* ns: when a call was added */
	__u32 thread; /* its id, or that of an idle task's CPU */
	__u32 depth; /* open calls */
	struct bt_open_call calls[BT_OPEN_CALLS];
};

/* The loader sets max_entries to BT_CALL_THREADS if returns are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_open_calls);
} bt_calls_of_threads SEC(".maps");

/* Returns about where on the kernel stack the program runs, as a number. */
static __always_inline __u64 bt_stack_place(void)
{
	__u64 frame, place = 0;

	/* The verifier allows no arithmetic with the frame's address; read from memory it may be. */
	asm volatile("%0 = r10" : "=r"(frame));
	bpf_probe_read_kernel(&place, sizeof(place), &frame);
	return place;
}

/* The running thread; the idle tasks of all CPUs have the id 0. */
static __always_inline __u32 bt_thread(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return tid ? tid : 1U << 31 | bpf_get_smp_processor_id();
}

static __always_inline struct bt_open_calls *bt_calls_at(__u32 thread, __u32 other)
{
	__u32 index = ((thread * 0x9E3779B1U) >> 20) ^ other;

	return bpf_map_lookup_elem(&bt_calls_of_threads, &index);
}

/* Returns the open calls of a thread; NULL: it has none. */
static __always_inline struct bt_open_calls *bt_calls_of(__u32 thread)
{
	struct bt_open_calls *calls = bt_calls_at(thread, 0);

	if (calls && calls->thread == thread)
		return calls;
	calls = bt_calls_at(thread, 1);
	return calls && calls->thread == thread ? calls : NULL;
}

/* Returns the open calls of a thread, which may be none; NULL: other threads have both places. */
static __always_inline struct bt_open_calls *bt_make_calls_of(__u32 thread, __u64 now)
{
	struct bt_open_calls *calls = bt_calls_of(thread);

	if (calls)
		return calls;
	for (__u32 other = 0; other < 2; other++) {
		calls = bt_calls_at(thread, other);
		/* Calls that never return, as those of a thread that ended, do not keep their place. */
		if (calls && (!calls->depth || now - calls->touched > BT_STALE_NS)) {
			calls->depth = 0;
			calls->thread = thread;
			return calls;
		}
	}
	return NULL;
}

/* 0 if two places are at most 2^bits bytes apart; without a branch, as all of them are verified. */
static __always_inline __u64 bt_distance_over(__u64 one, __u64 other, __u32 bits)
{
	return (one - other + (1ULL << bits)) >> (bits + 1);
}

/* Whether a call with this life's object is open on the stack that the program runs on. */
static __always_inline bool bt_has_open_call(struct bt_open_calls *calls, __u32 life, __u64 at)
{
	for (__u32 i = 0; i < BT_OPEN_CALLS; i++) {
		struct bt_open_call *open = &calls->calls[i];

		if (i >= calls->depth)
			break;
		if (!((open->life ^ life) | bt_distance_over(open->at, at, BT_STACK_BITS)))
			return true;
	}
	return false;
}

/*
 * Adds an open call. Calls on this stack that are clearly deeper than the new one have returned
 * unseen: they are removed from the top, and their number is added to `unmatched`. False: too many.
 */
static __always_inline bool bt_open(struct bt_open_calls *calls, const struct bt_open_call *call,
				    __u64 now, __u64 *unmatched)
{
	__u32 depth = calls->depth, gone = 0;

	for (__u32 i = 0; i < BT_OPEN_CALLS; i++) {
		__u32 top = depth - 1;

		opaque(top);
		if (top >= BT_OPEN_CALLS || calls->calls[top].at + (1 << BT_NEAR_BITS) > call->at ||
		    bt_distance_over(calls->calls[top].at, call->at, BT_STACK_BITS))
			break;
		depth = top;
		gone++;
	}
	if (gone)
		bt_add(*unmatched, gone);
	opaque(depth);
	if (depth >= BT_OPEN_CALLS)
		return false;
	calls->calls[depth] = *call;
	calls->touched = now;
	calls->depth = depth + 1;
	return true;
}

/*
 * Finds the open call that returns, removes it with those above it, and copies it; false: none, as
 * for most returns, since calls with objects that are not followed are not kept. object: 0: not
 * known.
 */
static __always_inline bool bt_close(struct bt_open_calls *calls, __u32 site, __u64 object,
				     __u64 at, struct bt_open_call *call, __u64 *unmatched)
{
	__u64 known = object ? ~0ULL : 0;
	__u32 depth = calls->depth;

	opaque(known);
	for (__u32 i = 1; i <= BT_OPEN_CALLS; i++) {
		__u32 index = depth - i;
		struct bt_open_call *open;

		opaque(index);
		if (index >= BT_OPEN_CALLS)
			break;
		open = &calls->calls[index];
		if ((open->site ^ site) | ((open->object ^ object) & known) |
		    bt_distance_over(open->at, at, BT_NEAR_BITS))
			continue;
		*call = *open;
		calls->depth = index;
		if (i > 1)
			bt_add(*unmatched, i - 1);
		return true;
	}
	return false;
}

#endif
