/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * --events light: one record per request, at its completion, with the times that the kernel itself
 * keeps in the request for its own statistics (start_time_ns, io_start_time_ns).
 *
 * The programs keep no state. A completion that does not end the request (a part of its bytes, or
 * the data of a flush sequence) has a record of its own; readers find them by address and start.
 */
#ifndef BIOTRAIL_LIGHT_H
#define BIOTRAIL_LIGHT_H

#include "follow.h"
#include "light_facts.h"
#include "trigger.h"

#define BT_LIGHT_BIOS 128 /* bios of a request that are counted */

/* Applies the filters that a completion can be judged by. */
static __always_inline enum bt_reason bt_light_judge(const struct bt_light_facts *facts,
						     struct request *rq, __u32 bytes)
{
	struct bt_place place = { .dev = facts->dev };

	if (facts->bio)
		place = bt_bio_place(facts->bio);
	if (!bt_wanted(place, rq->__sector))
		return BT_BY_DEVICE;
	if (!bt_op_wanted(bt_light_op(facts, bytes)))
		return BT_BY_OP;
	if (!bt_flags_wanted(facts->opf))
		return BT_BY_FLAGS;
	if (config.by_cgroup) {
		if (!facts->bio)
			return BT_NO_BIO;
		if (!bt_cgroup_wanted(facts->bio))
			return BT_BY_CGROUP;
	}
	return BT_ADMITTED;
}

static __always_inline bool bt_light_wanted(const struct bt_light_facts *facts, struct request *rq,
					    __u32 bytes)
{
	enum bt_reason reason;

	if (!config.follow)
		return bt_wanted_disk(facts->dev);
	reason = bt_light_judge(facts, rq, bytes);
	if (reason == BT_ADMITTED)
		return true;
	bt_leave_out(reason, BT_LIGHT);
	return false;
}

/* Returns the number of a request's bios from `bio` on; BT_LIGHT_MANY: more than BT_LIGHT_BIOS. */
static __always_inline __u16 bt_light_bios(struct request *rq, struct bio *bio)
{
	if (!bio)
		return 0;
	if (bio == rq->biotail)
		return 1;
	for (__u32 i = 1; i <= BT_LIGHT_BIOS; i++) {
		bio = bio->bi_next;
		if (!bio)
			return i;
	}
	return BT_LIGHT_MANY;
}

/* Returns how long before `now` a time was, in units; BT_LIGHT_NONE for 0, which is no time. */
static __always_inline __u32 bt_light_ago(__u64 now, __u64 time, __u32 unit)
{
	__u64 ago;

	if (!time)
		return BT_LIGHT_NONE;
	ago = bt_light_since(now, time) >> unit;
	return ago < BT_LIGHT_NONE ? ago : BT_LIGHT_NONE - 1;
}

static __always_inline void bt_light_fill(struct bt_light *r, struct bt_light_facts *facts,
					  struct request *rq, __s32 status, __u32 bytes, __u64 now)
{
	__u64 first = facts->start ? facts->start : facts->issue;
	__u32 unit = 0;

	r->rq = (__u64)rq;
	r->sector = rq->__sector;
	r->bytes = bytes;
	r->opf = facts->opf;
	r->dev = facts->dev;
	r->status = status;
	r->nr_bios = bt_light_bios(rq, facts->bio);
	r->tag = rq->tag;
	r->hctx = bt_rq_hctx(rq);
	r->flags = facts->goes_on ? BT_LIGHT_GOES_ON : 0;
	r->reserved = 0;
	if (first && bt_light_since(now, first) >= BT_LIGHT_NONE) {
		unit = BT_LIGHT_UNIT;
		r->flags |= BT_LIGHT_COARSE;
	}
	r->since_start = bt_light_ago(now, facts->start, unit);
	r->since_issue = bt_light_ago(now, facts->issue, unit);
}

/* Fires BT_SLOW and BT_FAILED, as bt_trigger_complete does. */
static __always_inline void bt_light_trigger(struct bt_light_facts *facts, struct request *rq,
					     __s32 status, __u32 bytes, __u64 now)
{
	__u64 since = facts->issue ? facts->issue : facts->start;
	__u64 took = since ? bt_light_since(now, since) : 0;
	__u32 op = bt_light_op(facts, bytes);

	if (triggers.slow_ns && took >= triggers.slow_ns)
		bt_fire(BT_SLOW, now, facts->dev, op, rq->__sector, took);
	if (triggers.failed && bt_has_failed(status))
		bt_fire(BT_FAILED, now, facts->dev, op, rq->__sector, (__u64)(__s64)status);
}

/* C: `bytes` of the request are complete. status: blk_status_t, or an errno before 5.16. */
static __always_inline int on_light(struct request *rq, __s32 status, __u32 bytes)
{
	struct bt_light_facts facts;
	struct bt_light *r;
	struct bt_writer w;
	__u64 cgroup = 0;

	if (!rq)
		return 0;
	bt_light_gather(&facts, rq, bytes);
	if (!bt_light_wanted(&facts, rq, bytes) || !bt_begin(&w, BT_LIGHT))
		return 0;
	if (facts.bio)
		cgroup = bt_cgroup(&w, facts.bio);
	r = bt_reserve(&w, BT_LIGHT, sizeof(*r));
	if (r) {
		bt_light_fill(r, &facts, rq, status, bytes, w.now);
		r->cgroup = cgroup;
	}
	bt_light_trigger(&facts, rq, status, bytes, w.now);
	bt_end(&w);
	return 0;
}

#endif
