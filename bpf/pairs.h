/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Pairs of events: a begin is kept by its key until the end with that key, whose program adds the
 * time between them to a histogram, and writes a PAIR record if a log is recorded.
 */
#ifndef BIOTRAIL_PAIRS_H
#define BIOTRAIL_PAIRS_H

#include "sites.h"

const volatile struct bt_pair_sites pairs[BT_MAX_PAIRS] SEC(".rodata.pairs") = {};

/* Begins without an end so far. The loader sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct bt_pair_key);
	__type(value, struct bt_pair_begun);
} bt_begun SEC(".maps");

/* By pair: without --by all of them, else those with values for which bt_pair_by_hists is full. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BT_MAX_PAIRS);
	__type(key, __u32);
	__type(value, struct bt_pair_hist);
} bt_pair_hists SEC(".maps");

/* By pair and value of --by. The loader sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct bt_pair_by);
	__type(value, struct bt_pair_hist);
} bt_pair_by_hists SEC(".maps");

/* A new histogram, too large for a program's stack. */
struct bt_pair_hist bt_empty_hist = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BT_MAX_PAIRS);
	__type(key, __u32);
	__type(value, struct bt_pair_counts);
} bt_pair_counts SEC(".maps");

/*
 * Returns an element of a per-CPU array of pairs. The key is a copy that the compiler does not know
 * to be one: the verifier forgets a constant's value when it passes through memory.
 */
static __always_inline void *bt_of_pair(void *map, __u32 pair)
{
	opaque(pair);
	return bpf_map_lookup_elem(map, &pair);
}

/* Why an event is not taken. */
enum bt_taken { BT_TAKEN, BT_BAD_READ, BT_LEFT_OUT };

/* Whether an event's conditions and device are those asked for. */
static __always_inline enum bt_taken bt_judge_side(const void *ctx,
						   const volatile struct bt_side *side)
{
	__u64 value;

#pragma unroll
	for (__u32 i = 0; i < BT_MAX_CONDITIONS; i++) {
		if (i >= side->nr_conditions)
			break;
		if (!bt_value_of(ctx, NULL, 0, &side->conditions[i].value, &value))
			return BT_BAD_READ;
		if (!bt_holds(&side->conditions[i], value))
			return BT_LEFT_OUT;
	}
	if (sites.nr_devs && side->dev.source != BT_FROM_NONE) {
		if (!bt_value_of(ctx, NULL, 0, &side->dev, &value))
			return BT_BAD_READ;
		if (!bt_dev_listed(value))
			return BT_LEFT_OUT;
	}
	return BT_TAKEN;
}

/* Whether an event is one of those of its tracepoint that begin or end this pair. */
static __always_inline bool bt_is_side_of_pair(const void *ctx, const volatile struct bt_side *side)
{
	__u64 value;

#pragma unroll
	for (__u32 i = 0; i < BT_MAX_CONDITIONS; i++) {
		if (i >= side->choosing)
			break;
		if (!bt_value_of(ctx, NULL, 0, &side->conditions[i].value, &value) ||
		    !bt_holds(&side->conditions[i], value))
			return false;
	}
	return true;
}

/* Fills `key` from an event; false: a read faulted. */
static __always_inline bool bt_key_of(const void *ctx, const volatile struct bt_side *side,
				      __u32 pair, struct bt_pair_key *key)
{
	key->pair = pair;
	return bt_value_of(ctx, NULL, 0, &side->key[0], &key->key[0]) &&
	       bt_value_of(ctx, NULL, 0, &side->key[1], &key->key[1]);
}

/* Keeps a begin; one with the same key is replaced, as its end was not recorded. */
static __always_inline void bt_keep_begin(const struct bt_pair_key *key,
					  struct bt_pair_begun *begun,
					  struct bt_pair_counts *counts)
{
	begun->now = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&bt_begun, key, begun, BPF_NOEXIST))
		return;
	/* Only the replacement can work now, unless the map is full or an end came in between. */
	if (!bpf_map_lookup_elem(&bt_begun, key)) {
		bt_count(counts->full);
		return;
	}
	bt_count(counts->overwritten);
	if (bpf_map_update_elem(&bt_begun, key, begun, 0))
		bt_count(counts->full);
}

/* Whether the begin's process, or the running task, is one of those asked for. */
static __always_inline enum bt_taken bt_judge_process(const void *ctx,
						      const volatile struct bt_side *side)
{
	__u64 process;

	if (!config.by_pid || side->process.source == BT_FROM_NONE)
		return bt_task_wanted() ? BT_TAKEN : BT_LEFT_OUT;
	if (!bt_value_of(ctx, NULL, 0, &side->process, &process))
		return BT_BAD_READ;
	return bt_id_wanted(BT_ID_PID | (__u32)process) ? BT_TAKEN : BT_LEFT_OUT;
}

static __always_inline int on_pair_begin(void *ctx)
{
	__u32 cookie = bt_cookie(), pair = cookie & 0xff, at = cookie >> 8;
	const volatile struct bt_side *side;
	struct bt_pair_begun begun = {};
	struct bt_pair_counts *counts;
	struct bt_pair_key key = {};
	enum bt_taken taken;

	if (pair >= BT_MAX_PAIRS || at >= BT_MAX_BEGINS)
		return 0;
	counts = bt_of_pair(&bt_pair_counts, pair);
	if (!counts)
		return 0;
	side = &pairs[pair].begins[at];
	taken = bt_judge_side(ctx, side);
	if (taken == BT_TAKEN)
		taken = bt_judge_process(ctx, side);
	if (taken == BT_LEFT_OUT) {
		bt_count(counts->left_begin);
		return 0;
	}
	if (taken == BT_BAD_READ || !bt_key_of(ctx, side, pair, &key) ||
	    !bt_value_of(ctx, NULL, 0, &side->by, &begun.by)) {
		bt_count(counts->bad_begin);
		return 0;
	}
	bt_keep_begin(&key, &begun, counts);
	return 0;
}

