/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bodies of the programs on tracepoints of requests. All on_* functions return 0. */
#ifndef BIOTRAIL_REQUESTS_H
#define BIOTRAIL_REQUESTS_H

#include "drivers.h"
#include "follow.h"
#include "trigger.h"

/* Most CHAIN records per D, each with BT_CHAIN_SLOTS bios after the first one. */
#ifndef BT_MAX_CHAIN
#define BT_MAX_CHAIN 43
#endif

/* Fills the members that all request records share. */
#define FILL_RQ(record, rq_, bio_, bytes_, dev_)                                                   \
	do {                                                                                       \
		(record)->rq = (__u64)(rq_);                                                       \
		(record)->bio = (__u64)(bio_);                                                     \
		(record)->sector = (rq_)->__sector;                                                \
		(record)->bytes = (bytes_);                                                        \
		(record)->opf = (rq_)->cmd_flags;                                                  \
		(record)->dev = (dev_);                                                            \
	} while (0)

/* A tag of -1 (none) becomes BT_NO_TAG by conversion. */
#define FILL_TAGS(record, rq_)                                                                     \
	do {                                                                                       \
		(record)->tag = (rq_)->tag;                                                        \
		(record)->sched_tag = (rq_)->internal_tag;                                         \
	} while (0)

/* The records of s, I, R and m have the same layout, so on_request serves all four. */
_Static_assert(sizeof(struct bt_start) == sizeof(struct bt_i), "s and I");
_Static_assert(sizeof(struct bt_start) == sizeof(struct bt_r), "s and R");
_Static_assert(sizeof(struct bt_start) == sizeof(struct bt_rq_merge), "s and m");

static __always_inline int on_request(struct request *rq, enum bt_kind kind)
{
	struct bt_share share;
	struct bt_writer w;
	struct bt_start *r;
	__u32 dev;

	if (!rq)
		return 0;
	dev = bt_rq_dev(rq);
	share = bt_rq_wanted(rq, dev, kind);
	if (!share.wanted || !bt_begin(&w, kind))
		return 0;
	r = bt_reserve(&w, kind, sizeof(*r));
	if (r) {
		FILL_RQ(r, rq, share.head, rq->__data_len, dev);
		FILL_TAGS(r, rq);
	}
	bt_end(&w);
	return 0;
}

/*
 * Fills a CHAIN record with the bios after `bio`, unused slots with 0. Returns the last bio
 * written, and adds the number written to *nr.
 */
static __always_inline struct bio *write_link(struct bt_chain *r, struct bio *bio, __u32 *nr)
{
	struct bio *next = bio->bi_next;

	for (int i = 0; i < BT_CHAIN_SLOTS; i++) {
		r->bios[i] = (__u64)next;
		if (next) {
			(*nr)++;
			bio = next;
			next = bio->bi_next;
		}
	}
	return bio;
}

/*
 * Writes CHAIN records with the bios after `bio`, a request's first. Sets d->nr_bios to the number
 * of bios recorded, and BT_D_FLAG_CHAIN_CUT if there are more.
 */
static __always_inline void write_chain(struct bt_writer *w, struct bt_d *d, struct request *rq,
					struct bio *bio)
{
	struct bt_chain *r;
	__u32 nr = 1;

	for (int i = 0; i < BT_MAX_CHAIN; i++) {
		if (!bio->bi_next)
			goto complete;
		r = bt_reserve(w, BT_CHAIN, sizeof(*r));
		if (!r)
			break;
		r->rq = (__u64)rq;
		bio = write_link(r, bio, &nr);
	}
	if (bio->bi_next)
		d->flags = BT_D_FLAG_CHAIN_CUT;
complete:
	d->nr_bios = nr;
}

/*
 * Returns the slot's value for one bio in write_share: its address if it is followed (counted in
 * d->nr_bios), BT_CHAIN_COUNT + 1 if it was left out, 0 for the head and at the chain's end.
 */
static __always_inline __u64 chain_slot(struct bt_d *d, struct bio *bio, struct bio *head)
{
	if (!bio || bio == head)
		return 0;
	if (!bt_is_followed(bio))
		return BT_CHAIN_COUNT + 1;
	d->nr_bios++;
	return (__u64)bio;
}

/*
 * Returns how many of the bios from `bio` on, which found no slot, were left out by filters. Sets
 * BT_D_FLAG_CHAIN_CUT if one of them is followed.
 */
static __always_inline __u64 count_others(struct bt_writer *w, struct bt_d *d, struct bio *bio)
{
	volatile __u64 *others = &w->area->scratch[w->level];

	*others = 0;
	for (int i = 0; i < BT_MAX_WALK; i++) {
		if (!bio)
			break;
		if (bt_is_followed(bio))
			d->flags = BT_D_FLAG_CHAIN_CUT;
		else
			*others += 1;
		bio = bio->bi_next;
	}
	return *others;
}

/*
 * As write_chain, with filters: slots in the order of the chain, one for each bio but `head`, which
 * is in D. A bio that was left out is a slot of BT_CHAIN_COUNT + 1. After BT_MAX_CHAIN records one
 * more has the number of left out bios that remain. Counters are in memory, as the verifier would
 * explore every value of a counter in a register.
 */
static __always_inline void write_share(struct bt_writer *w, struct bt_d *d, struct request *rq,
					struct bio *head)
{
	struct bio *bio = rq->bio, *next = bio->bi_next;
	struct bt_chain *r;
	__u64 others;

