/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Followed objects: which addresses are followed, from a birth to a death, and what is kept of
 * candidates until it is known whether their lives were long.
 */
#ifndef BIOTRAIL_OBJECTS_H
#define BIOTRAIL_OBJECTS_H

#include "sites.h"

const volatile struct bt_follow follow SEC(".rodata.follow") = {};

/* Objects that are followed: slots of bt_lives by address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} bt_objects SEC(".maps");

/* Lives that go on or ended, by slot. The loader sets the number of slots (--max). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_life);
} bt_lives SEC(".maps");

/* Slots of bt_lives that are free, the longest free first. The loader fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(key_size, 0);
	__uint(value_size, sizeof(__u32));
} bt_free_lives SEC(".maps");

/* With --slower: hits of each slot, BT_KEPT_HITS after one another. Else one element. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_site_entry);
} bt_kept_hits SEC(".maps");

/*
 * Addresses of objects that were not chosen at a birth, so that a later birth of the same life does
 * not choose again; by a hash of the address, the newest of several. Used if a type has several
 * births: the loader sets max_entries to 2^BT_REFUSED_BITS then.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} bt_refused SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_follow_numbers);
} bt_follow_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_follow_counts);
} bt_follow_counts SEC(".maps");

static __always_inline struct bt_follow_counts *bt_counts_of_lives(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&bt_follow_counts, &zero);
}

/* Without an atomic addition: it is for an estimate of the programs' cost alone. */
static __always_inline void bt_count_run(void)
{
	struct bt_follow_counts *counts = bt_counts_of_lives();

	if (counts)
		counts->runs++;
}

/*
 * Adds 1 to a counter that all CPUs share, and returns its new value, which no other call returns;
 * 0: others added at the same time, again and again. Kernels before 5.12 have no atomic addition
 * that returns the value; if it grew by 1 from the first reading to the last, that was this call's.
 */
static __always_inline __u64 bt_next(volatile __u64 *counter)
{
	for (int attempt = 0; attempt < 4; attempt++) {
		__u64 before = *counter, after;

		__sync_fetch_and_add(counter, 1);
		after = *counter;
		if (after == before + 1)
			return after;
	}
	return 0;
}

static __always_inline struct bt_life *bt_life_at(__u32 slot)
{
	return bpf_map_lookup_elem(&bt_lives, &slot);
}

/* Returns the slot of a followed object, and its number in `slot`; NULL: it is not followed. */
static __always_inline struct bt_life *bt_life_of(__u64 object, __u32 *slot)
{
	__u32 *found = bpf_map_lookup_elem(&bt_objects, &object);
	struct bt_life *life;

	if (!found)
		return NULL;
	*slot = *found;
	life = bt_life_at(*slot);
	/* The element of the hash or the slot may be another object's by now. */
	return life && *(volatile __u64 *)&life->object == object ? life : NULL;
}

/* Returns the place where an object is remembered as not chosen. */
static __always_inline volatile __u64 *bt_refused_at(__u64 object)
{
	__u32 index = object * 0x9E3779B97F4A7C15ULL >> (64 - BT_REFUSED_BITS);

	return follow.remember ? bpf_map_lookup_elem(&bt_refused, &index) : NULL;
}

static __always_inline void bt_refuse(__u64 object)
{
	volatile __u64 *at = bt_refused_at(object);

	if (at)
		*at = object;
}

static __always_inline bool bt_is_refused(__u64 object)
{
	volatile __u64 *at = bt_refused_at(object);

	return at && *at == object;
}

/* Forgets that an object was not chosen, as its life ends or a new one begins. */
static __always_inline void bt_forget_refused(__u64 object)
{
	volatile __u64 *at = bt_refused_at(object);

	if (at && *at == object)
		*at = 0;
}

/* Filters by task: that of the object where it has one, as a task_struct, else the running one. */
static __always_inline bool bt_owner_wanted(void *ctx, __u64 object,
					    struct bt_follow_counts *counts)
{
	__u64 process;

	if (!config.by_pid || follow.process.source == BT_FROM_NONE)
		return bt_task_wanted();
	if (bt_value_of(ctx, NULL, object, &follow.process, &process))
		return bt_id_wanted(BT_ID_PID | (__u32)process);
	bt_count(counts->bad_reads);
	return false;
}

/* Whether an object at its birth is one to follow; what is chosen at random is chosen last. */
static __always_inline bool bt_is_chosen(void *ctx, __u64 object,
					 struct bt_follow_numbers *numbers,
					 struct bt_follow_counts *counts)
{
	__u64 dev;

	if (!numbers->open || (follow.lives && numbers->lives >= follow.lives))
		return false;
	if (bt_is_refused(object))
		return false;
	/* Not remembered: at the first birth, the object may not have its device yet. */
	if (sites.nr_devs) {
		if (!bt_value_of(ctx, NULL, object, &follow.device, &dev)) {
			bt_count(counts->bad_reads);
			return false;
		}
		if (!bt_dev_listed(dev))
			return false;
	}
	if (bt_owner_wanted(ctx, object, counts) && (follow.every <= 1 || bt_next(&numbers->seen) % follow.every == 0))
		return true;
	bt_refuse(object);
	return false;
}

