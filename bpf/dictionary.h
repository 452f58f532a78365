/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TASK and CGROUP records: names, written before the first record that has the task's or cgroup's
 * id, and again when the name has changed or another id has replaced it in its cache slot.
 * recorder/log/names.py mirrors these direct-mapped caches, with as many slots.
 */
#ifndef BIOTRAIL_DICTIONARY_H
#define BIOTRAIL_DICTIONARY_H

#include "ring.h"
#include "tasks.h"

#define BT_TASK_SLOTS 16384
#define BT_CGROUP_SLOTS 1024

/*
 * The caches, shared by all CPUs without a lock: a slot torn by two writers matches no task, so
 * the worst case is one more record. No name has an empty slot: cgroups have ids from 1 on, and
 * only idle threads, whose names are not empty, have the id 0.
 */
struct bt_task_slot bt_tasks[BT_TASK_SLOTS] = {};
__u64 bt_cgroups[BT_CGROUP_SLOTS] = {}; /* ids */

static __always_inline struct bt_task_slot *bt_slot_of(__u32 tid)
{
	return &bt_tasks[tid & (BT_TASK_SLOTS - 1)];
}

static __always_inline bool bt_is_cached(const struct bt_task_slot *slot, const struct bt_task_slot *now)
{
	return slot->tid == now->tid && slot->tgid == now->tgid && slot->comm[0] == now->comm[0] &&
	       slot->comm[1] == now->comm[1];
}

static __always_inline void bt_write_task(struct bt_writer *w, struct bt_task_slot *slot,
					  const struct bt_task_slot *now)
{
	struct bt_task *record = bt_reserve(w, BT_TASK, sizeof(*record));

	if (!record)
		return;
	record->tid = now->tid;
	record->tgid = now->tgid;
	((__u64 *)record->comm)[0] = now->comm[0];
	((__u64 *)record->comm)[1] = now->comm[1];
	*slot = *now;
}

/*
 * Writes the name of the running thread's process, which is its thread-group leader's, with the
 * thread's own: the leader may never do what is recorded.
 */
static __always_inline void bt_leader(struct bt_writer *w, const struct bt_task_slot *thread)
{
	struct task_struct *task = NULL;
	struct bt_task_slot now = {};
	struct bt_task_slot *slot;
	__u64 leader;

	leader = bt_read_u64(bpf_get_current_task() + bpf_core_field_offset(task->group_leader));
	now.tid = thread->tgid;
	now.tgid = thread->tgid;
	if (bpf_probe_read_kernel(now.comm, sizeof(now.comm),
				  (void *)(leader + bpf_core_field_offset(task->comm))))
		return;
	slot = bt_slot_of(now.tid);
	if (!bt_is_cached(slot, &now))
		bt_write_task(w, slot, &now);
}

/* Writes a TASK record of a thread, which need not be the running one, if it is not cached. */
static __always_inline void bt_name_task(struct bt_writer *w, const struct bt_task_slot *now)
{
	struct bt_task_slot *slot = bt_slot_of(now->tid);

	if (!bt_is_cached(slot, now))
		bt_write_task(w, slot, now);
}

/* Returns the running thread's id; sets w->tgid and w->flags; writes a TASK record if it is not cached. */
static __always_inline __u32 bt_task(struct bt_writer *w)
{
	struct bt_task_slot now, *slot;

	w->flags = bt_current(&now);
	w->tgid = now.tgid;
	slot = bt_slot_of(now.tid);
	if (bt_is_cached(slot, &now))
		return now.tid;
	if (now.tid != now.tgid)
		bt_leader(w, &now);
	bt_write_task(w, slot, &now);
	return now.tid;
}

static __always_inline void bt_write_cgroup(struct bt_writer *w, struct kernfs_node *kn, __u64 id)
{
	__u64 *slot = &bt_cgroups[id & (BT_CGROUP_SLOTS - 1)];
	struct bt_cgroup *record;

	if (*slot == id)
		return;
	record = bt_reserve(w, BT_CGROUP, sizeof(*record));
	if (!record)
		return;
	record->cgroup = id;
	__builtin_memset(record->name, 0, sizeof(record->name));
	bpf_probe_read_kernel_str(record->name, sizeof(record->name), kn->name);
	*slot = id;
	bt_send_cgroup_once((__u64)kn, id);
}

/*
 * Returns the id of the cgroup that is charged for the bio, 0 if there is none; writes a CGROUP
 * record if the id is not cached.
 */
static __always_inline __u64 bt_cgroup(struct bt_writer *w, struct bio *bio)
{
	struct blkcg_gq *blkg;
	struct kernfs_node *kn;
	__u64 id;

	if (!bpf_core_field_exists(bio->bi_blkg))
		return 0;
	blkg = bio->bi_blkg;
	if (!blkg)
		return 0;
	kn = blkg->blkcg->css.cgroup->kn;
	id = kn->id;
	if (id)
		bt_write_cgroup(w, kn, id);
	return id;
}

#endif
