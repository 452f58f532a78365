/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The whole path of an I/O beside the block layer: which parts are recorded, and the slot of each
 * thread that is inside a system call.
 *
 * A part that is not recorded is constant zero when the verifier runs, which removes its code.
 */
#ifndef BIOTRAIL_PATH_H
#define BIOTRAIL_PATH_H

#include "dictionary.h"
#include "shared.h"

#define BT_CALL_SLOT_BITS 16 /* the loader sets 2^16 entries if calls are timed or waits recorded */
#define BT_CALL_NUMBERS (BT_CALL_WORDS * 64) /* that bt_path.idles and .reaps can name */
#define BT_CALL_ARGS 4
#define BT_PAGE_FAULT (-1) /* number of a call: the thread entered the kernel by a fault */
#define BT_NO_CALL (-2) /* a kernel thread, or one of io_uring's */
#define BT_CALL_UNKNOWN (-3) /* a program's thread, on a kernel that tells no registers */

/* recorder/probes/maps/path_maps.py fills it. */
const volatile struct bt_path path SEC(".rodata.path") = {};

/*
 * Incremented by user space when calls cease to be timed: slots of before are then void, as their
 * calls ended unseen. Even: calls are not timed.
 */
volatile __u64 bt_timing SEC(".data.timing") = 1;

/* recorder/probes/maps/path_maps.py reads it, to know what the programs cost. */
struct bt_entered bt_entered[BT_PATH_CPUS] SEC(".data.entered") = {};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Registers at entry of the kernel: x86-64, arm64. */
struct pt_regs___x86 {
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
};

struct pt_regs___arm64 {
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
};

struct thread_info___x86 {
	__u32 status;
};

struct thread_info___arm64 {
	unsigned long flags;
};

struct task_struct___path {
	__u32 flags;
};

/* Two views of the member thread_info: a system call of a 32-bit program has other numbers. */
struct task_struct___x86 {
	struct thread_info___x86 thread_info;
};

#pragma clang attribute pop

/*
 * A thread's timed call, and its wait. Found by the thread's id; each of the two is tagged with it,
 * as they may be of two threads.
 */
struct bt_call_slot {
	__u64 entry; /* ns of CLOCK_MONOTONIC, masked */
	__u64 timing; /* bt_timing at entry; another value: the call is void */
	__u64 out; /* when the thread `waiter` left its CPU */
	__u64 waking; /* when it was woken since; 0: not yet */
	__u64 blocked; /* ns off the CPU until woken, all waits of the call */
	__u64 runnable; /* ns from there until it ran again */
	__u64 offset; /* argument 3 of a wait's call that is not timed */
	__u64 inode; /* of what such a call has open */
	__u32 dev;
	__u32 generation;
	__u32 fd; /* argument 0 of such a call */
	__u32 length; /* argument 2 */
	__s32 wait_number; /* its number, or BT_PAGE_FAULT and its like */
	__u16 wait_foreign;
	__s16 open; /* enum bt_open of what it has open; 0: not known */
	__u32 tid; /* thread inside a timed call; 0: none */
	__s32 number; /* of that call */
	__u32 bios; /* that it queued */
	__u32 waits; /* times that it left its CPU to wait */
	__u32 io_waits; /* of these, for I/O or in state D */
	__u32 left_out; /* bios that it queued and a filter left out */
	__u32 waiter; /* thread that is off its CPU; 0: none */
	__u32 recorded; /* enum bt_recorded: whether its wait is */
	__u32 state; /* of it when it left its CPU, with BT_STATE_IO_WAIT; 0: preempted */
	__u32 waker; /* thread that ran where it was woken */
	__u32 context; /* enum bt_context of the wake-up */
	__s32 stack; /* with which it left its CPU, if path.fs; negative: an errno */
	__u64 base; /* where on the kernel stack a timed call began */
	__u64 call_written; /* when its newest CALL was written; before `entry`: that is another call's */
	__u32 turn; /* of that CALL; 0: there was none */
	__u32 reserved;
};

/* Why a wait is recorded: as its call has queued a bio; as it is for I/O, or in state D. */
enum bt_recorded { BT_NOT_RECORDED = 0, BT_IN_CALL = 1, BT_FOR_IO = 2 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bt_call_slot));
} bt_call_slots SEC(".maps");

/*
 * By the place of a thread's slot: 1 while its slot has a wait. A byte of a table that stays in the
 * caches saves most switches and wake-ups a look at their slot. Bytes, as bits need atomics.
 */
__u8 bt_has_wait[1 << BT_CALL_SLOT_BITS] = {};

/* Where code runs. */
enum bt_context { BT_IN_TASK = 0, BT_IN_SOFTIRQ = 1, BT_IN_HARDIRQ = 2 };

/* A CPU's interrupts; times in ns of CLOCK_MONOTONIC, masked, 0: none yet. */
struct bt_interrupts {
	__u64 hard; /* entry of the newest handler of a device's interrupt */
	__u64 raise; /* newest raise of the BLOCK softirq */
	__u64 raise_hard; /* `hard` at that raise, if it came from a handler */
	__u64 soft; /* newest entry of the BLOCK softirq */
	__u32 irq; /* number of that interrupt */
	__u32 in_hard; /* handlers that run now */
	__u32 in_soft; /* the BLOCK softirq runs now */
	__u32 reserved;
};
struct bt_interrupts bt_interrupts[BT_PATH_CPUS] = {};

static __always_inline struct bt_interrupts *bt_this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return &bt_interrupts[cpu & (BT_PATH_CPUS - 1)];
}

/* Where the running program counts that it ran. A count that an interrupt disturbs may be lost. */
static __always_inline struct bt_entered *bt_runs(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return &bt_entered[cpu & (BT_PATH_CPUS - 1)];
}

/* ns of CLOCK_MONOTONIC as records have them. */
static __always_inline __u64 bt_now(void)
{
	return bpf_ktime_get_ns() & BT_TIMESTAMP_MASK;
}

/* Where this program's event happens, as far as the interrupts' tracepoints say. */
static __always_inline __u32 bt_context_now(void)
{
	struct bt_interrupts *cpu = bt_this_cpu();

	if (!path.irq)
		return BT_IN_TASK;
	if (cpu->in_hard)
		return BT_IN_HARDIRQ;
	return cpu->in_soft ? BT_IN_SOFTIRQ : BT_IN_TASK;
}

/* The slot of a thread id; NULL only for the verifier. Another thread may be in it. */
static __always_inline struct bt_call_slot *bt_call_slot(__u32 tid)
{
	__u32 key = tid & ((1U << BT_CALL_SLOT_BITS) - 1);

	return bpf_map_lookup_elem(&bt_call_slots, &key);
}

/* Where it is noted whether a thread's slot has a wait, its own or another thread's. */
static __always_inline __u8 *bt_has_wait_of(__u32 tid)
{
	return &bt_has_wait[tid & ((1U << BT_CALL_SLOT_BITS) - 1)];
}

/* Whether the slot has a call of this thread whose entry was seen. */
static __always_inline bool bt_is_inside(struct bt_call_slot *slot, __u32 tid)
{
	return slot && tid && slot->tid == tid && slot->timing == bt_timing;
}

#endif
