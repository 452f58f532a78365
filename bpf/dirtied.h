/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a bio's first page is: flags of its Q. Who dirtied the page that a bio of write-back
 * carries: a DIRTIED record behind its Q.
 *
 * The page cache reports a folio when it becomes dirty. A table keeps that in eight bytes
 * (dirty_slots.h) until another folio takes the slot, and the bio then has no record. The tag is of
 * folio and inode: a bio whose slots are others' takes one of these for its own once in 2^24 times.
 * The writer is the place in a table of tasks, which is written when a task dirties its first folio,
 * or has another name or cgroup since; whoever had that place before is told from it by time.
 */
#ifndef BIOTRAIL_DIRTIED_H
#define BIOTRAIL_DIRTIED_H

#include "dirty_slots.h"
#include "files.h"
#include "filters.h"
#include "path.h"

/* Aliases of other flags in the kernel. */
enum pageflags___swap { PG_swapcache___swap, PG_swapbacked___swap };

#define BT_DIRTY_CHECK 64 /* ticks after which a writer's cgroup is looked at again */
#define BT_WRITER_WAYS 4
#define BT_WRITER_SETS (1U << BT_DIRTY_TIME >> 2)

/* The loader sets 2^n entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* begins at a line of the cache */
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} bt_dirty_slots SEC(".maps");

/* A task that dirties folios, with the name and in the cgroup that it has; times in ticks. */
struct bt_dirty_writer {
	__u64 since; /* slots of before are of the one that was here */
	__u64 used; /* of its newest slot; 0: this place is free */
	__u64 css_set; /* address of its cgroups: another one if it moved */
	__u64 cgroup;
	__u64 comm[2];
	__u32 tid;
	__u32 tgid;
	__u64 reserved; /* a line of the cache in all */
};

struct bt_dirty_writers {
	struct bt_dirty_writer ways[BT_WRITER_WAYS];
};

