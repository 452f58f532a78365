/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Asynchronous submissions: which io_uring request or aio iocb a bio serves (a SUBMISSION record
 * after its Q), and when that was completed (a RING_COMPLETE record). Requests that queue no bio
 * have neither.
 *
 * A bio finds its request in one of three ways (enum bt_joined):
 * - A bio of direct I/O leads to its struct kiocb, which is the first member of io_uring's request
 *   and of aio's iocb; its ki_complete says which of both it is.
 * - A worker of io_uring has the request that it works on in its struct io_worker.
 * - Else it is the request that the thread submitted last, as long as it was neither completed, nor
 *   passed to a worker, nor left to wait for a page, and the thread has not begun to wait.
 */
#ifndef BIOTRAIL_URING_H
#define BIOTRAIL_URING_H

#include "calls.h"

#define BT_RING_SET_BITS 14 /* the loader sets 2^14 entries if submissions are recorded */
#define BT_RING_WAYS 8
#define BT_RING_HASH 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */
#define BT_RUNNING_BITS 16 /* the loader sets 2^16 entries if submissions are recorded */
#define BT_IO_URING_ENTER 426 /* include/uapi/asm-generic/unistd.h, and on x86-64 */
#define BT_IOCB_WAITQ (1 << 19) /* include/linux/fs.h */
#define BT_FIXED_FILE 1 /* REQ_F_FIXED_FILE */
/* Bit per opcode (IORING_OP_*) whose request begins with a struct io_rw. */
#define BT_RING_RW                                                                                 \
	(1ULL << 1 | 1ULL << 2 | 1ULL << 4 | 1ULL << 5 | 1ULL << 22 | 1ULL << 23 | 1ULL << 49 |    \
	 1ULL << 60 | 1ULL << 61)
/* Those of them whose length is in bytes: READ_FIXED, WRITE_FIXED, READ, WRITE. */
#define BT_RING_BYTES (1ULL << 4 | 1ULL << 5 | 1ULL << 22 | 1ULL << 23)

/* recorder/probes/maps/path_maps.py fills it. */
const volatile struct bt_uring uring SEC(".rodata.uring") = {};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kiocb___ring {
	__s64 ki_pos;
	void *ki_complete; /* only compared */
	int ki_flags;
};

struct iomap_dio___ring {
	struct kiocb___ring *iocb;
	__u64 size;
};

struct blkdev_dio___ring {
	struct kiocb___ring *iocb;
	__u64 size;
	struct bio bio;
};

struct io_ring_ctx___ring {
	unsigned int flags;
};

struct io_cqe___ring {
	__u64 user_data;
	int fd;
};

struct io_wq_work___ring {
	int cancel_seq;
};

struct io_kiocb___ring {
	__u8 opcode;
	__u64 flags;
	struct io_cqe___ring cqe;
	struct io_ring_ctx___ring *ctx;
	struct io_wq_work___ring work;
};

struct io_rw___ring {
	struct kiocb___ring kiocb;
	__u32 len;
};

struct io_uring_cqe___ring {
	__u64 user_data;
	__s32 res;
};

struct io_worker___ring {
	struct io_wq_work___ring *cur_work;
};

struct io_event___ring {
	__u64 obj;
};

struct kioctx___ring;
struct aio_kiocb___ring {
	struct kioctx___ring *ki_ctx;
	struct io_event___ring ki_res;
};

struct task_struct___ring {
	__u32 flags;
	void *worker_private;
	void *bio_list;
};

#pragma clang attribute pop

/* A request that was submitted and has not completed. Found by its address. */
struct bt_ring_slot {
	__u64 req; /* 0: free, or being written */
	__u64 submitted; /* ns of CLOCK_MONOTONIC, masked; of the first Q if `late` */
	__u32 tid; /* thread that submitted it */
	__u32 bios; /* that it queued and that were recorded */
	__u16 late; /* its submission was not seen */
	__u16 parked; /* no longer run by that thread: passed on, or waiting */
	__u16 zeroing; /* only zeros were queued so far: the next bio begins its data */
	__u16 unreported; /* aio on a block device, whose completion nothing reports */
};

/* 256 bytes; a request has its place in the set that its address chooses. */
struct bt_ring_set {
	struct bt_ring_slot slots[BT_RING_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bt_ring_set));
} bt_ring_sets SEC(".maps");

/* The request that a thread submitted last. Found by the thread's id, and tagged with it. */
struct bt_running {
	__u64 req;
	__u32 tid;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bt_running));
} bt_running_reqs SEC(".maps");

