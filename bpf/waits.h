/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When a thread leaves its CPU, is woken, and runs again. A WAIT record is written for each wait
 * for I/O, of whatever thread: in state D, or counted as waiting for I/O; and for all other waits of
 * a timed call that has queued a bio. The slot of a timed call adds up all of its waits. A wait
 * outside of a timed call stands by itself: a WAIT_CALL record after it has the call of the
 * thread's registers. Of most switches and wake-ups no thread is in a timed call or waits for I/O: a
 * word of the CPU tells that of the thread that leaves it (bt_entered.inside), a byte of bt_has_wait that
 * of the thread that comes or is woken, and no slot is touched.
 */
#ifndef BIOTRAIL_WAITS_H
#define BIOTRAIL_WAITS_H

#include "calls.h"
#include "wait_stacks.h"

#define BT_UNINTERRUPTIBLE 2 /* TASK_UNINTERRUPTIBLE, include/linux/sched.h */
#define BT_DEAD 0x80 /* TASK_DEAD: the thread has ended */
#define BT_KEPT_WAITING 100000 /* ns without a CPU from which on it is said who ran instead */
#define BT_NOLOAD 0x400 /* TASK_NOLOAD: an idle worker's D, which is no wait for anybody */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The thread's state: `__state` since 5.14. */
struct task_struct___state {
	__u32 __state;
};

struct task_struct___old_state {
	long state;
};

struct task_struct___iowait {
	unsigned int in_iowait : 1;
};

#pragma clang attribute pop

/* The state of a thread that leaves its CPU, for kernels whose sched_switch does not report it. */
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

/*
 * Whether the kernel counts the wait of a thread that leaves its CPU as one for I/O: what goes to
 * sleep by io_schedule().
 */
static __always_inline bool bt_in_iowait(struct task_struct *task)
{
	struct task_struct___iowait *known = (void *)task;

	return bpf_core_field_exists(known->in_iowait) && BPF_CORE_READ_BITFIELD(known, in_iowait);
}

/*
 * Returns the state of a thread that leaves its CPU, with BT_STATE_IO_WAIT, if its wait is recorded
 * wherever it is: for I/O, or in state D; 0: it is not. Workers that idle (TASK_IDLE) and frozen
 * threads are not in D for anything.
 */
static __always_inline __u32 bt_io_state(struct task_struct *task, __u32 state)
{
	if (!state || state & BT_DEAD)
		return 0;
	if (bt_in_iowait(task))
		return state | BT_STATE_IO_WAIT;
	if (!(state & BT_UNINTERRUPTIBLE) || state & BT_NOLOAD || task->flags & path.frozen)
		return 0;
	return state;
}

/* Writes the TASK record of the running thread if it is not cached. Interrupts are off since `at`. */
static __always_inline void bt_name_running(__u64 at)
{
	struct bt_task_slot now;
	struct bt_writer w;

	bt_current(&now);
	if (bt_is_cached(bt_slot_of(now.tid), &now) || !bt_begin_at(&w, BT_TASK, at))
		return;
	bt_task(&w);
	bt_end(&w);
}

/*
 * Names the running thread before a wait: when that ends, another one runs. Outside of a timed call
 * also notes its call and file. Inside of one its RETURN has these: the number alone, should timing
 * end before the wait does. at: now.
 */
static __always_inline void bt_note_waiter(struct bt_call_slot *slot, struct task_struct *task,
					   bool inside, __u64 at)
{
	struct bt_regs now = {};
	struct bt_host host = {};
	struct bt_writer w;

	slot->open = 0;
	slot->wait_number = BT_CALL_UNKNOWN;
	if (inside)
		slot->wait_number = slot->number;
	else if (task->flags & (BT_PF_KTHREAD | BT_PF_IO_WORKER))
		slot->wait_number = BT_NO_CALL;
	else if (bt_running_call(&now))
		slot->wait_number = now.number;
	slot->wait_foreign = now.foreign;
	slot->fd = now.args[0];
	slot->length = now.args[2];
	slot->offset = now.args[3];
	bt_name_running(at);
	if (inside || !config.files || slot->wait_number < 0 || now.foreign ||
	    !bt_names(path.fds, slot->wait_number) || !bt_begin_at(&w, BT_WAIT, at))
		return;
	slot->open = bt_call_host(&w, now.args[0], 0, &host);
	slot->inode = host.inode;
	slot->dev = host.dev;
	slot->generation = host.generation;
	bt_end(&w);
}

/* Counts a wait as lost: its thread's slot was taken by another one before it ended. */
static __always_inline void bt_lose_wait(__u64 now)
{
	struct bt_writer w;

	if (!bt_begin_at(&w, BT_WAIT, now))
		return;
	w.area->lost[w.level][BT_WAIT]++;
	bt_end(&w);
}

/*
 * ctx: the program's; `task` runs until now. inside: it may be inside a timed call. at: set to the
 * time if the clock is read.
 */
