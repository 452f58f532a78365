/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Triggers of a flight recorder: an I/O that took long, one that failed, many in flight.
 *
 * A trigger that is not set is constant zero when the verifier runs, which removes its code.
 * Requests in flight are in a direct-mapped table; a request that finds its slot occupied is timed
 * from its allocation, and not counted in the depth.
 */
#ifndef BIOTRAIL_TRIGGER_H
#define BIOTRAIL_TRIGGER_H

#include "block.h"
#include "ring.h"
#include "shared.h"

#define BT_INFLIGHT_SLOTS 65536
#define BT_DEPTH_SLOTS 4096
/* An entry that is older belongs to a request whose completion was not recorded: replaced. */
#define BT_STALE_NS 300000000000ULL

enum bt_trigger { BT_SLOW = 1, BT_FAILED, BT_DEPTH };

/* recorder/probes/core.py fills it. */
const volatile struct bt_triggers triggers SEC(".rodata.trigger") = {};

/* Incremented by user space when it has read bt_fired: then the next trigger of each CPU fires. */
volatile __u64 bt_armed SEC(".data.armed") = 1;

/* recorder/probes/core.py reads it. */
struct bt_fired bt_fired[BT_FIRED_SLOTS] SEC(".data.fired") = {};

struct bt_inflight {
	__u64 key; /* address of the request or bio; 0: free */
	__u64 since; /* ns, masked: issue of the request, Q of the bio */
	__u64 dev;
};

/* Direct-mapped tables. The loader sets more than one entry if a trigger needs the table. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bt_inflight));
} bt_requests SEC(".maps"), bt_bios SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} bt_depths SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct request___start {
	__u64 start_time_ns;
};

struct request_queue___ops {
	const void *mq_ops;
};

struct gendisk___queue {
	struct request_queue___ops *queue;
};

#pragma clang attribute pop

/* Whether the bio's device has requests (blk-mq), which are timed in place of bios. */
static __always_inline bool bt_is_blk_mq(struct bio *bio)
{
	struct gendisk___queue *disk;

	if (!bpf_core_field_exists(bio->bi_bdev) || !bio->bi_bdev)
		return false;
	disk = (void *)bio->bi_bdev->bd_disk;
	return disk->queue->mq_ops != NULL;
}

