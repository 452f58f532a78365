/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A bio that a cgroup's limit held (blk-throttle: io.max, v1's blkio.throttle.*): a HELD record
 * behind its Q. What is held is queued later by a worker, which runs the work of the disk's struct
 * throtl_data then; what the limits let pass is queued by its own thread.
 *
 * Only bios of workers are looked at further. Addresses are scalars to the verifier, as what a
 * worker works on is known by a void pointer.
 */
#ifndef BIOTRAIL_HELD_H
#define BIOTRAIL_HELD_H

#include "block.h"
#include "dictionary.h"

#define BT_WQ_WORKER 0x20 /* PF_WQ_WORKER, include/linux/sched.h */
#define BT_POLICIES 8 /* of cgroups that are looked at; BLKCG_MAX_POLS is 5 or 6 */
#define BT_LIMIT_DEPTH 16 /* cgroups that are looked at, from the bio's upwards */
#define BT_NO_BPS (~0ULL)
#define BT_NO_IOPS (~0U)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct work_struct {
	void *func;
};

struct worker {
	struct work_struct *current_work;
};

struct kthread {
	void *data; /* of a worker: its struct worker */
};

/* A kernel thread's struct kthread: `worker_private` since 5.17. */
struct task_struct___kthread {
	void *worker_private;
};

struct task_struct___old_kthread {
	void *set_child_tid;
};

struct throtl_service_queue {
	struct throtl_service_queue *parent_sq;
};

struct throtl_data {
	struct throtl_service_queue service_queue;
	struct work_struct dispatch_work;
};

struct request_queue___throttled {
	struct throtl_data *td;
};

struct blkcg_gq___policies {
	void *pd[1];
};

struct blkg_policy_data {
	struct blkcg_gq *blkg;
};

/* Limits of [READ] and [WRITE]; up to 6.9 of [READ][2] and [WRITE][2], the second of each is it. */
struct throtl_grp {
	struct throtl_data *td;
	struct throtl_service_queue service_queue;
	__u64 bps[2];
	__u32 iops[2];
};

#pragma clang attribute pop

/* Whether the running task is a worker. flags: the task's, if they were read. */
static __always_inline bool bt_is_worker(__u32 flags)
{
	struct task_struct *task = NULL;

	if (flags == BT_FLAGS_NOT_READ)
		flags = bt_read_u32(bpf_get_current_task() + bpf_core_field_offset(task->flags));
	return flags & BT_WQ_WORKER;
}

/* Returns the address of the struct work_struct that a worker runs; 0: not known. */
static __always_inline __u64 bt_current_work(__u64 task)
{
	struct task_struct___kthread *now = NULL;
	struct task_struct___old_kthread *old = NULL;
	struct kthread *thread = NULL;
	struct worker *worker = NULL;
	__u64 at;

	if (!bpf_core_field_exists(thread->data) || !bpf_core_field_exists(worker->current_work))
		return 0;
	if (bpf_core_field_exists(now->worker_private))
		at = bt_read_u64(task + bpf_core_field_offset(now->worker_private));
	else
		at = bt_read_u64(task + bpf_core_field_offset(old->set_child_tid));
	at = bt_read_u64(at + bpf_core_field_offset(thread->data));
	return bt_read_u64(at + bpf_core_field_offset(worker->current_work));
}

/*
 * Returns the address of the disk's struct throtl_data if the running task is the worker that
 * queues what it held; 0: it is not. flags: the running task's, if they were read.
 */
static __always_inline __u64 bt_held_by(struct bio *bio, __u32 flags)
{
	struct request_queue___throttled *queue;
	struct throtl_data *data = NULL;
	struct gendisk *disk;
	__u64 td = 0;

	if (!bpf_core_field_exists(((struct request_queue___throttled *)0)->td) ||
	    !bpf_core_field_exists(data->dispatch_work))
		return 0;
	if (!bt_is_worker(flags))
		return 0;
	disk = bt_bio_disk(bio);
	if (!disk)
		return 0;
	queue = (void *)disk->queue;
	bpf_probe_read_kernel(&td, sizeof(td), &queue->td);
	if (!td || bt_current_work(bpf_get_current_task()) !=
			   td + bpf_core_field_offset(data->dispatch_work))
		return 0;
	return td;
}

