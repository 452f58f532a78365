# SPDX-License-Identifier: Apache-2.0
"""Lives as a kernel has them, made by hand: by functions, and by tracepoints alone."""

from tests.support.follow_logs import (
    EXIT,
    IDLE,
    INTERRUPT,
    MS,
    SYSCALL,
    US,
    WORKER,
    FollowLog,
    read_write,
)

SUBMIT = (*SYSCALL, "ext4_file_read_iter", "iomap_dio_rw", "submit_bio", "blk_mq_submit_bio")
LOST = {"start": 40 * MS, "end": 41 * MS, "cpu": 0, "level": 3, "kind": 40, "count": 17}
"""Lost hits, during the life that `lossy` makes."""


def by_functions() -> FollowLog:
    """Eight lives of requests, each with something of its own; one hit is of no life."""
    log = FollowLog()
    read_write(log, 1, 0)
    read_write(log, 2, 3 * MS, comm=b"fio")
    recursive(log, 3, 6 * MS)
    interrupted(log, 4, 10 * MS)
    requeued(log, 5, 20 * MS)
    reused(log, 6, 30 * MS)
    lossy(log, 8, 40 * MS)
    goes_on(log, 9, 50 * MS)
    return log


def who(life: int, **more: object) -> dict[str, object]:
    return {"life": life, "object": 0xFFFF888000001000 + 0x400 * life, "detail": 8 * life, **more}


def recursive(log: FollowLog, life: int, at: int) -> None:
    """A function that calls itself, and one that is called again and again."""
    task = who(life, comm=b"dd")
    log.enter(at, "blk_mq_get_tag", SUBMIT, born=True, **task)
    log.enter(at + 1 * US, "blk_mq_get_tag", (*SUBMIT, "blk_mq_get_tag"), **task)
    log.leave(at + 4 * US, "blk_mq_get_tag", **task)
    log.leave(at + 5 * US, "blk_mq_get_tag", **task)
    for number in range(6):
        log.enter(at + (10 + 2 * number) * US, "blk_rq_map_sg", SUBMIT, **task)
        log.leave(at + (11 + 2 * number) * US, "blk_rq_map_sg", **task)
    log.enter(at + 30 * US, "blk_mq_free_request", SUBMIT, ended=True, **task)
    log.leave(at + 33 * US, "blk_mq_free_request", **task)


def interrupted(log: FollowLog, life: int, at: int) -> None:
    """The task submits on CPU 0, is interrupted by the completion, and goes on on CPU 1."""
    task = who(life, comm=b"postgres", tid=300)
    log.enter(at, "blk_mq_dispatch_rq_list", SUBMIT, born=True, cpu=0, **task)
    top = (*SUBMIT, "blk_mq_dispatch_rq_list", *INTERRUPT, "vring_interrupt", "virtblk_done")
    log.enter(at + 40 * US, "blk_mq_complete_request", top, cpu=0, **task)
    log.leave(at + 44 * US, "blk_mq_complete_request", cpu=0, **task)
    log.leave(at + 90 * US, "blk_mq_dispatch_rq_list", cpu=1, **task)
    idle = who(life, comm=b"swapper/0", tid=0, cpu=0)
    log.enter(at + 95 * US, "blk_mq_end_request", (*IDLE, *EXIT), **idle)
    log.enter(at + 97 * US, "blk_mq_free_request", ended=True, **idle)
    log.leave(at + 99 * US, "blk_mq_free_request", **idle)
    log.leave(at + 100 * US, "blk_mq_end_request", **idle)


