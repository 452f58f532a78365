# SPDX-License-Identifier: Apache-2.0
"""The parts of a call's time add up, and each wait has its cause."""

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.calls.pending import CallFiles, FirstBios
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import NEVER, WaitCause
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import STATE_IO_WAIT, Kind
from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.support.cli_runner import Cli
from tests.support.path_logs import (
    ALL_PARTS,
    FSYNC,
    IO_GETEVENTS,
    IO_SUBMIT,
    IO_URING_ENTER,
    MS,
    PREAD,
    WITH_REASONS,
    PathLog,
)
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.stack_logs import DEV, START

OWN, OTHER, OTHERWISE = WaitCause.OWN_IO, WaitCause.OTHER_IO, WaitCause.OTHERWISE
PARTS = ("running", "runnable", "own_io", "other_io", "otherwise", "undivided")


def read(data: bytes, window: int = 250_000, *, own_io: bool = False) -> tuple[Calls, Waits]:
    """All calls and waits of a log, read in windows of that many events."""
    trace = Trace(io.BytesIO(data), own_io=own_io)
    paths = [w.path for w in trace.lifecycles(window) if w.path is not None]
    calls = Calls.concatenate([path.calls for path in paths])
    return calls, Waits.concatenate([path.waits for path in paths])


def parts(calls: Calls, row: int = 0) -> dict[str, int]:
    """The parts of one call that are not 0."""
    found = {name: int(getattr(calls, name)[row]) for name in PARTS}
    return {name: ns for name, ns in found.items() if ns}


def assert_sum(calls: Calls) -> None:
    whole = np.sum([getattr(calls, name) for name in PARTS], axis=0)
    assert np.array_equal(whole, calls.exit - calls.entry)


@pytest.mark.parametrize(
    ("bios", "waits", "blocked", "runnable", "expected", "causes"),
    [
        ([(120, 480, 42, 100)], [(150, 500, 530)], 350, 30, (120, 30, 350, 0, 0), [OWN]),
        (
            [(120, 480, 43, 100), (50, 480, 42, 40)],
            *([(150, 500, 530)], 350, 30, (120, 30, 0, 350, 0), [OTHER]),
        ),
        ([(120, None, 42, 100)], [(150, 500, 500)], 350, 0, (150, 0, 350, 0, 0), [OWN]),
        (
            [(160, 500, 42, 100)],
            *([(110, 150, 150), (170, 510, 510)], 380, 0, (120, 0, 340, 40, 0), [OTHER, OWN]),
        ),
        ([], [], 250, 5, (245, 5, 0, 0, 250), []),
        ([], [(120, 700, 700)], 10**15, 2**63, (0, 0, 0, 500, 0), [OTHER]),
    ],
    ids=[
        "its own bio",
        "another thread's bio, and its own of an earlier call",
        "a bio whose completion was not recorded is in flight",
        "in state D before it queues a bio, and after that",
        "a pipe, in no recorded wait",
        "longer than the call lasted, by records that contradict each other",
    ],
)
def test_what_a_read_waits_for(
    bios: list[tuple[int, int | None, int, int]],
    waits: list[tuple[int, ...]],
    blocked: int,
    runnable: int,
    expected: tuple[int, ...],
    causes: list[WaitCause],
) -> None:
    # GIVEN a read of 500 ns with its waits, and bios (queue, end, thread, entry of their call)
    log = PathLog()
    for queue, end, tid, entry in bios:
        log.bio(queue, end, tid, entry=entry)
    for one in waits:
        log.waits(100, *one)
    log.returns(100, 600, blocked=blocked, runnable=runnable)
    # WHEN its time is divided THEN each wait has its cause, and the parts add up
    calls, found = read(log.data())
    assert parts(calls) == {name: ns for name, ns in zip(PARTS, expected, strict=False) if ns}
    assert found.cause.tolist() == causes
    assert_sum(calls)


