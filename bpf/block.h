/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads members of bios and requests as each kernel has them; the device filter. */
#ifndef BIOTRAIL_BLOCK_H
#define BIOTRAIL_BLOCK_H

#include "config.h"
#include "records.h"

#define BT_OP_MASK 0xff /* REQ_OP_MASK, include/linux/blk_types.h */
#define BT_MAX_OP 63
#define BT_UNKNOWN_HCTX 0xffff

/* The device of a bio or request, as dev_t; 0: not known. */
struct bt_place {
	__u32 dev; /* the disk */
	__u32 part; /* bi_bdev: the partition, or the disk; 0: no bio */
};

static __always_inline __u32 bt_disk_dev(struct gendisk *disk)
{
	if (!disk)
		return 0;
	return (__u32)disk->major << 20 | disk->first_minor;
}

static __always_inline bool bt_has_bdev(void)
{
	return bpf_core_field_exists(((struct bio *)0)->bi_bdev);
}

static __always_inline struct gendisk *bt_bio_disk(struct bio *bio)
{
	struct block_device *bdev;

	if (!bt_has_bdev())
		return ((struct bio___disk *)bio)->bi_disk;
	bdev = bio->bi_bdev;
	return bdev ? bdev->bd_disk : NULL;
}

static __always_inline struct bt_place bt_bio_place(struct bio *bio)
{
	struct bt_place place = {};

	if (bt_has_bdev()) {
		struct block_device *bdev = bio->bi_bdev;

		if (bdev) {
			place.dev = bt_disk_dev(bdev->bd_disk);
			place.part = bdev->bd_dev;
		}
	} else {
		place.dev = bt_disk_dev(((struct bio___disk *)bio)->bi_disk);
		place.part = place.dev;
	}
	return place;
}

/* Returns the dev_t of a queue's disk; 0 before 5.17, where request_queue has no `disk`. */
static __always_inline __u32 bt_queue_dev(struct request_queue *q)
{
	if (!bpf_core_field_exists(q->disk) || !q)
		return 0;
	return bt_disk_dev(q->disk);
}

static __always_inline __u32 bt_rq_dev(struct request *rq)
{
	struct request___disk *old = (void *)rq;

	if (bpf_core_field_exists(old->rq_disk))
		return bt_disk_dev(old->rq_disk);
	return bt_queue_dev(rq->q);
}

/*
 * Returns the operation of a request with what is left of it. One of PREFLUSH without data is a
 * flush: blk_insert_flush() takes that flag off the request, not off its bio, whose iterator has
 * advanced if there was data.
 */
static __always_inline __u32 bt_rq_op(struct request *rq)
{
	__u32 opf = rq->cmd_flags;
	struct bio *bio = rq->bio;

	if (!bio || rq->__data_len || bio->bi_iter.bi_idx)
		return opf & BT_OP_MASK;
	return (opf | bio->bi_opf) & config.preflush ? config.flush_op : opf & BT_OP_MASK;
}

/*
 * The device filter. Without bi_bdev (before 5.12) a partition is recognized by `sector` on its
 * disk. Without a known partition (place.part 0) the disk alone decides.
 */
static __always_inline bool bt_wanted(struct bt_place place, __u64 sector)
{
	if (!config.nr_filters)
		return true;
	for (__u32 i = 0; i < BT_MAX_FILTERS && i < config.nr_filters; i++) {
		if (config.filters[i].disk != place.dev)
			continue;
		if (!config.filters[i].part || !place.part)
			return true;
		if (bt_has_bdev() ? config.filters[i].part == place.part :
				    sector >= config.filters[i].start &&
					    sector < config.filters[i].end)
			return true;
	}
	return false;
}

/* Returns whether a remap's source device is one of the chosen disks or partitions. */
static __always_inline bool bt_wanted_source(__u32 dev)
{
	for (__u32 i = 0; i < BT_MAX_FILTERS && i < config.nr_filters; i++) {
		__u32 part = config.filters[i].part;

		if (dev == (part ? part : config.filters[i].disk))
			return true;
	}
	return false;
}

/*
 * The device filter for a request, where bios are not followed: then there are no partitions to
 * choose (admission.py), and no need to read the bio's, five loads each after the other.
 */
static __always_inline bool bt_wanted_disk(__u32 dev)
{
	struct bt_place place = { .dev = dev };

	return bt_wanted(place, 0);
}

/* BLK_STS_AGAIN (12) or -EAGAIN (before 5.16) ends a REQ_NOWAIT bio and is no failure. */
static __always_inline bool bt_is_again(__s32 status)
{
	return status == 12 || status == -11;
}

static __always_inline bool bt_has_failed(__s32 status)
{
	return status && !bt_is_again(status);
}

static __always_inline __u8 bt_bio_hint(struct bio *bio)
{
	struct bio___hint8 *with8 = (void *)bio;
	struct bio___hint16 *with16 = (void *)bio;

	if (bpf_core_field_exists(with8->bi_write_hint))
		return with8->bi_write_hint;
	if (bpf_core_field_exists(with16->bi_write_hint))
		return with16->bi_write_hint;
	return 0;
}

static __always_inline __u8 bt_rq_hint(struct request *rq, struct bio *bio)
{
	struct request___hint8 *with8 = (void *)rq;
	struct request___hint16 *with16 = (void *)rq;

	if (bpf_core_field_exists(with8->write_hint))
		return with8->write_hint;
	if (bpf_core_field_exists(with16->write_hint))
		return with16->write_hint;
	return bio ? bt_bio_hint(bio) : 0;
}

static __always_inline __u16 bt_rq_ioprio(struct request *rq, struct bio *bio)
{
	struct request___ioprio *with = (void *)rq;

	if (bpf_core_field_exists(with->ioprio))
		return with->ioprio;
	return bio ? bio->bi_ioprio : 0;
}

static __always_inline __u16 bt_rq_hctx(struct request *rq)
{
	struct blk_mq_hw_ctx *hctx = rq->mq_hctx;

	return hctx ? hctx->queue_num : BT_UNKNOWN_HCTX;
}

/*
 * Returns the address of the bio's first page, by which readers link a loop device's bio to the
 * bio on the backing file's device. 0: no data, or an operation without pages.
 */
static __always_inline __u64 bt_bio_page(struct bio *bio, __u32 opf)
{
	struct bio_vec *vec = bio->bi_io_vec;
	__u32 op = opf & BT_OP_MASK;
	__u32 index = bio->bi_iter.bi_idx;
	__u64 page = 0;

	if (!vec || !bio->bi_iter.bi_size || op > BT_MAX_OP || (config.no_data_ops >> op & 1))
		return 0;
	if (index) {
		/*
		 * A clone that begins inside the bio_vec array of its original. The verifier allows
		 * no variable offset on a typed pointer, so the address is read as a scalar.
		 */
		__u64 address = 0;

		bpf_probe_read_kernel(&address, sizeof(address), &bio->bi_io_vec);
		address += index * 16ULL + bpf_core_field_offset(vec->bv_page);
		bpf_probe_read_kernel(&page, sizeof(page), (void *)address);
		return page;
	}
	page = (__u64)vec->bv_page;
	/*
	 * Keeps this load apart from the one above: the verifier refuses an instruction that
	 * loads by a typed pointer on one path and not on another.
	 */
	opaque(page);
	return page;
}

#endif