/* How a bio's request is known. */
enum bt_joined { BT_BY_IOCB = 0, BT_BY_WORKER = 1, BT_BY_THREAD = 2 };
/* What queues the bio. */
enum bt_runner { BT_INLINE = 0, BT_WORKER = 1, BT_SQPOLL = 2, BT_KERNEL = 3 };
enum bt_submission_flag { BT_FIXED = 1, BT_LATE = 2, BT_WRITES = 4, BT_AIO = 8 };

/* A bio's request, as bt_request_of finds it. */
struct bt_owner {
	__u64 req; /* address of the io_kiocb or aio_kiocb; 0: none */
	__u64 done; /* bytes of direct I/O up to this bio's end */
	__u32 aio; /* 1: an iocb of aio */
	__u32 raw; /* 1: direct I/O on a block device */
	__u32 joined;
	__u32 runner;
};

/* A request that completes. */
struct bt_ended {
	__u64 req;
	__u64 ring; /* address of its io_ring_ctx or kioctx */
	__u64 user_data;
	__s32 result;
	__u32 setup; /* IORING_SETUP_* */
};

static __always_inline struct bt_ring_set *bt_ring_set(__u64 req)
{
	__u32 key = req * BT_RING_HASH >> (64 - BT_RING_SET_BITS);

	return bpf_map_lookup_elem(&bt_ring_sets, &key);
}

/* The slot of a request; NULL: there is none. */
static __always_inline struct bt_ring_slot *bt_ring_find(__u64 req)
{
	struct bt_ring_set *set = bt_ring_set(req);

	if (!set || !req)
		return NULL;
#pragma unroll
	for (int i = 0; i < BT_RING_WAYS; i++) {
		if (set->slots[i].req == req)
			return &set->slots[i];
	}
	return NULL;
}

/*
 * Returns a slot for a request: its own, a free one, or the one that was submitted longest ago,
 * whose request loses it. NULL only for the verifier.
 */
static __always_inline struct bt_ring_slot *bt_ring_claim(__u64 req)
{
	struct bt_ring_set *set = bt_ring_set(req);
	struct bt_ring_slot *slot = bt_ring_find(req);
	__u64 oldest = ~0ULL;

	if (slot || !set)
		return slot;
#pragma unroll
	for (int i = 0; i < BT_RING_WAYS; i++) {
		__u64 since = set->slots[i].req ? set->slots[i].submitted : 0;

		if (since < oldest) {
			oldest = since;
			slot = &set->slots[i];
		}
	}
	return slot;
}

static __always_inline struct bt_ring_slot *bt_ring_begin(__u64 req, __u64 now, bool late)
{
	struct bt_ring_slot *slot = bt_ring_claim(req);

	if (!slot)
		return NULL;
	slot->req = 0;
	barrier();
	slot->submitted = now;
	slot->tid = bpf_get_current_pid_tgid();
	slot->bios = 0;
	slot->late = late;
	slot->parked = 0;
	slot->zeroing = 0;
	slot->unreported = 0;
	barrier();
	slot->req = req;
	return slot;
}

static __always_inline struct bt_running *bt_running_req(__u32 tid)
{
	__u32 key = tid & ((1U << BT_RUNNING_BITS) - 1);

	return bpf_map_lookup_elem(&bt_running_reqs, &key);
}

/* An address as a scalar: the verifier allows no arithmetic on a typed pointer. */
static __always_inline __u64 bt_scalar(__u64 pointer)
{
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &pointer);
	return address;
}

/* A request of io_uring was taken from the submission queue; it is issued next. */
static __always_inline int on_ring_submit(__u64 pointer)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct bt_running *running = bt_running_req(tid);
	__u64 req = bt_scalar(pointer);

	bt_ring_begin(req, bt_now(), false);
	if (running) {
		running->req = req;
		running->tid = tid;
	}
	return 0;
}

/* A request is passed to a worker, or waits to be polled: its thread goes on without it. */
static __always_inline int on_ring_park(__u64 pointer)
{
	struct bt_ring_slot *slot = bt_ring_find(bt_scalar(pointer));

	if (slot)
		slot->parked = 1;
	return 0;
}

/*
 * The thread no longer issues what it submitted last: it begins to wait for completions, or that
 * request was linked behind others, of which the first is issued now.
 */
static __always_inline int on_ring_idle(void)
{
	struct bt_running *running = bt_running_req(bpf_get_current_pid_tgid());

	if (running)
		running->req = 0;
	return 0;
}

/*
 * Writes a RING_COMPLETE record if bios of the request were recorded, and frees its slot. A slot
 * whose request ended unreported is left over: what completes now has its address again.
 */