@pytest.mark.parametrize("lock", ["__lock_sock", "synchronize_rcu", "down_read vm_mmap_pgoff"])
@pytest.mark.parametrize("state", [1, 2])
def test_what_no_io_ends_is_otherwise(lock: str, state: int) -> None:
    # GIVEN a call in state D whose stack says that it waits for no I/O, before it queues a bio, and
    # with that in flight
    log = PathLog()
    log.waits(100, 110, 150, 150, state=state, stack=7)
    log.bio(160, 500, entry=100)
    log.waits(100, 170, 400, 400, state=state, stack=7)
    log.waits(100, 410, 510, 510, state=state, stack=8)
    log.returns(100, 600, blocked=40 + 230 + 100, queued=1)
    stacks = {"7": ("schedule", *lock.split()), "8": ("schedule", "submit_bio_wait")}
    frames = {number: [[name, "", 1] for name in names] for number, names in stacks.items()}
    # WHEN its time is divided  THEN only the wait for the bio is for I/O
    calls, waits = read(log.data((), WITH_REASONS, {"stacks": {"wait": frames}}))
    assert waits.cause.tolist() == [OTHERWISE, OTHERWISE, OWN]
    assert parts(calls) == {"running": 130, "own_io": 100, "otherwise": 270}


def test_calls_without_waits_or_of_another_machine_are_not_divided() -> None:
    # GIVEN a log of timed calls without their waits
    log = PathLog()
    log.bio(120, 480, entry=100)
    log.returns(100, 600, queued=1)
    # WHEN / THEN the time is not divided, as nobody knows whether they ran
    calls, _ = read(log.data(parts=("call", "time")))
    assert parts(calls) == {"undivided": 500}
    # GIVEN a log of another machine, whose 208 is another call
    log = PathLog()
    log.task(42, b"db")
    log.bio(120, 900, call=IO_SUBMIT, entry=100)
    log.returns(200, 400, number=IO_GETEVENTS, blocked=90)
    # WHEN / THEN nothing is reaped by it
    calls, _ = read(log.data(host={"machine": "aarch64"}))
    assert parts(calls) == {"running": 110, "otherwise": 90}
    assert PREAD not in calls.number


@pytest.mark.parametrize("window", [1, 250_000])
@pytest.mark.parametrize(("end", "reaped"), [(300, 90), (900, 90), (250, 50), (210, 10)])
def test_reaping_what_another_call_submitted(end: int, reaped: int, window: int) -> None:
    # GIVEN an io_getevents that waits while a bio of io_submit is in flight, until it ends or
    # longer, and one after that
    log = PathLog()
    for tid in (42, 43):
        log.task(tid, b"db", 42)
    log.bio(120, end, 43, call=IO_SUBMIT, entry=100)
    log.returns(100, 150, 43, number=IO_SUBMIT, result=1, queued=1)
    log.returns(200, 400, number=IO_GETEVENTS, blocked=90, waits=1)
    log.returns(end + 201, end + 301, number=IO_GETEVENTS, blocked=60, waits=1, result=0)
    # WHEN its time is divided
    calls, _ = read(log.data(), window)
    # THEN the first waits for I/O while that is in flight, the other for something else
    assert calls.number.tolist() == [IO_SUBMIT, IO_GETEVENTS, IO_GETEVENTS]
    idle = {"otherwise": 90 - reaped} if reaped < 90 else {}
    assert parts(calls, 1) == {"running": 110, "other_io": reaped, **idle}
    assert parts(calls, 2) == {"running": 40, "otherwise": 60}


