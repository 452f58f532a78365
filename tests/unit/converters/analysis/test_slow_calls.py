# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow --calls`: the slowest calls, with their parts, waits and bios."""

import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.live.live import slow_calls
from biotrail.converters.analysis.slow.calls import MOST_BIOS, MOST_WAITS, SlowestCalls, state_name
from biotrail.converters.analysis.slow.slow import Wanted
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support.cli_runner import Cli
from tests.support.path_logs import FSYNC, MS, PREAD, WRITE, PathLog
from tests.support.stack_logs import DEV, START


def names(found: dict[str, Any]) -> list[str]:
    return [slow["call"]["call"] for slow in found["calls"]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Three reads, of which the last fails, and an fsync of 48 ms with two bios and two waits."""
    log = PathLog()
    log.task(42, b"db")
    log.task(7, b"jbd2/vda-8")
    for n in range(3):
        at = 1000 * n
        log.bio(at + 20, at + 300, entry=at)
        log.waits(at, at + 50, at + 310, at + 330)
        result = -5 if n == 2 else 4096
        place = {"fd": 3, "length": 4096, "offset": 8192 * n}
        log.returns(
            at, at + 400 + n, result=result, blocked=260, runnable=20, queued=1, waits=1, **place
        )
    begin = MS
    log.bio(begin + 100, begin + 2 * MS, call=FSYNC, entry=begin, opf=WRITE)
    log.bio(begin + 200, begin + 40 * MS, call=FSYNC, entry=begin, opf=WRITE)
    log.waits(begin, begin + 300, begin + 40 * MS, begin + 41 * MS, waker=0, context=1)
    log.waits(begin, begin + 42 * MS, begin + 46 * MS, begin + 46 * MS, waker=7)
    log.returns(
        begin,
        begin + 48 * MS,
        number=FSYNC,
        result=0,
        blocked=44 * MS - 300,
        runnable=MS,
        queued=2,
        waits=2,
        fd=5,
    )
    return log.write(tmp_path / "x.biotrail")


@pytest.mark.parametrize("window", [1, 3, 250_000])
def test_a_call_with_its_waits_and_bios(database: Path, window: int) -> None:
    # GIVEN calls, whose waits and bios end in other windows  WHEN the slowest is asked for
    first, second = Trace(database), Trace(database)
    slowest = SlowestCalls(first, Wanted(top=1))
    for one in first.lifecycles(window):
        slowest.add(one)
    for one in second.lifecycles(window):
        slowest.gather(one, second)
    # THEN it is the fsync, with the parts of its time
    [found] = slowest.found
    call = found.call
    assert (call.call, call.comm, call.tid, call.duration_ns) == ("fsync", "db", 42, 48 * MS)
    assert (call.fd, call.offset, call.length, call.result) == (5, None, None, 0)
    assert call.parts == {
        "running": 3 * MS + 300,
        "runnable": MS,
        "own_io": 40 * MS - 300,
        "other_io": 4 * MS,
        "otherwise": 0,
        "undivided": 0,
    }
    # AND its waits in order, with who ended them
    waits = [(w.start_ns, w.blocked_ns, w.runnable_ns, w.cause) for w in found.waits]
    assert waits == [(300, 40 * MS - 300, MS, "own I/O"), (42 * MS, 4 * MS, 0, "other I/O")]
    wakers = [(w.state, w.context, w.waker_tid, w.waker_comm) for w in found.waits]
    assert wakers == [("D", "softirq", None, None), ("D", "task", 7, "jbd2/vda-8")]
    # AND its bios
    assert [io.latency_ns for io in found.bios] == [2 * MS - 100, 40 * MS - 200]
    assert (found.bio_bytes, found.bios_left_out, found.waits_left_out) == (8192, 0, 0)


def test_calls_are_chosen_and_told(cli: Cli, database: Path) -> None:
    # GIVEN the same  WHEN calls are chosen in several ways  THEN those are found
    assert names(cli.json("slow", "--calls", database)) == ["fsync", *["pread64"] * 3]
    assert names(cli.json("slow", "--calls", database, "-n", "2")) == ["fsync", "pread64"]
    assert names(cli.json("slow", "--calls", database, "--over", "1ms")) == ["fsync"]
    failed = cli.json("slow", "--calls", database, "--failed")
    assert [one["call"]["error"] for one in failed["calls"]] == ["EIO"]
    expected = {"calls": 4, "waits": 0, "matching": 1, "without_entry": 0, "without_io": 0}
    assert failed["counts"] == expected
    assert names(cli.json("slow", "--calls", database, "--op", "read")) == ["pread64"] * 3
    assert names(cli.json("slow", "--calls", database, "--comm", "x")) == []
    assert names(cli.json("slow", "--calls", database, "--to", "500us")) == ["pread64"] * 3
    # AND sorted by bytes the failed read and the fsync come last
    by_bytes = cli.json("slow", "--calls", database, "--sort", "bytes")
    assert [one["call"]["bytes"] for one in by_bytes["calls"]] == [4096, 4096, 0, 0]
    # AND arguments are those given
    [read] = cli.json("slow", "--calls", database, "--op", "read", "-n", "1")["calls"]
    assert [read["call"][key] for key in ("fd", "offset", "length")] == [3, 16384, 4096]
    # GIVEN the same  WHEN the slowest calls are printed
    text = cli("slow", "--calls", "-n", "2", database).out
    # THEN the first is explained in a sentence
    sentence = (
        "this fsync took 48 ms: 40 ms waiting for its own I/O, 4 ms waiting for other I/O, "
        "3 ms running, 1 ms waiting to run; it queued 2 bios, the slowest of which took 40 ms"
    )
    assert sentence in text
    assert "woken by jbd2/vda-8 (7)" in text
    assert "woken in a softirq, on the CPU of the idle task" in text
    # AND briefly each has a line
    brief = cli("slow", "--calls", "--brief", database).out
    assert "own I/O 83.3 %     fsync, db (42), fd 5, returned 0" in brief
    assert "pread64, db (42), fd 3, offset 16384, length 4096, failed: EIO" in brief


def test_calls_with_more_than_is_kept(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a sync that queued and waited more often than is kept
    log = PathLog()
    for n in range(MOST_BIOS + 6):
        log.bio(10 + n, 50_000 + n, call=162, entry=0, opf=WRITE)
    for n in range(MOST_WAITS + 5):
        log.waits(0, 200 + 100 * n, 210 + 100 * n + (n == 3), 210 + 100 * n + (n == 3))
    log.returns(0, MS, number=162, result=0, blocked=2611, queued=MOST_BIOS + 6, waits=255)
    path = log.write(tmp_path / "x.biotrail")
    # WHEN it is asked for / THEN the rest is counted, and the longest are there
    [found] = cli.json("slow", "--calls", path)["calls"]
    assert (len(found["bios"]), found["bios_left_out"]) == (MOST_BIOS, 6)
    assert found["bio_bytes"] == 4096 * (MOST_BIOS + 6)
    assert (len(found["waits"]), found["waits_left_out"]) == (MOST_WAITS, 5)
    assert max(wait["blocked_ns"] for wait in found["waits"]) == 11
    text = cli("slow", "--calls", path).out
    assert f"and {MOST_WAITS + 5 - 8} shorter waits" in text
    assert f"it queued {MOST_BIOS + 6} bios" in text


def test_a_wait_for_the_journal(cli: Cli, tmp_path: Path) -> None:
    # GIVEN an fsync that waits for the commit of a journal, whose thread writes two bios, one of
    # them from before the call on; and a bio of another journal's thread
    log = PathLog()
    log.task(42, b"db")
    log.task(7, b"jbd2/vda-8")
    log.task(8, b"jbd2/vdb-8")
    log.bio(50, MS, 7, call=None, opf=WRITE)
    log.bio(2000, 3 * MS, 7, call=None, opf=WRITE)
    log.bio(2500, 2 * MS, 8, call=None, opf=WRITE)
    log.bio(5 * MS, 6 * MS, 7, call=None, opf=WRITE)  # after the call
    log.add(Kind.COMMIT, 3 * MS + 100, dev=DEV, transaction=17, tid=7)
    log.waits(1000, 1500, 3 * MS + 200, 3 * MS + 300, waker=7, stack=5)
    log.waits(1000, 3 * MS + 400, 3 * MS + 900, 3 * MS + 900, waker=42, stack=6)
    times = {"blocked": 3 * MS + 200 - 1500 + 500, "runnable": 100}
    log.returns(1000, 4 * MS, number=FSYNC, result=0, waits=2, **times)
    stacks = {
        "wait": {"5": [["jbd2_log_wait_commit", "jbd2", 0]], "6": [["folio_wait_writeback", "", 0]]}
    }
    parts = ("call", "time", "wait", "fs")
    path = log.write(tmp_path / "x.biotrail", (), parts, {"stacks": stacks})
    # WHEN it is asked for
    [found] = cli.json("slow", "--calls", path)["calls"]
    # THEN each wait has its reason and stack, and the one for the commit has its transaction
    waits = [(w["reason"], w["commit"], w["commit_device"], w["stack"]) for w in found["waits"]]
    assert waits == [
        ("journal commit", 17, "vda", ["jbd2_log_wait_commit"]),
        ("page write-back", None, None, ["folio_wait_writeback"]),
    ]
    # AND it has the bios of the journal that woke it, as far as they were in flight during it
    assert [io["comm"] for io in found["journal"]] == ["jbd2/vda-8"] * 2
    assert [io["latency_ns"] for io in found["journal"]] == [MS - 50, 3 * MS - 2000]
    # AND the text says so
    text = cli("slow", "--calls", "-v", path).out
    assert "waiting for other I/O (journal commit 3 ms, page write-back 500 ns)" in text
    assert "the journal that it waited for had 2 bios in flight, the slowest of which took" in text
    assert "other I/O: journal commit 17 of vda, state D; woken by jbd2/vda-8 (7)" in text
    assert "in jbd2_log_wait_commit" in text


def test_logs_with_less_than_all_calls_say_so(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log in which no call was timed  WHEN calls are asked for
    log = PathLog()
    log.bio(100, 200)
    done = cli("slow", "--calls", log.write(tmp_path / "x.biotrail", (), ("call",)))
    # THEN the error says what to do
    assert done.status == 1
    assert "record again with biotrail record --path" in done.err
    # GIVEN a log whose recorder ceased to time calls
    log = PathLog()
    log.bio(120, 480, entry=100)
    log.returns(100, 600, blocked=300, queued=1)
    note = {"until": START + 700_100, "percent": 7.5, "budget": 5.0}
    path = log.write(tmp_path / "x.biotrail", notes={"call_timing": note})
    # WHEN calls are asked for  THEN that is said
    assert cli.json("slow", "--calls", path)["calls_until_ns"] == START + 700_100
    assert "(--call-budget)" in cli("slow", "--calls", path).out
    assert cli.json("report", path)["calls_until_ns"] == START + 700_100
    assert "timed in the first 700 µs only (--call-budget)" in cli("report", path).out
    # GIVEN a log of timed calls alone
    log = PathLog()
    log.bio(120, 480, call=None)
    log.returns(100, 600, blocked=300, queued=1, waits=1)
    path = log.write(tmp_path / "x.biotrail", (), ("time",))
    # WHEN its calls are asked for  THEN it is said what is missing, and how to have it
    text = cli("slow", "--calls", path).out
    assert "it queued 1 bio, of which the log has nothing: record --path with its part call" in text
    assert "1 wait without a record" in text
    assert "not divided" in text


def test_calls_of_several_recordings(cli: Cli, tmp_path: Path, database: Path) -> None:
    # GIVEN recordings of two hosts
    log = PathLog()
    log.returns(100, 10 * MS, number=PREAD, blocked=300, queued=1)
    host = {"host": {"name": "other", "machine": "x86_64"}, "log_id": "b" * 32}
    other = log.write(tmp_path / "y.biotrail", **host)
    # WHEN the slowest two of both are asked for  THEN each says whose it is
    done = cli("slow", "--calls", "--json", "-n", "2", database, other)
    found = json.loads(done.out)
    assert [one["recording"] for one in found["calls"]] == ["made", "other"]
    assert names(found) == ["fsync", "pread64"]


def test_calls_without_io_are_left_out(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a read that waited for its bio, and slower ones that waited for a pipe, one of them long
    log = PathLog()
    log.bio(120, 300, entry=100)
    log.waits(100, 150, 310, 330)
    log.returns(100, 400, blocked=160, runnable=20, queued=1, waits=1)
    for begin, end in ((MS, 3 * MS), (4 * MS, 40 * MS)):
        log.waits(begin, begin + 50, end - 50, end - 20, state=1)
        log.returns(begin, end, blocked=end - begin - 100, runnable=30, waits=1)
    path = log.write(tmp_path / "x.biotrail")
    # WHEN the slowest are asked for  THEN only the first is, the others are counted, also of those
    # that took long enough
    found = cli.json("slow", "--calls", path)
    assert [one["call"]["duration_ns"] for one in found["calls"]] == [300]
    assert (found["counts"]["matching"], found["counts"]["without_io"]) == (1, 2)
    assert cli.json("slow", "--calls", path, "--over", "30ms")["counts"]["without_io"] == 1
    said = cli("slow", "--calls", path).out
    assert "2 calls left out: they neither queued nor waited for I/O (--all-calls" in said
    # AND all are where all are asked for
    every = cli.json("slow", "--calls", path, "--all-calls")
    assert [one["call"]["duration_ns"] for one in every["calls"]] == [36 * MS, 2 * MS, 300]
    assert every["counts"]["without_io"] == 0
    assert "left out" not in cli("slow", "--calls", "--all-calls", path).out
    # AND it is about calls alone
    refused = cli("slow", "--all-calls", path)
    assert refused.status == 2
    assert "--all-calls is about system calls: give it with --calls" in refused.err


def test_top_shows_slow_calls_with_io(tmp_path: Path) -> None:
    # GIVEN a call that queued a bio, and a slower one that waited for a pipe
    log = PathLog()
    log.returns(100, 400, queued=1)
    log.returns(MS, 3 * MS, blocked=2 * MS - 100)
    path = log.write(tmp_path / "x.biotrail")
    found: dict[bool, list[int]] = {}
    for every in (False, True):
        trace = Trace(path)
        of_windows = [slow_calls(one, trace.context, every) for one in trace.lifecycles()]
        found[every] = [one.duration_ns for of in of_windows for one in of]
    # WHEN the slowest are taken  THEN the second is there where all calls are asked for
    assert found == {False: [300], True: [2 * MS, 300]}


def test_a_trace_of_the_slowest_calls(cli: Cli, tmp_path: Path, database: Path) -> None:
    # GIVEN the same  WHEN a trace of the slowest is asked for, too  THEN it is written
    target = tmp_path / "slow.pftrace"
    done = cli("slow", "--calls", "-n", "1", "-o", target, database)
    assert "wrote" in done.out
    assert b"fsync" in target.read_bytes()


def test_names_of_states() -> None:
    # GIVEN states of threads  WHEN they are named  THEN as ps does
    states = {0: "R", 1: "S", 2: "D", 0x102: "D killable", 0x402: "I", 0x2001: "S", 0x80: "0x80"}
    assert {state: state_name(state) for state in states} == states


@pytest.mark.parametrize(("mount", "shown"), [("/sys", 0), ("/proc", 0), ("/srv", 1)])
def test_calls_of_sysfs_and_procfs_wait_for_no_storage(tmp_path, cli, mount, shown):
    # GIVEN a write in state D to a file of sysfs, of procfs, and of a disk
    log = PathLog()
    log.name(77, b"queue", b"scheduler")
    log.waits(100, 150, 310, 330)
    log.returns(100, 400, blocked=160, runnable=20, waits=1, file=77)
    path = tmp_path / "x.biotrail"
    path.write_bytes(log.data(notes={"mounts": {str(DEV): [["/", mount]]}}, files={}))
    # WHEN the slowest are asked for  THEN that to the disk is there, the others are counted
    found = cli.json("slow", "--calls", path)
    assert (len(found["calls"]), found["counts"]["without_io"]) == (shown, 1 - shown)
    # AND so it is in top
    trace = Trace(str(path))
    assert sum(len(slow_calls(one, trace.context)) for one in trace.lifecycles()) == shown