static __always_inline int bt_ring_finish(struct bt_ended *ended)
{
	struct bt_ring_slot *slot = bt_ring_find(ended->req);
	struct bt_ring_complete *r;
	struct bt_writer w;
	__u64 submitted;

	if (!slot)
		return 0;
	submitted = slot->submitted;
	slot->req = 0;
	if (!slot->bios || slot->unreported || !bt_begin(&w, BT_RING_COMPLETE))
		return 0;
	r = bt_reserve(&w, BT_RING_COMPLETE, sizeof(*r));
	if (r) {
		r->req = ended->req;
		r->user_data = ended->user_data;
		r->submitted = submitted;
		r->ring = ended->ring;
		r->result = ended->result;
		r->tid = bpf_get_current_pid_tgid();
		r->setup = ended->setup;
		__builtin_memset(r->reserved, 0, sizeof(r->reserved));
	}
	bt_end(&w);
	return 0;
}

static __always_inline int on_ring_result(__u64 ring, __u64 req, __u64 user_data, __s32 result)
{
	struct io_ring_ctx___ring *context = (void *)bt_scalar(ring);
	struct bt_ended ended = {
		.req = bt_scalar(req),
		.ring = (__u64)context,
		.user_data = user_data,
		.result = result,
		.setup = BPF_CORE_READ(context, flags),
	};

	return bt_ring_finish(&ended);
}

static __always_inline int on_ring_complete(__u64 ring, __u64 req, __u64 cqe)
{
	const struct io_uring_cqe___ring *entry = (void *)bt_scalar(cqe);

	return on_ring_result(ring, req, BPF_CORE_READ(entry, user_data),
			      BPF_CORE_READ(entry, res));
}

/* Direct I/O is about to be completed (iomap). `error` is what its device reported, or 0. */
static __always_inline int on_dio_complete(__u64 pointer, __s32 error, __s32 result)
{
	__u64 iocb = bt_scalar(pointer);
	struct aio_kiocb___ring *aio = (void *)iocb;
	struct bt_ended ended = { .req = iocb };
	__u64 complete = (__u64)BPF_CORE_READ((struct kiocb___ring *)iocb, ki_complete);

	if (!complete || complete != uring.aio_complete)
		return 0;
	ended.ring = (__u64)BPF_CORE_READ(aio, ki_ctx);
	ended.user_data = BPF_CORE_READ(aio, ki_res.obj);
	ended.result = error ? error : result;
	return bt_ring_finish(&ended);
}

/* Sets `owner` for a bio of direct I/O whose kiocb belongs to io_uring or aio. */
static __always_inline void bt_owner_by_iocb(struct bt_owner *owner, struct bio *bio)
{
	__u64 end = (__u64)bio->bi_end_io, iocb, complete;
	struct blkdev_dio___ring *raw = NULL;
	struct iomap_dio___ring *dio;

	if (uring.iomap_end_io && end == uring.iomap_end_io) {
		dio = (void *)bt_scalar((__u64)bio->bi_private);
		iocb = (__u64)BPF_CORE_READ(dio, iocb);
		owner->done = BPF_CORE_READ(dio, size);
	} else {
		if (uring.blkdev_end_io && end == uring.blkdev_end_io)
			raw = (void *)bt_scalar((__u64)bio->bi_private);
		else if (uring.blkdev_end_io_async && end == uring.blkdev_end_io_async)
			raw = (void *)(bt_scalar((__u64)bio) -
				       bpf_core_field_offset(struct blkdev_dio___ring, bio));
		if (!raw)
			return;
		iocb = (__u64)BPF_CORE_READ(raw, iocb);
		owner->done = BPF_CORE_READ(raw, size);
		owner->raw = 1;
	}
	if (!iocb)
		return;
	complete = (__u64)BPF_CORE_READ((struct kiocb___ring *)iocb, ki_complete);
	if (!complete)
		return;
	if (complete == uring.aio_complete)
		owner->aio = 1;
	else if (complete != uring.ring_complete && complete != uring.ring_complete_polled)
		return;
	owner->req = iocb;
	owner->joined = BT_BY_IOCB;
}

/* Returns whether a request waits for a page, so that its thread does something else now. */
static __always_inline bool bt_waits_for_page(__u64 req)
{
	struct io_kiocb___ring *kiocb = (void *)req;
	__u32 opcode = BPF_CORE_READ(kiocb, opcode) & 63;

	if (!(BT_RING_RW >> opcode & 1))
		return false;
	return BPF_CORE_READ((struct kiocb___ring *)req, ki_flags) & BT_IOCB_WAITQ;
}

/* Sets `owner` to the request that the running thread submitted last and still issues. */
static __always_inline void bt_owner_by_thread(struct bt_owner *owner, __u32 tid)
{
	struct bt_running *running = bt_running_req(tid);
	struct bt_ring_slot *slot;
	struct bt_regs now = {};

	if (!running || running->tid != tid || !running->req)
		return;
	if (owner->runner == BT_INLINE &&
	    (!bt_running_call(&now) || now.number != BT_IO_URING_ENTER || now.foreign))
		return;
	slot = bt_ring_find(running->req);
	if (!slot || slot->parked || slot->tid != tid || bt_waits_for_page(running->req))
		return;
	owner->req = running->req;
	owner->joined = BT_BY_THREAD;
}