def requeued(log: FollowLog, life: int, at: int) -> None:
    """A worker dispatches it twice, as the driver gives it back; it ends in another's function."""
    worker = who(life, comm=b"kworker/0:1H", tid=70)
    run = (*WORKER, "blk_mq_requeue_work", "blk_mq_dispatch_rq_list")
    for turn in range(2):
        begin = at + 400 * US * turn
        log.enter(begin, "scsi_queue_rq", run, born=not turn, **worker)
        log.passes(begin + 3 * US, "block_rq_issue", (*run, "scsi_queue_rq"), **worker)
        log.leave(begin + 9 * US, "scsi_queue_rq", value=turn * 13, **worker)
    idle = who(life, comm=b"swapper/1", tid=0, cpu=1)
    log.enter(at + 900 * US, "scsi_end_request", (*IDLE, *EXIT, "scsi_io_completion"), **idle)
    log.enter(at + 901 * US, "blk_mq_free_request", ended=True, **idle)


def reused(log: FollowLog, life: int, at: int) -> None:
    """A life whose end is not recorded, and the next at its address; a return without an entry."""
    task = {**who(life), "object": 0xFFFF88800000F000}
    log.enter(at, "blk_mq_start_request", SUBMIT, born=True, **task)
    log.leave(at + 2 * US, "blk_mq_start_request", **task)
    after = {**task, "life": life + 1}
    log.leave(at + 500 * US, "blk_mq_alloc_request", born=True, **after)
    log.enter(at + 520 * US, "blk_mq_free_request", SUBMIT, ended=True, **after)
    log.leave(at + 521 * US, "blk_mq_free_request", **after)


def lossy(log: FollowLog, life: int, at: int) -> None:
    """Of three functions within each other, the inner returns are lost."""
    task = who(life)
    log.enter(at, "blk_mq_insert_request", SUBMIT, born=True, **task)
    log.enter(at + 2 * US, "blk_mq_request_bypass_insert", **task)
    log.enter(at + 3 * US, "blk_mq_run_hw_queue", **task)
    log.leave(at + 20 * US, "blk_mq_insert_request", **task)
    log.enter(at + 25 * US, "blk_mq_free_request", SUBMIT, ended=True, **task)
    log.leave(at + 26 * US, "blk_mq_free_request", **task)


def goes_on(log: FollowLog, life: int, at: int) -> None:
    """A request in flight at the log's end, inside a function of a module."""
    site = log.site("nvme_queue_rq")
    log.named[site]["module"] = "nvme"
    log.enter(at, "nvme_queue_rq", SUBMIT, born=True, **who(life))
    log.passes(at + 5 * US, "block_rq_issue", (*SUBMIT, "nvme_queue_rq"), **who(life))


def by_tracepoints() -> FollowLog:
    """Twelve packets, sent by a task and received in a softirq on top of it."""
    log = FollowLog(kind="sk_buff", detail="len", detail_unit="bytes")
    send = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_sendto", "tcp_sendmsg")
    output = (*send, "tcp_write_xmit", "__dev_queue_xmit")
    bottom = (*output, "__local_bh_enable_ip", "do_softirq.part.0", "handle_softirqs")
    for number in range(12):
        at = number * MS
        one = {"life": number + 1, "object": 0xFFFF888100000000 + 256 * number, "detail": 1066}
        log.passes(at, "net_dev_queue", output, born=True, **one)
        log.passes(at + 2 * US, "net_dev_xmit", (*output, "dev_hard_start_xmit"), **one)
        receive = (*bottom, "net_rx_action", "process_backlog")
        log.passes(at + (6 + number) * US, "netif_receive_skb", receive, **one)
        inner = (*receive, "tcp_v4_rcv", "tcp_rcv_established")
        log.passes(at + (9 + number) * US, "tcp_probe", inner, **one)
        read = (
            "entry_SYSCALL_64_after_hwframe",
            "do_syscall_64",
            "__x64_sys_recvfrom",
            "tcp_recvmsg",
        )
        other = {**one, "tid": 51, "comm": b"server", "cpu": 1}
        log.passes(at + 80 * US, "skb_copy_datagram_iovec", read, **other)
        log.passes(at + 82 * US, "consume_skb", read, ended=True, **other)
    return log
