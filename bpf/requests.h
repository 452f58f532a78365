/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs on requests write. */
#ifndef BIOTRAIL_REQUESTS_H
#define BIOTRAIL_REQUESTS_H

#include "follow.h"
#include "trigger.h"

/* CHAIN records per D: BT_CHAIN_SLOTS bios each, beyond the head. */
#ifndef BT_MAX_CHAIN
#define BT_MAX_CHAIN 43
#endif

/* The prefix that all request records share. */
#define FILL_RQ(record, rq_, bio_, bytes_, dev_)                                                   \
	do {                                                                                       \
		(record)->rq = (__u64)(rq_);                                                       \
		(record)->bio = (__u64)(bio_);                                                     \
		(record)->sector = (rq_)->__sector;                                                \
		(record)->bytes = (bytes_);                                                        \
		(record)->opf = (rq_)->cmd_flags;                                                  \
		(record)->dev = (dev_);                                                            \
	} while (0)

/* -1, no tag, becomes BT_NO_TAG. */
#define FILL_TAGS(record, rq_)                                                                     \
	do {                                                                                       \
		(record)->tag = (rq_)->tag;                                                        \
		(record)->sched_tag = (rq_)->internal_tag;                                         \
	} while (0)

/* s, I, R and m are the same but for their names. */
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

/* Writes one CHAIN record; returns the last bio taken, *nr counts those taken. */
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

/* The bios after the head go to CHAIN records; D says how many there are and if it was cut. */
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

/* A slot for one bio of a request that filters judged; see write_share. */
static __always_inline __u64 chain_slot(struct bt_d *d, struct bio *bio, struct bio *head)
{
	if (!bio || bio == head)
		return 0;
	if (!bt_is_followed(bio))
		return BT_CHAIN_COUNT + 1;
	d->nr_bios++;
	return (__u64)bio;
}

/* Bios beyond the CHAIN records' bound: how many of them were left out. */
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
 * The same for a request that filters judged: slots in the order of the chain, one for each bio
 * but the D's own. A bio that was left out is a count of one; those beyond the bound are counted
 * in one slot more. Counters are in memory, or the verifier would follow each of their values.
 */
static __always_inline void write_share(struct bt_writer *w, struct bt_d *d, struct request *rq,
					struct bio *head)
{
	struct bio *bio = rq->bio, *next = bio->bi_next;
	struct bt_chain *r;
	__u64 others;

	opaque(next); /* loaded here: the verifier knows of `bio` alone that it is no null */
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
					     __s32 status, __u32 bytes, enum bt_kind kind)
{
	struct bt_writer w;
	struct bt_c *r;

	if (!bt_begin(&w, kind))
		return;
	r = bt_reserve(&w, kind, sizeof(*r));
	if (r) {
		FILL_RQ(r, rq, head, bytes, dev);
		r->status = status;
	}
	if (kind == BT_C)
		bt_trigger_complete(rq, w.now, dev, status, bytes);
	bt_end(&w);
}

/* C and E: `bytes` of the request are done; blk_status_t, or an errno before 5.16. */
static __always_inline int on_complete(struct request *rq, __s32 status, __u32 bytes,
				       enum bt_kind kind)
{
	struct bt_share share;
	__u64 address;
	__u32 dev;

	if (!rq)
		return 0;
	dev = bt_rq_dev(rq);
	share = bt_rq_wanted(rq, dev, kind);
	if (!share.wanted)
		return 0;
	write_completion(rq, share.head, dev, status, bytes, kind);
	if (!config.follow || kind != BT_C)
		return 0;
	address = bt_address(rq);
	*bt_ending_slot(address) = address;
	/* After an error the bios are still wanted: E follows. */
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

static __always_inline bool bt_done_wanted(struct request *rq, __u32 dev)
{
	__u64 address, *slot;

	if (!config.follow)
		return bt_wanted_rq(rq, dev);
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
