# SPDX-License-Identifier: Apache-2.0
"""Trees of lives: nesting, contexts, frames from stacks, and what is missing."""

from biotrail.converters.sites.trees import ContextKind, Ending, Finish
from tests.support.follow_logs import (
    EXIT,
    IDLE,
    INTERRUPT,
    REQUEST,
    SYSCALL,
    US,
    WORKER,
    FollowLog,
    lives,
    shape,
)

SUBMIT = (*SYSCALL, "submit_bio")
FRAMES = ["  entry_SYSCALL_64_after_hwframe frame", "    do_syscall_64 frame"]
FRAMES += ["      __x64_sys_pread64 frame", "        vfs_read frame"]


def test_an_interrupt_on_top_of_a_function_of_the_same_life() -> None:
    # GIVEN a request whose completion interrupts the task that is still in submitting it
    log = FollowLog()
    log.enter(0, "blk_mq_submit_bio", SUBMIT, born=True)
    inside = (*SUBMIT, "blk_mq_submit_bio", *INTERRUPT, "vring_interrupt")
    log.enter(10 * US, "blk_mq_complete_request", inside)
    log.leave(14 * US, "blk_mq_complete_request")
    log.passes(15 * US, "block_rq_complete")
    log.leave(20 * US, "blk_mq_submit_bio", ended=True)
    # WHEN built  THEN the interrupt is a context of its own, on top of the task's, whose function
    # goes on after it and does not count the interrupt's time
    (life,) = lives(log)
    assert [line.strip() for line in shape(life)[6:]] == [
        "blk_mq_submit_bio 0..20",
        "· block_rq_complete 15",
        "INTERRUPT 42 CPU 0",
        *(f"{name} frame" for name in (*INTERRUPT, "vring_interrupt")),
        "blk_mq_complete_request 10..14",
    ]
    assert [run.kind for run in life.contexts] == [ContextKind.TASK, ContextKind.INTERRUPT]
    assert life.contexts[1].on_top == 0
    submit = next(node for node in life.nodes if node.name == "blk_mq_submit_bio")
    assert (submit.took, submit.own) == (20 * US, 16 * US)
    # AND what came after the interrupt without a stack is the task's
    complete = next(node for node in life.nodes if node.name == "block_rq_complete")
    assert complete.context == 0


def test_a_thread_that_moves_or_comes_back() -> None:
    # GIVEN a function that is entered on CPU 0 and returns on CPU 3
    log = FollowLog()
    log.enter(0, "blk_mq_submit_bio", SUBMIT, born=True, cpu=0)
    log.leave(9 * US, "blk_mq_submit_bio", cpu=3, ended=True)
    # WHEN built  THEN it is one span of one context on both CPUs
    (life,) = lives(log)
    assert shape(life)[0] == "TASK 42 CPU 0,3 system call pread64"
    node = life.nodes[-1]
    assert (node.cpu, node.cpu_end, node.took) == (0, 3, 9 * US)
    # GIVEN tracepoints of one worker, between which another CPU's softirq has the request
    log = FollowLog()
    run = (*WORKER, "blk_mq_run_work_fn")
    log.passes(0, "block_rq_issue", run, born=True, tid=77)
    log.passes(5 * US, "block_rq_requeue", (*IDLE, *EXIT), tid=0, cpu=1)
    log.passes(9 * US, "block_rq_issue", run, tid=77, ended=True)
    # WHEN built  THEN there are three contexts in their order
    kinds = [run.kind for run in lives(log)[0].contexts]
    assert kinds == [ContextKind.WORKER, ContextKind.SOFTIRQ, ContextKind.WORKER]
    # GIVEN hits of thread 0 on two CPUs, in interrupts that overlap
    log = FollowLog()
    stack = (*IDLE, *EXIT)
    log.enter(0, "a", stack, born=True, tid=0, cpu=0)
    log.enter(1 * US, "b", stack, tid=0, cpu=1)
    log.leave(2 * US, "a", tid=0, cpu=0)
    log.leave(3 * US, "b", tid=0, cpu=1, ended=True)
    # WHEN built  THEN each has its context, and neither is within the other
    (life,) = lives(log)
    assert [run.cpus for run in life.contexts] == [[0], [1]]
    assert (life.unfinished, life.alone) == (0, 0)


