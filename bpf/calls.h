/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls. A CALL record behind Q has the running call's number and arguments, from the
 * registers that the thread had when it entered the kernel (bpf_task_pt_regs(), since 5.15). If
 * calls are timed, a RETURN record is written when a call ends that queued a bio, waited in state
 * D, reaped I/O after a wait, or took longer than path.over_ns; unless it queued bios, and the
 * filters left out all of them.
 */
#ifndef BIOTRAIL_CALLS_H
#define BIOTRAIL_CALLS_H

#include "follow.h"
#include "path.h"

enum bpf_func_id___regs { BPF_FUNC_task_pt_regs___regs = 175 };

#define BT_PF_KTHREAD 0x00200000 /* PF_KTHREAD, include/linux/sched.h */
#define BT_PF_IO_WORKER 0x00000010 /* PF_IO_WORKER: registers of io_uring's workers say nothing */
#define BT_MANY 0xffff
#define BT_OFTEN 0xff
#define BT_TS_COMPAT 0x0002 /* TS_COMPAT, arch/x86/include/asm/thread_info.h */

/* A call as its thread's registers tell it. */
struct bt_regs {
	__u64 args[BT_CALL_ARGS];
	__s32 number;
	__u32 foreign;
};

static __always_inline void bt_read_regs(struct bt_regs *to, const void *regs)
{
	const struct pt_regs___x86 *x86 = regs;
	const struct pt_regs___arm64 *arm64 = regs;

	if (bpf_core_field_exists(x86->orig_ax)) {
		to->number = BPF_CORE_READ(x86, orig_ax);
		to->args[0] = BPF_CORE_READ(x86, di);
		to->args[1] = BPF_CORE_READ(x86, si);
		to->args[2] = BPF_CORE_READ(x86, dx);
		to->args[3] = BPF_CORE_READ(x86, r10);
	} else if (bpf_core_field_exists(arm64->syscallno)) {
		to->number = BPF_CORE_READ(arm64, syscallno);
		to->args[0] = BPF_CORE_READ(arm64, orig_x0);
		to->args[1] = BPF_CORE_READ(arm64, regs[1]);
		to->args[2] = BPF_CORE_READ(arm64, regs[2]);
		to->args[3] = BPF_CORE_READ(arm64, regs[3]);
	}
}

/* Whether the running thread is a 32-bit program's on x86-64, whose calls have other numbers. */
static __always_inline bool bt_is_foreign(void)
{
	struct task_struct___x86 *task = NULL;

	if (!bpf_core_field_exists(task->thread_info.status) ||
	    !bpf_core_enum_value_exists(enum bpf_func_id___task,
					BPF_FUNC_get_current_task_btf___task))
		return false;
	task = (void *)bpf_get_current_task_btf();
	return task->thread_info.status & BT_TS_COMPAT;
}

/* Fills `now` with the call that the running thread is inside of; false: it is inside of none. */
static __always_inline bool bt_running_call(struct bt_regs *now)
{
	struct task_struct___path *task;

	if (!bpf_core_enum_value_exists(enum bpf_func_id___regs, BPF_FUNC_task_pt_regs___regs))
		return false;
	task = (void *)bpf_get_current_task_btf();
	if (task->flags & (BT_PF_KTHREAD | BT_PF_IO_WORKER))
		return false;
	now->number = BT_NO_CALL;
	bt_read_regs(now, (void *)bpf_task_pt_regs((void *)task));
	if (now->number < 0)
		now->number = BT_PAGE_FAULT;
	now->foreign = bt_is_foreign();
	return true;
}

/*
 * Counts a bio that this thread queues, if calls are timed, and writes its CALL record, if calls
 * are recorded.
 */
