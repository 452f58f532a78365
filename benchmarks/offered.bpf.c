// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * For `offered.py`: makes events as fast as wanted, and writes them into the rings of a recorder
 * that runs, by the same steps as its own programs. One run is one I/O done (C) and the next one
 * begun in its place (Q, s, D), as a device at a constant queue depth has it.
 */
#include "../bpf/ring.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Since 6.10; weak, so that the object opens where they are missing. */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

#define SLOTS 32 /* I/Os in flight */
#define SECTOR_BITS 28 /* 4 KiB blocks of 1 TiB */
#define BLOCK_SECTORS 8
#define OP_WRITE 1 /* REQ_OP_WRITE */
#define OPF_SYNC (1U << 11) /* REQ_SYNC, as the records of fio's I/O have it */
/* Addresses of the kind that the kernel has. */
#define BIOS 0xffff888104c3a000ULL
#define BIO_BYTES 256
#define REQUESTS 0xffff888101e48000ULL
#define REQUEST_BYTES 296
#define PAGES 0xffffea0004130000ULL
#define PAGE_BYTES 64 /* struct page */

/* benchmarks/offered_load.py knows it. */
struct offered {
	__u32 dev; /* set before loading, like all up to `random` */
	__u32 tid;
	__u64 cgroup;
	__u64 random; /* state of the generator of random numbers; not 0 */
	__u64 events[BT_KINDS]; /* offered, whether there was room or not */
	__u64 fullest; /* bytes in the ring, the most that was seen */
} offered SEC(".data.offered") = {};

/* What a device's queue has at one tag. */
struct slot {
	__u64 sector;
	__u32 bytes; /* 0: nothing yet */
	__u32 opf;
};
struct slot slots[SLOTS] = {};

/* xorshift64 (Marsaglia 2003). */
static __always_inline __u64 next_random(void)
{
	__u64 x = offered.random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	offered.random = x;
	return x;
}

static __always_inline bool begin(struct bt_writer *w, enum bt_kind kind)
{
	offered.events[kind]++;
	return bt_begin(w, kind);
}

static __always_inline void end(struct bt_writer *w)
{
	bt_end(w);
	if (w->head - w->tail > offered.fullest)
		offered.fullest = w->head - w->tail;
}

#define FILL(record, slot)                                                                         \
	do {                                                                                       \
		(record)->sector = (slot)->sector;                                                 \
		(record)->bytes = (slot)->bytes;                                                   \
		(record)->opf = (slot)->opf;                                                       \
		(record)->dev = offered.dev;                                                       \
	} while (0)

#define FILL_RQ(record, slot, tag_)                                                                \
	do {                                                                                       \
		(record)->rq = REQUESTS + (tag_) * REQUEST_BYTES;                                  \
		(record)->bio = BIOS + (tag_) * BIO_BYTES;                                         \
		FILL(record, slot);                                                                \
	} while (0)

static __always_inline void queue(struct slot *slot, __u64 tag)
{
	struct bt_writer w;
	struct bt_q *r;

	if (!begin(&w, BT_Q))
		return;
	r = bt_reserve(&w, BT_Q, sizeof(*r));
	if (r) {
		r->bio = BIOS + tag * BIO_BYTES;
		FILL(r, slot);
		r->tid = offered.tid;
		r->part = offered.dev;
		r->ioprio = 0;
		r->hint = 0;
		r->flags = 0;
		r->cgroup = offered.cgroup;
		r->page = PAGES + tag * PAGE_BYTES;
	}
	end(&w);
}

static __always_inline void start(struct slot *slot, __u64 tag)
{
	struct bt_writer w;
	struct bt_start *r;

	if (!begin(&w, BT_START))
		return;
	r = bt_reserve(&w, BT_START, sizeof(*r));
	if (r) {
		FILL_RQ(r, slot, tag);
		r->tag = tag;
		r->sched_tag = BT_NO_TAG;
	}
	end(&w);
}

static __always_inline void issue(struct slot *slot, __u64 tag)
{
	struct bt_writer w;
	struct bt_d *r;

	if (!begin(&w, BT_D))
		return;
	r = bt_reserve(&w, BT_D, sizeof(*r));
	if (r) {
		FILL_RQ(r, slot, tag);
		r->tag = tag;
		r->sched_tag = BT_NO_TAG;
		r->hctx = 0;
		r->ioprio = 0;
		r->nr_bios = 1;
		r->hint = 0;
		r->flags = 0;
	}
	end(&w);
}

static __always_inline void complete(struct slot *slot, __u64 tag)
{
	struct bt_writer w;
	struct bt_c *r;

	if (!begin(&w, BT_C))
		return;
	r = bt_reserve(&w, BT_C, sizeof(*r));
	if (r) {
		FILL_RQ(r, slot, tag);
		r->status = 0;
	}
	end(&w);
}

/* A quarter are writes, an eighth are of 64 KiB, the others of 4 KiB. */
static __always_inline void renew(struct slot *slot, __u64 random)
{
	slot->sector = (random & ((1ULL << SECTOR_BITS) - 1)) * BLOCK_SECTORS;
	slot->bytes = random >> 30 & 7 ? 4096 : 65536;
	slot->opf = random >> 34 & 3 ? 0 : OP_WRITE | OPF_SYNC;
}

static __always_inline int one_io(void)
{
	__u64 random = next_random();
	__u64 tag = random >> 48 & (SLOTS - 1);
	struct slot *slot = &slots[tag];

	if (slot->bytes)
		complete(slot, tag);
	renew(slot, random);
	queue(slot, tag);
	start(slot, tag);
	issue(slot, tag);
	return 0;
}

SEC("tc") int offer(void *ctx __attribute__((unused)))
{
	return one_io();
}

/* For kernels whose test runs can be preempted: the rings' nesting depth must not be (ring.h). */
SEC("tc") int offer_p(void *ctx __attribute__((unused)))
{
	bpf_preempt_disable();
	one_io();
	bpf_preempt_enable();
	return 0;
}
