/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Slots of the table of who dirtied folios (dirtied.h). Plain arithmetic on integers, which a test
 * (tests/unit/recorder/probes/test_compiled_headers.py) and a simulation (benchmarks/dirty_table.py)
 * compile for their own machine. A slot is a word, 0 if it is free:
 *
 *   63        39 38           15 14        0
 *   |   tag    | time in ticks |  writer   |
 *
 * A folio has one slot in each half of the table. The folios of 2 MiB of memory have their slots
 * side by side, so that who writes in order touches a cache line for eight of them.
 */
#ifndef BIOTRAIL_DIRTY_SLOTS_H
#define BIOTRAIL_DIRTY_SLOTS_H

#define BT_DIRTY_HASH 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */
#define BT_DIRTY_HASH2 0xd6e8feb86659fd93ULL
#define BT_DIRTY_TAG 39 /* where a slot's tag begins */
#define BT_DIRTY_TIME 15 /* where its time begins */
/* Ticks repeat after 4.6 hours with 1000 Hz, after 18.6 with 250: pages are written back by then. */
#define BT_DIRTY_TIMES ((1ULL << (BT_DIRTY_TAG - BT_DIRTY_TIME)) - 1)
#define BT_DIRTY_REGION 512 /* folios with slots side by side */
#define BT_PAGE_SHIFT 6 /* of struct page's size; if it is another, slots are spread, not lost */

#define bt_always_inline static inline __attribute__((always_inline))

/*
 * Returns the number of a folio's slot in the table's first or second half. shift: 64 less the bits
 * of a region's number in a half.
 */
bt_always_inline __u32 bt_dirty_place(__u64 folio, _Bool second, __u64 shift)
{
	__u64 page = folio >> BT_PAGE_SHIFT;
	__u64 hash = page / BT_DIRTY_REGION * BT_DIRTY_HASH;
	__u32 place;

	if (second)
		hash = (hash ^ hash >> 32) * BT_DIRTY_HASH2;
	place = (hash >> shift) * BT_DIRTY_REGION + (page ^ hash) % BT_DIRTY_REGION;
	return second ? place + (BT_DIRTY_REGION << (64 - shift)) : place;
}

/* Returns the tag of a folio while it is of an inode, by their addresses. */
bt_always_inline __u64 bt_dirty_tag(__u64 folio, __u64 inode)
{
	__u64 hash = (folio ^ (inode << 20 | inode >> 44)) * BT_DIRTY_HASH;

	hash = (hash ^ hash >> 32) * BT_DIRTY_HASH;
	return hash >> BT_DIRTY_TAG;
}

bt_always_inline _Bool bt_has_tag(__u64 slot, __u64 tag)
{
	return slot && slot >> BT_DIRTY_TAG == tag;
}

/* Returns how many ticks before `time` a slot was written. */
bt_always_inline __u64 bt_dirty_age(__u64 slot, __u64 time)
{
	return (time - (slot >> BT_DIRTY_TIME)) & BT_DIRTY_TIMES;
}

/*
 * Whether a folio takes its second slot: where that is its own already, so that it never has both,
 * or else the older one. The first slot is neither free nor its own.
 */
bt_always_inline _Bool bt_takes_second(__u64 first, __u64 second, __u64 tag, __u64 time)
{
	return !second || bt_has_tag(second, tag) ||
	       bt_dirty_age(second, time) > bt_dirty_age(first, time);
}

bt_always_inline __u64 bt_dirty_word(__u64 tag, __u64 time, __u64 writer)
{
	return tag << BT_DIRTY_TAG | (time & BT_DIRTY_TIMES) << BT_DIRTY_TIME | writer;
}

#endif
