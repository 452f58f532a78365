/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Adds up requests in the kernel as they complete: by device and operation, on each CPU, with
 * histograms of their stages. No record is written; user space reads the sums every few seconds.
 *
 * The times are those of the event set light: what the kernel keeps in the request.
 */
#ifndef BIOTRAIL_MEASURE_H
#define BIOTRAIL_MEASURE_H

#include "counting.h"
#include "light_facts.h"

/* The loader sets max_entries, and puts in the keys with BT_MEASURE_OTHER. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct bt_measured_key);
	__type(value, struct bt_measured_io);
} bt_measured SEC(".maps");

/* A new entry, too large for a program's stack. */
struct bt_measured_io bt_new_measured = {};

/* In the order of bt_measured_io.stages; recorder/schema/measure_structs.py names them. */
enum bt_measured_stages { BT_Q2C, BT_G2D, BT_D2C, BT_PRE_FLUSH };
_Static_assert(BT_PRE_FLUSH + 1 == BT_MEASURE_STAGES, "stages");

/*
 * Returns this CPU's sums of a device and operation. Where the map is full, those of all devices
 * without sums of their own; NULL only for the verifier.
 */
static __always_inline struct bt_measured_io *bt_measured_of(__u32 dev, __u32 op)
{
	struct bt_measured_key key = { .dev = dev, .op = op };
	struct bt_measured_io *sums = bpf_map_lookup_elem(&bt_measured, &key);

	if (sums)
		return sums;
	bpf_map_update_elem(&bt_measured, &key, &bt_new_measured, BPF_NOEXIST);
	sums = bpf_map_lookup_elem(&bt_measured, &key);
	if (sums)
		return sums;
	key.dev = BT_MEASURE_OTHER;
	sums = bpf_map_lookup_elem(&bt_measured, &key);
	if (sums)
		return sums;
	key.op = BT_MEASURE_OTHER;
	return bpf_map_lookup_elem(&bt_measured, &key);
}

/*
 * Returns the bucket of a time. Buckets end at powers of the square root of 2, in seconds, as those
 * of Prometheus' native histograms do: each octave of ns has two of these bounds.
 */
static __always_inline __u32 bt_measure_bucket(__u64 ns)
{
	__u32 octave, down;

	if (!(ns >> BT_MEASURE_OCTAVE))
		return 0;
	octave = bt_log2(ns);
	if (octave >= BT_MEASURE_OCTAVE + BT_MEASURE_BUCKETS / 2)
		return BT_MEASURE_BUCKETS - 1;
	down = BT_MEASURE_SCALE - octave;
	return (octave - BT_MEASURE_OCTAVE) * 2 + (ns > BT_MEASURE_HALF >> down) +
	       (ns > BT_MEASURE_WHOLE >> down);
}

/*
 * Kernels that have this type (6.10) run a raw tracepoint's program once at a time on each CPU, and
 * count what they leave out: no other run adds to this CPU's sums meanwhile.
 */
struct bpf_raw_tp_link___once {};

/* Adds to one of this CPU's sums; on kernels where a run may interrupt another one, atomically. */
#define bt_sum(counter, number)                                          \
	do {                                                             \
		if (bpf_core_type_exists(struct bpf_raw_tp_link___once)) \
			(counter) += (number);                           \
		else                                                     \
			bt_add(counter, number);                         \
	} while (0)

static __always_inline void bt_measure_stage(struct bt_measured_stage *stage, __u64 ns)
{
	__u32 bucket = bt_measure_bucket(ns);

	opaque(bucket);
	if (bucket >= BT_MEASURE_BUCKETS)
		return;
	bt_sum(stage->buckets[bucket], 1);
	bt_sum(stage->sum, ns);
}

/*
 * Adds the stages before and after the issue, at the completion of a request's last bytes. The
 * issue's time may come from a plug's clock, which stands still since before the request's start.
 */
static __always_inline void bt_measure_issued(struct bt_measured_io *sums,
					      const struct bt_light_facts *facts, __u32 bytes,
					      __u64 now)
{
	__u64 issue = facts->issue;

	if (!issue)
		return;
	if (facts->start && issue < facts->start)
		issue = facts->start;
	bt_measure_stage(&sums->stages[BT_D2C], bt_light_since(now, issue));
	if (!facts->start)
		return;
	if (bytes && facts->opf & config.preflush)
		bt_measure_stage(&sums->stages[BT_PRE_FLUSH], issue - facts->start);
	else
		bt_measure_stage(&sums->stages[BT_G2D], issue - facts->start);
}

/* C: `bytes` of the request are complete. status: blk_status_t, or an errno before 5.16. */
static __always_inline int on_measure(struct request *rq, __s32 status, __u32 bytes)
{
	struct bt_light_facts facts;
	struct bt_measured_io *sums;
	__u64 now;
	__u32 op;

	if (!rq || bt_is_again(status))
		return 0;
	bt_light_gather(&facts, rq, bytes);
	op = facts.opf & BT_OP_MASK;
	/* Requests without bios are the flush machinery's and commands, no I/O of reports. */
	if (!facts.bio || (op <= BT_MAX_OP && (config.own_ops >> op & 1)) ||
	    !bt_wanted_disk(facts.dev))
		return 0;
	sums = bt_measured_of(facts.dev, bt_light_op(&facts, bytes));
	if (!sums)
		return 0;
	now = bpf_ktime_get_ns() & BT_TIMESTAMP_MASK;
	bt_sum(sums->bytes, bytes);
	/* The end of a flush sequence has no bytes left; its data was complete before. */
	if (bytes >= rq->__data_len && (bytes || !facts.bio->bi_iter.bi_idx))
		bt_measure_issued(sums, &facts, bytes, now);
	if (facts.goes_on)
		return 0;
	bt_sum(sums->ios, 1);
	if (status)
		bt_sum(sums->failed, 1);
	if (facts.start)
		bt_measure_stage(&sums->stages[BT_Q2C], bt_light_since(now, facts.start));
	return 0;
}

#endif
