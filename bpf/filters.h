/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decides which I/O is recorded: once, at Q, by the bio and the running task. */
#ifndef BIOTRAIL_FILTERS_H
#define BIOTRAIL_FILTERS_H

#include "block.h"
#include "dictionary.h"
#include "file_filter.h"
#include "own.h"
#include "reasons.h"
#include "ring.h"
#include "tasks.h"

static __always_inline struct bt_area *bt_this_area(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&bt_rings, &cpu);
}

/*
 * Returns memory for a value that the verifier shall not track, which would multiply the program
 * states; NULL: nested too deep.
 */
static __always_inline volatile __u64 *bt_scratch(void)
{
	struct bt_area *area = bt_this_area();
	__u64 level;

	if (!area)
		return NULL;
	level = *(volatile __u64 *)&area->depth;
	if (level >= BT_LEVELS)
		return NULL;
	return &area->scratch[level];
}

/* Filters by the running task, the one that queues the bio: for write-back that is a kworker. */
static __always_inline enum bt_reason bt_judge_task(void)
{
	struct bt_task_slot now;

	if (!config.by_pid && !config.by_tid && !config.nr_comms)
		return BT_ADMITTED;
	bt_current(&now);
	if (config.by_pid && !bt_id_wanted(BT_ID_PID | now.tgid))
		return BT_BY_PID;
	if (config.by_tid && !bt_id_wanted(BT_ID_TID | now.tid))
		return BT_BY_TID;
	if (config.nr_comms && !bt_comm_wanted(&now))
		return BT_BY_COMM;
	return BT_ADMITTED;
}

/* Filters by the cgroup that is charged for the bio (bi_blkg), or an ancestor of that cgroup. */
static __always_inline bool bt_cgroup_wanted(struct bio *bio)
{
	struct cgroup_subsys_state *css;
	struct bt_verdict verdict;
	struct blkcg_gq *blkg;

	if (!bpf_core_field_exists(bio->bi_blkg))
		return false;
	blkg = bio->bi_blkg;
	if (!blkg)
		return false;
	css = &blkg->blkcg->css;
	if (bt_verdict_known(&verdict, css->cgroup->kn->id))
		return verdict.wanted;
	for (int i = 0; i < BT_CGROUP_DEPTH && css; i++) {
		if (bt_cgroup_listed(css->cgroup->kn->id)) {
			verdict.wanted = true;
			break;
		}
		css = css->parent;
	}
	bt_verdict_keep(&verdict);
	return verdict.wanted;
}

/* Returns the bio's operation; REQ_OP_FLUSH for an empty write with REQ_PREFLUSH. */
static __always_inline __u32 bt_bio_op(struct bio *bio)
{
	__u32 opf = bio->bi_opf;

	return opf & config.preflush && !bio->bi_iter.bi_size ? config.flush_op :
								 opf & BT_OP_MASK;
}

static __always_inline bool bt_op_wanted(__u32 op)
{
	return !config.ops || (op <= BT_MAX_OP && (config.ops >> op & 1));
}

static __always_inline bool bt_flags_wanted(__u32 opf)
{
	for (__u32 i = 0; i < BT_MAX_FLAGS && i < config.nr_flags; i++) {
		if ((opf & config.flags[i]) == config.flags[i])
			return true;
	}
	return !config.nr_flags;
}

static __always_inline bool bt_sectors_wanted(__u64 start, __u64 end)
{
	for (__u32 i = 0; i < BT_MAX_RANGES && i < config.nr_ranges; i++) {
		if (start < config.ranges[i].end && end > config.ranges[i].start)
			return true;
	}
	return !config.nr_ranges;
}

/* Filters by the file whose data the bio moves. */
static __always_inline enum bt_reason bt_file_reason(struct bio *bio)
{
	volatile __u64 *word = bt_scratch();

	return word ? bt_judge_file(bio, word) : BT_FILE_UNKNOWN;
}

/* Applies all filters to a bio: BT_ADMITTED, or the first reason to leave it out. */
static __always_inline enum bt_reason bt_judge(struct bio *bio, struct bt_place place)
{
	__u64 sector = bio->bi_iter.bi_sector;
	__u32 size = bio->bi_iter.bi_size;
	enum bt_reason reason;

	if (!bt_wanted(place, sector))
		return BT_BY_DEVICE;
	if (!bt_op_wanted(bt_bio_op(bio)))
		return BT_BY_OP;
	if (!bt_flags_wanted(bio->bi_opf))
		return BT_BY_FLAGS;
	if (size < config.min_bytes)
		return BT_BY_SIZE;
	/* A bio without data touches no sectors, so it matches no range. */
	if (config.nr_ranges && (!size || !bt_sectors_wanted(sector, sector + (size + 511) / 512)))
		return BT_BY_SECTORS;
	reason = bt_judge_task();
	if (reason != BT_ADMITTED)
		return reason;
	if (config.by_cgroup && !bt_cgroup_wanted(bio))
		return BT_BY_CGROUP;
	if (ways.by_file) {
		reason = bt_file_reason(bio);
		if (reason != BT_ADMITTED)
			return reason;
	}
	if (config.leave_own && bt_bio_is_own(bio))
		return BT_BY_OWN;
	return BT_ADMITTED;
}

/* Whether there is a filter that only a bio can be tested by. */
static __always_inline bool bt_has_bio_filter(void)
{
	return config.nr_flags || config.nr_ranges || config.min_bytes || config.by_cgroup ||
	       ways.by_file;
}

/* Filters a request that has no queued bio: the flush machinery's (flush_rq), or passthrough. */
static __always_inline enum bt_reason bt_judge_without_bio(struct request *rq, __u32 dev)
{
	struct bt_place place = { .dev = dev };

	if (!bt_wanted(place, rq->__sector))
		return BT_BY_DEVICE;
	if (!bt_op_wanted(rq->cmd_flags & BT_OP_MASK))
		return BT_BY_OP;
	if (bt_has_bio_filter() || config.by_pid || config.by_tid || config.nr_comms)
		return BT_NO_BIO;
	return BT_ADMITTED;
}

/* Filters a plug event, which has a task and a device. */
static __always_inline enum bt_reason bt_judge_plug(struct bt_place place)
{
	if (!bt_wanted(place, 0))
		return BT_BY_DEVICE;
	if (bt_has_bio_filter() || config.ops)
		return BT_NO_BIO;
	return bt_judge_task();
}

#endif
