/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bodies of the programs on tracepoints of bios and plugs. All on_* functions return 0. */
#ifndef BIOTRAIL_BIOS_H
#define BIOTRAIL_BIOS_H

#include "behalf.h"
#include "calls.h"
#include "dirtied.h"
#include "files.h"
#include "follow.h"
#include "held.h"
#include "stacks.h"
#include "trigger.h"
#include "uring.h"

/* Fills the members that all bio records share. */
#define FILL_BIO(record, bio_, place)                                                              \
	do {                                                                                       \
		(record)->bio = (__u64)(bio_);                                                     \
		(record)->sector = (bio_)->bi_iter.bi_sector;                                      \
		(record)->bytes = (bio_)->bi_iter.bi_size;                                         \
		(record)->opf = (bio_)->bi_opf;                                                    \
		(record)->dev = (place).dev;                                                       \
	} while (0)

static __always_inline int on_queue(void *ctx, struct bio *bio)
{
	struct bt_place place;
	struct bt_writer w;
	struct bt_q *r;
	__u64 cgroup;
	__u32 tid;

	if (!bio)
		return 0;
	place = bt_bio_place(bio);
	if (!bt_queue_wanted(bio, place)) {
		bt_call_left_out();
		return 0;
	}
	if (!bt_begin(&w, BT_Q))
		return 0;
	tid = bt_task(&w);
	cgroup = bt_cgroup(&w, bio);
	r = bt_reserve(&w, BT_Q, sizeof(*r));
	if (r) {
		FILL_BIO(r, bio, place);
		r->tid = tid;
		r->part = place.part;
		r->ioprio = bio->bi_ioprio;
		r->hint = bt_bio_hint(bio);
		r->page = bt_bio_page(bio, bio->bi_opf);
		r->flags = bt_is_own(bio, w.tgid, r) ? BT_Q_FLAG_OWN : 0;
		r->cgroup = cgroup;
		bt_file(&w, bio, r); /* first, as the verifier goes through it for each state before it */
		bt_write_held(&w, bio);
		bt_behalf(&w, bio, tid);
		bt_stack(&w, ctx, bio);
		bt_call(&w, bio, r, tid);
		bt_dirtied(&w, bio, r);
		bt_submission(&w, bio, tid);
	}
	bt_trigger_queue(bio, w.now);
	bt_end(&w);
	return 0;
}

static __always_inline int on_getrq(struct bio *bio)
{
	struct bt_place place;
	struct bt_writer w;
	struct bt_g *r;
	__u32 tid;

	/* Up to 5.10 the tracepoint also fires for passthrough, with a NULL bio. */
	if (!bio)
		return 0;
	place = bt_bio_place(bio);
	if (!bt_bio_wanted(bio, place, BT_G) || !bt_begin(&w, BT_G))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_G, sizeof(*r));
	if (r) {
		FILL_BIO(r, bio, place);
		r->tid = tid;
	}
	bt_end(&w);
	return 0;
}

/* bt_m and bt_f have the same layout, so on_merge serves both. */
_Static_assert(sizeof(struct bt_m) == sizeof(struct bt_f), "merges");
_Static_assert(__builtin_offsetof(struct bt_m, rq) == __builtin_offsetof(struct bt_f, rq), "rq");

static __always_inline int on_merge(struct bio *bio, __u64 rq, enum bt_kind kind)
{
	struct bt_place place;
	struct bt_writer w;
	struct bt_m *r;
	__u32 tid;

	if (!bio)
		return 0;
	place = bt_bio_place(bio);
	if (!bt_bio_wanted(bio, place, kind) || !bt_begin(&w, kind))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, kind, sizeof(*r));
	if (r) {
		FILL_BIO(r, bio, place);
		r->tid = tid;
		r->rq = rq;
	}
	bt_end(&w);
	return 0;
}

