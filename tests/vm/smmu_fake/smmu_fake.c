// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * I/O page faults of known durations, by process address space (pasid): no hardware that has them is
 * at hand. A thread per pasid handles one fault after the other: pasid 1 takes 1 ms, pasid 2 5 ms.
 *
 * Writing N to /sys/module/smmu_fake/parameters/faults has each pasid fault N times, and
 * returns once all are handled.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#define CREATE_TRACE_POINTS
#include "smmu_trace.h"

#define FAULT_BYTES 4096
#define MOST_FAULTS 100000

struct space {
	u32 pasid;
	u64 nanoseconds; /* that handling a fault takes */
	struct completion done;
};

static struct space spaces[] = {
	{ .pasid = 1, .nanoseconds = 1000000 },
	{ .pasid = 2, .nanoseconds = 5000000 },
};
static unsigned int faults;

/* Spins: a sleep would be over later than asked for, by the time of a wake-up. */
static void handle(const struct space *space, u64 iova)
{
	u64 end;

	trace_io_fault_entry("smmu0", space->pasid, iova);
	end = ktime_get_ns() + space->nanoseconds;
	while (ktime_get_ns() < end)
		cpu_relax();
	trace_io_fault_exit("smmu0", space->pasid, iova);
}

static int handle_all(void *data)
{
	struct space *space = data;
	unsigned int i;

	for (i = 0; i < faults; i++) {
		handle(space, (u64)i * FAULT_BYTES);
		usleep_range(1000, 2000); /* others want the CPU, too */
	}
	complete(&space->done);
	return 0;
}

static int set_faults(const char *text, const struct kernel_param *param)
{
	unsigned int started, i;
	struct task_struct *thread;
	int error = kstrtouint(text, 0, &faults);

	if (error)
		return error;
	if (faults > MOST_FAULTS)
		return -EINVAL;
	for (started = 0; started < ARRAY_SIZE(spaces) && !error; started++) {
		init_completion(&spaces[started].done);
		thread = kthread_run(handle_all, &spaces[started], "smmu-pasid%u",
				     spaces[started].pasid);
		error = PTR_ERR_OR_ZERO(thread);
	}
	if (error)
		started--;
	for (i = 0; i < started; i++)
		wait_for_completion(&spaces[i].done);
	return error;
}

static const struct kernel_param_ops faults_ops = {
	.set = set_faults,
	.get = param_get_uint,
};
module_param_cb(faults, &faults_ops, &faults, 0600);
MODULE_PARM_DESC(faults, "faults of each pasid: they happen when this is written");

static int __init smmu_fake_init(void)
{
	return 0;
}

static void __exit smmu_fake_exit(void)
{
}

module_init(smmu_fake_init);
module_exit(smmu_fake_exit);
MODULE_DESCRIPTION("I/O page faults of known durations");
MODULE_LICENSE("Dual BSD/GPL");
