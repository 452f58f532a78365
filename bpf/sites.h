/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What programs at chosen sites have in common: their cookie, values of an event, conditions, the
 * filters by the running task, and the ring that they write to.
 *
 * A site's program is a copy of a template, loaded for it with another cookie. What it does is in
 * .rodata: the verifier knows the cookie and these constants, and removes the rest of the code.
 */
#ifndef BIOTRAIL_SITES_H
#define BIOTRAIL_SITES_H

#include "config.h"
#include "counting.h"
#include "records.h"
#include "tasks.h"

#define BT_ARGUMENTS 12 /* of a tracepoint: MAX_BPF_FUNC_ARGS */

const volatile struct bt_site_config sites SEC(".rodata.sites") = {};

/*
 * One ring for all CPUs, since programs at functions can be preempted while they write. All its
 * entries have one size, so that the reader finds them without a walk (probes/sites/base.py).
 */
struct bt_site_entry {
	__u32 cpu;
	__u32 zero;
	__u64 record[8];
};
_Static_assert(sizeof(struct bt_site_entry) == 72, "entry");
_Static_assert(sizeof(struct bt_pair) == 64 && sizeof(struct bt_hit) == 64, "record");

/* The loader sets max_entries: bytes, a power of two and a multiple of the page size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} bt_site_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_site_counts);
} bt_site_counts SEC(".maps");

/* Returns the cookie of this copy of the program, which the loader writes into the instruction. */
static __always_inline __u64 bt_cookie(void)
{
	__u64 cookie;

	_Static_assert(BT_COOKIE == 0x5566778811223344, "cookie");
	asm volatile("%0 = 0x5566778811223344 ll" : "=r"(cookie));
	return cookie;
}

static __always_inline struct bt_site_counts *bt_counts_of_sites(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&bt_site_counts, &zero);
}

/*
 * Returns space for a record of 64 bytes with kind and time stamp, to be passed to bt_site_submit;
 * NULL: the ring is full, counted. now: ns of CLOCK_MONOTONIC.
 */
static __always_inline void *bt_site_reserve(enum bt_kind kind, __u64 now)
{
	struct bt_site_entry *entry = bpf_ringbuf_reserve(&bt_site_ring, sizeof(*entry), 0);
	struct bt_site_counts *counts;

	if (!entry) {
		counts = bt_counts_of_sites();
		if (counts)
			bt_count(counts->lost[kind]);
		return NULL;
	}
	entry->cpu = bpf_get_smp_processor_id();
	entry->zero = 0;
	entry->record[0] = (now & BT_TIMESTAMP_MASK) | (__u64)kind << BT_TIMESTAMP_BITS;
	return entry->record;
}

/* Publishes a record; the reader polls and is not woken. */
static __always_inline void bt_site_submit(void *record)
{
	bpf_ringbuf_submit(record - __builtin_offsetof(struct bt_site_entry, record),
			   BPF_RB_NO_WAKEUP);
}

/* A load at a fixed offset, as the verifier refuses one from a changed context. */
#define BT_LOAD_ARGUMENT(n)                                                                        \
	case n:                                                                                    \
		asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(value) : "r"(ctx), "i"(8 * n));       \
		break;

/* Returns an argument of a typed tracepoint, of which the verifier leaves one load. */
static __always_inline __u64 bt_argument(const __u64 *ctx, __u32 index)
{
	__u64 value = 0;

	switch (index) {
		BT_LOAD_ARGUMENT(0)
		BT_LOAD_ARGUMENT(1)
		BT_LOAD_ARGUMENT(2)
		BT_LOAD_ARGUMENT(3)
		BT_LOAD_ARGUMENT(4)
		BT_LOAD_ARGUMENT(5)
		BT_LOAD_ARGUMENT(6)
		BT_LOAD_ARGUMENT(7)
		BT_LOAD_ARGUMENT(8)
		BT_LOAD_ARGUMENT(9)
		BT_LOAD_ARGUMENT(10)
		BT_LOAD_ARGUMENT(11)
	}
	return value;
}

/*
 * Returns a pointer as a number. The verifier refuses to add to an argument that may be NULL, as
 * those of modules' tracepoints are to it, but knows nothing of what a helper reads.
 */
