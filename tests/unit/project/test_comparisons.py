# SPDX-License-Identifier: Apache-2.0
"""What live tests hold recordings against: calls and completions by the kernel's own tracer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support import devices, kernel_completions
from tests.support.kernel_completions import Completion, KernelCompletions, Unseen
from tests.support.life_comparison import compare
from tests.support.traced_calls import (
    Passing,
    kprobe_lines,
    median_duration,
    misplaced,
    missed,
    passings,
    spans,
    unmatched,
)

# What the kernel's own tracer wrote of function calls, read back.

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


def test_probes_are_declared_and_their_misses_counted() -> None:
    # GIVEN a function whose second argument is the object WHEN its probes are declared
    (pair,) = kprobe_lines([("blk_mq_requeue_request", 1)])
    # THEN the entry has that argument
    assert pair[0] == "p:bt_entry/blk_mq_requeue_request blk_mq_requeue_request obj=$arg2:x64"
    assert pair[1] == "r128:bt_return/blk_mq_requeue_request blk_mq_requeue_request"
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


def test_spans_and_second_recorders_serve_once() -> None:
    # GIVEN three times, two of them near each other WHEN the other recording has one of these
    # THEN one of the two is alone
    assert unmatched([100, 110, 500], [105, 495], reach=10) == [110]
    assert unmatched([], [1], reach=10) == []
    # GIVEN events of a first recorder, in rounded µs WHEN a second has them late, but in their
    # order THEN all is well, also where it lacks some
    first = [100_000, 200_000, 300_000]
    assert misplaced([190_000, 250_000], first) == []
    assert misplaced([99_500, 299_600], first) == []
    assert misplaced([], first) == []
    # AND what came before all events, or twice between two, is not
    wrong = [99_499, 210_000, 290_000]
    assert misplaced([*wrong, 100_000, 300_000], first) == wrong


# A followed object's life held against what the kernel's own tracer saw.

REACH = 500_000
REQUEST, OTHER = 0xFFFF888000001000, 0xFFFF888000002000


def entry(time: int, name: str, tid: int = 7, pointer: int = REQUEST) -> Passing:
    return Passing(time * 1000, 0, tid, name, pointer=pointer)


def back(time: int, name: str, tid: int = 7) -> Passing:
    return replace(entry(time, name, tid), is_return=True)


LIFE = [
    entry(1000, "init"),
    back(1010, "init"),
    entry(1020, "insert"),
    entry(1030, "issue"),
    back(1040, "issue"),
    entry(3000, "complete", tid=0),
    entry(3010, "free", tid=0),
]


def later(life: Sequence[Passing], micros: int = 20) -> list[Passing]:
    """The same, as the recording's probe sees it."""
    return [replace(passing, time=passing.time + micros * 1000) for passing in life]


def test_lives_without_a_difference() -> None:
    # GIVEN a life of which the tracer saw the same, besides another pointer
    truth = [*LIFE, entry(1025, "insert", pointer=OTHER)]
    # WHEN the two are compared
    found = compare(truth, later(LIFE), REACH)
    # THEN nothing differs, and the times are as far apart as they are
    assert not found
    assert (found.entries, found.returns, found.apart) == (5, 2, 20_000)
    # GIVEN earlier and later lives of the same address, close by
    truth = [entry(800, "free", tid=0), *LIFE, entry(3100, "init"), back(3110, "init")]
    # WHEN the middle one is compared THEN it is whole
    assert not compare(truth, later(LIFE), REACH)
    # GIVEN a completion in an interrupt between the two probes of a thread's function
    interrupt = replace(entry(1035, "complete"), in_interrupt=True)
    truth = [*LIFE[:4], interrupt, *LIFE[4:]]
    life = [*LIFE[:3], entry(1033, "complete"), entry(1034, "issue"), *LIFE[4:]]
    # WHEN they are compared THEN nothing differs
    assert not compare(truth, life, REACH)
    # GIVEN functions that return after the object was freed, recorded or not
    returns = [back(3020, "free", tid=0), back(3030, "complete", tid=0)]
    # WHEN they are compared THEN neither is a difference
    assert not compare([*LIFE, *returns], LIFE, REACH)
    assert not compare([*LIFE, *returns], [*LIFE, *returns], REACH)
    assert not compare([*LIFE, *returns], [*LIFE, returns[1]], REACH)