/* Returns the address of the struct throtl_grp of a cgroup on the disk of `td`; 0: not known. */
static __always_inline __u64 bt_throttled_group(__u64 blkg, __u64 td)
{
	struct blkcg_gq___policies *with = NULL;
	struct throtl_grp *group = NULL;

	if (!bpf_core_field_exists(with->pd) || !bpf_core_field_exists(group->td))
		return 0;
	for (__u32 i = 0; i < BT_POLICIES && i < bpf_core_field_size(with->pd) / 8; i++) {
		__u64 at = bt_read_u64(blkg + bpf_core_field_offset(with->pd) + i * 8);

		/* It begins with the policy's data. No other policy's has this address there. */
		if (at && bt_read_u64(at + bpf_core_field_offset(group->td)) == td)
			return at;
	}
	return 0;
}

/* Returns the id of the cgroup of the struct blkcg_gq at an address. */
static __always_inline __u64 bt_id_of_blkg(__u64 address)
{
	struct blkcg_gq *blkg = NULL;
	struct blkcg *group = NULL;

	address = bt_read_u64(address + bpf_core_field_offset(blkg->blkcg));
	return bt_id_of_css(address + bpf_core_field_offset(group->css));
}

/* Adds a cgroup's limits to the record, of a direction (0 reads, 1 writes), if it has any. */
static __always_inline void bt_add_limit(struct bt_held *r, __u64 group, __u32 write)
{
	struct throtl_grp *has = NULL;
	__u32 each = bpf_core_field_size(has->bps) / 16; /* limits of a direction: 1 or 2 */
	__u64 bps = bt_read_u64(group + bpf_core_field_offset(has->bps) +
				8 * ((write + 1) * each - 1));
	__u32 iops = bt_read_u32(group + bpf_core_field_offset(has->iops) +
				 4 * ((write + 1) * each - 1));
	struct blkg_policy_data *data = NULL;

	if (bps == BT_NO_BPS && iops == BT_NO_IOPS)
		return;
	r->limits++;
	if (r->limits > 1)
		return;
	r->bps = bps;
	r->iops = iops;
	r->cgroup = bt_id_of_blkg(bt_read_u64(group + bpf_core_field_offset(data->blkg)));
}

/*
 * Fills in the nearest limit of the bio's cgroups, and how many have one. In v1 a group's queue is
 * below the disk's own; in v2 below that of the cgroup above.
 */
static __always_inline void bt_find_limits(struct bt_held *r, struct bio *bio, __u64 td)
{
	struct throtl_service_queue *queue = NULL;
	struct throtl_data *data = NULL;
	struct throtl_grp *of = NULL;
	__u64 group = bt_throttled_group((__u64)bio->bi_blkg, td);

	for (int i = 0; i < BT_LIMIT_DEPTH && group; i++) {
		__u64 above;

		bt_add_limit(r, group, bio->bi_opf & 1);
		above = bt_read_u64(group + bpf_core_field_offset(of->service_queue) +
				    bpf_core_field_offset(queue->parent_sq));
		if (!above || above == td + bpf_core_field_offset(data->service_queue))
			break;
		group = above - bpf_core_field_offset(of->service_queue);
	}
}

/* Writes the HELD record of a bio, if a limit held it. r: its Q record. */
static __always_inline void bt_write_held(struct bt_writer *w, struct bio *bio)
{
	__u64 td = bt_held_by(bio, w->flags);
	struct bt_held *r;

	if (!td)
		return;
	r = bt_reserve(w, BT_HELD, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->cgroup = 0;
	r->bps = BT_NO_BPS;
	r->iops = BT_NO_IOPS;
	r->limits = 0;
	bt_find_limits(r, bio, td);
}

#endif