static __always_inline void bt_free_life(struct bt_life *life, __u32 slot)
{
	*(volatile __u64 *)&life->object = 0;
	bpf_map_push_elem(&bt_free_lives, &slot, 0);
}

/* Follows an object from now on, if it is one to follow; returns its life, and its slot in `slot`. */
static __always_inline struct bt_life *bt_begin_life(void *ctx, __u64 object, __u32 *slot)
{
	struct bt_follow_counts *counts = bt_counts_of_lives();
	struct bt_follow_numbers *numbers;
	struct bt_life *life;
	__u32 zero = 0, taken = 0;
	__u64 number;

	numbers = bpf_map_lookup_elem(&bt_follow_numbers, &zero);
	if (!numbers || !counts || !bt_is_chosen(ctx, object, numbers, counts))
		return NULL;
	if (bpf_map_pop_elem(&bt_free_lives, &taken)) {
		bt_count(counts->full);
		bt_refuse(object);
		return NULL;
	}
	life = bt_life_at(taken);
	number = bt_next(&numbers->lives);
	if (!life || !number || (follow.lives && number > follow.lives)) {
		bpf_map_push_elem(&bt_free_lives, &taken, 0);
		return NULL;
	}
	life->life = number;
	life->born = life->touched = bpf_ktime_get_ns();
	life->hits = 0;
	life->cut = 0;
	life->last = 0;
	life->state = BT_LIFE_OPEN;
	*(volatile __u64 *)&life->object = object;
	if (bpf_map_update_elem(&bt_objects, &object, &taken, BPF_NOEXIST)) {
		bt_free_life(life, taken); /* another CPU follows it already */
		return NULL;
	}
	bt_count(counts->born);
	*slot = taken;
	return life;
}

/*
 * Forgets an object, whose life ended by `now`: its death was seen, or it is `reused` for another.
 * With --slower, a long life waits for the reader.
 */
static __always_inline void bt_end_life(struct bt_life *life, __u32 slot, __u64 now, bool reused)
{
	struct bt_follow_counts *counts = bt_counts_of_lives();
	__u64 object = life->object, end = reused ? life->touched : now;

	bpf_map_delete_elem(&bt_objects, &object);
	if (counts && reused)
		bt_count(counts->reused);
	else if (counts)
		bt_count(counts->ended);
	if (follow.slower_ns && end - life->born >= follow.slower_ns) {
		*(volatile __u64 *)&life->object = 0;
		*(volatile __u32 *)&life->state = BT_LIFE_KEPT;
		return; /* the reader frees the slot */
	}
	if (follow.slower_ns && counts)
		bt_count(counts->quick);
	life->state = BT_LIFE_DROPPED;
	bt_free_life(life, slot);
}

/* Copies a hit, but for its head, word by word: the verifier knows no other parts of pointers. */
static __always_inline void bt_copy_hit(__u64 *to, const struct bt_hit *hit)
{
	const __u64 *from = (const __u64 *)hit;

#pragma unroll
	for (__u32 i = 1; i < sizeof(*hit) / 8; i++)
		to[i] = from[i];
}

/* Keeps a hit of a candidate; the last place is for its death. */
static __always_inline void bt_keep(struct bt_life *life, __u32 slot, struct bt_hit *hit)
{
	struct bt_follow_counts *counts;
	struct bt_site_entry *entry;
	__u64 place = bt_next(&life->hits) - 1;
	__u32 index;

	if (hit->flags & BT_HIT_ENDED)
		place = BT_KEPT_HITS - 1;
	if (hit->flags & BT_HIT_ENDED && life->cut)
		hit->flags |= BT_HIT_CUT;
	else if (!(hit->flags & BT_HIT_ENDED) && place >= BT_KEPT_HITS - 1) {
		bt_count(life->cut);
		counts = bt_counts_of_lives();
		if (counts)
			bt_count(counts->cut);
		return;
	}
	index = slot * BT_KEPT_HITS + (__u32)place;
	entry = bpf_map_lookup_elem(&bt_kept_hits, &index);
	if (!entry)
		return;
	entry->cpu = bpf_get_smp_processor_id();
	entry->record[0] = hit->head;
	bt_copy_hit(entry->record, hit);
}

/* Writes a hit, or keeps it where it is not yet known whether its life is one to write. */
static __always_inline void bt_put_hit(struct bt_life *life, __u32 slot, struct bt_hit *hit,
				       __u64 now)
{
	__u64 *record;

	if (follow.slower_ns) {
		if (!life || life->life != hit->life || life->state == BT_LIFE_DROPPED)
			return; /* a return after a short life */
		if (life->state == BT_LIFE_OPEN) {
			bt_keep(life, slot, hit);
			return;
		}
	}
	record = bt_site_reserve(BT_HIT, now);
	if (!record)
		return;
	bt_copy_hit(record, hit);
	bt_site_submit(record);
}

#endif