@pytest.mark.parametrize("window", [1, 3, 250_000])
def test_a_thread_that_idles_before_what_it_reaps(window: int) -> None:
    # GIVEN a wait of 1 s in io_getevents, in which two I/Os of 400 and 300 ns are in flight, 100 ns
    # of them both, and one before it
    log = PathLog()
    for tid in (42, 43):
        log.task(tid, b"db", 42)
    for begin, end in ((100, 190), (500_000_000, 500_000_400), (500_000_300, 500_000_600)):
        log.bio(begin, end, 43, call=IO_SUBMIT, entry=begin - 10)
    log.returns(200, 1_000_000_000, number=IO_GETEVENTS, blocked=999_990_000, waits=1)
    # WHEN / THEN its wait is for I/O while one is in flight
    calls, _ = read(log.data(), window)
    assert parts(calls, 0) == {"running": 9800, "other_io": 600, "otherwise": 999_989_400}
    # GIVEN an io_uring_enter that submits a bio of 300 ns and waits for 10 us, for a socket, too
    log = PathLog()
    log.task(42, b"ring")
    log.bio(120, 420, call=IO_URING_ENTER, entry=100)
    log.waits(100, 130, 10_130, 10_130, state=1)
    log.returns(100, 10_200, number=IO_URING_ENTER, blocked=10_000, waits=1, queued=1)
    # WHEN / THEN it waits for its own I/O for as long as that was in flight
    calls, _ = read(log.data(), window)
    assert parts(calls) == {"running": 100, "own_io": 300, "otherwise": 9700}


def test_the_recordings_own_calls_are_left_out() -> None:
    # GIVEN a write and an fsync of the recorder, and a sync that writes its pages and others
    log = PathLog()
    for entry, owns in ((100, [True]), (1000, [True, False])):
        for place, own in enumerate(owns):
            log.bio(entry + 20 + place, entry + 90, entry=entry, own=own)
        log.waits(entry, entry + 50, entry + 95, entry + 95)
        log.returns(entry, entry + 200, blocked=45)
    # WHEN / THEN only the call that also did I/O of others is shown, unless all are asked for
    calls, waits = read(log.data())
    assert calls.entry.tolist() == [START + 1000]
    assert waits.entry.tolist() == [START + 1000]
    calls, waits = read(log.data(), own_io=True)
    assert calls.own.tolist() == [True, False]
    assert waits.own.tolist() == [True, False]


def test_times_that_no_clock_shows() -> None:
    # GIVEN a damaged log: a wait that ran before it was woken, a call that began after it ended
    log = PathLog()
    log.add(Kind.WAIT, 500, entry=START + 100, tid=42, state=2, blocked=2**64 - 9, runnable=2**63)
    log.returns(100, 600, blocked=300)
    log.returns(900, 800, 43, blocked=10)
    # WHEN / THEN no part is negative, and they add up
    calls, _ = read(log.data())
    assert calls.entry.tolist() == [START + 100, NEVER]
    assert_sum(calls.take(calls.entry != NEVER))
    assert all((getattr(calls, part) >= 0).all() for part in PARTS)


@dataclass
class Made:
    """A history of calls, and what is true of them."""

    log: PathLog = field(default_factory=PathLog)
    calls: list[tuple[int, ...]] = field(default_factory=list)
    """(exit, tid, entry, the five parts in the order of PARTS)."""
    waits: list[tuple[int, ...]] = field(default_factory=list)
    """(run, tid, out, cause)."""


@dataclass
class Step:
    """What a thread does next inside a call, and for how long (ns)."""

    what: str
    first: int
    second: int


duration = st.integers(1, 40 * MS)
step = st.builds(Step, st.sampled_from(["run", "bio", "D", "S", "preempted"]), duration, duration)
call = st.lists(step, max_size=6)


def make(threads: list[list[list[Step]]]) -> Made:
    """Run each thread's calls, one behind the other; the truth is found bio by bio."""
    made = Made()
    for tid, calls in enumerate(threads, start=1):
        now = tid
        for steps in calls:
            now = run_call(made, tid, now + 1, steps)
    return made


def run_call(made: Made, tid: int, entry: int, steps: list[Step]) -> int:
    """Add one call, and return the time of its exit (ns since START)."""
    now = entry + 1
    ran, ready = 1, 0
    blocked = dict.fromkeys((OWN, OTHER, OTHERWISE), 0)
    bios: list[tuple[int, int]] = []
    for one in steps:
        if one.what == "run":
            now, ran = now + one.first, ran + one.first
        elif one.what == "bio":
            bios.append((now, now + one.first))
            made.log.bio(now, now + one.first, tid, entry=entry)
            now, ran = now + 1, ran + 1
        elif one.what == "preempted":
            now, ready = now + one.first, ready + one.first
        else:
            woken, run = now + one.first, now + one.first + one.second
            mine = any(begin <= now < end for begin, end in bios)
            cause = OWN if mine else (OTHER if one.what == "D" else OTHERWISE)
            if one.what == "D" or bios:
                made.log.waits(entry, now, woken, run, tid, state=2 if one.what == "D" else 1)
                made.waits.append((run, tid, now, cause))
            blocked[cause] += one.first
            now, ready = run, ready + one.second
    made.log.returns(
        entry, now, tid, blocked=sum(blocked.values()), runnable=ready, queued=len(bios)
    )
    made.calls.append((now, tid, entry, ran, ready, *(blocked[c] for c in (OWN, OTHER, OTHERWISE))))
    return now


