/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For whom a kernel thread queues a bio: a BEHALF record after its Q, with the thread that waits
 * for the bio, by the bio's own fields:
 *
 * - bi_end_io is iomap's for direct I/O, and wait_for_completion of its struct iomap_dio is set:
 *   `submit.waiter`. It shares a union with what asynchronous I/O has there.
 * - bi_end_io is one of submit_bio_wait(): bi_private is a struct completion on the stack of the
 *   thread that waits, which is first in its list.
 *
 * Pointers that pass through bi_private are scalars to the verifier, so what they lead to is looked
 * at before it is believed: a thread whose group leader is of its process and, of a completion,
 * whose stack it lies on.
 */
#ifndef BIOTRAIL_BEHALF_H
#define BIOTRAIL_BEHALF_H

#include "dictionary.h"
#include "loop.h"
#include "registers.h"

#define BT_MOST_STACK 65536 /* bytes of a kernel stack; as a rule 16 KiB, with KASAN up to 64 */

enum bt_by { BT_NOBODY = 0, BT_BY_DIRECT = 1, BT_BY_COMPLETION = 2 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct iomap_dio___waited {
	bool wait_for_completion;
	union {
		struct {
			void *waiter;
		} submit;
	};
};

struct list_head {
	struct list_head *next;
};

struct swait_queue {
	void *task;
	struct list_head task_list;
};

struct swait_queue_head {
	struct list_head task_list;
};

struct completion {
	struct swait_queue_head wait;
};

struct task_struct___waiting {
	void *stack;
	struct task_struct *group_leader;
};

#pragma clang attribute pop

/* Returns the address of the thread that waits for a bio of iomap's direct I/O; 0: none. */
static __always_inline __u64 bt_waiter_of_direct(__u64 dio_address)
{
	struct iomap_dio___waited *dio = NULL;
	__u8 waits = 0;

	if (!bpf_core_field_exists(dio->wait_for_completion) ||
	    !bpf_core_field_exists(dio->submit.waiter))
		return 0;
	bpf_probe_read_kernel(&waits, sizeof(waits),
			      (void *)(dio_address +
				       bpf_core_field_offset(dio->wait_for_completion)));
	if (waits != 1)
		return 0;
	return bt_read_u64(dio_address + bpf_core_field_offset(dio->submit.waiter));
}

/* Returns the address of the first thread that waits for the completion at an address; 0: none. */
static __always_inline __u64 bt_waiter_of_completion(__u64 address)
{
	struct task_struct___waiting *task = NULL;
	struct swait_queue *queue = NULL;
	struct completion *done = NULL;
	struct list_head *list = NULL;
	__u64 head, first, waiter, stack;

	if (!bpf_core_field_exists(done->wait.task_list) || !bpf_core_field_exists(queue->task))
		return 0;
	head = address + bpf_core_field_offset(done->wait.task_list);
	first = bt_read_u64(head + bpf_core_field_offset(list->next));
	if (!first || first == head)
		return 0;
	first -= bpf_core_field_offset(queue->task_list);
	waiter = bt_read_u64(first + bpf_core_field_offset(queue->task));
	stack = bt_read_u64(waiter + bpf_core_field_offset(task->stack));
	return waiter && stack && address - stack < BT_MOST_STACK ? waiter : 0;
}

/* Fills `now` from the thread at an address; false: there is none. */
static __always_inline bool bt_thread_at(__u64 address, struct bt_task_slot *now)
{
	struct task_struct___waiting *with = NULL;
	struct task_struct *task = NULL;
	__u64 leader;

	now->tid = bt_read_u32(address + bpf_core_field_offset(task->pid));
	now->tgid = bt_read_u32(address + bpf_core_field_offset(task->tgid));
	bpf_probe_read_kernel(now->comm, sizeof(now->comm),
			      (void *)(address + bpf_core_field_offset(task->comm)));
	leader = bt_read_u64(address + bpf_core_field_offset(with->group_leader));
	return now->tid && now->tgid && leader &&
	       bt_read_u32(leader + bpf_core_field_offset(task->pid)) == now->tgid &&
	       bt_read_u32(leader + bpf_core_field_offset(task->tgid)) == now->tgid;
}

/*
 * Writes the BEHALF record of a bio that a kernel thread queues while another waits for it, and the
 * BACKING record of one that a loop device's worker queues.
 */
static __always_inline void bt_behalf(struct bt_writer *w, struct bio *bio, __u32 tid)
{
	struct task_struct *task = NULL;
	struct bt_task_slot now = {};
	enum bt_by by = BT_NOBODY;
	__u64 end, waiter = 0;
	__u32 flags = w->flags;
	struct bt_behalf *r;

	if (!config.waited_ends[0] && !config.waited_ends[1])
		return;
	if (flags == BT_FLAGS_NOT_READ)
		flags = bt_read_u32(bpf_get_current_task() + bpf_core_field_offset(task->flags));
	if (!(flags & BT_PF_KTHREAD))
		return;
	end = (__u64)bio->bi_end_io;
	if (!end)
		return;
	if (end == config.waited_ends[0]) {
		bt_backing(w, bio);
		by = BT_BY_DIRECT;
		waiter = bt_waiter_of_direct((__u64)bio->bi_private);
	} else if (end == config.waited_ends[1] || end == config.waited_ends[2]) {
		by = BT_BY_COMPLETION;
		waiter = bt_waiter_of_completion((__u64)bio->bi_private);
	}
	if (!waiter || !bt_thread_at(waiter, &now) || now.tid == tid)
		return;
	bt_name_task(w, &now);
	r = bt_reserve(w, BT_BEHALF, sizeof(*r));
	if (!r)
		return;
	r->bio = (__u64)bio;
	r->waiter = now.tid;
	r->told_by = by;
}

#endif
