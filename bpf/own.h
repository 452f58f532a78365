/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Recognizes the recording's own I/O: bios queued by the recorder's process, and write-back of
 * files that it writes. Write-back is done by kworkers, so there the page's inode decides. What a
 * file system writes besides (journal, metadata, copies that it compresses or encrypts) has no
 * page of the file and counts as I/O of others.
 *
 * Pages are read by bpf_probe_read_kernel() at addresses that are scalars to the verifier, as it
 * has no typed pointer to a clone's page or a compound page's head. A read that faults gives 0.
 */
#ifndef BIOTRAIL_OWN_H
#define BIOTRAIL_OWN_H

#include "block.h"
#include "dictionary.h"
#include "pages.h"

/* How files are known, and which are filtered by; recorder/probes/file_ways.py fills it. */
const volatile struct bt_file_ways ways SEC(".rodata.files") = {};

/* recorder/probes/core.py fills it. */
volatile struct bt_own_file bt_own_files[BT_OWN_FILES] SEC(".data.own") = {};

/* include/uapi/linux/bpf.h */
struct bpf_pidns_info {
	__u32 pid;
	__u32 tgid;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct address_space;
struct page {
	unsigned long flags;
	unsigned long compound_head; /* bit 0: a tail; the rest is the head's address */
	struct address_space *mapping;
};

/* Since 7.1: bit 0 as before; the rest may be a mask (bt_head_by_word). */
struct page___info {
	unsigned long compound_info;
};

struct super_block {
	__u32 s_dev;
};

struct hlist_node;
struct hlist_head {
	struct hlist_node *first;
};

struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_nlink;
	__u32 i_rdev;
	__u32 i_generation;
	struct hlist_head i_dentry;
};

struct address_space {
	struct inode *host;
};

#pragma clang attribute pop

/* Low bits of page->mapping that are set if it is no address_space (PAGE_MAPPING_FLAGS). */
#define BT_NO_FILE 3
#define BT_MOVABLE 2 /* PAGE_MAPPING_MOVABLE: pages of the kernel's own */

/* Returns the head page of a compound page's tail page; otherwise the page itself. */
static __always_inline __u64 bt_head_page(__u64 page)
{
	struct page *old = NULL;
	struct page___info *new = NULL;

	if (bpf_core_field_exists(old->compound_head))
		return bt_head_by_word(
			page, bt_read_u64(page + bpf_core_field_offset(old->compound_head)), false);
	if (bpf_core_field_exists(new->compound_info))
		return bt_head_by_word(
			page, bt_read_u64(page + bpf_core_field_offset(new->compound_info)), true);
	return page;
}

/* Whether an inode is one of bt_own_files. Its number is compared first, as it mostly differs. */
static __always_inline bool bt_own_inode(__u64 host)
{
	struct super_block *sb = NULL;
	struct inode *inode = NULL;
	__u64 number = bt_read_u64(host + bpf_core_field_offset(inode->i_ino));

	for (int i = 0; i < BT_OWN_FILES; i++) {
		volatile struct bt_own_file *file = &bt_own_files[i];
		__u64 super;

		if (!file->inode)
			return false;
		if (file->inode != number)
			continue;
		super = bt_read_u64(host + bpf_core_field_offset(inode->i_sb));
		if (file->dev != bt_read_u32(super + bpf_core_field_offset(sb->s_dev)))
			continue;
		if (!file->has_generation ||
		    file->generation ==
			    bt_read_u32(host + bpf_core_field_offset(inode->i_generation)))
			return true;
	}
	return false;
}

static __always_inline bool bt_own_page(__u64 page)
{
	struct address_space *space = NULL;
	struct page *cached = NULL;
	__u64 mapping;

	if (!bpf_core_field_exists(cached->mapping))
		return false;
	/* A copy is a scalar to the verifier, which permits no arithmetic on a pointer. */
	page = bt_read_u64((__u64)&page);
	mapping = bt_read_u64(bt_head_page(page) + bpf_core_field_offset(cached->mapping));
	if (!mapping || mapping & BT_NO_FILE)
		return false;
	return bt_own_inode(bt_read_u64(mapping + bpf_core_field_offset(space->host)));
}

/*
 * Whether the running task is the recorder's process. In a container the recorder knows its id
 * only in its pid namespace.
 */
static __always_inline bool bt_by_recorder(__u32 tgid)
{
	struct bpf_pidns_info here = {};

	if (config.ns_inode) {
		if (bpf_get_ns_current_pid_tgid(config.ns_dev, config.ns_inode, &here,
						sizeof(here)))
			return false;
		tgid = here.tgid;
	}
	return config.recorder && tgid == config.recorder;
}

/* Whether the operation can be a write of a file's pages, and the recorder writes any file. */
static __always_inline bool bt_writes_file(__u32 opf)
{
	__u32 op = opf & BT_OP_MASK;

	return op <= BT_MAX_OP && (config.file_ops >> op & 1) && bt_own_files[0].inode;
}

/* As bt_is_own, for filters, which have no record yet. */
static __always_inline bool bt_bio_is_own(struct bio *bio)
{
	struct bt_task_slot now;
	__u64 page;

	bt_current(&now);
	if (bt_by_recorder(now.tgid))
		return true;
	if (!bt_writes_file(bio->bi_opf))
		return false;
	page = bt_bio_page(bio, bio->bi_opf);
	return page && bt_own_page(page);
}

static __always_inline bool bt_listed(__u64 inode)
{
	for (int i = 0; i < BT_OWN_FILES; i++) {
		if (!bt_own_files[i].inode)
			return false;
		if (bt_own_files[i].inode == inode)
			return true;
	}
	return false;
}

/*
 * A fast test by direct loads of a typed pointer's members; false: the bio writes no file of the
 * recorder. Spares other writers' bios the slow reads of bt_own_page. Pointers are followed only
 * if they can be valid, as a faulting load is slow. word: memory through which a pointer passes, so
 * that the verifier takes it for a scalar whose bits may be tested.
 */
static __always_inline bool bt_may_be_own(struct bio *bio, volatile __u64 *word)
{
	struct page *page = bio->bi_io_vec->bv_page;

	if (bpf_core_field_exists(page->compound_head))
		*word = page->compound_head;
	else if (bpf_core_field_exists(((struct page___info *)page)->compound_info))
		*word = ((struct page___info *)page)->compound_info;
	else
		return true;
	if (*word & 1 || bio->bi_iter.bi_idx)
		return true;
	if (!bpf_core_field_exists(page->mapping))
		return false;
	*word = (__u64)page->mapping;
	if (!*word || *word & BT_NO_FILE)
		return false;
	/*
	 * Memory of the kernel's own (slab) has something else there, and this load may fault. Where
	 * the program consists of several functions, as with files, it must not on kernels before
	 * 6.4: for a fault in the first of them these have no exception table, and crash (5.10 did).
	 */
	return ways.split || bt_listed(page->mapping->host->i_ino);
}

/*
 * Whether a bio is the recording's own I/O. tgid: the running task's. r: the bio's Q record;
 * overwrites r->cgroup, which the caller fills in afterwards.
 */
static __always_inline bool bt_is_own(struct bio *bio, __u32 tgid, struct bt_q *r)
{
	if (bt_by_recorder(tgid))
		return true;
	return bt_writes_file(r->opf) && r->page && bt_may_be_own(bio, &r->cgroup) &&
	       bt_own_page(r->page);
}

#endif
