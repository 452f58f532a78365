/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The filters --file and --dir: whether a bio's file (direct.h) is one of those wanted, or below a
 * wanted directory. A file is below the directories in which the kernel has it in memory by name
 * (dentries) when the bio is queued; the answer is kept by the directory that holds the file.
 */
#ifndef BIOTRAIL_FILE_FILTER_H
#define BIOTRAIL_FILE_FILTER_H

#include "direct.h"
#include "reasons.h"

#define BT_DIRECTORY_DEPTH 128 /* directories above a file that are followed */

/* Filled by the loader, which sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct bt_wanted_file);
	__type(value, struct bt_generation_of);
} bt_wanted_files SEC(".maps");

struct bt_directory {
	__u64 inode;
	__u32 dev;
	__u32 generation;
};

/* 1: files in this directory are wanted; 0: they are not. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct bt_directory);
	__type(value, __u64);
} bt_directories SEC(".maps");

/* Fills `at` with an inode's identity as stat() gives it: on btrfs with the subvolume's dev_t. */
static __always_inline void bt_identify(__u64 inode_address, struct bt_directory *at)
{
	struct super_block___files *more = NULL;
	struct super_block *sb = NULL;
	struct inode *inode = NULL;
	__u64 super = bt_read_u64(inode_address + bpf_core_field_offset(inode->i_sb));
	__u32 dev = 0;

	at->inode = bt_read_u64(inode_address + bpf_core_field_offset(inode->i_ino));
	at->generation = bt_read_u32(inode_address + bpf_core_field_offset(inode->i_generation));
	if (ways.btrfs &&
	    bt_read_u64(super + bpf_core_field_offset(more->s_magic)) == BT_BTRFS_MAGIC)
		dev = bt_read_u32(bt_btrfs_root(inode_address) + ways.btrfs_root_dev);
	at->dev = dev ? dev : bt_read_u32(super + bpf_core_field_offset(sb->s_dev));
}

static __always_inline bool bt_file_listed(const struct bt_directory *at, __u32 directory)
{
	struct bt_wanted_file key = { at->inode, at->dev, directory };
	struct bt_generation_of *of = bpf_map_lookup_elem(&bt_wanted_files, &key);

	return of && (!of->known || of->generation == at->generation);
}

static __always_inline __u64 bt_inode_of(__u64 dentry_address)
{
	struct dentry *dentry = NULL;

	return bt_read_u64(dentry_address + bpf_core_field_offset(dentry->d_inode));
}

/* Looks for a wanted directory among a directory and those above it. */
static __always_inline enum bt_reason bt_judge_directories(__u64 dentry)
{
	struct bt_directory at = {};
	__u64 inode, above;

	for (int i = 0; i < BT_DIRECTORY_DEPTH; i++) {
		inode = bt_inode_of(dentry);
		if (!inode)
			return BT_DIR_UNKNOWN;
		bt_identify(inode, &at);
		if (bt_file_listed(&at, 1))
			return BT_ADMITTED;
		above = bt_parent_of(dentry);
		if (above == dentry)
			return bt_is_root(dentry, inode) ? BT_BY_FILE : BT_DIR_UNKNOWN;
		dentry = above;
	}
	return BT_DIR_UNKNOWN;
}

/* Judges a file by the directories that it is in. */
static __always_inline enum bt_reason bt_judge_place(__u64 inode_address)
{
	__u64 dentry = bt_dentry_of(inode_address), parent, inode, wanted;
	struct bt_directory at = {};
	enum bt_reason reason;
	__u64 *known;

	parent = dentry ? bt_parent_of(dentry) : 0;
	if (parent == dentry) /* no name in memory, or a loose piece of a tree */
		return BT_DIR_UNKNOWN;
	inode = bt_inode_of(parent);
	if (!inode)
		return BT_DIR_UNKNOWN;
	bt_identify(inode, &at);
	known = bpf_map_lookup_elem(&bt_directories, &at);
	if (known)
		return *known ? BT_ADMITTED : BT_BY_FILE;
	reason = bt_judge_directories(parent);
	wanted = reason == BT_ADMITTED;
	if (reason != BT_DIR_UNKNOWN)
		bpf_map_update_elem(&bt_directories, &at, &wanted, 0);
	return reason;
}

/* Not inlined: it would make the programs that judge bios too large for the verifier. */
static __noinline int bt_judge_file(struct bio *bio, volatile __u64 *word)
{
	struct bt_host host = {};
	struct bt_directory at = {};
	__u32 opf = bio->bi_opf;
	__u64 page;

	page = bt_bio_page(bio, opf);
	if (!bt_can_identify_files() || !bt_host_of(bio, page, opf, word, &host))
		return BT_FILE_UNKNOWN;
	if ((host.mode & BT_MODE_TYPE) == BT_MODE_BLOCK)
		return BT_BY_FILE;
	bt_identify(host.address, &at);
	if (bt_file_listed(&at, 0))
		return BT_ADMITTED;
	return ways.by_dir ? bt_judge_place(host.address) : BT_BY_FILE;
}

#endif