	opaque(next); /* loads it here, where the verifier knows that `bio` is not NULL */
	if (bio == head)
		bio = next;
	for (int i = 0; i < BT_MAX_CHAIN; i++) {
		if (!bio)
			return;
		r = bt_reserve(w, BT_CHAIN, sizeof(*r));
		if (!r)
			break;
		r->rq = (__u64)rq;
		for (int slot = 0; slot < BT_CHAIN_SLOTS; slot++) {
			r->bios[slot] = chain_slot(d, bio, head);
			if (bio)
				bio = bio->bi_next;
		}
	}
	others = count_others(w, d, bio);
	if (!others)
		return;
	r = bt_reserve(w, BT_CHAIN, sizeof(*r));
	if (!r)
		return;
	r->rq = (__u64)rq;
	r->bios[0] = BT_CHAIN_COUNT + others;
	for (int slot = 1; slot < BT_CHAIN_SLOTS; slot++)
		r->bios[slot] = 0;
}

static __always_inline int on_issue(struct request *rq)
{
	struct bt_share share;
	struct bt_writer w;
	struct bt_d *r;
	struct bio *bio;
	__u32 dev;

	if (!rq)
		return 0;
	dev = bt_rq_dev(rq);
	share = bt_rq_wanted(rq, dev, BT_D);
	if (!share.wanted || !bt_begin(&w, BT_D))
		return 0;
	r = bt_reserve(&w, BT_D, sizeof(*r));
	if (r) {
		bio = share.head;
		FILL_RQ(r, rq, bio, rq->__data_len, dev);
		FILL_TAGS(r, rq);
		r->hctx = bt_rq_hctx(rq);
		r->ioprio = bt_rq_ioprio(rq, bio);
		r->nr_bios = !!bio;
		r->hint = bt_rq_hint(rq, bio);
		r->flags = 0;
		if (config.follow && bt_has_bios(rq)) {
			if (bio && rq->bio != rq->biotail)
				write_share(&w, r, rq, bio);
		} else {
			bio = rq->bio;
			if (bio && bio != rq->biotail)
				write_chain(&w, r, rq, bio);
		}
	}
	bt_trigger_issue(rq, w.now, dev);
	bt_end(&w);
	return 0;
}

_Static_assert(sizeof(struct bt_c) == sizeof(struct bt_e), "C and E");

static __always_inline void write_completion(struct request *rq, struct bio *head, __u32 dev,
					     __s32 status, __u32 bytes, enum bt_kind kind,
					     struct bt_steps *steps)
{
	struct bt_writer w;
	struct bt_c *r;

	if (!bt_begin(&w, kind))
		return;
	r = bt_reserve(&w, kind, sizeof(*r));
	if (r) {
		FILL_RQ(r, rq, head, bytes, dev);
		r->status = status;
		if (kind == BT_C) {
			bt_interrupt(&w, (__u64)rq);
			bt_write_steps(&w, rq, steps);
		}
	}
	if (kind == BT_C)
		bt_trigger_complete(rq, w.now, dev, status, bytes);
	bt_end(&w);
}

/* C and E: `bytes` of the request are complete. status: blk_status_t, or an errno before 5.16. */
static __always_inline int on_complete(struct request *rq, __s32 status, __u32 bytes,
				       enum bt_kind kind)
{
	struct bt_steps *steps;
	struct bt_share share;
	__u64 address;
	__u32 dev;

	if (!rq)
		return 0;
	dev = bt_rq_dev(rq);
	share = bt_rq_wanted(rq, dev, kind);
	steps = kind == BT_C ? bt_completing(rq) : NULL;
	if (share.wanted)
		write_completion(rq, share.head, dev, status, bytes, kind, steps);
	bt_forget_steps(steps);
	if (!share.wanted)
		return 0;
	if (!config.follow || kind != BT_C)
		return 0;
	address = bt_address(rq);
	*bt_ending_slot(address) = address;
	/* After an error block_rq_error follows, which looks the bios up as well. */
	if (!status)
		bt_forget_done(rq, bytes);
	return 0;
}

static __always_inline int on_rq_remap(struct request *rq, __u32 from_dev, __u64 from_sector)
{
	struct bt_share share;
	struct bt_writer w;
	struct bt_rq_remap *r;
	__u32 dev;

	if (!rq)
		return 0;
	dev = bt_rq_dev(rq);
	bt_judge_clone(rq);
	share = bt_rq_wanted(rq, dev, BT_RQ_REMAP);
	if (!share.wanted && (config.follow || !bt_wanted_source(from_dev)))
		return 0;
	if (!bt_begin(&w, BT_RQ_REMAP))
		return 0;
	r = bt_reserve(&w, BT_RQ_REMAP, sizeof(*r));
	if (r) {
		FILL_RQ(r, rq, share.head, rq->__data_len, dev);
		r->from_dev = from_dev;
		r->from_sector = from_sector;
	}
	bt_end(&w);
	return 0;
}

/* Whether a `d` is recorded: with filters, if the request's C was. Clears its slot in bt_ending. */
static __always_inline bool bt_done_wanted(struct request *rq, __u32 dev)
{
	__u64 address, *slot;

	if (!config.follow)
		return bt_wanted_disk(dev);
	address = bt_address(rq);
	slot = bt_ending_slot(address);
	if (address && *slot == address) {
		*slot = 0;
		return true;
	}
	bt_left_event(BT_DONE);
	return false;
}

static __always_inline int on_done(struct request *rq)
{
	struct bt_writer w;
	struct bt_done *r;
	__u32 dev;

	if (!rq)
		return 0;
	dev = bt_rq_dev(rq);
	if (!bt_done_wanted(rq, dev) || !bt_begin(&w, BT_DONE))
		return 0;
	r = bt_reserve(&w, BT_DONE, sizeof(*r));
	if (r) {
		r->rq = (__u64)rq;
		r->dev = dev;
		r->reserved = 0;
	}
	bt_end(&w);
	return 0;
}

#endif
