/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Cgroups: which are recorded, and the paths of those that the recorder has not seen.
 *
 * A cgroup's path is sent to the recorder when the cgroup is made, and when it is charged for a bio
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

/* Paths of cgroups for the recorder: struct bt_cgroup_path. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, BT_CGROUP_RING_BYTES);
} bt_cgroup_ring SEC(".maps");

/* Cgroups whose path was sent. The path of one that is displaced is sent again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} bt_cgroups_sent SEC(".maps");

/* Returns the address of the kernfs_node above one; 0: there is none. */
static __always_inline __u64 bt_kernfs_parent(__u64 node)
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
 * Sends the recorder a cgroup's path; where the ring is full the next bio of the cgroup does.
 * node: address of its kernfs_node, a scalar to the verifier. Not inlined, so that programs which
 * find the path sent already spill no registers for this.
 */
static __noinline int bt_send_cgroup(__u64 node, __u64 id)
{
	struct kernfs_node *kn = NULL;
	struct bt_cgroup_path *path;
	__u64 above, one = 1;
	__u32 at = 0;
	long length;

	path = bpf_ringbuf_reserve(&bt_cgroup_ring, sizeof(*path), 0);
	if (!path)
		return 0;
	path->cgroup = id;
	path->whole = 0;
	for (int i = 0; i < BT_CGROUP_LEVELS; i++) {
		above = bt_kernfs_parent(node);
		if (!above) {
			path->whole = 1;
			break;
		}
		if (at > sizeof(path->names) - BT_COMPONENT)
			break;
		length = bpf_probe_read_kernel_str(
			path->names + at, BT_COMPONENT,
			(void *)bt_read_u64(node + bpf_core_field_offset(kn->name)));
		if (length <= 0)
			break;
		at += length & (2 * BT_COMPONENT - 1);
		node = above;
	}
	path->bytes = at;
	bpf_ringbuf_submit(path, 0);
	bpf_map_update_elem(&bt_cgroups_sent, &id, &one, 0);
	return 0;
}

static __always_inline void bt_send_cgroup_once(__u64 node, __u64 id)
{
	if (!bpf_map_lookup_elem(&bt_cgroups_sent, &id))
		bt_send_cgroup(node, id);
}

/* A cgroup was made. Ids of other hierarchies than that which I/O is charged in mean others. */
static __always_inline int on_cgroup_made(struct cgroup *made)
{
	if (made && made->root->hierarchy_id == config.hierarchy)
		bt_send_cgroup_once((__u64)made->kn, made->kn->id);
	return 0;
}

#endif
