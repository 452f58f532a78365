/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Commits of jbd2's journals: a COMMIT record when one ends, with the times of its phases
 * (jbd2_journal_commit_transaction() of fs/jbd2/commit.c). A journal commits one transaction at a
 * time, so a slot per journal has the phases so far.
 */
#ifndef BIOTRAIL_JOURNAL_H
#define BIOTRAIL_JOURNAL_H

#include "path.h"

#define BT_JOURNALS 64 /* slots; of two journals in one, the commit that began first has no phases */
#define BT_JOURNAL_SHIFT 10 /* a journal_t is about 1 KiB large */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct block_device___journal {
	__u32 bd_dev;
};

struct journal_s___path {
	struct block_device___journal *j_fs_dev; /* of the file system, wherever its journal is */
};

struct transaction_s___path {
	__u32 t_tid;
};

#pragma clang attribute pop

enum bt_phase { BT_STARTED, BT_LOCKING, BT_FLUSHING, BT_LOGGING, BT_PHASES };

struct bt_commit_slot {
	__u64 journal; /* address of the journal_t */
	__u64 at[BT_PHASES]; /* when each phase began, as bt_now(); 0: not seen */
};
struct bt_commit_slot bt_commits[BT_JOURNALS] = {};

/* An argument of the tracepoint as a number: of a pointer the verifier lets nothing be computed. */
static __always_inline __u64 bt_argument(__u64 *ctx, int n)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), ctx + n);
	return value;
}

static __always_inline struct bt_commit_slot *bt_commit_slot(__u64 journal)
{
	return &bt_commits[journal >> BT_JOURNAL_SHIFT & (BT_JOURNALS - 1)];
}

/* A phase of the commit of this journal begins. */
static __always_inline int on_commit_phase(__u64 *ctx, enum bt_phase phase)
{
	__u64 journal = bt_argument(ctx, 0);
	struct bt_commit_slot *slot = bt_commit_slot(journal);

	if (phase == BT_STARTED) {
		__builtin_memset(slot, 0, sizeof(*slot));
		slot->journal = journal;
	}
	if (slot->journal == journal)
		slot->at[phase] = bt_now();
	return 0;
}

static __always_inline int on_commit_end(__u64 *ctx)
{
	__u64 journal = bt_argument(ctx, 0);
	struct bt_commit_slot *slot = bt_commit_slot(journal);
	struct journal_s___path *j = (void *)journal;
	struct transaction_s___path *t = (void *)bt_argument(ctx, 1);
	struct bt_writer w;
	struct bt_commit *r;
	bool known = slot->journal == journal;

	if (!bt_begin(&w, BT_COMMIT))
		return 0;
	bt_task(&w);
	r = bt_reserve(&w, BT_COMMIT, sizeof(*r));
	if (r) {
		r->started = known ? slot->at[BT_STARTED] : 0;
		r->locking = known ? slot->at[BT_LOCKING] : 0;
		r->flushing = known ? slot->at[BT_FLUSHING] : 0;
		r->logging = known ? slot->at[BT_LOGGING] : 0;
		r->dev = BPF_CORE_READ(j, j_fs_dev, bd_dev);
		r->transaction = BPF_CORE_READ(t, t_tid);
		r->tid = bpf_get_current_pid_tgid();
		r->reserved = 0;
	}
	bt_end(&w);
	slot->journal = 0;
	return 0;
}

#endif
