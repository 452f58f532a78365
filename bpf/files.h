/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The file that a bio moves data of (direct.h): a FILE record after its Q. Before the first FILE
 * record of a file come FILE_NAME records with its path, one component each; again when another
 * file has replaced it in its cache slot, or the path has changed.
 */
#ifndef BIOTRAIL_FILES_H
#define BIOTRAIL_FILES_H

#include "direct.h"

#define BT_FILE_SLOT_BITS 15 /* recorder/log/names.py has the same */
#define BT_FILE_HASH 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */
#define BT_NAME_RECORDS 32 /* at most, for one path */
#define BT_NAME_LEVELS 3 /* a file's name and those of the directories next above, looked at for renames */

/* Empty ones are no file's: these have the dev of a file system. */
struct bt_file_slot {
	__u64 inode;
	__u32 dev;
	__u32 generation;
	__u64 names; /* bt_names_of() when the path was written; 0: not known */
};

/* The loader sets 2^BT_FILE_SLOT_BITS entries if files are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bt_file_slot);
} bt_file_slots SEC(".maps");

/*
 * Writes the path's components from the file up to its file system's root, long ones in pieces.
 * The root itself has the component "/". false: the ring is full, or there is no
 * dentry, or a loose one.
 */
static __always_inline bool bt_write_names(struct bt_writer *w, const struct bt_host *host)
{
	__u64 dentry = bt_dentry_of(host->address), parent, above, name;
	struct inode *inode = NULL;
	struct bt_file_name *r;
	__u32 links = bt_read_u32(host->address + bpf_core_field_offset(inode->i_nlink));
	__u8 level = 0, piece = 0;

	parent = dentry ? bt_parent_of(dentry) : 0;
	if (parent == dentry && (!dentry || !bt_is_root(dentry, host->address)))
		return false;
	name = bt_name_of(dentry);
	for (int i = 0; i < BT_NAME_RECORDS; i++) {
		r = bt_reserve(w, BT_FILE_NAME, sizeof(*r));
		if (!r)
			return false;
		r->inode = host->inode;
		r->dev = host->dev;
		r->generation = host->generation;
		r->level = level;
		r->piece = piece;
		r->flags = links ? 0 : BT_FILE_NAME_DELETED;
		r->reserved = 0;
		__builtin_memset(r->component, 0, sizeof(r->component));
		if (bpf_probe_read_kernel_str(r->component, sizeof(r->component),
					      (void *)name) == sizeof(r->component)) {
			piece++;
			name += sizeof(r->component) - 1;
		} else {
			above = bt_parent_of(parent);
			if (!parent || above == parent) {
				r->flags |= BT_FILE_NAME_LAST;
				return true;
			}
			name = bt_name_of(parent);
			parent = above;
			level++;
			piece = 0;
		}
		if (i == BT_NAME_RECORDS - 1)
			r->flags |= BT_FILE_NAME_LAST | BT_FILE_NAME_CUT;
	}
	return true;
}

/*
 * Returns a number that changes when the file or one of the directories next above it is renamed; 0:
 * not known. A name's hash (d_name.hash_len) depends on its directory, too. Each step is one read
 * where the members adjoin, as this is done for each bio.
 */
static __always_inline __u64 bt_names_of(__u64 inode_address)
{
	struct dentry *dentry = NULL;
	__u64 names = 0, at = bt_dentry_of(inode_address);
	struct {
		__u64 parent;
		__u64 hash_len;
	} now;

	for (int i = 0; at && i < BT_NAME_LEVELS; i++) {
		if (bpf_core_field_offset(dentry->d_name) ==
		    bpf_core_field_offset(dentry->d_parent) + 8) {
			if (bpf_probe_read_kernel(&now, sizeof(now),
						  (void *)(at + bpf_core_field_offset(dentry->d_parent))))
				return 0;
		} else {
			now.parent = bt_parent_of(at);
			now.hash_len = bt_read_u64(at + bpf_core_field_offset(dentry->d_name));
		}
		names = (names + now.hash_len) * BT_FILE_HASH;
		if (now.parent == at)
			break;
		at = now.parent;
	}
	return names;
}

/* Whether a path with other names is another path: of several links any may be the one at hand. */
static __always_inline bool bt_has_one_link(__u64 inode_address)
{
	struct inode *inode = NULL;

	return bt_read_u32(inode_address + bpf_core_field_offset(inode->i_nlink)) == 1;
}

/* Writes the file's path unless it is cached, and as it was. */
static __always_inline void bt_name_file(struct bt_writer *w, const struct bt_host *host)
{
	__u32 place = ((host->inode + ((__u64)host->dev << 32)) * BT_FILE_HASH) >>
		      (64 - BT_FILE_SLOT_BITS);
	struct bt_file_slot *slot = bpf_map_lookup_elem(&bt_file_slots, &place);
	__u64 names;

	if (!slot)
		return;
	names = bt_names_of(host->address);
	if (slot->inode == host->inode && slot->dev == host->dev &&
	    slot->generation == host->generation &&
	    (!names || !slot->names || slot->names == names || !bt_has_one_link(host->address)))
		return;
	if (!bt_write_names(w, host))
		return;
	slot->inode = host->inode;
	slot->dev = host->dev;
	slot->generation = host->generation;
	slot->names = names;
}

/*
 * Writes the FILE record of a bio, if it has a file. r: its Q record. Not inlined, so that in a
 * recording without files, where the verifier removes the call, on_queue() spills no registers.
 */
static __noinline int bt_put_file(struct bt_writer *w, struct bio *bio, struct bt_q *r)
{
	struct inode *inode = NULL;
	struct bt_file *record;
	struct bt_host host;

	if (!bt_can_identify_files() ||
	    !bt_host_of(bio, r->page, r->opf, &w->area->scratch[w->level], &host))
		return 0;
	if ((host.mode & BT_MODE_TYPE) == BT_MODE_BLOCK) {
		/* Old kernels leave i_ino of these inodes unset: i_rdev takes its place. */
		if (host.address)
			host.inode = bt_read_u32(host.address +
						 bpf_core_field_offset(inode->i_rdev));
		host.dev = 0;
	} else {
		bt_name_file(w, &host);
	}
	record = bt_reserve(w, BT_FILE, sizeof(*record));
	if (!record)
		return 0;
	record->bio = (__u64)bio;
	record->inode = host.inode;
	record->dev = host.dev;
	record->generation = host.generation;
	return 0;
}

static __always_inline void bt_file(struct bt_writer *w, struct bio *bio, struct bt_q *r)
{
	if (config.files)
		bt_put_file(w, bio, r);
}

#endif
