/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who dirtied the page that a bio of write-back carries: a DIRTIED record behind its Q. The page
 * cache reports a folio when it becomes dirty; a direct-mapped table keeps the task for each, by
 * the folio's address, until another folio takes its slot. A slot that holds another folio is
 * noticed, and the bio then has no record.
 */
#ifndef BIOTRAIL_DIRTIED_H
#define BIOTRAIL_DIRTIED_H

#include "files.h"
#include "path.h"

#define BT_DIRTY_HASH 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */

struct bt_dirty_slot {
	__u64 folio; /* 0: free, or being written */
	__u64 inode; /* address of the inode that the folio belonged to */
	__u64 now; /* ns of CLOCK_MONOTONIC, masked */
	__u64 comm[2];
	__u32 tid;
	__u32 tgid;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bt_dirty_slot));
} bt_dirty_slots SEC(".maps");

static __always_inline struct bt_dirty_slot *bt_dirty_slot(__u64 folio)
{
	__u32 key = folio * BT_DIRTY_HASH >> (64 - BT_DIRTY_SLOT_BITS);

	return bpf_map_lookup_elem(&bt_dirty_slots, &key);
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
	barrier();
	slot->folio = key;
	return 0;
}

/*
 * Writes the DIRTIED record of a bio that writes back its first page, if they are recorded and the
 * folio's slot is of the same inode. Not of direct I/O, whose memory can be a file's dirty page.
 */
static __always_inline void bt_dirtied(struct bt_writer *w, struct bio *bio, const struct bt_q *q)
{
	struct bt_dirty_slot *slot;
	struct bt_host host = {};
	struct bt_dirtied *r;
	__u64 folio, page;

	if (!path.dirty || !q->page || !(q->opf & BT_OP_WRITES))
		return;
	page = bt_read_u64((__u64)&q->page);
	if (!bt_host_by_address(page, q->opf, &host))
		return;
	folio = bt_head_page(page);
	slot = bt_dirty_slot(folio);
	if (!slot || slot->folio != folio || slot->inode != host.address)
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
}

#endif