static __always_inline __u64 bt_as_number(__u64 pointer)
{
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

/* Follows the steps of a value after the first from a pointer; false: a read faulted. */
static __always_inline bool bt_follow_steps(const volatile struct bt_value *from, __u64 *value)
{
	__u64 address;

#pragma unroll
	for (__u32 i = 1; i < BT_VALUE_STEPS; i++) {
		if (i >= from->steps)
			break;
		address = *value + from->at[i];
		*value = 0;
		if (i + 1 < from->steps) {
			if (bpf_probe_read_kernel(value, 8, (void *)address))
				return false;
		} else if (from->size == 4) {
			if (bpf_probe_read_kernel(value, 4, (void *)address))
				return false;
		} else if (from->size == 2) {
			if (bpf_probe_read_kernel(value, 2, (void *)address))
				return false;
		} else if (from->size == 1) {
			if (bpf_probe_read_kernel(value, 1, (void *)address))
				return false;
		} else if (bpf_probe_read_kernel(value, 8, (void *)address)) {
			return false;
		}
	}
	return true;
}

/* Reads a field of a tracepoint's record; false: the read faulted. */
static __always_inline bool bt_read_field(const void *ctx, const volatile struct bt_value *from,
					  __u64 *value)
{
	/* The helper takes an address with any offset, as a load from the context does not. */
	const void *at = ctx + from->at[0];

	*value = 0;
	if (from->steps > 1 || from->size == 8)
		return !bpf_probe_read_kernel(value, 8, at);
	if (from->size == 4)
		return !bpf_probe_read_kernel(value, 4, at);
	if (from->size == 2)
		return !bpf_probe_read_kernel(value, 2, at);
	return !bpf_probe_read_kernel(value, 1, at);
}

/* Cuts a value to its size and bit field, and extends its sign. */
static __always_inline __u64 bt_cut(const volatile struct bt_value *from, __u64 value)
{
	__u32 bits = from->bits ? from->bits : from->size * 8;

	if (from->bits)
		value >>= from->shift & 63;
	if (!bits || bits >= 64)
		return value;
	value <<= (64 - bits) & 63;
	return from->is_signed ? (__u64)((__s64)value >> ((64 - bits) & 63)) :
				 value >> ((64 - bits) & 63);
}

/*
 * Takes a value from an event; false: a read faulted. ctx: the program's; object: the followed
 * object's address, 0 without one. Callers pass arguments of functions in `arguments` if these are
 * not where a typed tracepoint has them; NULL: they are.
 */
static __always_inline bool bt_value_of(const void *ctx, const __u64 *arguments, __u64 object,
					const volatile struct bt_value *from, __u64 *value)
{
	*value = 0;
	switch (from->source) {
	case BT_FROM_FIELD:
		if (!bt_read_field(ctx, from, value))
			return false;
		break;
	case BT_FROM_ARGUMENT:
		if (!arguments)
			*value = bt_argument(ctx, from->at[0]);
		else if (from->at[0] < BT_ARGUMENTS)
			*value = arguments[from->at[0]];
		if (from->steps > 1)
			*value = bt_as_number(*value);
		break;
	case BT_FROM_OBJECT:
		*value = object;
		break;
	case BT_FROM_TID:
		*value = (__u32)bpf_get_current_pid_tgid();
		return true;
	case BT_FROM_PID:
		*value = bpf_get_current_pid_tgid() >> 32;
		return true;
	case BT_FROM_CPU:
		*value = bpf_get_smp_processor_id();
		return true;
	default:
		return true;
	}
	if (!bt_follow_steps(from, value))
		return false;
	*value = bt_cut(from, *value);
	return true;
}

/* Whether a condition holds for a value of its event. */
static __always_inline bool bt_holds(const volatile struct bt_condition *condition, __u64 value)
{
	__u64 operand = condition->operand;
	bool less;

	switch (condition->operator) {
	case BT_IS_EQ:
		return value == operand;
	case BT_IS_NE:
		return value != operand;
	case BT_IS_AND:
		return value & operand;
	}
	less = condition->value.is_signed ? (__s64)value < (__s64)operand : value < operand;
	switch (condition->operator) {
	case BT_IS_LT:
		return less;
	case BT_IS_LE:
		return less || value == operand;
	case BT_IS_GT:
		return !less && value != operand;
	}
	return !less;
}

static __always_inline bool bt_dev_listed(__u32 dev)
{
	for (__u32 i = 0; i < BT_MAX_DEVS && i < sites.nr_devs; i++) {
		if (sites.devs[i] == dev)
			return true;
	}
	return false;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cgroup___self {
	struct cgroup_subsys_state self;
};

#pragma clang attribute pop

/* Returns the address of the css of the running thread's cgroup; 0: not known. */
static __always_inline __u64 bt_css_of_sites(void)
{
	struct cgroup___self *group = NULL;
	struct css_set *set = NULL;
	__u64 address;

	if (!sites.unified)
		return bt_css_of_task();
	if (!bpf_core_field_exists(set->dfl_cgrp) || !bpf_core_field_exists(group->self))
		return 0;
	address = bt_read_u64(bt_css_set() + bpf_core_field_offset(set->dfl_cgrp));
	return address ? address + bpf_core_field_offset(group->self) : 0;
}

/* Filters by the running task: process, thread, name and cgroup. */
static __always_inline bool bt_task_wanted(void)
{
	struct bt_task_slot now;

	if (config.by_pid || config.by_tid || config.nr_comms) {
		bt_current(&now);
		if (config.by_pid && !bt_id_wanted(BT_ID_PID | now.tgid))
			return false;
		if (config.by_tid && !bt_id_wanted(BT_ID_TID | now.tid))
			return false;
		if (config.nr_comms && !bt_comm_wanted(&now))
			return false;
	}
	return !config.by_cgroup || bt_css_wanted(bt_css_of_sites());
}

#endif