@settings(max_examples=80, deadline=None)
@given(
    threads=st.lists(st.lists(call, min_size=1, max_size=5), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 400 * MS), max_size=12),
    window=st.sampled_from([1, 3, 10, 250_000]),
)
def test_parts_are_the_truth_in_windows_of_any_size(
    threads: list[list[list[Step]]], cuts: list[int], window: int
) -> None:
    # GIVEN calls of several threads, in chunks cut anywhere
    made = make(threads)
    # WHEN their time is divided, in small windows
    calls, waits = read(made.log.data(cuts), window)
    # THEN it adds up to the ns, and is what a look at each bio says
    assert_sum(calls)
    names = ("exit", "tid", "entry", *PARTS[:5])
    rows = zip(*(getattr(calls, name).tolist() for name in names), strict=True)
    found = [(e - START, tid, b - START, *rest) for e, tid, b, *rest in rows]
    assert sorted(found) == sorted(made.calls)
    columns = (waits.run, waits.tid, waits.out, waits.cause)
    told = zip(*(column.tolist() for column in columns), strict=True)
    assert sorted((r - START, tid, o - START, c) for r, tid, o, c in told) == sorted(made.waits)


# The file of a call: its descriptor's, else that of its bios.


@pytest.mark.parametrize("window", [1, 250_000])
def test_a_call_is_of_its_descriptors_file(window: int) -> None:
    # GIVEN a flush and a write of two threads that return in the same nanosecond, a read whose bio
    # alone has a file, and a call without either
    log = PathLog()
    log.name(7, b"var", b"redo")
    log.name(8, b"var", b"data")
    log.bio(120, 180, entry=100)
    log.returns(100, 200, 43, file=8)
    log.returns(110, 200, number=FSYNC, result=0, queued=1, file=7)
    log.request(320, 380, entry=300, file=8)
    log.returns(300, 400, queued=1)
    log.returns(500, 600, blocked=50)
    # WHEN the calls' files are asked for
    trace = Trace(io.BytesIO(log.data()))
    first, only, found, all_of = FirstBios(), CallFiles(), [], []
    for one in trace.lifecycles(window):
        if one.path is None:
            continue
        calls = one.path.calls
        found += list(zip(calls.tid.tolist(), first.of_calls(one).file.tolist(), strict=True))
        all_of += only.of(one, calls).tolist()
    # THEN each has its own
    paths = [(tid, trace.context.files[row].path if row >= 0 else None) for tid, row in found]
    assert [path and path.split("/")[-1] for _, path in sorted(paths[:2])] == ["redo", "data"]
    assert [path and path.split("/")[-1] for _, path in paths[2:]] == ["data", None]
    assert all_of == [row for _, row in found]


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path, cli: Cli) -> None:
    # GIVEN calls of descriptors that are no files, one of a call that queued a bio of metadata, and
    # one of a call that queued a discard
    log = PathLog()
    others = [(b"TCP", 1), (b"UNIX-ST", 1), (b"[eventf", 1), (b"kvm-vcp", 1), (b"[other]", 1)]
    for at, (name, other) in enumerate([*others, (b"", 1), (b"", 2)]):
        begun = 1000 * at
        word = int.from_bytes(name, "little")
        log.returns(begun + 1, begun + 900, result=0, file=word, other=other)
    meta, discard = 0 | 1 << 12, 3
    log.bio(10_120, 10_180, entry=10_100, opf=meta)
    log.returns(10_100, 10_200, queued=1)
    log.bio(11_120, 11_180, entry=11_100, opf=discard)
    log.returns(11_100, 11_200, queued=1)
    path = tmp_path / "x.biotrail"
    kernel = {"flag_bits": {"META": 12}, "op_enum": {"read": 0, "write": 1, "discard": 3}}
    path.write_bytes(log.data(files={}, kernel=kernel))
    # WHEN they are grouped by file / THEN each is called what it is
    told = cli.json("report", "--by", "file", path)["call_groups"]
    assert {one["file"] for one in told if one["file_kind"] == "other"} == {
        *("(socket: TCP)", "(socket: UNIX)", "(eventfd)", "(kvm-vcpu)"),
        *("(other)", "(no file)", "(pipe)"),
    }
    assert all(one["inode"] is one["file_dev"] is None for one in told)
    kinds = {one["file_kind"] for one in told}
    assert kinds == {"other", "metadata", "no data"}
    # AND all are one row by directory
    assert "(pipes, sockets and the like)" in cli("report", "--by", "dir", path).out


