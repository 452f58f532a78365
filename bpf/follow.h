/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * With filters, lifecycles are recorded whole or not at all: bt_followed holds the admitted bios
 * from Q to the completion that ends them. A split's front piece inherits the admission. A request
 * is recorded if any bio of its chain is followed.
 *
 * There is no table of requests that could go stale: the bio chain (rq->bio) is in place from the
 * first event to the last. A bio that stays in the table by mistake (after an error, or a
 * completion that was not recorded) is judged again when its address is queued again.
 */
#ifndef BIOTRAIL_FOLLOW_H
#define BIOTRAIL_FOLLOW_H

#include "filters.h"

/* Most bios of one request that are visited. */
#ifndef BT_MAX_WALK
#define BT_MAX_WALK 1024
#endif
#define BT_ENDING_SLOTS 1024

/* Addresses of the admitted bios in flight. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} bt_followed SEC(".maps");

/*
 * Addresses of requests whose C was recorded, so that the `d` that follows, when the request has
 * no bios any more, is recorded too. Direct-mapped.
 */
__u64 bt_ending[BT_ENDING_SLOTS] = {};

/* Whether a request is recorded, and the `bio` of its records. */
struct bt_share {
	struct bio *head; /* with filters the first followed bio of the chain, else rq->bio */
	bool wanted;
};

/* Counts an event that filters left out. Atomic: a program in an interrupt counts here too. */
static __always_inline void bt_left_event(enum bt_kind kind)
{
	struct bt_area *area = bt_this_area();

	if (area)
		__sync_fetch_and_add(&area->left_events[kind], 1);
}

static __always_inline void bt_leave_out(enum bt_reason reason, enum bt_kind kind)
{
	struct bt_area *area = bt_this_area();

	if (!area)
		return;
	__sync_fetch_and_add(&area->left_out[reason], 1);
	__sync_fetch_and_add(&area->left_events[kind], 1);
}

static __always_inline bool bt_is_followed(struct bio *bio)
{
	__u64 key = (__u64)bio;

	return bpf_map_lookup_elem(&bt_followed, &key);
}

/* Adds a bio to bt_followed. false: the table is full, counted as a lost record of `kind`. */
static __always_inline bool bt_follow(struct bio *bio, enum bt_kind kind)
{
	__u64 key = (__u64)bio, one = 1;
	struct bt_area *area;
	__u64 level;

	if (!bpf_map_update_elem(&bt_followed, &key, &one, 0))
		return true;
	area = bt_this_area();
	if (!area)
		return false;
	__sync_fetch_and_add(&area->left_out[BT_TABLE_FULL], 1);
	level = *(volatile __u64 *)&area->depth;
	if (level < BT_LEVELS)
		area->lost[level][kind]++;
	return false;
}

static __always_inline void bt_forget(struct bio *bio)
{
	__u64 key = (__u64)bio;

	/* Deleting takes a lock, looking up does not, and mostly the bio is not in the table. */
	if (bpf_map_lookup_elem(&bt_followed, &key))
		bpf_map_delete_elem(&bt_followed, &key);
}

/* Q: applies the filters; the bio's later events follow from the answer. */
static __always_inline bool bt_queue_wanted(struct bio *bio, struct bt_place place)
{
	enum bt_reason reason;

	if (!config.follow)
		return bt_wanted(place, bio->bi_iter.bi_sector);
	reason = bt_judge(bio, place);
	if (reason == BT_ADMITTED)
		return bt_follow(bio, BT_Q);
	bt_forget(bio);
	bt_leave_out(reason, BT_Q);
	return false;
}

/* Whether a bio's event after Q is recorded. */
static __always_inline bool bt_bio_wanted(struct bio *bio, struct bt_place place, enum bt_kind kind)
{
	if (!config.follow)
		return bt_wanted(place, bio->bi_iter.bi_sector);
	if (bt_is_followed(bio))
		return true;
	bt_left_event(kind);
	return false;
}

/* X: whether the bio that was split (bi_private of the front piece) is followed; then both are. */
static __always_inline bool bt_split_wanted(struct bio *bio, struct bt_place place,
					    __u32 new_sector)
{
	bool wanted;

	if (!config.follow)
		return bt_wanted(place, bio->bi_iter.bi_sector);
	if ((__u32)bio->bi_iter.bi_sector == new_sector) {
		/* dm since 6.1: the bio is the original, advanced to the remaining sectors. */
		wanted = bt_is_followed(bio);
	} else {
		wanted = bt_is_followed(bio->bi_private);
		if (wanted)
			return bt_follow(bio, BT_X);
		bt_forget(bio);
	}
	if (!wanted)
		bt_left_event(BT_X);
	return wanted;
}