/* Returns a pointer as a scalar, by a copy: the verifier permits no arithmetic on a pointer. */
static __always_inline __u64 bt_number(void *pointer)
{
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

static __always_inline __u32 bt_inflight_slot(__u64 address)
{
	return (address >> 4) * 0x9e3779b97f4a7c15ULL >> 48;
}

/* Records that a trigger fired, unless one has fired on this CPU since bt_armed changed. */
static __always_inline void bt_fire(enum bt_trigger trigger, __u64 now, __u32 dev, __u32 op,
				    __u64 sector, __u64 value)
{
	struct bt_fired *fired = &bt_fired[bpf_get_smp_processor_id() & (BT_FIRED_SLOTS - 1)];
	__u64 armed = bt_armed;

	if (fired->armed == armed)
		return;
	fired->now = now;
	fired->sector = sector;
	fired->value = value;
	fired->dev = dev;
	fired->op = op;
	fired->trigger = trigger;
	barrier();
	*(volatile __u64 *)&fired->armed = armed;
	if (bt_asleep)
		bt_wake();
}

/*
 * Adds `change` to a device's requests in flight and returns their number. Devices that share a
 * slot are counted together.
 */
static __always_inline __s64 bt_depth(__u32 dev, __s64 change)
{
	__u32 slot = (dev ^ (dev >> 20) * 97) & (BT_DEPTH_SLOTS - 1);
	__s64 *depth = bpf_map_lookup_elem(&bt_depths, &slot);

	if (!depth)
		return 0;
	__sync_fetch_and_add(depth, change);
	return *(volatile __s64 *)depth;
}

/* D: puts the request into the table, and fires BT_DEPTH. */
static __always_inline void bt_trigger_issue(struct request *rq, __u64 now, __u32 dev)
{
	struct bt_inflight *entry;
	__u64 key;
	__u32 slot;
	__s64 depth;

	if (!triggers.slow_ns && !triggers.depth)
		return;
	key = bt_number(rq);
	slot = bt_inflight_slot(key);
	entry = bpf_map_lookup_elem(&bt_requests, &slot);
	if (!entry)
		return;
	if (entry->key == key) { /* requeued and reissued, or its completion was missed */
		entry->since = now;
		return;
	}
	if (entry->key) {
		if (now - entry->since < BT_STALE_NS)
			return;
		if (triggers.depth)
			bt_depth(entry->dev, -1);
	}
	entry->key = key;
	entry->since = now;
	entry->dev = dev;
	if (!triggers.depth)
		return;
	depth = bt_depth(dev, 1);
	if (depth >= (__s64)triggers.depth)
		bt_fire(BT_DEPTH, now, dev, bt_rq_op(rq), rq->__sector, depth);
}

/*
 * Returns the request's time in ns since its issue, or since its allocation if it is not in the
 * table; 0: neither is known. Removes the entry if `bytes` complete the request.
 */
static __always_inline __u64 bt_time_since_issue(struct request *rq, __u64 now, __u32 bytes)
{
	__u64 key = bt_number(rq);
	__u32 slot = bt_inflight_slot(key);
	struct bt_inflight *entry = bpf_map_lookup_elem(&bt_requests, &slot);
	struct request___start *start = (void *)rq;
	__u64 since = now;

	if (entry && entry->key == key) {
		since = entry->since;
		if (bytes >= rq->__data_len) {
			entry->key = 0;
			if (triggers.depth)
				bt_depth(entry->dev, -1);
		}
	} else if (bpf_core_field_exists(start->start_time_ns) && start->start_time_ns) {
		since = start->start_time_ns;
	}
	return (now - since) & BT_TIMESTAMP_MASK;
}

/* C: fires BT_SLOW and BT_FAILED. The tracepoint comes before rq->__data_len is reduced. */
static __always_inline void bt_trigger_complete(struct request *rq, __u64 now, __u32 dev,
						__s32 status, __u32 bytes)
{
	__u64 took;

	if (triggers.slow_ns || triggers.depth) {
		took = bt_time_since_issue(rq, now, bytes);
		if (triggers.slow_ns && took >= triggers.slow_ns && took < 1ULL << 55)
			bt_fire(BT_SLOW, now, dev, bt_rq_op(rq), rq->__sector, took);
	}
	if (triggers.failed && bt_has_failed(status))
		bt_fire(BT_FAILED, now, dev, bt_rq_op(rq), rq->__sector, (__u64)(__s64)status);
}

/* Q: puts a bio into the table if its device has no requests, so that only the bio can be timed. */
static __always_inline void bt_trigger_queue(struct bio *bio, __u64 now)
{
	struct bt_inflight *entry;
	__u64 key;
	__u32 slot;

	if (!triggers.slow_ns || bt_is_blk_mq(bio))
		return;
	key = bt_number(bio);
	slot = bt_inflight_slot(key);
	entry = bpf_map_lookup_elem(&bt_bios, &slot);
	if (!entry)
		return;
	entry->key = key;
	entry->since = now;
}

/* c: fires BT_SLOW for a bio in the table, and BT_FAILED. */
static __always_inline void bt_trigger_bio(struct bio *bio, __u64 now, __u32 dev)
{
	__u32 op = bio->bi_opf & BT_OP_MASK;
	struct bt_inflight *entry;
	__u64 key, took;
	__u32 slot;

	if (triggers.slow_ns) {
		key = bt_number(bio);
		slot = bt_inflight_slot(key);
		entry = bpf_map_lookup_elem(&bt_bios, &slot);
		if (entry && entry->key == key) {
			entry->key = 0;
			took = (now - entry->since) & BT_TIMESTAMP_MASK;
			if (took >= triggers.slow_ns)
				bt_fire(BT_SLOW, now, dev, op, bio->bi_iter.bi_sector, took);
		}
	}
	if (triggers.failed && bt_has_failed(bio->bi_status))
		bt_fire(BT_FAILED, now, dev, op, bio->bi_iter.bi_sector, bio->bi_status);
}

#endif
