/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rings: one element of a mapped array per possible CPU.
 *
 *   element: | header page | ring of level 0 (ring_bytes) | level 1 | level 2 (upper_bytes) |
 *
 * Programs run with preemption off, so only a softirq or hardirq interrupts one, and its programs
 * end before the interrupted one goes on. The nesting depth chooses the ring: every ring has one
 * producer at a time, and plain stores suffice. The head is stored last, so all records below it
 * are complete. User space copies [tail, head) and advances the tail.
 *
 * A record never crosses a block of 4096 bytes; a PAD record marks the rest of a block as empty.
 */
#ifndef BIOTRAIL_RING_H
#define BIOTRAIL_RING_H

#include "config.h"
#include "records.h"

#define BT_LEVELS 3 /* a mask of two bits holds it: bt_begin() */
#define BT_KINDS 64
#define BT_HEADER_BYTES 4096
#define BT_REASONS 16 /* enum bt_reason, reasons.h */

/* Header page of each CPU's element; recorder/probes/rings/ring.py has the same offsets. */
struct bt_area {
	__u64 depth;
	__u64 head[BT_LEVELS];
	__u64 pad[4];
	__u64 lost[BT_LEVELS][BT_KINDS]; /* records for which the ring was full */
	__u64 too_deep[BT_KINDS]; /* events with more than BT_LEVELS programs nested */
	struct {
		__u64 position;
		__u64 pad[7]; /* written by user space: a cache line of its own */
	} tail[BT_LEVELS];
	__u64 left_out[BT_REASONS]; /* bios left out by filters, by enum bt_reason */
	__u64 left_events[BT_KINDS]; /* events left out by filters, by kind */
	__u64 scratch[BT_LEVELS]; /* memory for values that the verifier shall not track */
};
_Static_assert(__builtin_offsetof(struct bt_area, lost) == 64, "lost");
_Static_assert(__builtin_offsetof(struct bt_area, too_deep) == 1600, "too_deep");
_Static_assert(__builtin_offsetof(struct bt_area, tail) == 2112, "tail");
_Static_assert(__builtin_offsetof(struct bt_area, left_out) == 2304, "left_out");
_Static_assert(__builtin_offsetof(struct bt_area, left_events) == 2432, "left_events");
_Static_assert(sizeof(struct bt_area) <= BT_HEADER_BYTES, "header page");

/* The loader sets max_entries to the number of possible CPUs, value_size to config.area_bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, BT_HEADER_BYTES);
} bt_rings SEC(".maps");

/*
 * Whether the recorder sleeps for long and is to be woken: set by it (recorder/probes/rings/waker.py),
 * cleared by the program that wakes it, so that it is woken once per sleep.
 */
volatile __u64 bt_asleep SEC(".data.asleep") = 0;

/* Wakes the recorder, which polls it; nothing is written to it. The loader sets its size: a page. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} bt_wake_ring SEC(".maps");

#define BT_MARK_SHIFT 3 /* a ring that is an eighth full wakes the recorder */

/* One program's use of its CPU's ring, between bt_begin and bt_end. */
struct bt_writer {
	struct bt_area *area;
	__u64 level;
	__u64 now; /* ns of CLOCK_MONOTONIC, masked to the records' time stamp */
	__u64 head; /* position of the next record; stored in the area by bt_end */
	__u64 tail; /* position up to which user space has copied */
	__u64 base; /* offset of the ring in the element */
	__u64 size; /* bytes of the ring */
	__u32 tgid; /* the running task's; set by bt_task */
	__u32 flags; /* its flags, likewise; BT_FLAGS_NOT_READ */
};

/*
 * Enters the next nesting level and fills `w` for its ring, but for w->now; has to be followed by
 * bt_end. false: all levels are in use, counted in too_deep.
 */
static __always_inline bool bt_enter_level(struct bt_writer *w, enum bt_kind kind)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct bt_area *area = bpf_map_lookup_elem(&bt_rings, &cpu);
	__u64 level;

	if (!area)
		return false;
	/* BT_LEVELS at most. 5.10 and 6.1 do not see a check that comes after the value was spilled. */
	level = *(volatile __u64 *)&area->depth & 3;
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
	return true;
}

/* As bt_enter_level. The clock is read within the level: a ring's records are in order of time. */
static __always_inline bool bt_begin(struct bt_writer *w, enum bt_kind kind)
{
	if (!bt_enter_level(w, kind))
		return false;
	w->now = bpf_ktime_get_ns() & BT_TIMESTAMP_MASK;
	return true;
}

/* As bt_begin, where the clock was read before, and no interrupt can have come since. */
static __always_inline bool bt_begin_at(struct bt_writer *w, enum bt_kind kind, __u64 now)
{
	if (!bt_enter_level(w, kind))
		return false;
	w->now = now;
	return true;
}

/*
 * Stores a ring's head, behind the stores of the records below it. Where the machine would reorder
 * these, the loader makes the second instruction an exchange, which is a full barrier; by the
 * first one, which does nothing, it finds the place (recorder/probes/rings/head_stores.py, whose argument
 * is in docs/architecture.md). Not compiled in: kernels before 5.12 refuse a program that has it,
 * even where it is never run.
 */
static __always_inline void bt_publish(__u64 *head, __u64 position)
{
	asm volatile("%0 = %0\n\t*(u64 *)(%0 + 0) = %1" : "+r"(head), "+r"(position) : : "memory");
}

/*
 * Wakes the recorder, which has said that it sleeps. Programs that see that at the same time wake
 * it twice. The kernel defers the wake-up itself to an interrupt, so any context may ask for it.
 */
static __noinline int bt_wake(void)
{
	__u64 *entry;

	bt_asleep = 0;
	entry = bpf_ringbuf_reserve(&bt_wake_ring, sizeof(*entry), 0);
	if (entry)
		bpf_ringbuf_discard(entry, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/*
 * Publishes the records written since bt_begin, and leaves the nesting level. Each run that leaves
 * its ring above the mark looks whether the recorder sleeps, not only the one that passes it: so
 * no barrier is needed between head and flag. A run that misses the flag is made good by the next.
 */
static __always_inline void bt_end(struct bt_writer *w)
{
	bt_publish(&w->area->head[w->level], w->head);
	barrier();
	*(volatile __u64 *)&w->area->depth = w->level;
	if (w->head - w->tail >= w->size >> BT_MARK_SHIFT && bt_asleep)
		bt_wake();
}

/* Returns the address of `size` bytes at a position of the ring; NULL only for the verifier. */
static __always_inline void *bt_at(struct bt_writer *w, __u64 position, __u64 size)
{
	__u64 offset = w->base + (position & (w->size - 1));

	opaque(offset);
	if (offset > config.area_bytes - size)
		return NULL;
	return (void *)w->area + offset;
}

/*
 * Returns space for one record of `size` bytes, with kind and time stamp filled in; the caller
 * fills in the rest before bt_end. NULL: the ring is full, counted in lost.
 */
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
