/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The running task, its cgroups, and the filters by them (config). */
#ifndef BIOTRAIL_TASKS_H
#define BIOTRAIL_TASKS_H

#include "cgroups.h"


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

struct bt_task_slot {
	__u32 tid;
	__u32 tgid;
	__u64 comm[2];
};

#define BT_FLAGS_NOT_READ (~0U)

/*
 * Fills `now` with the running task; bpf_get_current_task_btf() is there since 5.11. Returns the
 * task's flags (PF_*); without it BT_FLAGS_NOT_READ, as few callers need them.
 */
static __always_inline __u32 bt_current(struct bt_task_slot *now)
{
	__u32 flags = BT_FLAGS_NOT_READ;

	if (bpf_core_enum_value_exists(enum bpf_func_id___task,
				       BPF_FUNC_get_current_task_btf___task)) {
		struct task_struct *task = (void *)bpf_get_current_task_btf();
		__u64 *comm = (__u64 *)task->comm;

		now->tid = task->pid;
		now->tgid = task->tgid;
		now->comm[0] = comm[0];
		now->comm[1] = comm[1];
		flags = task->flags;
	} else {
		__u64 ids = bpf_get_current_pid_tgid();

		now->tid = ids;
		now->tgid = ids >> 32;
		bpf_get_current_comm(now->comm, sizeof(now->comm));
	}
	return flags;
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
 * Filters by a css's cgroup, or an ancestor of that cgroup. css: an address that is a scalar to the
 * verifier, as tasks' cgroups are RCU pointers; 0: does not match.
 */
static __always_inline bool bt_css_wanted(__u64 css)
{
	struct cgroup_subsys_state *none = NULL;
	struct bt_verdict verdict;

	if (!css)
		return false;
	if (bt_verdict_known(&verdict, bt_id_of_css(css)))
		return verdict.wanted;
	for (int i = 0; i < BT_CGROUP_DEPTH && css; i++) {
		if (bt_cgroup_listed(bt_id_of_css(css))) {
			verdict.wanted = true;
			break;
		}
		css = bt_read_u64(css + bpf_core_field_offset(none->parent));
	}
	bt_verdict_keep(&verdict);
	return verdict.wanted;
}

/*
 * Filters by the cgroup that bios of the running thread are charged to where nothing else decides:
 * its css of the io controller.
 */
static __always_inline bool bt_cgroup_of_task_wanted(void)
{
	return bt_css_wanted(bt_css_of_task());
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
