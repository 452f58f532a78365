/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The system call that the running thread is inside of, by the registers that it had when it
 * entered the kernel (bpf_task_pt_regs(), since 5.15).
 */
#ifndef BIOTRAIL_REGISTERS_H
#define BIOTRAIL_REGISTERS_H

#include "path.h"

enum bpf_func_id___regs { BPF_FUNC_task_pt_regs___regs = 175 };

#define BT_PF_KTHREAD 0x00200000 /* PF_KTHREAD, include/linux/sched.h */
#define BT_PF_IO_WORKER 0x00000010 /* PF_IO_WORKER: registers of io_uring's workers say nothing */
#define BT_TS_COMPAT 0x0002 /* TS_COMPAT, arch/x86/include/asm/thread_info.h */

/* A call as its thread's registers have it. */
struct bt_regs {
	__u64 args[BT_CALL_ARGS];
	__s32 number;
	__u32 foreign;
};

/* regs: typed to the verifier, so that direct loads are allowed. */
static __always_inline void bt_read_regs(struct bt_regs *to, const void *regs)
{
	const struct pt_regs___x86 *x86 = regs;
	const struct pt_regs___arm64 *arm64 = regs;

	if (bpf_core_field_exists(x86->orig_ax)) {
		to->number = x86->orig_ax;
		to->args[0] = x86->di;
		to->args[1] = x86->si;
		to->args[2] = x86->dx;
		to->args[3] = x86->r10;
	} else if (bpf_core_field_exists(arm64->syscallno)) {
		to->number = arm64->syscallno;
		to->args[0] = arm64->orig_x0;
		to->args[1] = arm64->regs[1];
		to->args[2] = arm64->regs[2];
		to->args[3] = arm64->regs[3];
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

/* Whether the bit of a call's number is set. 5.10 learns no bound from a 32-bit comparison. */
static __always_inline bool bt_names(const volatile __u64 *bits, __u64 number)
{
	__u64 word = number >> 6;

	if (number >= BT_CALL_NUMBERS)
		return false;
	asm volatile("" : "+r"(word));
	return bits[word & (BT_CALL_WORDS - 1)] >> (number & 63) & 1;
}

#endif