static __always_inline int on_split(struct bio *bio, __u32 new_sector)
{
	struct bt_place place;
	struct bt_writer w;
	struct bt_x *r;
	__u32 tid;

	if (!bio)
		return 0;
	place = bt_bio_place(bio);
	if (!bt_split_wanted(bio, place, new_sector) || !bt_begin(&w, BT_X))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_X, sizeof(*r));
	if (r) {
		FILL_BIO(r, bio, place);
		r->tid = tid;
		r->parent = (__u64)bio->bi_private;
		r->new_sector = new_sector;
	}
	bt_end(&w);
	return 0;
}

static __always_inline int on_remap(struct bio *bio, __u32 from_dev, __u64 from_sector)
{
	struct bt_place place;
	struct bt_writer w;
	struct bt_a *r;
	__u32 tid;

	if (!bio)
		return 0;
	place = bt_bio_place(bio);
	if (!bt_remap_wanted(bio, place, from_dev) || !bt_begin(&w, BT_A))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_A, sizeof(*r));
	if (r) {
		FILL_BIO(r, bio, place);
		r->tid = tid;
		r->from_sector = from_sector;
		r->from_dev = from_dev;
		r->part = place.part;
	}
	bt_end(&w);
	return 0;
}

/*
 * Returns whether this completion was reported by NVMe multipath for the upper disk, whose queue
 * `q` is not the one of the bio's disk. The request on the path has not completed yet: the C that
 * follows ends the bio, which has to be followed until then.
 */
static __always_inline bool bt_mpath_early_end(struct request_queue *q, struct bio *bio)
{
	struct gendisk *disk = bt_bio_disk(bio);

	return disk && disk->queue != q;
}

static __always_inline int on_bio_complete(struct request_queue *q, struct bio *bio)
{
	struct bt_place place;
	struct bt_bio_complete *r;
	struct bt_writer w;

	if (!bio)
		return 0;
	place = bt_bio_place(bio);
	if (!bt_bio_wanted(bio, place, BT_BIO_COMPLETE))
		return 0;
	if (config.follow && !bt_mpath_early_end(q, bio))
		bt_forget(bio);
	if (!bt_begin(&w, BT_BIO_COMPLETE))
		return 0;
	r = bt_reserve(&w, BT_BIO_COMPLETE, sizeof(*r));
	if (r) {
		FILL_BIO(r, bio, place);
		r->status = bio->bi_status;
	}
	bt_trigger_bio(bio, w.now, place.dev);
	bt_end(&w);
	return 0;
}

static __always_inline bool bt_plug_wanted(struct bt_place place, enum bt_kind kind)
{
	enum bt_reason reason;

	if (!config.follow)
		return bt_wanted(place, 0);
	reason = bt_judge_plug(place);
	if (reason != BT_ADMITTED)
		bt_left_event(kind);
	return reason == BT_ADMITTED;
}

static __always_inline int on_plug(struct request_queue *q)
{
	struct bt_place place = { .dev = bt_queue_dev(q) };
	struct bt_writer w;
	struct bt_p *r;
	__u32 tid;

	if (!bt_plug_wanted(place, BT_P) || !bt_begin(&w, BT_P))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_P, sizeof(*r));
	if (r) {
		r->dev = place.dev;
		r->tid = tid;
	}
	bt_end(&w);
	return 0;
}

static __always_inline int on_unplug(struct request_queue *q, __u32 depth, bool explicit)
{
	struct bt_place place = { .dev = bt_queue_dev(q) };
	struct bt_writer w;
	struct bt_u *r;
	__u32 tid;

	if (!bt_plug_wanted(place, BT_U) || !bt_begin(&w, BT_U))
		return 0;
	tid = bt_task(&w);
	r = bt_reserve(&w, BT_U, sizeof(*r));
	if (r) {
		r->dev = place.dev;
		r->tid = tid;
		r->depth = depth;
		r->explicit = explicit;
	}
	bt_end(&w);
	return 0;
}

#endif
