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

struct bt_config {
	__u32 ring_bytes; /* level 0: a power of two, a multiple of 8 blocks */
	__u32 upper_bytes; /* the other levels: a power of two, a multiple of a block */
	__u32 area_bytes; /* one CPU's element: header page and rings */
	__u32 nr_filters; /* 0: every device */
	__u64 no_data_ops; /* bit per operation whose bios carry no pages */
	struct bt_filter filters[BT_MAX_FILTERS];
};

/* The only object in .rodata. */
const volatile struct bt_config config = {};

/* The only object in .data: counted up where a new log needs every dictionary record again. */
volatile __u64 bt_generation = 1;

#endif