/* Returns a latency's slot: below 32 ns itself, then 16 to an octave. */
static __always_inline __u32 bt_slot_of(__u64 ns)
{
	__u32 octave, slot;

	if (ns < 32)
		return ns;
	octave = bt_log2(ns);
	slot = (octave - 3) * 16 + (ns >> (octave - 4) & 15);
	return slot < BT_HIST_SLOTS ? slot : BT_HIST_SLOTS - 1;
}

/* Returns this CPU's histogram for a pair, or for one value of --by; NULL only for the verifier. */
static __always_inline struct bt_pair_hist *bt_hist_of(__u32 pair, bool has_by, __u64 by)
{
	struct bt_pair_by key = { .by = by, .pair = pair };
	struct bt_pair_hist *hist;

	if (!has_by)
		return bt_of_pair(&bt_pair_hists, pair);
	hist = bpf_map_lookup_elem(&bt_pair_by_hists, &key);
	if (hist)
		return hist;
	bpf_map_update_elem(&bt_pair_by_hists, &key, &bt_empty_hist, BPF_NOEXIST);
	hist = bpf_map_lookup_elem(&bt_pair_by_hists, &key);
	return hist ? hist : bt_of_pair(&bt_pair_hists, pair);
}

/*
 * Adds a latency. A program that interrupts this one may add to the same histogram, so counts are
 * added atomically, and the maximum has a place for each number of the count, so that the two do
 * not write to the same.
 */
static __always_inline void bt_add_latency(struct bt_pair_hist *hist, __u64 ns)
{
	__u32 slot = bt_slot_of(ns);
	__u64 at;

	opaque(slot);
	if (slot >= BT_HIST_SLOTS)
		return;
	bt_count(hist->slots[slot]);
	bt_add(hist->sum, ns);
	bt_count(hist->count);
	at = *(volatile __u64 *)&hist->count & 3;
	if (ns > hist->max[at])
		hist->max[at] = ns;
}

/* Writes the PAIR record. */
static __always_inline void bt_write_pair(const struct bt_pair_key *key,
					  const struct bt_pair_begun *begun, __u64 now)
{
	struct bt_pair *record = bt_site_reserve(BT_PAIR, now);
	struct bt_task_slot task;

	if (!record)
		return;
	bt_current(&task);
	record->began = begun->now;
	record->key0 = key->key[0];
	record->key1 = key->key[1];
	record->by = begun->by;
	((__u64 *)record->comm)[0] = task.comm[0];
	((__u64 *)record->comm)[1] = task.comm[1];
	record->tid = task.tid;
	record->pair = key->pair;
	record->reserved = 0;
	bt_site_submit(record);
}

/* Takes a begin from bt_begun into `begun`; false: there is none with this key. */
static __always_inline bool bt_take_begin(const struct bt_pair_key *key,
					  struct bt_pair_begun *begun)
{
	struct bt_pair_begun *kept = bpf_map_lookup_elem(&bt_begun, key);

	if (!kept)
		return false;
	*begun = *kept;
	bpf_map_delete_elem(&bt_begun, key);
	return true;
}

static __always_inline int on_pair_end(void *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 pair = bt_cookie();
	const volatile struct bt_side *side;
	struct bt_pair_begun begun = {};
	struct bt_pair_counts *counts;
	struct bt_pair_key key = {};
	struct bt_pair_hist *hist;
	enum bt_taken taken;
	bool has_by;

	if (pair >= BT_MAX_PAIRS)
		return 0;
	counts = bt_of_pair(&bt_pair_counts, pair);
	if (!counts)
		return 0;
	side = &pairs[pair].end;
	if (!bt_is_side_of_pair(ctx, side))
		return 0;
	if (!bt_key_of(ctx, side, pair, &key)) {
		bt_count(counts->bad_end);
		return 0;
	}
	/* The begin is taken also if the user's conditions do not hold: its end has come. */
	taken = bt_judge_side(ctx, side);
	if (!bt_take_begin(&key, &begun)) {
		if (taken == BT_TAKEN)
			bt_count(counts->no_begin);
		return 0;
	}
	if (taken == BT_LEFT_OUT) {
		bt_count(counts->left_end);
		return 0;
	}
	if (taken == BT_BAD_READ ||
	    (side->by.source != BT_FROM_NONE &&
	     !bt_value_of(ctx, NULL, 0, &side->by, &begun.by))) {
		bt_count(counts->bad_end);
		return 0;
	}
	has_by = side->by.source != BT_FROM_NONE ||
		 pairs[pair].begins[0].by.source != BT_FROM_NONE;
	if (sites.count) {
		hist = bt_hist_of(pair, has_by, begun.by);
		/* A begin on another CPU, whose clock reading may be later by some ns. */
		if (hist)
			bt_add_latency(hist, now > begun.now ? now - begun.now : 0);
	}
	if (sites.record)
		bt_write_pair(&key, &begun, now);
	return 0;
}

#endif
