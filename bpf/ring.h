/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rings: one element of a mapped array per possible CPU.
 *
 *   element: | header page | ring of level 0 (ring_bytes) | level 1 | level 2 (upper_bytes) |
 *
 * Tracepoints run with preemption off, so what interrupts a program here is a softirq or a
 * hardirq, and each ends before what it interrupted goes on. The nesting depth chooses the
 * ring: every ring has one producer at a time, and plain stores suffice. The head is published
 * last: all below it is committed. User space copies [tail, head) and moves the tail.
 *
 * A record never crosses a block of 4096 bytes; a PAD record leaves what is left of the block.
 */
#ifndef BIOTRAIL_RING_H
#define BIOTRAIL_RING_H

#include "config.h"
#include "records.h"

#define BT_LEVELS 3
#define BT_KINDS 64
#define BT_HEADER_BYTES 4096
#define BT_REASONS 16 /* enum bt_reason, filters.h */

/* recorder/probes/ring.py knows these offsets. */
struct bt_area {
	__u64 depth;
	__u64 head[BT_LEVELS];
	__u64 pad[4];
	__u64 lost[BT_LEVELS][BT_KINDS]; /* the ring was full */
	__u64 too_deep[BT_KINDS]; /* more than BT_LEVELS programs nested */
	struct {
		__u64 position;
		__u64 pad[7]; /* written by user space: a cache line of its own */
	} tail[BT_LEVELS];
	__u64 left_out[BT_REASONS]; /* bios by the filter that did not want them */
	__u64 left_events[BT_KINDS]; /* events by kind */
	__u64 scratch[BT_LEVELS]; /* values that the verifier shall not follow */
};
_Static_assert(__builtin_offsetof(struct bt_area, lost) == 64, "lost");
_Static_assert(__builtin_offsetof(struct bt_area, too_deep) == 1600, "too_deep");
_Static_assert(__builtin_offsetof(struct bt_area, tail) == 2112, "tail");
_Static_assert(__builtin_offsetof(struct bt_area, left_out) == 2304, "left_out");
_Static_assert(__builtin_offsetof(struct bt_area, left_events) == 2432, "left_events");
_Static_assert(sizeof(struct bt_area) <= BT_HEADER_BYTES, "header page");

/* Both sizes are set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, BT_HEADER_BYTES);
} bt_rings SEC(".maps");

/* One program's hold on its ring, between bt_begin and bt_end. */
struct bt_writer {
	struct bt_area *area;
	__u64 level;
	__u64 now; /* ns, masked to the record's time stamp */
	__u64 head; /* where the next record goes; not yet published */
	__u64 tail;
	__u64 base; /* of the ring in the element */
	__u64 size; /* of the ring */
	__u32 tgid; /* of the running task, once bt_task was asked */
};

/* Takes this CPU's ring of the present nesting level; false: counted as too deep. */
static __always_inline bool bt_begin(struct bt_writer *w, enum bt_kind kind)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct bt_area *area = bpf_map_lookup_elem(&bt_rings, &cpu);
	__u64 level;

	if (!area)
		return false;
	level = *(volatile __u64 *)&area->depth;
	if (level >= BT_LEVELS) {
		area->too_deep[kind]++;
		return false;
	}
	*(volatile __u64 *)&area->depth = level + 1;
	barrier();
	w->area = area;
	w->level = level;
	w->base = BT_HEADER_BYTES;
	w->size = config.ring_bytes;
	if (level) {
		w->base += config.ring_bytes + (level - 1) * config.upper_bytes;
		w->size = config.upper_bytes;
	}
	w->head = area->head[level];
	w->tail = *(volatile __u64 *)&area->tail[level].position;
	w->now = bpf_ktime_get_ns() & BT_TIMESTAMP_MASK;
	return true;
}

/* Publishes what was written and gives the ring back. */
static __always_inline void bt_end(struct bt_writer *w)
{
	barrier();
	*(volatile __u64 *)&w->area->head[w->level] = w->head;
	barrier();
	*(volatile __u64 *)&w->area->depth = w->level;
}

static __always_inline void *bt_at(struct bt_writer *w, __u64 position, __u64 size)
{
	__u64 offset = w->base + (position & (w->size - 1));

	opaque(offset);
	if (offset > config.area_bytes - size)
		return NULL;
	return (void *)w->area + offset;
}

/* Room for one record with its head filled in; NULL: the ring is full, counted. */
static __always_inline void *bt_reserve(struct bt_writer *w, enum bt_kind kind, __u64 size)
{
	__u64 left = BT_BLOCK_BYTES - (w->head & (BT_BLOCK_BYTES - 1));
	__u64 at = w->head;
	__u64 *record;

	if (left < size)
		at += left;
	if (at + size - w->tail > w->size)
		goto full;
	if (left < size) {
		record = bt_at(w, w->head, sizeof(struct bt_pad));
		if (!record)
			goto full;
		*record = w->now | (__u64)BT_PAD << BT_TIMESTAMP_BITS;
	}
	record = bt_at(w, at, size);
	if (!record)
		goto full;
	*record = w->now | (__u64)kind << BT_TIMESTAMP_BITS;
	w->head = at + size;
	return record;
full:
	w->area->lost[w->level][kind]++;
	return NULL;
}

#endif
