/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Preemption off while a program runs, for kernels whose tracepoints leave it on (7.0 and later). */
#ifndef BIOTRAIL_PREEMPTION_H
#define BIOTRAIL_PREEMPTION_H

#include "config.h"

/* Since 6.10; weak, so that the object opens where they are missing. */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;
/* Since 6.14. */
extern void bpf_local_irq_save(unsigned long *flags) __ksym __weak;
extern void bpf_local_irq_restore(unsigned long *flags) __ksym __weak;

/*
 * Enables preemption, but does not reschedule here. If need_resched was set while the program ran,
 * bpf_preempt_enable() alone would schedule at once, and until this task runs again the kernel
 * would skip this program for every other task on the CPU (prog->active). With interrupts off,
 * preempt_schedule() returns; the task is preempted after the program has ended.
 *
 * A function of its own: the verifier (7.2) takes a stack pointer passed to a kfunc as a read of
 * the whole stack frame, which would keep it from pruning paths through the calling program.
 */
static __attribute__((noinline)) void bt_preempt_enable(void)
{
	unsigned long flags;

	if (!config.hold_irqs) {
		bpf_preempt_enable();
		return;
	}
	bpf_local_irq_save(&flags);
	bpf_preempt_enable();
	bpf_local_irq_restore(&flags);
}

#endif
