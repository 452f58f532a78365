/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When the interrupt came that completes a request: an INTERRUPT record behind each C. The
 * programs on interrupts only keep times for their CPU, and write no record.
 */
#ifndef BIOTRAIL_INTERRUPTS_H
#define BIOTRAIL_INTERRUPTS_H

#include "path.h"

#define BT_MAX_AGO 0xfffffffeU
#define BT_NEVER_AGO 0xffffffffU

static __always_inline int on_irq_entry(__u32 irq)
{
	struct bt_interrupts *cpu = bt_this_cpu();

	bt_runs()->irq++;
	cpu->hard = bt_now();
	cpu->irq = irq;
	cpu->in_hard = 1;
	return 0;
}

static __always_inline int on_irq_exit(__u32 irq)
{
	struct bt_interrupts *cpu = bt_this_cpu();

	bt_runs()->irq++;
	if (cpu->irq == irq)
		cpu->in_hard = 0;
	return 0;
}

static __always_inline int on_softirq_raise(__u32 number)
{
	struct bt_interrupts *cpu;

	bt_runs()->irq++;
	if (number != path.block_softirq)
		return 0;
	cpu = bt_this_cpu();
	cpu->raise = bt_now();
	cpu->raise_hard = cpu->in_hard ? cpu->hard : 0;
	return 0;
}

static __always_inline int on_softirq_entry(__u32 number)
{
	struct bt_interrupts *cpu;

	bt_runs()->irq++;
	if (number != path.block_softirq)
		return 0;
	cpu = bt_this_cpu();
	cpu->soft = bt_now();
	cpu->in_soft = 1;
	return 0;
}

static __always_inline int on_softirq_exit(__u32 number)
{
	bt_runs()->irq++;
	if (number == path.block_softirq)
		bt_this_cpu()->in_soft = 0;
	return 0;
}

/* ns from `time` to `now`, as a record's u32; BT_NEVER_AGO: `time` is 0. */
static __always_inline __u32 bt_ago(__u64 now, __u64 time)
{
	__u64 ago = now - time;

	if (!time)
		return BT_NEVER_AGO;
	return ago > BT_MAX_AGO ? BT_MAX_AGO : ago;
}

/* Writes the INTERRUPT record of a request that completes now, if they are recorded. */
static __always_inline void bt_interrupt(struct bt_writer *w, __u64 rq)
{
	struct bt_interrupts *cpu;
	struct bt_interrupt *r;

	if (!path.irq)
		return;
	r = bt_reserve(w, BT_INTERRUPT, sizeof(*r));
	if (!r)
		return;
	cpu = bt_this_cpu();
	r->rq = rq;
	r->context = bt_context_now();
	r->hard = BT_NEVER_AGO;
	r->raised = BT_NEVER_AGO;
	r->soft = BT_NEVER_AGO;
	r->irq = 0;
	r->reserved = 0;
	if (cpu->in_hard) {
		r->hard = bt_ago(w->now, cpu->hard);
		r->irq = cpu->irq;
	} else if (cpu->in_soft) {
		r->soft = bt_ago(w->now, cpu->soft);
		r->raised = bt_ago(w->now, cpu->raise);
		if (cpu->raise_hard) {
			r->hard = bt_ago(w->now, cpu->raise_hard);
			r->irq = cpu->irq;
		}
	}
}

#endif
