/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Configuration by the loader, in .rodata: the verifier knows its values and removes the code of
 * what is not asked for.
 */
#ifndef BIOTRAIL_CONFIG_H
#define BIOTRAIL_CONFIG_H

#include "kernel.h"

#define BT_MAX_FILTERS 32

/* One device to record; recorder/probes/admission.py fills it, as the other structs here. */
struct bt_filter {
	__u32 disk; /* dev_t of the whole disk */
	__u32 part; /* dev_t of the partition; 0: the whole disk */
	__u64 start; /* the partition's 512-byte sectors on the disk, [start, end) */
	__u64 end;
};

#define BT_MAX_COMMS 8
#define BT_MAX_CGROUPS 16
#define BT_MAX_FLAGS 8
#define BT_MAX_RANGES 8

/* A task name or prefix: matches if (comm & mask) == name. */
struct bt_comm {
	__u64 name[2];
	__u64 mask[2];
};

/* 512-byte sectors of the disk, [start, end). */
struct bt_range {
	__u64 start;
	__u64 end;
};

struct bt_config {
	__u32 ring_bytes; /* level 0: a power of two, a multiple of 8 blocks */
	__u32 upper_bytes; /* the other levels: a power of two, a multiple of a block */
	__u32 area_bytes; /* one CPU's element: header page and rings */
	__u32 nr_filters; /* 0: every device */
	__u64 no_data_ops; /* bit per operation whose bios carry no pages */
	struct bt_filter filters[BT_MAX_FILTERS];

	/*
	 * Filters by I/O (filters.h). A bio is wanted if, for every kind of filter that is set, one
	 * of its values matches.
	 */
	__u32 follow; /* bios are judged at Q and followed to their completion (follow.h) */
	__u32 by_pid; /* filter by process: those in bt_ids */
	__u32 by_tid; /* filter by thread: those in bt_ids */
	__u32 nr_comms;
	__u32 nr_cgroups;
	__u32 nr_flags;
	__u32 nr_ranges;
	__u32 min_bytes;
	__u64 ops; /* bit per operation; 0: all */
	__u64 own_ops; /* bit per passthrough operation, whose bios have no Q */
	__u32 flush_op; /* number of REQ_OP_FLUSH */
	__u32 preflush; /* REQ_PREFLUSH */
	__u32 sequence; /* REQ_PREFLUSH | REQ_FUA, which blk_insert_flush() may clear */
	__u32 flags[BT_MAX_FLAGS]; /* masks: all bits of one of them have to be set */
	__u64 cgroups[BT_MAX_CGROUPS]; /* ids; descendants match too */
	struct bt_comm comms[BT_MAX_COMMS];
	struct bt_range ranges[BT_MAX_RANGES];

	__u32 kernel_stacks; /* write STACK records (stacks.h) */
	__u32 user_stacks; /* with user stacks as well */
	/* How to recognize the recorder's own I/O (own.h). */
	__u64 file_ops; /* bit per operation that may write a file's pages */
	__u64 ns_dev; /* the recorder's pid namespace, if not the initial one */
	__u64 ns_inode; /* 0: the initial one */
	__u32 recorder; /* the recorder's process id in that namespace; 0: not known */
	__u32 leave_own; /* with filters: leave the recorder's own I/O out */

	__u32 files; /* write FILE and FILE_NAME records (files.h) */
	__u32 hold_irqs; /* this kernel has bpf_local_irq_save() */
	__u64 iomap_end_io; /* address of iomap_dio_bio_end_io(); 0: not known */
};

/* The only object in .rodata. */
const volatile struct bt_config config = {};

/* The only object in .data: user space increments it to have every name record written again. */
volatile __u64 bt_generation = 1;

#endif
