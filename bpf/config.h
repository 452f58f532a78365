/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the loader decides, frozen before the verifier runs: what is not wanted costs nothing. */
#ifndef BIOTRAIL_CONFIG_H
#define BIOTRAIL_CONFIG_H

#include "kernel.h"

#define BT_MAX_FILTERS 32

/* One device to record; recorder/probes/core.py fills it. */
struct bt_filter {
	__u32 disk; /* dev_t of the whole disk */
	__u32 part; /* dev_t of the partition; 0: the whole disk */
	__u64 start; /* the partition's sectors on the disk, [start, end) */
	__u64 end;
};

#define BT_MAX_COMMS 8
#define BT_MAX_CGROUPS 16
#define BT_MAX_FLAGS 8
#define BT_MAX_RANGES 8

/* A name, or its beginning: the task's, masked, equals it. */
struct bt_comm {
	__u64 name[2];
	__u64 mask[2];
};

/* Sectors of the disk, [start, end). */
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

	/* Filters by I/O (filters.h); of each kind any may match, and every kind given must. */
	__u32 follow; /* admission is decided at Q and remembered for each bio */
	__u32 by_pid; /* bt_ids holds the processes */
	__u32 by_tid; /* bt_ids holds the threads */
	__u32 nr_comms;
	__u32 nr_cgroups;
	__u32 nr_flags;
	__u32 nr_ranges;
	__u32 min_bytes;
	__u64 ops; /* bit per operation; 0: all */
	__u64 own_ops; /* bit per operation that drivers send themselves, without a Q */
	__u32 flush_op; /* number of REQ_OP_FLUSH */
	__u32 preflush; /* REQ_PREFLUSH */
	__u32 sequence; /* REQ_PREFLUSH | REQ_FUA: what the flush machinery may take off */
	__u32 flags[BT_MAX_FLAGS]; /* all bits of one of them */
	__u64 cgroups[BT_MAX_CGROUPS]; /* ids, their subtrees included */
	struct bt_comm comms[BT_MAX_COMMS];
	struct bt_range ranges[BT_MAX_RANGES];

	__u32 kernel_stacks; /* STACK records (stacks.h) */
	__u32 user_stacks; /* with user stacks in them */
	/* The recorder's own I/O (own.h). */
	__u64 file_ops; /* bit per operation that writes a file's pages; 0: it writes no file */
	__u64 ns_dev; /* the recorder's pid namespace, where that is not the initial one */
	__u64 ns_inode; /* 0: the initial one */
	__u32 recorder; /* its process there; 0: not known */
	__u32 leave_own; /* with filters: its I/O is not wanted */

	__u32 files; /* FILE and FILE_NAME records (files.h) */
	__u32 hold_irqs; /* this kernel lets programs hold interrupts off */
	__u64 iomap_end_io; /* address of iomap_dio_bio_end_io(); 0: not known */
};

/* The only object in .rodata. */
const volatile struct bt_config config = {};

/* The only object in .data: counted up where a new log needs every dictionary record again. */
volatile __u64 bt_generation = 1;

#endif
