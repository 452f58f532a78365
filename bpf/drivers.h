/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What drivers do with a request between its issue and its completion: a DRIVER record after C.
 *
 * The programs on the drivers' tracepoints only keep times, found by the request's address, and
 * write no record: at C the filters are known, and one record has all of them. They are raw
 * tracepoint programs, whose arguments are plain numbers, because they need the request's address
 * alone, and so no type information of the driver's module (5.10 has none).
 */
#ifndef BIOTRAIL_DRIVERS_H
#define BIOTRAIL_DRIVERS_H

#include "interrupts.h"
#include "loop.h"

/* `driver` of a DRIVER record; recorder/schema/records.py has the same. */
enum bt_driver_of { BT_NVME = 1, BT_SCSI = 2, BT_LOOP = 3 };

/* A request's steps since its last completion; times in ns of CLOCK_MONOTONIC, 0: none. */
struct bt_steps {
	__u64 begun; /* the driver began it, the last time */
	__u64 answered; /* the device's answer reached the driver */
	__u64 finished; /* the driver had done its part */
	__u32 driver; /* enum bt_driver_of */
	__u16 sq_head; /* of nvme: the submission queue at the answer */
	__u16 sq_tail;
	__u32 errors; /* dispatches that failed */
	__u32 timeouts;
};

/*
 * By a request's address. Entries stay, since requests are allocated once, with their queue: the
 * map changes only where an address is new. Least recently used ones make room for new ones when
 * queues were made again so often that it is full. The loader sets the number of entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct bt_steps);
} bt_driver_steps SEC(".maps");

/*
 * By a hash of a request's address: 1 if a driver has begun with one. Completions of requests whose
 * drivers tell nothing, virtio's for instance, are saved a look into the map.
 */
#define BT_HAS_STEPS_BITS 12
__u8 bt_has_steps[1 << BT_HAS_STEPS_BITS] = {};

static __always_inline __u8 *bt_has_steps_of(__u64 rq)
{
	return &bt_has_steps[(rq * BT_FILE_HASH) >> (64 - BT_HAS_STEPS_BITS)];
}

static __always_inline struct bt_steps *bt_steps_of(__u64 rq)
{
	return bpf_map_lookup_elem(&bt_driver_steps, &rq);
}

/* The driver begins with a request: what it did with it before is a former attempt's. */
static __always_inline int bt_step_begin(__u64 rq, enum bt_driver_of driver)
{
	struct bt_steps *steps = bt_steps_of(rq);
	struct bt_steps fresh = {};

	if (!steps) {
		bpf_map_update_elem(&bt_driver_steps, &rq, &fresh, 0);
		steps = bt_steps_of(rq);
	}
	if (!steps)
		return 0;
	if (!*bt_has_steps_of(rq))
		*bt_has_steps_of(rq) = 1;
	steps->driver = driver;
	steps->answered = 0;
	steps->finished = 0;
	steps->begun = bt_now();
	return 0;
}

static __always_inline int bt_step_answer(__u64 rq)
{
	struct bt_steps *steps = bt_steps_of(rq);

	if (steps && steps->begun)
		steps->answered = bt_now();
	return 0;
}

static __always_inline int on_nvme_sq(__u64 rq, __u64 sq_head, __u64 sq_tail)
{
	struct bt_steps *steps = bt_steps_of(rq);

	if (!steps || !steps->begun)
		return 0;
	steps->answered = bt_now();
	steps->sq_head = sq_head;
	steps->sq_tail = sq_tail;
	return 0;
}

static __always_inline int on_nvme_complete(__u64 rq)
{
	struct bt_steps *steps = bt_steps_of(rq);

	if (steps && steps->begun)
		steps->finished = bt_now();
	return 0;
}

static __always_inline int on_scsi_error(__u64 rq)
{
	struct bt_steps *steps = bt_steps_of(rq);

	if (steps)
		steps->errors++;
	return 0;
}

static __always_inline int on_scsi_timeout(__u64 rq)
{
	struct bt_steps *steps = bt_steps_of(rq);

	if (steps)
		steps->timeouts++;
	return 0;
}

static __always_inline int on_loop_begin(__u64 kiocb)
{
	__u64 rq = bt_loop_rq(kiocb);

	return rq ? bt_step_begin(rq, BT_LOOP) : 0;
}

static __always_inline int on_loop_answer(__u64 kiocb)
{
	__u64 rq = bt_loop_rq(kiocb);

	return rq ? bt_step_answer(rq) : 0;
}

/* The steps of a request that completes now; NULL: none are recorded, or known. */
static __always_inline struct bt_steps *bt_completing(void *rq)
{
	struct bt_steps *steps;
	__u64 address;

	if (!path.driver)
		return NULL;
	address = bt_address(rq);
	if (!*bt_has_steps_of(address))
		return NULL;
	steps = bt_steps_of(address);
	return steps && steps->begun ? steps : NULL;
}

/* Writes the DRIVER record of a request that completes now. steps: NULL: none. */
static __always_inline void bt_write_steps(struct bt_writer *w, void *rq, struct bt_steps *steps)
{
	struct bt_driver *r;

	if (!path.driver || !steps)
		return;
	r = bt_reserve(w, BT_DRIVER, sizeof(*r));
	if (!r)
		return;
	r->rq = (__u64)rq;
	r->begun = w->now - steps->begun;
	r->answered = bt_ago(w->now, steps->answered);
	r->finished = bt_ago(w->now, steps->finished);
	r->sq_head = steps->sq_head;
	r->sq_tail = steps->sq_tail;
	r->driver = steps->driver;
	r->errors = steps->errors > 255 ? 255 : steps->errors;
	r->timeouts = steps->timeouts > 255 ? 255 : steps->timeouts;
	r->reserved = 0;
}

/* Forgets them after the completion, recorded or not, so that the next use of the address is new. */
static __always_inline void bt_forget_steps(struct bt_steps *steps)
{
	if (!path.driver || !steps)
		return;
	steps->begun = 0;
	steps->errors = 0;
	steps->timeouts = 0;
	steps->sq_head = 0;
	steps->sq_tail = 0;
}

#endif