def test_returns_and_entries_that_are_not_recorded() -> None:
    # GIVEN a life whose first hit is within a function that returns later
    log = FollowLog()
    log.passes(0, "block_getrq", SUBMIT, born=True)
    log.leave(5 * US, "blk_mq_get_request")
    log.passes(9 * US, "block_rq_complete", SUBMIT, ended=True)
    # WHEN built  THEN the return is counted, and stands in the tree
    (life,) = lives(log)
    assert life.alone == 1
    assert "  blk_mq_get_request returned 5" in shape(life)
    # GIVEN a function of a system call whose return is lost, and a later hit of the same thread in
    # another system call
    log = FollowLog()
    log.enter(0, "blk_mq_submit_bio", SUBMIT, born=True)
    later = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_ioctl", "blkdev_ioctl")
    log.enter(50 * US, "blk_execute_rq", later)
    log.leave(60 * US, "blk_execute_rq", ended=True)
    # WHEN built  THEN the second call is a context of its own, not within the first function
    (life,) = lives(log)
    assert [run.what for run in life.contexts] == ["system call pread64", "system call ioctl"]
    assert (life.nodes[-1].took, life.unfinished) == (10 * US, 1)
    # GIVEN a function that is not on the stack of the one it called last, by a jump
    log = FollowLog()
    log.enter(0, "blk_mq_end_request", SUBMIT, born=True)
    log.enter(2 * US, "__blk_mq_end_request", SUBMIT)
    log.leave(5 * US, "__blk_mq_end_request")
    log.leave(5 * US, "blk_mq_end_request", ended=True)
    # WHEN built  THEN it is still within it, as its return comes later
    assert [line.strip() for line in shape(lives(log)[0])[-2:]] == [
        "blk_mq_end_request 0..5",
        "__blk_mq_end_request 2..5",
    ]


def test_lives_that_go_on_or_lack_a_stack() -> None:
    # GIVEN a life whose end is not recorded, and a second one at the same address
    log = FollowLog()
    log.passes(0, "block_getrq", SUBMIT, born=True, life=1, object=REQUEST)
    log.passes(50 * US, "block_getrq", SUBMIT, born=True, life=2, object=REQUEST)
    log.passes(70 * US, "block_rq_complete", SUBMIT, ended=True, life=2, object=REQUEST)
    # WHEN read  THEN they are two lives, and the first says why it has no end
    first, second = lives(log)
    assert (first.number, first.ending, first.took) == (1, Ending.REUSED, -1)
    assert (second.number, second.ending, second.took) == (2, Ending.DIED, 20 * US)
    # GIVEN a life without an end, inside a function
    log = FollowLog()
    log.enter(0, "blk_mq_submit_bio", SUBMIT, born=True)
    log.passes(7 * US, "block_rq_insert")
    # WHEN read  THEN function and life say that the log ended
    (life,) = lives(log)
    assert (life.ending, life.span) == (Ending.LOG_ENDED, 7 * US)
    assert next(n for n in life.nodes if n.name == "blk_mq_submit_bio").finish == Finish.LOG_ENDED
    # GIVEN a hit whose stack has no note
    log = FollowLog()
    log.passes(0, "block_getrq", SUBMIT, born=True)
    log.passes(5 * US, "block_rq_complete", SUBMIT, ended=True)
    # WHEN read without notes  THEN it is counted, and the hits stand without callers
    (life,) = lives(log, notes={})
    assert life.unknown_stacks == 2
    assert shape(life) == ["TASK 42 CPU 0", "  · block_getrq 0", "  · block_rq_complete 5"]


def test_deep_entries_without_returns_stay_bounded() -> None:
    # GIVEN 20,000 entries of one thread, none of which returns
    log = FollowLog()
    for at in range(20_000):
        log.enter(at, "a", born=not at)
    # WHEN built  THEN the tree is no deeper than it may be
    (life,) = lives(log)
    assert (len(life.nodes), life.unfinished) == (20_000, 20_000)
    assert max(node.depth for node in life.nodes) <= 401


def test_a_worker_that_comes_back_later_has_a_context_for_each_turn() -> None:
    # GIVEN a worker that dispatches a request twice, 8 ms apart, with a pause of 0.9 ms in a turn
    log = FollowLog()
    run = (*WORKER, "blk_mq_run_work_fn")
    log.enter(0, "virtio_queue_rq", run, born=True, tid=77)
    log.leave(9 * US, "virtio_queue_rq", tid=77)
    log.passes(900 * US, "block_rq_requeue", run, tid=77)
    log.enter(8900 * US, "virtio_queue_rq", run, tid=77)
    log.leave(19_000 * US, "virtio_queue_rq", tid=77)
    log.passes(19_010 * US, "block_rq_issue", run, ended=True, tid=77)
    # WHEN built  THEN each turn is a context, also where a function in it takes long
    begins = [(run.begin - run.end) / -US for run in lives(log)[0].contexts]
    assert begins == [900, 10_110]