def test_differences_of_lives() -> None:
    # GIVEN a recording without one of the functions
    life = [hit for hit in LIFE if hit.name != "issue"]
    # WHEN it is compared THEN that function is named, its entry and its return
    assert [p.name for p in compare(LIFE, life, REACH).missing] == ["issue", "issue"]
    # AND a function that the recording says it could not attach is not missing
    assert not compare(LIFE, life, REACH, unseen={"issue"})
    # GIVEN a recording with a function that the tracer did not see
    life = [*LIFE[:3], entry(1025, "merge"), *LIFE[3:]]
    # WHEN it is compared THEN that function is named
    assert [p.name for p in compare(LIFE, life, REACH).extra] == ["merge"]
    # GIVEN a recording that has two functions of a thread the other way round
    life = [*LIFE[:2], entry(1021, "issue"), entry(1031, "insert"), *LIFE[4:]]
    # WHEN it is compared THEN the order differs, and nothing else
    found = compare(LIFE, life, REACH)
    assert len(found.order) == 1
    assert not found.missing
    assert not found.extra
    # GIVEN a hit a second later than the tracer saw that function
    life = [*LIFE[:5], entry(1_003_000, "complete", tid=0), entry(1_003_010, "free", tid=0)]
    # WHEN it is compared THEN neither has the other's
    found = compare(LIFE, life, REACH)
    assert [p.name for p in found.missing] == ["complete", "free"]
    assert [p.name for p in found.extra] == ["complete", "free"]
    # GIVEN a life whose last functions were not recorded, nor its death
    life = LIFE[:5]
    # WHEN it is compared THEN what the tracer saw of the address later is missing
    found = compare(LIFE, life, REACH, died=False)
    assert [p.name for p in found.missing] == ["complete", "free"]
    assert not compare(LIFE, LIFE, REACH, died=False)


# What live tests set apart: completions that ftrace alone has, in a service thread's interrupt.

LOOP = 7 << 20
SERVICE = "tokio-rt-worker"
COMPLETIONS = """\
# tracer: nop
     ksoftirqd/1-22      [001] ..s..   652.885112: block_rq_complete: 7,0 R () 8 + 8 be,0,4 [0]
 tokio-rt-worker-14      [000] ..s1.   652.885200: block_rq_complete: 7,0 R () 16 + 8 none,0,0 [0]
 tokio-rt-worker-14      [000] ..s1.   652.885201: block_rq_complete: 7,0 R () 24 + 8 none,0,0 [0]
           a b-c-9       [001] ..s1.   652.885300: block_rq_complete: 7,0 FF () 0 + 0 none,0,0 [0]
 tokio-rt-worker-14      [000] ..s1.   652.985200: block_rq_complete: 7,0 R () 16 + 8 none,0,0 [0]
"""


@pytest.fixture
def kernel(tmp_path: Path) -> KernelCompletions:
    event = tmp_path / "events/block/block_rq_complete"
    event.mkdir(parents=True)
    (tmp_path / "trace").write_text(COMPLETIONS)
    (tmp_path / "per_cpu/cpu0").mkdir(parents=True)
    (tmp_path / "per_cpu/cpu0/stats").write_text("entries: 5\noverrun: 0\ndropped events: 0\n")
    return KernelCompletions(tmp_path, f"dev == {LOOP}")


def seen(cpu: int, micros: int, sector: int, sectors: int = 8) -> Completion:
    return Completion(cpu, 652_000_000_000 + micros * 1000 + 400, LOOP, sector, sectors)


def test_what_ftrace_has_alone_in_a_service_thread_is_unseen(
    kernel: KernelCompletions, tmp_path: Path
) -> None:
    # GIVEN five completions WHEN programs have the first, the flush, and the later of two alike
    programs = [seen(1, 885113, 8), seen(1, 885302, 0, 0), seen(0, 985203, 16)]
    found = kernel.unseen(programs, since=0)
    # THEN the two others are unseen, and noted
    assert [(c.time, c.sector, c.task) for c in found.completions] == [
        (652_885_200_000, 16, SERVICE),
        (652_885_201_000, 24, SERVICE),
    ]
    assert len(kernel_completions.SAID) >= 2
    # GIVEN no completion seen WHEN asked THEN only those of service threads are set apart
    assert {c.task for c in kernel.unseen([], since=0).completions} == {SERVICE}
    # AND none from before the recording
    assert len(kernel.unseen([], since=652_985_200_000)) == 1
    # GIVEN a buffer that was too small WHEN asked THEN that is a failure
    (tmp_path / "per_cpu/cpu0/stats").write_text("overrun: 3\ndropped events: 0\n")
    with pytest.raises(AssertionError, match="too small"):
        kernel.all()
    # AND without tracefs nothing is set apart
    assert len(KernelCompletions(None, "").unseen([], since=0)) == 0


