# SPDX-License-Identifier: Apache-2.0
"""Tables of the path beside the block layer: calls, waits, paths of bios, interrupts."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import biotrail
from biotrail.converters.events.tables import NEVER
from biotrail.converters.lifecycles.account import Reason
from biotrail.converters.lifecycles.arrow.columns import PATH_NAMES
from biotrail.converters.lifecycles.call_arguments import CURRENT, PLACES, What, argument
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.syscalls import PAGE_FAULT, numbers
from tests.support.both_ways import differences, windows_of
from tests.support.path_logs import FSYNC, PREAD, PWRITE, WRITE, PathLog
from tests.support.path_tables import recorded_path
from tests.support.stack_logs import START


def sample() -> PathLog:
    """A read with a wait, an fsync that writes back, a request ended by an interrupt."""
    log = PathLog()
    log.task(42, b"fio", pid=40)
    log.bio(1000, 9000, entry=500)
    log.waits(500, 1200, 9100, 9300)
    log.returns(500, 9500, blocked=7900, runnable=200, queued=1, waits=1, fd=3, length=4096,
                offset=8192)  # fmt: skip
    log.bio(20_000, 30_000, tid=43, call=FSYNC, entry=19_000, opf=WRITE, dirtied=(5000, 7, b"pg"))
    log.returns(19_000, 31_000, 43, number=FSYNC, result=-5, queued=1)
    log.request(40_000, 50_000, hard=900, raised=800, soft=300, irq=27, context=1)
    return log


def test_rows_are_what_the_records_say() -> None:
    # GIVEN a read with a wait, an fsync that fails, and a request that an interrupt completed
    # WHEN they are read / THEN each call is a row, in the order of their returns
    read = recorded_path(io.BytesIO(sample().data()))
    calls = read.calls
    assert calls.number.tolist() == [PREAD, FSYNC]
    assert calls.entry.tolist() == [START + 500, START + 19_000]
    assert calls.exit.tolist() == [START + 9500, START + 31_000]
    assert calls.result.tolist() == [4096, -5]
    assert (calls.blocked[0], calls.runnable[0]) == (7900, 200)
    assert (calls.bios[0], calls.waits[0]) == (1, 1)
    assert (calls.arg0[0], calls.arg2[0], calls.arg3[0]) == (3, 4096, 8192)
    # AND the thread is known by name, where it has one
    assert read.call_comms.tolist() == ["fio", ""]
    assert int(read.trace.tasks.table().tgid[calls.task[0]]) == 40
    # AND the wait has the key of its call, and leaves, is woken and runs in this order
    assert (read.waits.tid.tolist(), read.waits.entry.tolist()) == ([42], [START + 500])
    times = tuple(int(getattr(read.waits, name)[0]) for name in ("out", "woken", "run"))
    assert times == (START + 1200, START + 9100, START + 9300)
    assert read.waits.state.tolist() == [2]
    bios, paths, ends = read.bios, read.paths, read.interrupts
    # AND bios of which something is known have a row, by their number
    assert paths.number.tolist() == sorted(bios.number.tolist())[:2]
    assert paths.call.tolist() == [PREAD, FSYNC]
    assert paths.entry.tolist() == [START + 500, START + 19_000]
    assert paths.dirtied.tolist() == [NEVER, START + 15_000]
    assert paths.dirty_comm.tolist() == [b"", b"pg"]
    assert paths.dirty_tid.tolist() == paths.dirty_pid.tolist() == [0, 7]
    # AND the times of the interrupt and the softirq are those before its completion
    assert ends.number.tolist() == read.requests.number.tolist()
    assert (ends.hard[0], ends.raised[0]) == (START + 49_100, START + 49_200)
    assert (ends.soft[0], ends.irq[0], ends.context[0]) == (START + 49_700, 27, 1)


def test_records_are_accounted_for_and_requests_without_an_interrupt_have_none() -> None:
    # GIVEN a request whose completion has no INTERRUPT record WHEN it is read THEN it has no row
    log = sample()
    log.request(60_000, 70_000)
    read = recorded_path(io.BytesIO(log.data()))
    assert (len(read.requests), len(read.interrupts)) == (2, 1)
    # GIVEN a log with each kind of the path's records WHEN it is read to the end
    trace = Trace(io.BytesIO(sample().data()))
    list(trace.lifecycles())
    # THEN they are counted under a reason of their own
    assert trace.account.by_reason()[Reason.PATH] == 2 + 2 + 1 + 1 + 1
    # GIVEN a log without such records WHEN it is read THEN no window has tables
    log = PathLog()
    log.bio(1000, 9000, call=None)
    assert {window.path for window in Trace(io.BytesIO(log.data(parts=()))).lifecycles()} == {None}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_windows_of_any_size_have_the_same_rows(size: int) -> None:
    # GIVEN many calls, with bios in flight across the borders of chunks
    log = PathLog()
    log.task(42, b"fio")
    for number in range(12):
        at = number * 1000
        log.bio(at + 100, at + 2500, call=PWRITE, entry=at + 50, dirtied=(9, 9, b"x"), opf=WRITE)
        log.waits(at + 50, at + 200, at + 600, at + 700, tid=40 + number % 3)
        log.returns(at + 50, at + 800, tid=40 + number % 3)
    cuts = range(300, 12_000, 700)
    # WHEN it is read in windows of any size THEN the rows are those of one window
    data = log.data(cuts)
    whole, parts = (windows_of(io.BytesIO(data), events) for events in (1_000_000, size))
    assert differences(whole, parts) == []
    tables = [window.path for window in parts[1] if window.path is not None]
    assert sum(len(one.calls) for one in tables) == sum(len(one.waits) for one in tables) == 12


@pytest.mark.parametrize("size", [1, 5, 1_000_000])
def test_association_by_intervals_keeps_the_path(size: int) -> None:
    # GIVEN a log with calls, dirtying tasks and an interrupt
    data = sample().data()
    # WHEN it is associated by pointers, and by intervals in windows of any size
    pointers, intervals = (
        recorded_path(io.BytesIO(data), size, how) for how in ("identity", "intervals")
    )
    # THEN bios have the same calls and dirtying tasks, and the request the same interrupt
    assert len(intervals.paths) == 2
    assert len(intervals.interrupts) == 1
    for name in ("paths", "interrupts"):
        found, expected = vars(getattr(intervals, name)), vars(getattr(pointers, name))
        for column in expected:
            assert found[column].tolist() == expected[column].tolist(), (name, column)


# Columns of bios that say which call queued each, and who dirtied what it writes back.


def rows(path: Path) -> list[dict[str, Any]]:
    table = biotrail.open(path).bios.select(["comm", *PATH_NAMES])
    return table.to_pylist()  # type: ignore[no-any-return]


def test_columns_of_the_path(tmp_path: Path) -> None:
    # GIVEN bios: of a pread with its times, an fsync without, a page fault, a 32-bit program, of
    # a kworker that writes back, and of a thread of which nothing is known
    log = PathLog()
    log.task(42, b"db")
    log.task(7, b"kworker/u8:1")
    log.bio(120, 300, entry=100, args=(3, 0, 4096, 8192))
    log.bio(130, 310, call=FSYNC, args=(5, 0, 0, 0), opf=WRITE)
    log.bio(140, 320, call=-1)
    log.bio(150, 330, call=3, foreign=True)
    log.bio(160, 340, 7, call=None, opf=WRITE, dirtied=(50, 42, b"db"), dirtied_in=9)
    log.bio(170, 350, 7, call=None)
    # WHEN bios are asked for as a table / THEN each says what is known, the rest is null
    found = rows(log.write(tmp_path / "x.biotrail"))
    none = dict.fromkeys(PATH_NAMES)
    place = {"call_fd": 3, "call_offset": 8192, "call_length": 4096}
    assert found == [
        {**none, "comm": "db", "call": "pread64", "entry_ns": START + 100, **place},
        {**none, "comm": "db", "call": "fsync", "call_fd": 5},
        {**none, "comm": "db", "call": "page fault"},
        {**none, "comm": "db", "call": "32-bit syscall 3"},
        {
            **none,
            "comm": "kworker/u8:1",
            "dirty_ns": START + 110,
            "dirty_tid": 42,
            "dirty_pid": 42,
            "dirty_comm": "db",
            "dirty_cgroup": "id 9",
        },
        {**none, "comm": "kworker/u8:1"},
    ]


def test_logs_without_the_path(tmp_path: Path) -> None:
    # GIVEN a log without the path  WHEN bios are asked for  THEN its columns are null
    log = PathLog()
    log.bio(100, 200, call=None)
    [row] = rows(log.write(tmp_path / "x.biotrail", path=None))
    assert [row[name] for name in PATH_NAMES] == [None] * len(PATH_NAMES)


# Arguments of calls: which is the descriptor, the offset, the length, and what is not known.

X86 = "x86_64"


def given(
    name: str, args: list[int], what: What, *, foreign: bool = False, machine: str = X86
) -> int | None:
    (number,) = numbers(frozenset({name}), machine)
    values, known = argument(
        np.array([args], dtype=np.uint64),
        np.array([number], dtype=np.int32),
        np.array([foreign]),
        machine,
        what,
    )
    return int(values[0]) if known[0] else None


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("pread64", [3, 99, 4096, 8192], (3, 8192, 4096)),
        ("write", [4, 99, 512, 0], (4, None, 512)),
        ("preadv2", [5, 99, 2, 16384], (5, 16384, None)),
        ("preadv2", [5, 99, 2, CURRENT], (5, None, None)),
        ("fsync", [6, 1, 2, 3], (6, None, None)),
        ("sync_file_range", [7, 1 << 40, 4096, 2], (7, 1 << 40, 4096)),
        ("fallocate", [8, 0, 1 << 33, 1 << 34], (8, 1 << 33, 1 << 34)),
        ("sendfile", [1, 9, 99, 1000], (9, None, 1000)),
        ("fsync", [2**64 - 1, 0, 0, 0], (-1, None, None)),
        ("sync", [1, 2, 3, 4], (None, None, None)),
        ("io_submit", [1, 2, 3, 4], (None, None, None)),
    ],
)
@pytest.mark.parametrize("machine", [X86, "aarch64"])
def test_arguments_by_name(
    name: str, args: list[int], expected: tuple[int | None, ...], machine: str
) -> None:
    # GIVEN a call  WHEN its arguments are asked for  THEN they are those that it has
    kinds: tuple[What, ...] = ("fd", "offset", "length")
    assert tuple(given(name, args, what, machine=machine) for what in kinds) == expected


def test_what_is_no_call_has_no_name() -> None:
    # GIVEN a 32-bit program's call and a page fault  WHEN asked  THEN nothing is known
    assert given("pread64", [3, 0, 1, 2], "fd", foreign=True) is None
    number, foreign = np.array([PAGE_FAULT], dtype=np.int32), np.array([False])
    assert not argument(np.ones((1, 4), np.uint64), number, foreign, X86, "fd")[1].any()
    # AND an argument beyond those that are recorded is not
    two, pread = np.ones((1, 2), np.uint64), np.array([17], dtype=np.int32)
    assert not argument(two, pread, foreign, X86, "offset")[1].any()
    # GIVEN the table  THEN each name is a call of x86-64
    assert len(numbers(frozenset(PLACES), X86)) == len(PLACES)