/* Fills `owner`, which is zero, for a bio that the running thread queues. */
static __always_inline void bt_owner_of(struct bt_owner *owner, struct bio *bio, __u32 tid)
{
	struct task_struct___ring *task = (void *)bpf_get_current_task_btf();
	struct io_worker___ring *worker = NULL;
	__u64 work;

	if (task->flags & BT_PF_IO_WORKER) {
		worker = (void *)bt_scalar((__u64)task->worker_private);
		owner->runner = worker ? BT_WORKER : BT_SQPOLL;
	} else if (task->flags & BT_PF_KTHREAD) {
		owner->runner = BT_KERNEL;
	}
	bt_owner_by_iocb(owner, bio);
	/* A bio that another bio's ->submit_bio() queues is that one's: a lower device's. */
	if (owner->req || owner->runner == BT_KERNEL || task->bio_list)
		return;
	if (!worker) {
		bt_owner_by_thread(owner, tid);
		return;
	}
	work = (__u64)BPF_CORE_READ(worker, cur_work);
	if (work) {
		owner->req = work - bpf_core_field_offset(struct io_kiocb___ring, work);
		owner->joined = BT_BY_WORKER;
	}
}

/*
 * Returns the slot of a bio's request; begins one if there is none: it was submitted before the
 * recording, or is an iocb of aio, whose submission no tracepoint reports. The first bio of an
 * iocb is the one with which its direct I/O begins.
 */
static __always_inline struct bt_ring_slot *bt_owner_slot(struct bt_owner *owner, __u32 bytes,
							  __u64 now)
{
	struct bt_ring_slot *slot = bt_ring_find(owner->req);
	bool first = owner->aio && owner->done <= bytes;

	if (!slot || (first && !slot->zeroing))
		slot = bt_ring_begin(owner->req, now, true);
	if (!slot)
		return NULL;
	slot->zeroing = owner->aio && !owner->done;
	slot->unreported = owner->aio && owner->raw;
	slot->bios++;
	return slot;
}

static __always_inline void bt_fill_ring(struct bt_submission *r, __u64 req)
{
	struct io_kiocb___ring *kiocb = (void *)req;
	struct io_rw___ring *rw = (void *)req;
	__u32 flags = 0, opcode = BPF_CORE_READ(kiocb, opcode);

	bpf_core_read(&flags, sizeof(flags), &kiocb->flags);
	r->opcode = opcode;
	r->user_data = BPF_CORE_READ(kiocb, cqe.user_data);
	r->fd = BPF_CORE_READ(kiocb, cqe.fd);
	if (flags & BT_FIXED_FILE)
		r->flags |= BT_FIXED;
	if (opcode > 63 || !(BT_RING_RW >> (opcode & 63) & 1))
		return;
	r->offset = BPF_CORE_READ(rw, kiocb.ki_pos);
	if (BT_RING_BYTES >> (opcode & 63) & 1)
		r->length = BPF_CORE_READ(rw, len);
}

static __always_inline void bt_fill_aio(struct bt_submission *r, __u64 req)
{
	struct aio_kiocb___ring *aio = (void *)req;
	struct kiocb___ring *iocb = (void *)req;

	r->user_data = BPF_CORE_READ(aio, ki_res.obj);
	r->offset = BPF_CORE_READ(iocb, ki_pos);
}

/* Writes the SUBMISSION record of a bio that a request of io_uring or aio queues, if recorded. */
static __always_inline void bt_submission(struct bt_writer *w, struct bio *bio, __u32 tid)
{
	struct bt_owner owner = {};
	struct bt_ring_slot *slot;
	struct bt_submission *r;

	if (!path.uring)
		return;
	bt_owner_of(&owner, bio, tid);
	if (!owner.req)
		return;
	slot = bt_owner_slot(&owner, bio->bi_iter.bi_size, w->now);
	if (!slot)
		return;
	r = bt_reserve(w, BT_SUBMISSION, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->req = owner.req;
	r->submitted = slot->submitted;
	r->tid = slot->tid;
	r->offset = ~0ULL;
	r->length = 0;
	r->fd = ~0U;
	r->opcode = 0;
	r->runner = owner.runner;
	r->joined = owner.joined;
	r->flags = (slot->late ? BT_LATE : 0) | (owner.aio ? BT_AIO : 0);
	if (bio->bi_opf & BT_OP_WRITES)
		r->flags |= BT_WRITES;
	if (owner.aio)
		bt_fill_aio(r, owner.req);
	else
		bt_fill_ring(r, owner.req);
}

#endif