static __always_inline void bt_leave_cpu(void *ctx, struct task_struct *task, bool preempt,
					 __u32 state, bool inside, __u64 *at)
{
	__u32 io = preempt ? 0 : bt_io_state(task, state);
	struct bt_call_slot *slot;
	__u32 tid = task->pid;

	if (!tid || (!inside && !io))
		return;
	slot = bt_call_slot(tid);
	inside = path.time && bt_is_inside(slot, tid);
	if (!slot || (!inside && !io))
		return;
	if (!preempt && state & BT_DEAD) {
		bt_call_ends(NULL, 0, tid);
		return;
	}
	if (!inside && !bt_call_wanted(bpf_get_current_pid_tgid()))
		return;
	*at = bt_now();
	if (slot->waiter && slot->waiter != tid && slot->recorded)
		bt_lose_wait(*at);
	slot->waiter = tid;
	slot->out = *at;
	slot->waking = 0;
	slot->state = io ? io : preempt ? 0 : state;
	slot->recorded = io ? BT_FOR_IO : slot->state && slot->bios ? BT_IN_CALL : BT_NOT_RECORDED;
	*bt_has_wait_of(tid) = 1;
	if (!slot->recorded)
		return;
	bt_note_waiter(slot, task, inside, *at);
	if (path.fs)
		bt_take_stack(ctx, slot, tid, inside, task->flags & BT_PF_KTHREAD);
}

/*
 * Writes the WAIT record of a wait that ends now, and what belongs to it. entry: of its call; 0: not
 * timed. ran: the thread that leaves this CPU to it, which is named if it kept it waiting.
 */
static __always_inline void bt_write_wait(struct bt_call_slot *slot, __u32 tid, __u64 entry,
					  __u64 now, __u64 blocked, __u64 runnable,
					  struct task_struct *ran)
{
	struct bt_wait_call *call;
	struct bt_writer w;
	struct bt_wait *r;

	if (!bt_begin_at(&w, BT_WAIT, now))
		return;
	if (ran->pid && runnable > BT_KEPT_WAITING)
		bt_task(&w);
	r = bt_reserve(&w, BT_WAIT, sizeof(*r));
	if (!r)
		goto end;
	r->entry = entry;
	r->blocked = blocked;
	r->runnable = runnable;
	r->tid = tid;
	r->state = slot->state;
	r->waker = slot->waking ? slot->waker : 0;
	r->context = slot->context;
	r->ran = ran->pid;
	r->ran_pid = ran->tgid;
	bt_reason(&w, tid, slot->stack);
	if (entry)
		goto end;
	call = bt_reserve(&w, BT_WAIT_CALL, sizeof(*call));
	if (!call)
		goto end;
	call->offset = slot->offset;
	call->fd = slot->fd;
	call->length = slot->length;
	call->tid = tid;
	call->number = slot->wait_number;
	call->foreign = slot->wait_foreign;
	__builtin_memset(call->reserved, 0, sizeof(call->reserved));
	if (config.files && slot->open > 0)
		bt_put_call_file(&w, tid, slot->inode, slot->dev, slot->generation, slot->open);
end:
	bt_end(&w);
}

/*
 * prev: the thread that runs until now. runs->inside becomes that of `task`, which was marked in bt_has_wait
 * when it left its CPU inside a timed call. now: 0: the clock is not read yet.
 */
static __always_inline void bt_enter_cpu(struct bt_entered *runs, struct task_struct *prev,
					 struct task_struct *task, __u64 now)
{
	__u64 woken, blocked, runnable;
	struct bt_call_slot *slot;
	__u32 tid = task->pid;
	__u8 *away;
	bool inside;

	runs->inside = 0;
	away = bt_has_wait_of(tid);
	if (!tid || !*away)
		return;
	slot = bt_call_slot(tid);
	inside = path.time && bt_is_inside(slot, tid);
	if (inside)
		runs->inside = tid;
	if (!slot || slot->waiter != tid)
		return;
	*away = 0;
	slot->waiter = 0;
	if (!now)
		now = bt_now();
	/* A thread that was preempted was ready to run all the time. */
	woken = slot->state ? slot->waking : slot->out;
	if (woken < slot->out)
		woken = now; /* its wake-up was not seen */
	blocked = woken - slot->out;
	runnable = now - woken;
	if (inside) {
		slot->blocked += blocked;
		slot->runnable += runnable;
		slot->waits += !!slot->state;
		slot->io_waits += slot->recorded == BT_FOR_IO;
	}
	if (!slot->recorded)
		return;
	if (inside && bt_is_of_others(slot))
		bt_left_event(BT_WAIT);
	else
		bt_write_wait(slot, tid, inside ? slot->entry : 0, now, blocked, runnable, prev);
}

/* Interrupts are off: one reading of the clock serves both threads, and their records. */
static __always_inline int on_switch(void *ctx, bool preempt, struct task_struct *prev,
				     struct task_struct *next, __u32 state)
{
	struct bt_entered *runs = bt_runs();
	__u64 now = 0;

	runs->wait++;
	bt_leave_cpu(ctx, prev, preempt, state, runs->inside == (__u32)prev->pid, &now);
	bt_enter_cpu(runs, prev, next, now);
	return 0;
}

/* Interrupts are off: the woken thread's pi_lock is held. */
static __always_inline int on_waking(struct task_struct *task)
{
	struct bt_call_slot *slot;
	__u32 tid = task->pid;
	__u64 now;

	bt_runs()->wait++;
	if (!tid || !*bt_has_wait_of(tid))
		return 0;
	slot = bt_call_slot(tid);
	if (!slot || slot->waiter != tid || slot->waking)
		return 0;
	slot->waker = bpf_get_current_pid_tgid();
	slot->context = bt_context_now();
	now = bt_now();
	/* Whoever does no I/O itself, such as a worker that ends write-back, has no name but for this. */
	if (slot->waker && slot->recorded && !(bt_is_inside(slot, tid) && bt_is_of_others(slot)))
		bt_name_running(now);
	slot->waking = now;
	return 0;
}

#endif