# Waits outside of timed calls: a call of its own for each, with its bios, cause and file.


def read_parts(
    log: PathLog, window: int = 250_000, parts: tuple[str, ...] = ALL_PARTS
) -> RecordedPath:
    return recorded_path(io.BytesIO(log.data(parts=parts)), window)


def io_parts(calls: Calls) -> list[tuple[int, int, int]]:
    rows = zip(calls.own_io, calls.other_io, calls.otherwise, strict=True)
    return [tuple(map(int, row)) for row in rows]  # type: ignore[misc]


def test_a_wait_is_a_call_of_its_own() -> None:
    # GIVEN a thread whose preads are not timed: of one the log has the bio and the wait for it, of
    # an fsync a wait without a bio
    log = PathLog()
    log.bio(100, 480, args=(5, 0, 4096, 8192))
    log.waits_alone(150, 500, 530, args=(5, 4096, 8192))
    log.waits_alone(700, 900, 905, number=FSYNC, args=(5, 0, 0))
    # WHEN the log is read
    found = read_parts(log)
    # THEN each wait is a call, from leaving the CPU until it ran again, and says that it is no more
    calls, waits = found.calls, found.waits
    assert calls.timed.tolist() == waits.timed.tolist() == [False, False]
    assert calls.number.tolist() == [PREAD, FSYNC]
    assert (calls.entry - START).tolist() == (waits.entry - START).tolist() == [150, 700]
    assert (calls.exit - START).tolist() == [530, 905]
    assert (calls.arg0[0], calls.arg2[0], calls.arg3[0]) == (5, 4096, 8192)
    # AND its time is a sum, with the first one's for the bio that it had queued
    assert waits.cause.tolist() == [OWN, OTHER]
    assert io_parts(calls) == [(350, 0, 0), (0, 200, 0)]
    whole = np.sum([getattr(calls, name) for name in PARTS], axis=0)
    assert np.array_equal(whole, calls.exit - calls.entry)
    # AND the bio belongs to it
    assert calls.bios.tolist() == [1, 0]
    assert (found.paths.entry - START).tolist() == [150]


