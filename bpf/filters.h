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

#define BT_CGROUP_DEPTH 32
#define BT_VERDICTS 1024

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The cgroups of a thread: in each hierarchy that of each controller. */
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp; /* in the default hierarchy, cgroup v2 */
};

struct task_struct___cgroups {
	struct css_set *cgroups;
};

#pragma clang attribute pop

/* io_cgrp_id is there if the kernel has the io (v1: blkio) controller. */
enum cgroup_subsys_id { io_cgrp_id };

#define BT_ID_PID (1ULL << 32)
#define BT_ID_TID (2ULL << 32)

/* Processes and threads to record: BT_ID_PID | tgid, BT_ID_TID | tid. Filled by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} bt_ids SEC(".maps");

/*
 * Cache of the cgroup filter's answers by cgroup id: id << 1 | wanted, in one word, so that it is
 * never torn. An answer stays right because a cgroup never changes its parent.
 */
__u64 bt_verdicts[BT_VERDICTS] = {};

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

static __always_inline bool bt_id_wanted(__u64 id)
{
	return bpf_map_lookup_elem(&bt_ids, &id);
}

static __always_inline bool bt_comm_wanted(const struct bt_task_slot *now)
{
	for (__u32 i = 0; i < BT_MAX_COMMS && i < config.nr_comms; i++) {
		__u64 first = now->comm[0] & config.comms[i].mask[0];
		__u64 second = now->comm[1] & config.comms[i].mask[1];

		if (first == config.comms[i].name[0] && second == config.comms[i].name[1])
			return true;
	}
	return false;
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

static __always_inline bool bt_cgroup_listed(__u64 id)
{
	for (__u32 i = 0; i < BT_MAX_CGROUPS && i < config.nr_cgroups; i++) {
		if (config.cgroups[i] == id)
			return true;
	}
	return false;
}

/* Filters by the cgroup that is charged for the bio (bi_blkg), or an ancestor of that cgroup. */
static __always_inline bool bt_cgroup_wanted(struct bio *bio)
{
	struct cgroup_subsys_state *css;
	struct blkcg_gq *blkg;
	__u64 id, wanted = 0;
	__u64 *verdict;

	if (!bpf_core_field_exists(bio->bi_blkg))
		return false;
	blkg = bio->bi_blkg;
	if (!blkg)
		return false;
	css = &blkg->blkcg->css;
	id = css->cgroup->kn->id;
	verdict = &bt_verdicts[id & (BT_VERDICTS - 1)];
	if (*(volatile __u64 *)verdict >> 1 == id)
		return *(volatile __u64 *)verdict & 1;
	for (int i = 0; i < BT_CGROUP_DEPTH && css; i++) {
		if (bt_cgroup_listed(css->cgroup->kn->id)) {
			wanted = 1;
			break;
		}
		css = css->parent;
	}
	*(volatile __u64 *)verdict = id << 1 | wanted;
	return wanted;
}

/* Returns the id of a cgroup. The address is a scalar to the verifier, as those below. */
static __always_inline __u64 bt_id_of_cgroup(__u64 address)
{
	struct cgroup *group = NULL;
	struct kernfs_node *kn = NULL;

	address = bt_read_u64(address + bpf_core_field_offset(group->kn));
	return bt_read_u64(address + bpf_core_field_offset(kn->id));
}

static __always_inline __u64 bt_id_of_css(__u64 css)
{
	struct cgroup_subsys_state *state = NULL;

	return bt_id_of_cgroup(bt_read_u64(css + bpf_core_field_offset(state->cgroup)));
}

/* Returns the address of the running thread's css_set; 0: not known. */
static __always_inline __u64 bt_css_set(void)
{
	struct task_struct___cgroups *task = NULL;

	if (!bpf_core_field_exists(task->cgroups))
		return 0;
	return bt_read_u64(bpf_get_current_task() + bpf_core_field_offset(task->cgroups));
}

/* Returns the address of the running thread's css of the io (v1: blkio) controller; 0: none. */
static __always_inline __u64 bt_css_of_task(void)
{
	struct css_set *set = NULL;

	if (!bpf_core_field_exists(set->subsys) ||
	    !bpf_core_enum_value_exists(enum cgroup_subsys_id, io_cgrp_id))
		return 0;
	return bt_read_u64(bt_css_set() + bpf_core_field_offset(set->subsys) +
			   8 * bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id));
}

/*
 * Filters by the cgroup that bios of the running thread are charged to where nothing else decides
 * (its css of the io controller), or an ancestor of that cgroup. As bt_cgroup_wanted, but by
 * addresses that are scalars to the verifier, as tasks' cgroups are RCU pointers.
 */
static __always_inline bool bt_cgroup_of_task_wanted(void)
{
	struct cgroup_subsys_state *none = NULL;
	__u64 css = bt_css_of_task(), id, wanted = 0;
	__u64 *verdict;

	if (!css)
		return false;
	id = bt_id_of_css(css);
	verdict = &bt_verdicts[id & (BT_VERDICTS - 1)];
	if (*(volatile __u64 *)verdict >> 1 == id)
		return *(volatile __u64 *)verdict & 1;
	for (int i = 0; i < BT_CGROUP_DEPTH && css; i++) {
		if (bt_cgroup_listed(bt_id_of_css(css))) {
			wanted = 1;
			break;
		}
		css = bt_read_u64(css + bpf_core_field_offset(none->parent));
	}
	*(volatile __u64 *)verdict = id << 1 | wanted;
	return wanted;
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
	if (config.nr_cgroups && !bt_cgroup_wanted(bio))
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
static __always_inline bool bt_asks_bios(void)
{
	return config.nr_flags || config.nr_ranges || config.min_bytes || config.nr_cgroups ||
	       ways.by_file;
}

/* Filters a request that has no queued bio: the flush machinery's (flush_rq), or passthrough. */
static __always_inline enum bt_reason bt_judge_bare(struct request *rq, __u32 dev)
{
	struct bt_place place = { .dev = dev };

	if (!bt_wanted(place, rq->__sector))
		return BT_BY_DEVICE;
	if (!bt_op_wanted(rq->cmd_flags & BT_OP_MASK))
		return BT_BY_OP;
	if (bt_asks_bios() || config.by_pid || config.by_tid || config.nr_comms)
		return BT_NO_BIO;
	return BT_ADMITTED;
}

/* Filters a plug event, which has a task and a device. */
static __always_inline enum bt_reason bt_judge_plug(struct bt_place place)
{
	if (!bt_wanted(place, 0))
		return BT_BY_DEVICE;
	if (bt_asks_bios() || config.ops)
		return BT_NO_BIO;
	return bt_judge_task();
}

/*
 * Adds the child of a recorded process to bt_ids. Removes a process id that was recorded, has been
 * freed, and is reused by a child of another process.
 */
static __always_inline int on_fork(struct task_struct *parent, struct task_struct *child)
{
	__u64 from = BT_ID_PID | (__u32)parent->tgid;
	__u64 to = BT_ID_PID | (__u32)child->tgid;
	__u64 one = 1;

	if (child->pid != child->tgid)
		return 0;
	if (bt_id_wanted(from))
		bpf_map_update_elem(&bt_ids, &to, &one, 0);
	else if (bt_id_wanted(to))
		bpf_map_delete_elem(&bt_ids, &to);
	return 0;
}

#endif
