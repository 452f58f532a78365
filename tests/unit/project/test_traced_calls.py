# SPDX-License-Identifier: Apache-2.0
"""What the kernel's own tracer wrote of function calls, read back."""

import pytest

from tests.support.traced_calls import (
    kprobe_lines,
    median_duration,
    misplaced,
    missed,
    passings,
    spans,
    unmatched,
)

TRACE = """\
# tracer: nop
#
# entries-in-buffer/entries-written: 6/6   #P:2
           <...>-512     [001] d.... 100.000001: submit: (submit+0x0/0x20) obj=0xffff888003c10000
    kworker/0:1H-51      [000] d.... 100.000002: submit: (submit+0x0/0x20) obj=0xffff888003c20000
           <...>-512     [001] d.... 100.000003: submit: (submit+0x4/0x20) obj=0xffff888003c30000
           <...>-512     [001] d.... 100.000004: submit: (a+0x1c/0x90 <- submit) arg1=0x0
          <idle>-0       [001] d.h1. 100.000005: done: (done+0x0/0x20) obj=0xffff888003c10000
           <...>-512     [001] d.... 100.000006: submit: (b+0x1c/0x90 <- submit)
"""
FAULTS = """\
  smmu-pasid1-90 [000] ..... 5.000000: io_fault_entry: smmu0 iova=0x1000 pasid=1
  smmu-pasid2-91 [001] ..... 5.000100: io_fault_entry: smmu0 iova=0x1000 pasid=2
  smmu-pasid1-90 [000] ..... 5.001001: io_fault_exit: smmu0 iova=0x1000 pasid=1
  smmu-pasid2-91 [001] ..... 5.005103: io_fault_exit: smmu0 iova=0x1000 pasid=2
  smmu-pasid1-90 [000] ..... 5.006000: io_fault_entry: smmu0 iova=0x2000 pasid=1
  smmu-pasid1-90 [000] ..... 5.007003: io_fault_exit: smmu0 iova=0x2000 pasid=1
  smmu-pasid2-91 [001] ..... 5.008000: io_fault_entry: smmu0 iova=0x2000 pasid=2
"""


def test_returns_have_the_pointers_of_their_entries() -> None:
    # GIVEN nested calls of a thread, one of a worker between them, one in an interrupt
    # WHEN the text is read
    found = passings(TRACE.splitlines())
    # THEN each return is of its thread's last open call
    assert [(p.tid, p.name, p.is_return, p.pointer & 0xFFFFF) for p in found] == [
        (512, "submit", False, 0x10000),
        (51, "submit", False, 0x20000),
        (512, "submit", False, 0x30000),
        (512, "submit", True, 0x30000),
        (0, "done", False, 0x10000),
        (512, "submit", True, 0x10000),
    ]
    # AND times, CPUs and contexts are those of the lines; each idle task is one of its own
    assert (found[0].time, found[0].cpu, found[0].context) == (100_000_001_000, 1, (512, 0))
    assert (found[4].context, found[4].in_interrupt) == ((0, 2), True)


@pytest.mark.parametrize("line", ["CPU:1 [LOST 12 EVENTS]", "nonsense"])
def test_a_trace_with_gaps_is_no_truth(line: str) -> None:
    # GIVEN a line that says events were lost, or that is none WHEN it is read THEN that fails
    with pytest.raises(AssertionError):
        passings([line])


def test_probes_name_the_argument_from_one_on() -> None:
    # GIVEN a function whose second argument is the object WHEN its probes are declared
    (pair,) = kprobe_lines([("blk_mq_requeue_request", 1)])
    # THEN the entry has that argument
    assert pair[0] == "p:bt_entry/blk_mq_requeue_request blk_mq_requeue_request obj=$arg2:x64"
    assert pair[1] == "r128:bt_return/blk_mq_requeue_request blk_mq_requeue_request"


def test_probes_that_were_not_run_are_counted() -> None:
    # GIVEN a profile of probes: name, hits, misses WHEN it is read
    profile = "  submit      10    0\n  done     7   2\n  done    7   1\n"
    # THEN only misses count, of entry and return together
    assert missed(profile) == {"done": 3}


def test_spans_by_fields_of_events() -> None:
    # GIVEN faults of two address spaces, the last one without its exit
    faults = passings(FAULTS.splitlines())
    # WHEN they are paired by address space THEN each has its own
    found = spans(faults, "io_fault_entry", "io_fault_exit", ["pasid"])
    assert [end - begin for begin, end in found[1,]] == [1_001_000, 1_003_000]
    assert found[2,] == [(5_000_100_000, 5_005_103_000)]
    assert median_duration(found[1,]) == 1_002_000
    # AND by several fields, and the CPU
    keys = ["pasid", "iova", "cpu"]
    assert (2, 0x1000, 1) in spans(faults, "io_fault_entry", "io_fault_exit", keys)


def test_each_time_serves_once() -> None:
    # GIVEN three times, two of them near each other WHEN the other recording has one of these
    # THEN one of the two is alone
    assert unmatched([100, 110, 500], [105, 495], reach=10) == [110]
    assert unmatched([], [1], reach=10) == []


def test_a_second_recorder_has_each_event_before_the_next() -> None:
    # GIVEN events of a first recorder WHEN a second has them late, but in their order THEN all is
    # well, also where it lacks some
    assert misplaced([190, 250], [100, 200, 300]) == []
    assert misplaced([], [100]) == []
    # AND what came before all events, or twice between two, is not
    assert misplaced([99, 100, 210, 290, 300], [100, 200, 300]) == [99, 210, 290]
