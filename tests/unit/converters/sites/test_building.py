# SPDX-License-Identifier: Apache-2.0
"""Trees of lives: nesting, contexts, frames from stacks, and what is missing."""

from biotrail.converters.sites.trees import ContextKind
from tests.support.follow_logs import INTERRUPT, SYSCALL, US, WORKER, FollowLog, lives, shape

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
