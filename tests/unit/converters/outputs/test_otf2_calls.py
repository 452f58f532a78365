# SPDX-License-Identifier: Apache-2.0
"""System calls in OTF2 archives: regions of their threads, and I/O operations in them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.calls.names import MOVES_BYTES, name_of_call, name_of_error
from biotrail.converters.outputs.otf2.convert import Otf2Summary, convert
from biotrail.converters.outputs.otf2.records import CHUNK_BYTES
from biotrail.converters.pipeline import Trace
from tests.support import captures, path_sample
from tests.support.file_logs import MOUNTS
from tests.support.otf2_archives import (
    assert_legal,
    calls,
    event_files,
    operations,
    otf2_print,
    rewritten,
)
from tests.support.path_logs import FSYNC, PREAD, WRITE, PathLog
from tests.support.path_tables import recorded_path
from tests.support.paths import ROOT
from tests.support.stack_logs import START

otf2 = pytest.importorskip("otf2")

RECORDED = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
READV = 19


def archive(
    data: bytes | Path, directory: Path, window_events: int = 250_000
) -> tuple[Otf2Summary, Path]:
    """An archive, and what otf2-print has no complaint about."""
    source = Trace(io.BytesIO(data) if isinstance(data, bytes) else data)
    summary = convert(source.lifecycles(window_events), source.context, directory)
    otf2_print(summary.anchor)
    return summary, summary.anchor


def as_the_library(anchor: Path, directory: Path) -> None:
    found, expected = event_files(anchor), rewritten(anchor, directory)
    assert found.keys() == expected.keys()
    for name, data in found.items():
        assert data == expected[name], name


def with_files(log: PathLog, **how: Any) -> bytes:
    return log.data(notes={"mounts": MOUNTS}, files={}, **how)


def test_a_call_is_a_region_with_its_waits(tmp_path: Path) -> None:
    # GIVEN a read that waits for its bio, and runs 200 ns after it was woken
    log = PathLog()
    log.task(42, b"fio", pid=40)
    log.request(1000, 5000, entry=500)
    log.waits(500, 1200, 5100, 5300)
    log.returns(500, 5900, blocked=3900, runnable=200, queued=1, waits=1, fd=3, length=4096)
    # WHEN it is converted
    summary, anchor = archive(log.data(), tmp_path / "a")
    # THEN the thread's location has it, with the wait within, and what it waited for
    ((name, (call,)),) = calls(anchor).items()
    assert name == "fio 42"
    assert (call.name, call.begin - START, call.end - START) == ("pread64", 500, 5900)
    waits = [(wait, begin - START, end - START) for wait, begin, end in call.waits]
    assert waits == [("blocked own I/O", 1200, 5100), ("runnable", 5100, 5300)]
    assert call.operation == ("fd 3 of process 40", "read", 4096, 4096)
    assert (call.asked, call.told) == ({"fd": 3}, {"queued bios": 1})
    assert (summary.calls, summary.call_operations, summary.moved) == (1, 1, 0)
    as_the_library(anchor, tmp_path / "b")


def test_threads_are_below_their_processes(tmp_path: Path) -> None:
    # GIVEN calls of two threads of a process, and of another process
    log = PathLog()
    for tid, pid, name in ((42, 40, b"fio"), (43, 40, b"log"), (40, 40, b"main"), (9, 9, b"cat")):
        log.task(tid, name, pid=pid)
    for tid in (42, 43, 9):
        log.returns(500, 900, tid)
    # WHEN they are converted
    _, anchor = archive(log.data(), tmp_path / "a")
    # THEN each has a location, in a group for each process, below the host
    with otf2.reader.open(str(anchor)) as trace:
        places = {
            place.name: (place.group.name, place.group.system_tree_parent.name)
            for place in trace.definitions.locations
        }
    assert places == {
        "fio 42": ("main 40", "made"),
        "log 43": ("main 40", "made"),
        "cat 9": ("cat 9", "made"),
    }


def test_a_call_goes_through_the_handle_of_its_file(tmp_path: Path) -> None:
    # GIVEN calls whose bios are of a known file, of two files, of none, and without bios
    log = PathLog()
    log.name(10, b"base", b"data")
    log.name(11, b"wal")
    for entry, inodes in ((1000, [10]), (2000, [10, 11]), (3000, [None]), (4000, [])):
        for number, inode in enumerate(inodes):
            log.request(entry + 10 + number, entry + 500, entry=entry, file=inode)
        log.returns(entry, entry + 900, queued=len(inodes), fd=5, length=4096)
    # WHEN they are converted
    _, anchor = archive(with_files(log), tmp_path / "a")
    # THEN the first goes through the file's handle, the others through the descriptor's
    ((_, found),) = calls(anchor).items()
    handles = [call.operation[0] for call in found if call.operation]
    assert handles == ["/srv/base/data", *["fd 5 of process 42"] * 3]
    with otf2.reader.open(str(anchor)) as trace:
        known = {handle.name: handle for handle in trace.definitions.io_handles}
    assert known["/srv/base/data"].file.name == "/srv/base/data"
    assert known["/srv/base/data"].io_paradigm.identification == "POSIX"


@pytest.mark.parametrize("cut", [500, 1100, 5000, 5100, 5300])
def test_a_call_does_not_depend_on_windows(cut: int, tmp_path: Path) -> None:
    # GIVEN a read of a file that is read in windows with a border anywhere in it
    log = PathLog()
    log.name(10, b"data")
    log.request(1000, 5000, entry=500, file=10)
    log.waits(500, 1200, 5100, 5300)
    log.returns(500, 5900, blocked=3900, runnable=200, queued=1, waits=1, fd=3)
    # WHEN it is converted THEN the call is the same
    whole = calls(archive(with_files(log), tmp_path / "a")[1])
    assert calls(archive(with_files(log, cuts=[cut]), tmp_path / "b", 1)[1]) == whole


def test_what_calls_ask_for_and_return(tmp_path: Path) -> None:
    # GIVEN a short write, a failed read, a read into several buffers, an fsync, and an ioctl
    log = PathLog()
    log.returns(0, 10, number=18, result=100, fd=4, length=4096)
    log.returns(20, 30, number=PREAD, result=-28, fd=4, length=4096)
    log.returns(40, 50, number=READV, result=12_288, fd=4, length=3)
    log.returns(60, 70, number=FSYNC, result=0, fd=4, length=77)
    log.returns(80, 90, number=16, result=7, fd=4, length=99)
    log.returns(100, 110, number=3, result=1, fd=4, foreign=True)
    # WHEN they are converted
    summary, anchor = archive(log.data(), tmp_path / "a")
    # THEN bytes are those of reads and writes; what is no operation says what it returned
    ((_, found),) = calls(anchor).items()
    fd = "fd 4 of process 42"
    assert [(call.name, call.operation, call.told) for call in found] == [
        ("pwrite64", (fd, "write", 4096, 100), {}),
        ("pread64", (fd, "read", 4096, 0), {"error": "ENOSPC"}),
        ("readv", (fd, "read", 12_288, 12_288), {}),
        ("fsync", (fd, "flush", 0, 0), {}),
        ("ioctl", None, {"result": 7}),
        ("32-bit syscall 3", None, {"result": 1}),
    ]
    assert (summary.calls, summary.call_operations) == (6, 4)
    as_the_library(anchor, tmp_path / "b")


def test_times_that_go_back_are_moved_and_counted(tmp_path: Path) -> None:
    # GIVEN two calls of a thread that overlap, as no kernel records them
    log = PathLog()
    log.returns(100, 900)
    log.returns(500, 1500)
    # WHEN they are converted THEN OTF2's order is kept, and it is said
    summary, anchor = archive(log.data(), tmp_path / "a")
    ((_, found),) = calls(anchor).items()
    times = [(call.begin - START, call.end - START) for call in found]
    assert times == [(100, 900), (900, 1500)]
    assert summary.moved == 2


def test_chunks_end_where_the_librarys_do(tmp_path: Path) -> None:
    # GIVEN a thread's calls of more than a chunk
    log = PathLog()
    for at in range(0, 12_000 * 9, 9):
        log.waits(at, at + 1, at + 2, at + 3)
        log.waits(at, at + 4, at + 5, at + 6)
        log.returns(at, at + 8, result=at, fd=at, length=at, queued=at % 3)
    # WHEN they are converted
    summary, anchor = archive(log.data(), tmp_path / "a")
    # THEN every byte is the library's
    assert summary.calls == 12_000
    assert sum(map(len, event_files(anchor).values())) > CHUNK_BYTES
    as_the_library(anchor, tmp_path / "b")


def test_a_recording_has_its_tables_calls(tmp_path: Path) -> None:
    # GIVEN a recording / WHEN it is converted
    summary, anchor = archive(RECORDED, tmp_path / "a")
    found, tables = calls(anchor), recorded_path(RECORDED)
    machine = tables.trace.context.machine
    # THEN each of its calls is there, with its times, name, waits and bytes
    by_thread = {int(place.rpartition(" ")[2]): mine for place, mine in found.items()}
    assert sum(map(len, by_thread.values())) == summary.calls == len(tables.calls) > 50
    for tid, mine in by_thread.items():
        rows = np.flatnonzero(tables.calls.tid == tid)
        for call, row in zip(mine, rows.tolist(), strict=True):
            table = tables.calls
            assert call.name == name_of_call(int(table.number[row]), False, machine)
            assert (call.begin, call.end) == (table.entry[row], table.exit[row])
            blocked = sum(e - b for name, b, e in call.waits if name.startswith("blocked"))
            waits = tables.waits
            ours = (waits.tid == tid) & (waits.entry == call.begin)
            assert blocked == int((waits.woken - waits.out)[ours].sum()) <= table.blocked[row]
            result = int(table.result[row])
            assert call.told.get("error") == name_of_error(result)
            if call.name in MOVES_BYTES:
                assert call.operation is not None
                assert call.operation[3] == max(result, 0)
    # AND bios and requests are those of an archive without the path
    assert_legal(operations(anchor))
    as_the_library(anchor, tmp_path / "b")


def test_a_log_without_the_path_has_no_trace_of_it(tmp_path: Path) -> None:
    # GIVEN a log without the path WHEN it is converted
    log = captures.write_log(tmp_path / "a.biotrail", captures.load("plugged-merge-loop"))
    _, anchor = archive(log, tmp_path / "a")
    # THEN nothing is defined that only calls need
    with otf2.reader.open(str(anchor)) as trace:
        assert len(trace.definitions.regions) == 0
        assert {one.identification for one in trace.definitions.io_paradigms} == {
            "block_bio",
            "block_rq",
        }
        assert "fd" not in {attribute.name for attribute in trace.definitions.attributes}
    assert calls(anchor) == {}


def test_the_sample_is_whole(tmp_path: Path) -> None:
    # GIVEN a log with all parts of the path WHEN it is converted, in windows of any size
    log = path_sample.write(tmp_path / "a.biotrail")
    found = [calls(archive(log, tmp_path / str(size), size)[1]) for size in (1, 250_000)]
    # THEN all threads with calls are there, and writes of write-back are no call
    assert found[0] == found[1]
    assert {name: len(mine) for name, mine in found[0].items()} == {
        "fio 42": 3,
        "fio-log 43": 2,
        "aio 51": 2,
    }
    assert WRITE not in {call.operation for mine in found[0].values() for call in mine}