static __always_inline void bt_call(struct bt_writer *w, struct bio *bio, __u32 tid)
{
	struct bt_call_slot *slot;
	struct bt_regs now = {};
	struct bt_call *r;
	__u64 entry = 0;

	if (path.time) {
		slot = bt_call_slot(tid);
		if (bt_is_inside(slot, tid)) {
			slot->bios++;
			entry = slot->entry;
		}
	}
	if (!path.call || !bt_running_call(&now))
		return;
	r = bt_reserve(w, BT_CALL, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->entry = entry;
	r->arg0 = now.args[0];
	r->arg1 = now.args[1];
	r->arg2 = now.args[2];
	r->arg3 = now.args[3];
	r->number = now.number;
	r->foreign = now.foreign;
	__builtin_memset(r->reserved, 0, sizeof(r->reserved));
}

/* Whether the bit of a call's number is set. 5.10 learns no bound from a 32-bit comparison. */
static __always_inline bool bt_names(const volatile __u64 *bits, __u64 number)
{
	__u64 word = number >> 6;

	if (number >= BT_CALL_NUMBERS)
		return false;
	asm volatile("" : "+r"(word));
	return bits[word & (BT_CALL_WORDS - 1)] >> (number & 63) & 1;
}

/*
 * Whether the filters by task let the running thread's calls be timed: as they judge the bios that
 * it queues, its cgroup taken for theirs. The recorder's own calls are not, unless its bios are.
 */
static __always_inline bool bt_call_wanted(__u64 ids)
{
	if (config.leave_own && bt_by_recorder(ids >> 32))
		return false;
	return bt_judge_task() == BT_ADMITTED && (!config.nr_cgroups || bt_cgroup_of_task_wanted());
}

/* The running thread queued a bio that a filter left out, if calls are timed. */
static __always_inline void bt_call_left_out(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct bt_call_slot *slot;

	if (!path.time)
		return;
	slot = bt_call_slot(tid);
	if (bt_is_inside(slot, tid))
		slot->left_out++;
}

/* Whether the call has queued bios, of which filters left out all. */
static __always_inline bool bt_is_of_others(struct bt_call_slot *slot)
{
	return slot->left_out && !slot->bios;
}

static __always_inline int on_sys_enter(__u64 number)
{
	struct bt_entered *runs = bt_runs();
	struct bt_call_slot *slot;
	__u64 ids;
	__u32 tid;

	runs->calls++;
	if (!bt_names(path.timed, number))
		return 0;
	ids = bpf_get_current_pid_tgid();
	if (!bt_call_wanted(ids))
		return 0;
	runs->timed++;
	tid = ids;
	slot = bt_call_slot(tid);
	if (!slot)
		return 0;
	slot->tid = tid;
	slot->number = number;
	slot->out = 0;
	slot->waking = 0;
	slot->blocked = 0;
	slot->runnable = 0;
	slot->bios = 0;
	slot->left_out = 0;
	slot->waits = 0;
	slot->uninterruptible = 0;
	slot->timing = bt_timing;
	slot->entry = bt_now();
	return 0;
}

/* Whether a call that took `took` ns is recorded. */
static __always_inline bool bt_call_counts(struct bt_call_slot *slot, __u64 took)
{
	if (slot->bios || slot->uninterruptible || took > path.over_ns)
		return true;
	return slot->waits && bt_names(path.reaps, slot->number);
}

static __always_inline int on_sys_exit(const void *regs, __u64 result)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct bt_call_slot *slot = bt_call_slot(tid);
	struct bt_regs now = {};
	struct bt_return *r;
	struct bt_writer w;

	if (!bt_is_inside(slot, tid))
		return 0;
	slot->tid = 0;
	if (!bt_call_counts(slot, bt_now() - slot->entry))
		return 0;
	if (bt_is_of_others(slot)) {
		bt_left_event(BT_RETURN);
		return 0;
	}
	if (!bt_begin(&w, BT_RETURN))
		return 0;
	bt_task(&w);
	r = bt_reserve(&w, BT_RETURN, sizeof(*r));
	if (r) {
		bt_read_regs(&now, regs);
		r->entry = slot->entry;
		r->blocked = slot->blocked;
		r->runnable = slot->runnable;
		r->fd = now.args[0];
		r->length = now.args[2];
		r->offset = now.args[3];
		r->result = result;
		r->tid = tid;
		r->number = slot->number;
		r->foreign = bt_is_foreign();
		r->queued = slot->bios > BT_MANY ? BT_MANY : slot->bios;
		r->waits = slot->waits > BT_OFTEN ? BT_OFTEN : slot->waits;
	}
	bt_end(&w);
	return 0;
}

#endif
