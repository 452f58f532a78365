# SPDX-License-Identifier: Apache-2.0
"""Waits outside of timed calls: a call of its own for each, with its bios, cause and file."""

import io
from pathlib import Path

import numpy as np

from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import NEVER, WaitCause
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import STATE_IO_WAIT, Kind
from biotrail.recorder.schema.syscalls import KERNEL_THREAD, PAGE_FAULT
from tests.support.path_logs import (
    ALL_PARTS,
    FSYNC,
    IO_SUBMIT,
    IO_URING_ENTER,
    MS,
    PREAD,
    PathLog,
)
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.stack_logs import DEV, START

OWN, OTHER, OTHERWISE = WaitCause.OWN_IO, WaitCause.OTHER_IO, WaitCause.OTHERWISE
PARTS = ("running", "runnable", "own_io", "other_io", "otherwise", "undivided")


def read(log: PathLog, window: int = 250_000, parts: tuple[str, ...] = ALL_PARTS) -> RecordedPath:
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
    found = read(log)
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


def test_a_bio_of_another_call_is_no_own_bio() -> None:
    # GIVEN a bio in flight that the thread queued in a pread at another offset
    log = PathLog()
    log.bio(100, 800, args=(5, 0, 4096, 0))
    log.waits_alone(150, 500, 530, args=(5, 4096, 8192))
    # WHEN the log is read  THEN the wait is for something else
    found = read(log)
    assert found.waits.cause.tolist() == [OTHER]
    assert found.calls.bios.tolist() == [0]
    assert found.paths.entry.tolist() == [NEVER]
    # AND where calls of bios are not recorded, the thread is all that is known
    found = read(log, parts=("wait",))
    assert found.waits.cause.tolist() == [OWN]


def test_causes_do_not_depend_on_windows() -> None:
    # GIVEN waits for bios, of a program's thread, of page faults and of a kernel thread
    log = PathLog()
    for at in range(0, 40 * MS, 2 * MS):
        log.bio(at + 100, at + 480, args=(5, 0, 4096, at))
        log.waits_alone(at + 150, at + 500, at + 530, args=(5, 4096, at))
        log.bio(at + 1000, at + 1480, tid=43, call=PAGE_FAULT, args=(at, at, at, at))
        log.waits_alone(at + 1150, at + 1500, at + 1530, tid=43, number=PAGE_FAULT)
        log.bio(at + 2000, at + 2480, tid=44, call=None)
        log.waits_alone(at + 2150, at + 2500, at + 2530, tid=44, number=KERNEL_THREAD)
    # WHEN it is read in large and in small windows  THEN all are for own I/O
    for window in (250_000, 7, 3):
        found = read(log, window)
        assert len(found.waits) == 60
        assert set(found.waits.cause.tolist()) == {OWN}, window


def test_a_timed_call_keeps_its_waits() -> None:
    # GIVEN a timed call with a wait, a page fault of the same thread beside, and a wait of state S
    # in which the kernel counted the thread as waiting for I/O
    log = PathLog()
    log.waits(100, 150, 500, 530)
    log.returns(100, 600, blocked=350, runnable=30, waits=1)
    log.waits_alone(700, 900, 905, number=PAGE_FAULT, state=1 | STATE_IO_WAIT)
    # WHEN the log is read
    found = read(log)
    # THEN one call was timed, the other wait is a page fault
    assert found.calls.timed.tolist() == [True, False]
    assert io_parts(found.calls) == [(0, 350, 0), (0, 200, 0)]
    assert found.calls.number.tolist() == [PREAD, PAGE_FAULT]
    assert found.waits.state.tolist() == [2, 1]
    assert found.waits.io_wait.tolist() == [False, True]


def test_a_reaping_thread_waits_for_io_while_that_is_in_flight() -> None:
    # GIVEN two waits in io_uring_enter, of which I/O is in flight for the last 40 ns of the second
    log = PathLog()
    log.task(42, b"reaper")
    log.bio(2960, 2990, call=IO_SUBMIT, args=(9, 9, 9, 9))
    for at in (1000, 2000):
        log.waits_alone(at, at + 995, at + 999, number=IO_URING_ENTER, state=1 | STATE_IO_WAIT)
    # WHEN the log is read  THEN the rest is no wait for I/O, nor is the first one
    found = read(log)
    assert io_parts(found.calls) == [(0, 0, 995), (0, 30, 965)]
    assert found.waits.cause.tolist() == [OTHERWISE, OTHER]


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
    # WHEN the log is read
    trace = Trace(io.BytesIO(log.data()))
    waits = Waits.concatenate([w.path.waits for w in trace.lifecycles() if w.path is not None])
    files = [trace.context.files[row].path if row >= 0 else "" for row in waits.file.tolist()]
    # THEN each has its file where that is certain, and no other
    names = [Path(path).name for path in files]
    assert names == ["own", "read", "synced", "", ""]
