/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a completion says of its request: for the records of light.h and the figures of measure.h.
 */
#ifndef BIOTRAIL_LIGHT_FACTS_H
#define BIOTRAIL_LIGHT_FACTS_H

#include "block.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct request___times {
	__u64 start_time_ns;
	__u64 io_start_time_ns;
};

#pragma clang attribute pop

/* What one completion says of its request. */
struct bt_light_facts {
	struct bio *bio; /* the first that is not completed yet; NULL: none */
	__u64 start; /* ns; 0: not known */
	__u64 issue; /* ns; 0: not known, or never issued */
	__u32 dev;
	__u32 opf; /* cmd_flags, and what blk_insert_flush() has taken off them */
	bool goes_on; /* the request has not ended */
};

/* Reads the kernel's own times of a request: 0 where it takes none. */
static __always_inline void bt_light_times(struct bt_light_facts *facts, struct request *rq)
{
	struct request___times *times = (void *)rq;

	facts->start = facts->issue = 0;
	if (bpf_core_field_exists(times->start_time_ns))
		facts->start = times->start_time_ns;
	if (bpf_core_field_exists(times->io_start_time_ns))
		facts->issue = times->io_start_time_ns;
}

/* Gathers what is known at a completion of `bytes`. */
static __always_inline void bt_light_gather(struct bt_light_facts *facts, struct request *rq,
					    __u32 bytes)
{
	__u32 taken_off = 0;

	facts->bio = rq->bio;
	facts->dev = bt_rq_dev(rq);
	facts->opf = rq->cmd_flags;
	if (facts->bio)
		taken_off = facts->bio->bi_opf & config.sequence & ~facts->opf;
	facts->opf |= taken_off;
	/* In a flush sequence, C of the data is followed by one of 0 bytes that ends the request. */
	facts->goes_on = bytes < rq->__data_len || (bytes && taken_off);
	bt_light_times(facts, rq);
}

/*
 * The operation as filters have it: a bio without data and with PREFLUSH is a flush. A flush
 * sequence's last completion has no bytes left either, but its bio's iterator has advanced.
 */
static __always_inline __u32 bt_light_op(const struct bt_light_facts *facts, __u32 bytes)
{
	struct bio *bio = facts->bio;

	if (!bytes && facts->opf & config.preflush && bio && !bio->bi_iter.bi_idx)
		return config.flush_op;
	return facts->opf & BT_OP_MASK;
}

/* Returns the ns from a time to `now`, which is masked to the records' time stamp. */
static __always_inline __u64 bt_light_since(__u64 now, __u64 time)
{
	__u64 since = (now - time) & BT_TIMESTAMP_MASK;

	return since >> (BT_TIMESTAMP_BITS - 1) ? 0 : since;
}

#endif
