/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When a thread that is inside a timed call leaves its CPU, is woken, and runs again: a WAIT
 * record for each wait in state D and each wait of a call that has queued a bio; the slot adds up
 * all of them.
 */
#ifndef BIOTRAIL_WAITS_H
#define BIOTRAIL_WAITS_H

#include "calls.h"
#include "wait_stacks.h"

#define BT_UNINTERRUPTIBLE 2 /* TASK_UNINTERRUPTIBLE, include/linux/sched.h */
#define BT_DEAD 0x80 /* TASK_DEAD: the thread has ended */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The thread's state: `__state` since 5.14. */
struct task_struct___state {
	__u32 __state;
};

struct task_struct___old_state {
	long state;
};

#pragma clang attribute pop

/* The state of a thread that leaves its CPU, for kernels whose sched_switch does not tell it. */
static __always_inline __u32 bt_state_of(struct task_struct *task)
{
	struct task_struct___state *now = (void *)task;
	struct task_struct___old_state *old = (void *)task;

	if (bpf_core_field_exists(now->__state))
		return now->__state;
	if (bpf_core_field_exists(old->state))
		return old->state;
	return 0;
}

/* Whether a wait in this state is recorded by itself. */
static __always_inline bool bt_wait_counts(const struct bt_call_slot *slot, __u32 state)
{
	return state & BT_UNINTERRUPTIBLE || (state && slot->bios);
}

/* ctx: the program's; `task` runs until now. */
static __always_inline void bt_leave_cpu(void *ctx, struct task_struct *task, bool preempt,
					 __u32 state)
{
	__u32 tid = task->pid;
	struct bt_call_slot *slot = bt_call_slot(tid);

	if (!bt_is_inside(slot, tid))
		return;
	if (!preempt && state & BT_DEAD) {
		bt_call_ends(NULL, 0, tid);
		return;
	}
	slot->out = bt_now();
	slot->waking = 0;
	slot->state = preempt ? 0 : state;
	if (path.fs && bt_wait_counts(slot, slot->state))
		slot->stack = bt_wait_stack_id(ctx, slot->out);
}

static __always_inline void bt_write_wait(struct bt_call_slot *slot, __u32 tid, __u64 blocked,
					  __u64 runnable)
{
	struct bt_writer w;
	struct bt_wait *r;

	if (!bt_begin(&w, BT_WAIT))
		return;
	r = bt_reserve(&w, BT_WAIT, sizeof(*r));
	if (r) {
		r->entry = slot->entry;
		r->blocked = blocked;
		r->runnable = runnable;
		r->tid = tid;
		r->state = slot->state;
		r->waker = slot->waker;
		r->context = slot->context;
		bt_reason(&w, tid, slot->stack);
	}
	bt_end(&w);
}

static __always_inline void bt_enter_cpu(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct bt_call_slot *slot = bt_call_slot(tid);
	__u64 now, woken, blocked, runnable;

	if (!bt_is_inside(slot, tid) || !slot->out)
		return;
	now = bt_now();
	/* A thread that was preempted was ready to run all the time. */
	woken = slot->state ? slot->waking : slot->out;
	if (woken < slot->out)
		woken = now; /* its wake-up was not seen */
	blocked = woken - slot->out;
	runnable = now - woken;
	slot->out = 0;
	slot->blocked += blocked;
	slot->runnable += runnable;
	if (!slot->state)
		return;
	slot->waits++;
	if (slot->state & BT_UNINTERRUPTIBLE)
		slot->uninterruptible++;
	if (!bt_wait_counts(slot, slot->state))
		return;
	if (bt_is_of_others(slot))
		bt_left_event(BT_WAIT);
	else
		bt_write_wait(slot, tid, blocked, runnable);
}

static __always_inline int on_switch(void *ctx, bool preempt, struct task_struct *prev,
				     struct task_struct *next, __u32 state)
{
	bt_runs()->wait++;
	bt_leave_cpu(ctx, prev, preempt, state);
	bt_enter_cpu(next);
	return 0;
}

/* Writes the TASK record of the running thread, which wakes another one, if it is not cached. */
static __always_inline void bt_name_waker(void)
{
	struct bt_writer w;

	if (!bt_begin(&w, BT_TASK))
		return;
	bt_task(&w);
	bt_end(&w);
}

static __always_inline int on_waking(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct bt_call_slot *slot = bt_call_slot(tid);

	bt_runs()->wait++;
	if (!bt_is_inside(slot, tid) || !slot->out || slot->waking)
		return 0;
	slot->waker = bpf_get_current_pid_tgid();
	slot->context = bt_here();
	slot->waking = bt_now();
	/* Whoever does no I/O itself, such as a worker that ends write-back, has no name but for this. */
	if (slot->waker && bt_wait_counts(slot, slot->state) && !bt_is_of_others(slot))
		bt_name_waker();
	return 0;
}

#endif