def test_waits_of_reaping_and_timed_calls_are_their_own() -> None:
    # GIVEN a bio in flight that the thread queued in a pread at another offset
    log = PathLog()
    log.bio(100, 800, args=(5, 0, 4096, 0))
    log.waits_alone(150, 500, 530, args=(5, 4096, 8192))
    # WHEN the log is read  THEN the wait is for something else
    found = read_parts(log)
    assert found.waits.cause.tolist() == [OTHER]
    assert found.calls.bios.tolist() == [0]
    assert found.paths.entry.tolist() == [NEVER]
    # AND where calls of bios are not recorded, the thread is all that is known
    found = read_parts(log, parts=("wait",))
    assert found.waits.cause.tolist() == [OWN]
    # GIVEN a timed call with a wait, a page fault of the same thread beside, and a wait of state S
    # in which the kernel counted the thread as waiting for I/O
    log = PathLog()
    log.waits(100, 150, 500, 530)
    log.returns(100, 600, blocked=350, runnable=30, waits=1)
    log.waits_alone(700, 900, 905, number=PAGE_FAULT, state=1 | STATE_IO_WAIT)
    # WHEN the log is read / THEN one call was timed, the other wait is a page fault
    found = read_parts(log)
    assert found.calls.timed.tolist() == [True, False]
    assert io_parts(found.calls) == [(0, 350, 0), (0, 200, 0)]
    assert found.calls.number.tolist() == [PREAD, PAGE_FAULT]
    assert found.waits.state.tolist() == [2, 1]
    assert found.waits.io_wait.tolist() == [False, True]
    # GIVEN two waits in io_uring_enter, of which I/O is in flight for the last 40 ns of the second
    log = PathLog()
    log.task(42, b"reaper")
    log.bio(2960, 2990, call=IO_SUBMIT, args=(9, 9, 9, 9))
    for at in (1000, 2000):
        log.waits_alone(at, at + 995, at + 999, number=IO_URING_ENTER, state=1 | STATE_IO_WAIT)
    # WHEN the log is read  THEN the rest is no wait for I/O, nor is the first one
    found = read_parts(log)
    assert io_parts(found.calls) == [(0, 0, 995), (0, 30, 965)]
    assert found.waits.cause.tolist() == [OTHERWISE, OTHER]


@pytest.mark.parametrize(
    ("ready", "own", "bios"), [(15 * MS, OWN, 1), (60 * MS, OWN, 0), (1100 * MS, OTHER, 0)]
)
def test_a_thread_that_gets_its_cpu_late(ready: int, own: WaitCause, bios: int) -> None:
    # GIVEN a wait for a bio, whose thread runs again long after the bio ended, beside other I/O
    log = PathLog()
    log.bio(100, 480, args=(5, 0, 4096, 0))
    log.waits_alone(150, 500, 500 + ready, args=(5, 4096, 0))
    for at in range(2 * MS, 1200 * MS, 2 * MS):
        log.bio(at, at + 480, tid=43, call=None)
    for window in (250_000, 7, 3):
        # WHEN it is read in large and in small windows
        found = read_parts(log, window)
        # THEN it is for own I/O for a second, and the bio has its call where that is told in time
        assert found.waits.cause.tolist() == [own], window
        assert found.calls.bios.tolist() == [bios], window
        assert (found.paths.entry != NEVER).sum() == bios, window


def test_the_file_of_a_wait() -> None:
    # GIVEN files with bios: of a page fault's own bio, and of another thread's that ends a fault's
    # wait; an fsync has its descriptor's; of a third fault two files' bios may have ended it
    log = PathLog()
    for inode, name in ((11, b"own"), (12, b"read"), (13, b"synced")):
        log.name(inode, name)

    def filed(at: int, end: int, inode: int, tid: int) -> None:
        log.bio(at, end, tid=tid, call=PAGE_FAULT)
        log.add(Kind.FILE, at, bio=log.bios << 6, inode=inode, dev=DEV, generation=1)

    filed(100, 480, 11, 42)
    log.waits_alone(150, 500, 530, number=PAGE_FAULT)
    filed(100_000, 110_000, 12, 50)
    log.waits_alone(101_000, 111_000, 111_500, number=PAGE_FAULT)
    log.waits_alone(200_000, 210_000, 211_000, number=FSYNC, file=13)
    filed(300_000, 310_000, 11, 50)
    filed(300_500, 310_200, 12, 51)
    log.waits_alone(301_000, 311_000, 311_500, number=PAGE_FAULT)
    log.waits_alone(400_000, 800_000, 800_100, number=PAGE_FAULT)
    # WHEN the log is read / THEN each has its file where that is certain, and no other
    trace = Trace(io.BytesIO(log.data()))
    waits = Waits.concatenate([w.path.waits for w in trace.lifecycles() if w.path is not None])
    files = [trace.context.files[row].path if row >= 0 else "" for row in waits.file.tolist()]
    names = [Path(path).name for path in files]
    assert names == ["own", "read", "synced", "", ""]
