/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a bio's first page is: flags of its Q. Who dirtied the page that a bio of write-back
 * carries: a DIRTIED record behind its Q. The page
 * cache reports a folio when it becomes dirty; a direct-mapped table keeps the task for each, by
 * the folio's address, until another folio takes its slot. A slot that holds another folio is
 * noticed, and the bio then has no record.
 */
#ifndef BIOTRAIL_DIRTIED_H
#define BIOTRAIL_DIRTIED_H

#include "files.h"
#include "filters.h"
#include "path.h"

#define BT_DIRTY_HASH 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */

/* Aliases of other flags in the kernel. */
enum pageflags___swap { PG_swapcache___swap, PG_swapbacked___swap };

struct bt_dirty_slot {
	__u64 folio; /* 0: free, or being written */
	__u64 inode; /* address of the inode that the folio belonged to */
	__u64 now; /* ns of CLOCK_MONOTONIC, masked */
	__u64 comm[2];
	__u64 cgroup;
	__u32 tid;
	__u32 tgid;
	__u64 reserved; /* a cache line in all */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bt_dirty_slot));
} bt_dirty_slots SEC(".maps");

static __always_inline struct bt_dirty_slot *bt_dirty_slot(__u64 folio)
{
	__u32 key = folio * BT_DIRTY_HASH >> path.dirty_shift;

	return bpf_map_lookup_elem(&bt_dirty_slots, &key);
}

/*
 * Returns the id of the running thread's cgroup, in the hierarchy that block I/O is charged in; 0:
 * not known. In cgroup v2 it is the thread's own one, even if the io controller is off there.
 */
static __always_inline __u64 bt_cgroup_of_task(void)
{
	struct task_struct___cgroups *task;
	struct css_set *set = NULL;
	__u64 css;

	if (!path.unified) {
		css = bt_css_of_task();
		return css ? bt_id_of_css(css) : 0;
	}
	if (!bpf_core_field_exists(set->dfl_cgrp))
		return 0;
	if (!bpf_core_enum_value_exists(enum bpf_func_id___task,
					BPF_FUNC_get_current_task_btf___task))
		return bt_id_of_cgroup(
			bt_read_u64(bt_css_set() + bpf_core_field_offset(set->dfl_cgrp)));
	task = (void *)bpf_get_current_task_btf();
	return task->cgroups->dfl_cgrp->kn->id;
}

/*
 * A folio became dirty. Its address and the mapping's are copies: scalars to the verifier, which
 * allows no arithmetic on a typed pointer.
 */
static __always_inline int on_dirty(__u64 folio, __u64 mapping)
{
	struct address_space *space = NULL;
	struct bt_dirty_slot *slot;
	struct bt_task_slot now;
	__u64 at = 0, key = 0;

	bt_runs()->dirty++;
	bpf_probe_read_kernel(&key, sizeof(key), &folio);
	bpf_probe_read_kernel(&at, sizeof(at), &mapping);
	slot = bt_dirty_slot(key);
	if (!slot || !at)
		return 0;
	bt_current(&now);
	slot->folio = 0;
	barrier();
	slot->inode = bt_read_u64(at + bpf_core_field_offset(space->host));
	slot->now = bt_now();
	slot->comm[0] = now.comm[0];
	slot->comm[1] = now.comm[1];
	slot->tid = now.tid;
	slot->tgid = now.tgid;
	slot->cgroup = bt_cgroup_of_task();
	barrier();
	slot->folio = key;
	return 0;
}

/* Whether a page of no file, with these flags, is being swapped in or out. */
static __always_inline bool bt_swaps(__u64 flags, __u32 opf)
{
	__u64 asked = bt_transit_bit(opf);

	if (!bpf_core_enum_value_exists(enum pageflags___swap, PG_swapcache___swap) ||
	    !bpf_core_enum_value_exists(enum pageflags___swap, PG_swapbacked___swap))
		return false;
	asked |= 1ULL << bpf_core_enum_value(enum pageflags___swap, PG_swapcache___swap);
	asked |= 1ULL << bpf_core_enum_value(enum pageflags___swap, PG_swapbacked___swap);
	return (flags & asked) == asked;
}