/* By the low bits of the thread's id. The loader sets BT_WRITER_SETS entries if it is used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bt_dirty_writers));
} bt_dirty_writers SEC(".maps");

/* Returns the first or second slot of the folio at an address; NULL only for the verifier. */
static __always_inline __u64 *bt_dirty_slot(__u64 folio, bool second)
{
	__u32 key = bt_dirty_place(folio, second, path.dirty_shift);

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

/* Whether a writer is the running task as it is now. */
static __always_inline bool bt_is_writer(const struct bt_dirty_writer *writer,
					 const struct bt_task_slot *now, __u64 css_set)
{
	return writer->tid == now->tid && writer->tgid == now->tgid &&
	       writer->css_set == css_set && writer->comm[0] == now->comm[0] &&
	       writer->comm[1] == now->comm[1] && writer->used;
}

/*
 * Returns the writer that the running task is, in the place `*index`; if it is none yet, in that of
 * the one whose newest slot is the oldest. NULL only for the verifier. time: now.
 */
static __always_inline struct bt_dirty_writer *bt_writer_of(const struct bt_task_slot *now,
							    __u64 css_set, __u64 time, __u64 *index)
{
	__u32 key = now->tid & (BT_WRITER_SETS - 1);
	struct bt_dirty_writers *set = bpf_map_lookup_elem(&bt_dirty_writers, &key);
	struct bt_dirty_writer *oldest;

	if (!set)
		return NULL;
	*index = key * BT_WRITER_WAYS;
	oldest = &set->ways[0];
#pragma unroll
	for (int i = 0; i < BT_WRITER_WAYS; i++) {
		struct bt_dirty_writer *one = &set->ways[i];

		if (bt_is_writer(one, now, css_set)) {
			*index = key * BT_WRITER_WAYS + i;
			/* A task may have moved twice, and have what others had at this address. */
			if (time - one->used < BT_DIRTY_CHECK || one->cgroup == bt_cgroup_of_task())
				return one;
			oldest = one;
			break;
		}
		if (one->used < oldest->used) {
			oldest = one;
			*index = key * BT_WRITER_WAYS + i;
		}
	}
	oldest->tid = 0;
	barrier();
	oldest->since = time > oldest->used ? time : oldest->used + 1;
	oldest->used = oldest->since;
	oldest->css_set = css_set;
	oldest->cgroup = bt_cgroup_of_task();
	oldest->comm[0] = now->comm[0];
	oldest->comm[1] = now->comm[1];
	oldest->tgid = now->tgid;
	barrier();
	oldest->tid = now->tid;
	return oldest;
}

/* Returns the address of the running thread's css_set; 0: not known. word: as bt_kind_by_type(). */
static __always_inline __u64 bt_css_set_by_type(volatile __u64 *word)
{
	struct task_struct___cgroups *task = NULL;

	if (!bpf_core_field_exists(task->cgroups))
		return 0;
	if (!bpf_core_enum_value_exists(enum bpf_func_id___task,
					BPF_FUNC_get_current_task_btf___task))
		return bt_css_set();
	task = (void *)bpf_get_current_task_btf();
	*word = (__u64)task->cgroups;
	return *word;
}

/* A folio became dirty. Addresses pass through memory: scalars to the verifier then. */
static __always_inline int on_dirty(__u64 folio, struct address_space *mapping)
{
	struct bt_entered *runs = bt_runs();
	volatile __u64 *word = &runs->word;
	struct bt_dirty_writer *writer;
	__u64 *slot, *second, inode, tag, time, index;
	struct bt_task_slot now;

	runs->dirty++;
	if (!mapping)
		return 0;
	*word = folio;
	folio = *word;
	*word = (__u64)mapping->host;
	inode = *word;
	slot = bt_dirty_slot(folio, false);
	if (!slot)
		return 0;
	bt_current(&now);
	time = bpf_jiffies64();
	writer = bt_writer_of(&now, bt_css_set_by_type(word), time, &index);
	if (!writer)
		return 0;
	if (time < writer->since)
		time = writer->since;
	if (writer->used != time)
		writer->used = time;
	tag = bt_dirty_tag(folio, inode);
	if (*slot && !bt_has_tag(*slot, tag)) {
		second = bt_dirty_slot(folio, true);
		if (second && bt_takes_second(*slot, *second, tag, time))
			slot = second;
	}
	*slot = bt_dirty_word(tag, time, index);
	return 0;
}

/* Returns who dirtied a folio of an inode, and how many ns ago, to a tick; NULL: not known. */
static __always_inline struct bt_dirty_writer *bt_dirtied_by(__u64 folio, __u64 inode, __u64 *ago)
{
	__u64 *slot = bt_dirty_slot(folio, false), *second = bt_dirty_slot(folio, true);
	__u64 tag = bt_dirty_tag(folio, inode), now = bpf_jiffies64(), found, time;
	struct bt_dirty_writers *set;
	struct bt_dirty_writer *writer;
	__u32 key;

	if (!slot || !second)
		return NULL;
	found = *slot;
	if (!bt_has_tag(found, tag))
		found = *second;
	if (!bt_has_tag(found, tag))
		return NULL;
	key = found / BT_WRITER_WAYS & (BT_WRITER_SETS - 1);
	set = bpf_map_lookup_elem(&bt_dirty_writers, &key);
	if (!set)
		return NULL;
	writer = &set->ways[found % BT_WRITER_WAYS];
	/* A new writer's first slots may be of the tick after this one (bt_writer_of). */
	time = now + 1 - bt_dirty_age(found, now + 1);
	if (time < writer->since || time > writer->used || !writer->tid)
		return NULL;
	*ago = now > time ? (now - time) * path.tick_ns : 0;
	return writer;
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
 * DIRTIED record of a bio that writes it back, if it is known who dirtied it.
 */
static __always_inline void bt_dirtied(struct bt_writer *w, struct bio *bio, struct bt_q *q)
{
	volatile __u64 *word = &w->area->scratch[w->level];
	struct bt_dirty_writer *writer;
	__u64 folio, ago, inode = 0;
	struct bt_dirtied *r;
	struct page *page;
	__u32 kind;

	if (!path.dirty || !q->page || !bt_can_identify_files())
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
	writer = bt_dirtied_by(folio, inode, &ago);
	if (!writer)
		return;
	r = bt_reserve(w, BT_DIRTIED, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->ago = ago;
	r->tid = writer->tid;
	r->tgid = writer->tgid;
	((__u64 *)r->comm)[0] = writer->comm[0];
	((__u64 *)r->comm)[1] = writer->comm[1];
	r->cgroup = writer->cgroup;
}

#endif
