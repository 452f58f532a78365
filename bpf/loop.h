/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The request of a loop device whose file I/O something is. Direct I/O on the device's file has a
 * kiocb that lies in the request's private part, and that its driver's own function ends.
 */
#ifndef BIOTRAIL_LOOP_H
#define BIOTRAIL_LOOP_H

#include "config.h"
#include "direct.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kiocb___ended {
	void *ki_complete;
};

/* drivers/block/loop.c: a request's private part, behind its struct request. */
struct loop_cmd {
	struct kiocb___ended iocb;
};

#pragma clang attribute pop

/* The request of a driver's private part, which stands behind it (blk_mq_rq_from_pdu). */
static __always_inline __u64 bt_rq_of(__u64 private)
{
	return private - bpf_core_type_size(struct request);
}

/* The request of the loop device whose file I/O this is; 0: it is other I/O. */
static __always_inline __u64 bt_loop_rq(__u64 kiocb)
{
	struct kiocb___ended *iocb = NULL;

	if (!config.loop_complete || !bpf_core_field_exists(((struct loop_cmd *)0)->iocb))
		return 0;
	if (bt_read_u64(kiocb + bpf_core_field_offset(iocb->ki_complete)) != config.loop_complete)
		return 0;
	return bt_rq_of(kiocb - bpf_core_field_offset(struct loop_cmd, iocb));
}

/* Writes the BACKING record of a bio of iomap's direct I/O, if its kiocb is a loop device's. */
static __always_inline void bt_backing(struct bt_writer *w, struct bio *bio)
{
	struct iomap_dio *dio = NULL;
	struct bt_backing *r;
	__u64 rq;

	if (!bpf_core_field_exists(dio->iocb))
		return;
	rq = bt_loop_rq(bt_read_u64((__u64)bio->bi_private + bpf_core_field_offset(dio->iocb)));
	if (!rq)
		return;
	r = bt_reserve(w, BT_BACKING, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->rq = rq;
}

#endif