/*
 * A: a remap from partition to disk (from_dev is the bio's partition) comes before the bio's Q, one
 * to a lower device after it. For pieces that md splits off without a split event the remap is the
 * first event, so they are judged here.
 */
static __always_inline bool bt_remap_wanted(struct bio *bio, struct bt_place place, __u32 from_dev)
{
	if (!config.follow)
		return bt_wanted(place, bio->bi_iter.bi_sector) || bt_wanted_source(from_dev);
	if (from_dev != place.part && bt_is_followed(bio))
		return true;
	if (bt_judge(bio, place) == BT_ADMITTED)
		return bt_follow(bio, BT_A);
	bt_forget(bio);
	bt_left_event(BT_A);
	return false;
}

/* Returns the first followed bio of a chain; NULL: none of the first BT_MAX_WALK bios is. */
static __always_inline struct bio *bt_first_followed(struct bio *bio)
{
	for (int i = 0; i < BT_MAX_WALK; i++) {
		if (!bio || bt_is_followed(bio))
			return bio;
		bio = bio->bi_next;
	}
	return NULL;
}

/* Whether a request has bios that were queued: not for passthrough, whose bios have no Q. */
static __always_inline bool bt_has_bios(struct request *rq)
{
	__u32 op = rq->cmd_flags & BT_OP_MASK;

	return rq->bio && !(op <= BT_MAX_OP && (config.own_ops >> op & 1));
}

/* Whether a request's event is recorded: by its chain, or judged itself if it has no queued bio. */
static __always_inline struct bt_share bt_rq_wanted(struct request *rq, __u32 dev,
						    enum bt_kind kind)
{
	struct bt_share share = { .head = rq->bio };
	enum bt_reason reason;

	if (!config.follow) {
		share.wanted = bt_wanted_disk(dev);
		return share;
	}
	if (bt_has_bios(rq)) {
		share.head = bt_first_followed(share.head);
		share.wanted = share.head;
		if (!share.wanted)
			bt_left_event(kind);
		return share;
	}
	reason = bt_judge_without_bio(rq, dev);
	share.wanted = reason == BT_ADMITTED;
	if (!share.wanted)
		bt_leave_out(reason, kind);
	return share;
}

/*
 * C: removes the bios that `bytes` complete from bt_followed. Not a bio whose PREFLUSH or FUA
 * blk_insert_flush() has cleared in the request: it ends with the C of 0 bytes that follows.
 */
static __always_inline void bt_forget_done(struct request *rq, __u32 bytes)
{
	struct bio *bio = rq->bio;
	__u32 taken_off = bytes ? config.sequence & ~rq->cmd_flags : 0;
	volatile __u64 *left = bt_scratch();

	if (!left || !bt_has_bios(rq))
		return;
	*left = bytes;
	for (int i = 0; i < BT_MAX_WALK; i++) {
		struct bio *next;
		__u32 size;

		if (!bio)
			return;
		size = bio->bi_iter.bi_size;
		if (size > *left)
			return;
		*left -= size;
		next = bio->bi_next;
		if (!(bio->bi_opf & taken_off))
			bt_forget(bio);
		bio = next;
	}
}

/* Bios of a request cloned by request-based dm have no Q, so they are judged at its remap. */
static __always_inline void bt_judge_clone(struct request *rq)
{
	struct bio *bio = rq->bio;

	if (!config.follow || !bio || bt_judge(bio, bt_bio_place(bio)) != BT_ADMITTED)
		return;
	for (int i = 0; i < BT_MAX_WALK / 4; i++) {
		if (!bio)
			return;
		bt_follow(bio, BT_RQ_REMAP);
		bio = bio->bi_next;
	}
}

/* Returns a pointer as a scalar, on which the verifier permits arithmetic; 0: nested too deep. */
static __always_inline __u64 bt_address(void *pointer)
{
	volatile __u64 *word = bt_scratch();

	if (!word)
		return 0;
	*word = (__u64)pointer;
	return *word;
}

static __always_inline __u64 *bt_ending_slot(__u64 address)
{
	return &bt_ending[address >> 6 & (BT_ENDING_SLOTS - 1)];
}

#endif
