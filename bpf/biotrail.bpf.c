// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The programs, one for each tracepoint of the block layer and kind of record.
 *
 * Where a tracepoint's arguments differ between kernels there are two programs for it; the one
 * whose name ends in _q has the request_queue as an argument as well. The loader counts the
 * parameters in the kernel's BTF and loads the program that fits (recorder/probes/programs.py).
 *
 * A program whose name ends in _p disables preemption itself, for kernels whose tracepoints no
 * longer do (7.0 and later): the rings' nesting depth relies on it.
 *
 * `ctx` holds the tracepoint's arguments, 8 bytes each.
 */
#include "bios.h"
#include "journal.h"
#include "light.h"
#include "preemption.h"
#include "requests.h"
#include "waits.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PROGRAM(name, tracepoint, body)                                                            \
	SEC("tp_btf/" #tracepoint) int name(__u64 *ctx)                                            \
	{                                                                                          \
		return body;                                                                       \
	}
/* A program, and its _p variant for kernels whose tracepoints leave preemption on. */
#define PROGRAMS(name, tracepoint, body)                                                           \
	PROGRAM(name, tracepoint, body)                                                            \
	SEC("tp_btf/" #tracepoint) int name##_p(__u64 *ctx)                                        \
	{                                                                                          \
		bpf_preempt_disable();                                                             \
		body;                                                                              \
		bt_preempt_enable();                                                               \
		return 0;                                                                          \
	}
#define BIO(n) ((struct bio *)ctx[n])
#define RQ(n) ((struct request *)ctx[n])
#define QUEUE(n) ((struct request_queue *)ctx[n])

PROGRAMS(bt_queue, block_bio_queue, on_queue(ctx, BIO(0)))
PROGRAM(bt_queue_q, block_bio_queue, on_queue(ctx, BIO(1)))
PROGRAMS(bt_getrq, block_getrq, on_getrq(BIO(0)))
PROGRAM(bt_getrq_q, block_getrq, on_getrq(BIO(1)))
PROGRAMS(bt_back, block_bio_backmerge, on_merge(BIO(0), 0, BT_M))
PROGRAM(bt_back_q, block_bio_backmerge, on_merge(BIO(2), ctx[1], BT_M))
PROGRAMS(bt_front, block_bio_frontmerge, on_merge(BIO(0), 0, BT_F))
PROGRAM(bt_front_q, block_bio_frontmerge, on_merge(BIO(2), ctx[1], BT_F))
PROGRAMS(bt_split, block_split, on_split(BIO(0), ctx[1]))
PROGRAM(bt_split_q, block_split, on_split(BIO(1), ctx[2]))
PROGRAMS(bt_remap, block_bio_remap, on_remap(BIO(0), ctx[1], ctx[2]))
PROGRAM(bt_remap_q, block_bio_remap, on_remap(BIO(1), ctx[2], ctx[3]))
PROGRAMS(bt_start, block_io_start, on_request(RQ(0), BT_START))
PROGRAMS(bt_insert, block_rq_insert, on_request(RQ(0), BT_I))
PROGRAM(bt_insert_q, block_rq_insert, on_request(RQ(1), BT_I))
PROGRAMS(bt_requeue, block_rq_requeue, on_request(RQ(0), BT_R))
PROGRAM(bt_requeue_q, block_rq_requeue, on_request(RQ(1), BT_R))
PROGRAMS(bt_merge, block_rq_merge, on_request(RQ(0), BT_RQ_MERGE))
PROGRAM(bt_merge_q, block_rq_merge, on_request(RQ(1), BT_RQ_MERGE))
PROGRAMS(bt_issue, block_rq_issue, on_issue(RQ(0)))
PROGRAM(bt_issue_q, block_rq_issue, on_issue(RQ(1)))
PROGRAMS(bt_complete, block_rq_complete, on_complete(RQ(0), ctx[1], ctx[2], BT_C))
PROGRAMS(bt_light, block_rq_complete, on_light(RQ(0), ctx[1], ctx[2]))
PROGRAMS(bt_error, block_rq_error, on_complete(RQ(0), ctx[1], ctx[2], BT_E))
PROGRAMS(bt_rqremap, block_rq_remap, on_rq_remap(RQ(0), ctx[1], ctx[2]))
PROGRAM(bt_rqremap_q, block_rq_remap, on_rq_remap(RQ(1), ctx[2], ctx[3]))
PROGRAMS(bt_bio_end, block_bio_complete, on_bio_complete(QUEUE(0), BIO(1)))
PROGRAMS(bt_io_done, block_io_done, on_done(RQ(0)))
PROGRAMS(bt_hold, block_plug, on_plug(QUEUE(0)))
PROGRAMS(bt_release, block_unplug, on_unplug(QUEUE(0), ctx[1], ctx[2] & 0xff))

/* The whole path: loaded for --path only. Where interrupts are off, none can be preempted. */
#define TASK(n) ((struct task_struct *)ctx[n])
PROGRAMS(bt_sys_enter, sys_enter, on_sys_enter(ctx, ctx[1]))
PROGRAMS(bt_sys_exit, sys_exit, on_sys_exit((void *)ctx[0], ctx[1]))
PROGRAM(bt_switch, sched_switch, on_switch(ctx, ctx[0], TASK(1), TASK(2), ctx[3]))
PROGRAM(bt_switch_old, sched_switch, on_switch(ctx, ctx[0], TASK(1), TASK(2), bt_state_of(TASK(1))))
PROGRAM(bt_waking, sched_waking, on_waking(TASK(0)))
PROGRAM(bt_irq_entry, irq_handler_entry, on_irq_entry(ctx[0]))
PROGRAM(bt_irq_exit, irq_handler_exit, on_irq_exit(ctx[0]))
PROGRAM(bt_soft_raise, softirq_raise, on_softirq_raise(ctx[0]))
PROGRAM(bt_soft_entry, softirq_entry, on_softirq_entry(ctx[0]))
PROGRAM(bt_soft_exit, softirq_exit, on_softirq_exit(ctx[0]))
PROGRAMS(bt_dirty, writeback_dirty_folio, on_dirty(ctx[0], (struct address_space *)ctx[1]))
PROGRAM(bt_dirty_page, writeback_dirty_page, on_dirty(ctx[0], (struct address_space *)ctx[1]))
PROGRAMS(bt_ring_sub, io_uring_submit_req, on_ring_submit(ctx[0]))
PROGRAMS(bt_ring_sqe, io_uring_submit_sqe, on_ring_submit(ctx[0]))
PROGRAMS(bt_ring_async, io_uring_queue_async_work, on_ring_park(ctx[0]))
PROGRAMS(bt_ring_poll, io_uring_poll_arm, on_ring_park(ctx[0]))
PROGRAMS(bt_ring_link, io_uring_link, ((void)ctx, on_ring_idle()))
PROGRAMS(bt_ring_wait, io_uring_cqring_wait, ((void)ctx, on_ring_idle()))
PROGRAMS(bt_ring_done, io_uring_complete, on_ring_complete(ctx[0], ctx[1], ctx[2]))
PROGRAMS(bt_ring_end, io_uring_complete, on_ring_result(ctx[0], ctx[1], ctx[2], ctx[3]))
PROGRAMS(bt_aio_done, iomap_dio_complete, on_dio_complete(ctx[0], ctx[1], ctx[2]))

/* Steps of drivers: by the tracepoint's name alone, as the driver may be a module. */
#define RAW(name, tracepoint, body)                                                                \
	SEC("raw_tp/" #tracepoint) int name(__u64 *ctx)                                            \
	{                                                                                          \
		return body;                                                                       \
	}
#define RAWS(name, tracepoint, body)                                                               \
	RAW(name, tracepoint, body)                                                                \
	SEC("raw_tp/" #tracepoint) int name##_p(__u64 *ctx)                                        \
	{                                                                                          \
		bpf_preempt_disable();                                                             \
		body;                                                                              \
		bt_preempt_enable();                                                               \
		return 0;                                                                          \
	}
RAWS(bt_nvme_setup, nvme_setup_cmd, bt_step_begin(ctx[0], BT_NVME))
RAWS(bt_nvme_sq, nvme_sq, on_nvme_sq(ctx[0], ctx[1], ctx[2]))
RAWS(bt_nvme_done, nvme_complete_rq, on_nvme_complete(ctx[0]))
RAWS(bt_scsi_start, scsi_dispatch_cmd_start, bt_step_begin(bt_rq_of(ctx[0]), BT_SCSI))
RAWS(bt_scsi_done, scsi_dispatch_cmd_done, bt_step_answer(bt_rq_of(ctx[0])))
RAWS(bt_scsi_error, scsi_dispatch_cmd_error, on_scsi_error(bt_rq_of(ctx[0])))
RAWS(bt_scsi_late, scsi_dispatch_cmd_timeout, on_scsi_timeout(bt_rq_of(ctx[0])))
RAWS(bt_loop_begin, iomap_dio_rw_begin, on_loop_begin(ctx[0]))
RAWS(bt_loop_done, iomap_dio_complete, on_loop_answer(ctx[0]))
PROGRAMS(bt_jbd_end, jbd2_end_commit, on_commit_end(ctx))
PROGRAMS(bt_jbd_start, jbd2_start_commit, on_commit_phase(ctx, BT_STARTED))
PROGRAMS(bt_jbd_lock, jbd2_commit_locking, on_commit_phase(ctx, BT_LOCKING))
PROGRAMS(bt_jbd_flush, jbd2_commit_flushing, on_commit_phase(ctx, BT_FLUSHING))
PROGRAMS(bt_jbd_log, jbd2_commit_logging, on_commit_phase(ctx, BT_LOGGING))

/* Writes no record: sends the recorder the paths of cgroups that are made (cgroups.h). */
PROGRAM(bt_cgroup_made, cgroup_mkdir, on_cgroup_made((struct cgroup *)ctx[0]))

/* Loaded for --children only. Writes no record. */
PROGRAM(bt_fork, sched_process_fork,
	on_fork((struct task_struct *)ctx[0], (struct task_struct *)ctx[1]))
