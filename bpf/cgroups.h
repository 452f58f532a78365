/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Cgroups: which are recorded, and what the recorder is told of those that it has not seen.
 *
 * The recorder is told a cgroup's path when the cgroup is made, and when it is charged for a bio
 * for the first time. It knows from the path, and from what it looks up by it, whose the cgroup
 * is, and lists it if it is one that was asked for by name.
 */
#ifndef BIOTRAIL_CGROUPS_H
#define BIOTRAIL_CGROUPS_H

#include "config.h"

#define BT_CGROUP_DEPTH 32
#define BT_VERDICTS 1024
#define BT_COMPONENT 256 /* of a cgroup's name: NAME_MAX and a NUL */

/* Ids of the cgroups to record; those below match too. Filled by the recorder, also later. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} bt_wanted_cgroups SEC(".maps");

/*
 * Changed by the recorder, in bits that ids do not have, behind each change of bt_wanted_cgroups: answers
 * from before are no answers any more.
 */
volatile __u64 bt_salt SEC(".data.cgroups") = 0;

/*
 * Cache of the cgroup filter's answers by cgroup id: id << 1 | wanted, salted, in one word, so that
 * it is never torn. An answer stays right because a cgroup never changes its parent.
 */
__u64 bt_verdicts[BT_VERDICTS] = {};

struct bt_verdict {
	__u64 id;
	__u64 salt; /* from before bt_wanted_cgroups was looked at */
	bool wanted;
};

static __always_inline bool bt_cgroup_listed(__u64 id)
{
	return bpf_map_lookup_elem(&bt_wanted_cgroups, &id);
}

/* Whether the answer for a cgroup is cached; verdict->wanted is it, else false. */
static __always_inline bool bt_verdict_known(struct bt_verdict *verdict, __u64 id)
{
	__u64 word = *(volatile __u64 *)&bt_verdicts[id & (BT_VERDICTS - 1)];

	verdict->id = id;
	verdict->salt = bt_salt;
	verdict->wanted = false;
	word ^= verdict->salt;
	if (word >> 1 != id)
		return false;
	verdict->wanted = word & 1;
	return true;
}

static __always_inline void bt_verdict_keep(const struct bt_verdict *verdict)
{
	*(volatile __u64 *)&bt_verdicts[verdict->id & (BT_VERDICTS - 1)] =
		(verdict->id << 1 | verdict->wanted) ^ verdict->salt;
}

/* What the recorder is told: struct bt_cgroup_told. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, BT_TOLD_BYTES);
} bt_told_ring SEC(".maps");

/* Cgroups that the recorder was told of. One that is displaced is told of again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} bt_told SEC(".maps");

/* Returns the address of the kernfs_node above one; 0: there is none. */
static __always_inline __u64 bt_above(__u64 node)
{
	struct kernfs_node___parent *old = NULL;
	struct kernfs_node___rcu *new = NULL;

	if (bpf_core_field_exists(new->__parent))
		return bt_read_u64(node + bpf_core_field_offset(new->__parent));
	if (bpf_core_field_exists(old->parent))
		return bt_read_u64(node + bpf_core_field_offset(old->parent));
	return 0;
}

/*
 * Tells the recorder a cgroup's path. Without room in the ring the next bio of the cgroup does.
 * node: address of its kernfs_node, a scalar to the verifier. Not inlined, so that programs which
 * find the cgroup told already spill no registers for this.
 */
static __noinline int bt_tell_cgroup(__u64 node, __u64 id)
{
	struct kernfs_node *kn = NULL;
	struct bt_cgroup_told *told;
	__u64 above, one = 1;
	__u32 at = 0;
	long length;

	told = bpf_ringbuf_reserve(&bt_told_ring, sizeof(*told), 0);
	if (!told)
		return 0;
	told->cgroup = id;
	told->whole = 0;
	for (int i = 0; i < BT_CGROUP_LEVELS; i++) {
		above = bt_above(node);
		if (!above) {
			told->whole = 1;
			break;
		}
		if (at > sizeof(told->names) - BT_COMPONENT)
			break;
		length = bpf_probe_read_kernel_str(
			told->names + at, BT_COMPONENT,
			(void *)bt_read_u64(node + bpf_core_field_offset(kn->name)));
		if (length <= 0)
			break;
		at += length & (2 * BT_COMPONENT - 1);
		node = above;
	}
	told->bytes = at;
	bpf_ringbuf_submit(told, 0);
	bpf_map_update_elem(&bt_told, &id, &one, 0);
	return 0;
}

static __always_inline void bt_tell_once(__u64 node, __u64 id)
{
	if (!bpf_map_lookup_elem(&bt_told, &id))
		bt_tell_cgroup(node, id);
}

/* A cgroup was made. Ids of other hierarchies than that which I/O is charged in mean others. */
static __always_inline int on_cgroup_made(struct cgroup *made)
{
	if (made && made->root->hierarchy_id == config.hierarchy)
		bt_tell_once((__u64)made->kn, made->kn->id);
	return 0;
}

#endif