@pytest.mark.parametrize(
    ("what", "row", "expected"),
    [
        ("never ended", {}, True),
        ("another device", {"dev": LOOP + 1}, False),
        ("another place", {"sector": 24}, False),
        ("ended before", {"complete": 500_000}, False),
        ("begun after", {"begin": 1_500_000}, False),
        ("ends later by another completion", {"complete": 2_000_000}, True),
        ("merged: it lies in the request", {"sector": 12, "bytes": 512}, True),
    ],
)
def test_whom_an_unseen_completion_concerns(what: str, row: dict[str, int], expected: bool) -> None:
    # GIVEN an unseen completion of 8 sectors at 8 after 1 ms WHEN rows are asked THEN it concerns
    # those in flight there
    values = {"dev": LOOP, "sector": 8, "bytes": 4096, "complete": -1, "begin": 0, **row}
    table = table_of(values)
    unseen = Unseen((Completion(0, 1_000_000, LOOP, 8, 8),))
    begin = np.array([values["begin"]])
    assert unseen.concerns(table, begin).tolist() == [expected], what


def test_the_end_of_a_flush_sequence_concerns_its_request() -> None:
    # GIVEN the end without data of a FUA write, whose sectors are done by then
    unseen = Unseen((Completion(0, 1_000_000, LOOP, 16, 0),))
    write = table_of({"dev": LOOP, "sector": 8, "bytes": 4096, "complete": -1})
    other = table_of({"dev": LOOP, "sector": 80, "bytes": 4096, "complete": -1})
    # WHEN asked THEN it concerns that one
    assert unseen.concerns(write, np.array([0])).all()
    assert not unseen.concerns(other, np.array([0])).any()
    # AND a flush has no sector
    unseen = Unseen((Completion(0, 1_000_000, LOOP, 0, 0),))
    flush = table_of({"dev": LOOP, "sector": (1 << 64) - 1, "bytes": 0, "complete": -1})
    assert unseen.concerns(flush, np.array([0])).all()
    assert unseen.with_data() == 0


class Columns(SimpleNamespace):
    """A table of one row."""

    def __len__(self) -> int:
        return 1


def table_of(values: dict[str, int]) -> Columns:
    types = {"sector": np.uint64, "bytes": np.uint32, "dev": np.uint32}
    return Columns(**{k: np.array([v], types.get(k, np.int64)) for k, v in values.items()})


class Tracing:
    """Stands in for ftrace: one completion in a service thread's interrupt for each test's try."""

    def __init__(self, dev: int) -> None:
        self.dev = dev

    def __enter__(self) -> Callable[..., "Tracing"]:
        return lambda **_: self

    def __exit__(self, *_: object) -> None:
        pass

    def all(self) -> list[Completion]:
        return [Completion(0, 1, self.dev, 8, 8, SERVICE)]


@pytest.mark.parametrize(("dev", "tries"), [(LOOP, 3), (LOOP + 1, 1)])
def test_a_provocation_is_done_again_for_its_own_devices_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dev: int, tries: int
) -> None:
    # GIVEN a test that fails twice while a completion of some device was in such an interrupt
    directories = []

    @kernel_completions.done_again
    def test(tmp_path: Path) -> None:
        directories.append(tmp_path)
        assert len(directories) == 3

    monkeypatch.setattr(devices, "made", {LOOP})
    monkeypatch.setattr(kernel_completions, "tracing", lambda: Tracing(dev))
    # WHEN it runs THEN it is done again if the device is the test's, each try in its directory
    if tries == 1:
        with pytest.raises(AssertionError):
            test(tmp_path=tmp_path)
    else:
        test(tmp_path=tmp_path)
    assert len(set(directories)) == tries