/*
 * Returns what a bio's first page is (BT_Q_FLAG_*), 0: none of these, as with direct I/O, whose
 * memory can be a file's page or a swapped one. A page that the page cache or swap moves is locked
 * while it is read, under write-back while it is written. page: the head's, a scalar to the
 * verifier. inode: set to the address of a file's inode.
 */
static __always_inline __u32 bt_page_kind(__u64 page, __u32 opf, __u64 *inode)
{
	struct address_space *space = NULL;
	struct inode *host = NULL;
	struct page *cached = NULL;
	__u64 mapping = bt_read_u64(page + bpf_core_field_offset(cached->mapping));
	__u64 flags = bt_page_flags(page);

	if (!mapping || mapping & BT_NO_FILE)
		return bt_swaps(flags, opf) ? BT_Q_FLAG_SWAP : 0;
	*inode = bt_read_u64(mapping + bpf_core_field_offset(space->host));
	if (!*inode)
		return bt_swaps(flags, opf) ? BT_Q_FLAG_SWAP : 0;
	if ((bt_read_u32(*inode + bpf_core_field_offset(host->i_mode)) & BT_MODE_TYPE) ==
	    BT_MODE_BLOCK)
		return BT_Q_FLAG_DEVICE;
	return flags & bt_transit_bit(opf) ? BT_Q_FLAG_FILE : 0;
}

/*
 * As bt_page_kind, but by direct loads, which are faster and which a typed pointer allows. word:
 * memory through which pointers pass, so that the verifier takes them for scalars.
 */
static __always_inline __u32 bt_kind_by_type(struct page *page, __u32 opf, volatile __u64 *word,
					     __u64 *inode)
{
	struct inode *host;
	__u64 flags;

	if (bpf_core_field_exists(page->flags))
		flags = page->flags;
	else
		flags = ((struct page___memdesc *)page)->flags.f;
	*word = (__u64)page->mapping;
	if (!*word || *word & BT_NO_FILE)
		return bt_swaps(flags, opf) ? BT_Q_FLAG_SWAP : 0;
	host = page->mapping->host;
	*word = (__u64)host;
	*inode = *word;
	if (!*inode)
		return bt_swaps(flags, opf) ? BT_Q_FLAG_SWAP : 0;
	if ((host->i_mode & BT_MODE_TYPE) == BT_MODE_BLOCK)
		return BT_Q_FLAG_DEVICE;
	return flags & bt_transit_bit(opf) ? BT_Q_FLAG_FILE : 0;
}

/*
 * If dirtying tasks are recorded, marks in `q` what the bio's first page is, and writes the
 * DIRTIED record of a bio that writes it back, if the folio's slot is of the same inode.
 */
static __always_inline void bt_dirtied(struct bt_writer *w, struct bio *bio, struct bt_q *q)
{
	volatile __u64 *word = &w->area->scratch[w->level];
	struct bt_dirty_slot *slot;
	struct bt_dirtied *r;
	__u64 folio, inode = 0;
	struct page *page;
	__u32 kind;

	if (!path.dirty || !q->page || !bt_tells_files())
		return;
	page = bio->bi_io_vec->bv_page;
	if (!ways.split && bt_is_head(bio, page, word)) { /* why: bt_may_be_own() */
		kind = bt_kind_by_type(page, q->opf, word, &inode);
		*word = q->page;
		folio = *word;
	} else {
		*word = q->page;
		folio = bt_head_page(*word);
		kind = bt_page_kind(folio, q->opf, &inode);
	}
	q->flags |= kind;
	if (!(kind & (BT_Q_FLAG_FILE | BT_Q_FLAG_DEVICE)) || !(q->opf & BT_OP_WRITES))
		return;
	slot = bt_dirty_slot(folio);
	if (!slot || slot->folio != folio || slot->inode != inode)
		return;
	r = bt_reserve(w, BT_DIRTIED, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->ago = w->now - slot->now;
	r->tid = slot->tid;
	r->tgid = slot->tgid;
	((__u64 *)r->comm)[0] = slot->comm[0];
	((__u64 *)r->comm)[1] = slot->comm[1];
	r->cgroup = slot->cgroup;
}

#endif
