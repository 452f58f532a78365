# SPDX-License-Identifier: Apache-2.0
"""What the report says of logs with the path: calls, waits, completions, writers."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import STATE_IO_WAIT
from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.path_logs import (
    FSYNC,
    IO_URING_ENTER,
    MS,
    PREAD,
    PWRITE,
    WITH_REASONS,
    WRITE,
    PathLog,
)
from tests.support.stack_logs import START


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Reads of a database, one of which fails; its fsync; and a shell that reads from a pipe."""
    log = PathLog()
    log.task(42, b"db")
    log.task(43, b"sh")
    for n in range(4):
        at = 1000 * n
        log.bio(at + 20, at + 400, entry=at)
        log.waits(at, at + 50, at + 410, at + 430)
        result = -5 if n == 3 else 4096
        log.returns(at, at + 500, result=result, blocked=360, runnable=20, queued=1, waits=1, fd=3)
    log.bio(5020, 5100, call=FSYNC, entry=5000, opf=WRITE)
    log.waits(5000, 5200, 5900, 5900)
    log.returns(5000, 6000, number=FSYNC, result=0, blocked=700, queued=1)
    log.returns(7000, 7000 + 2 * MS, 43, number=0, result=10, blocked=MS)
    return log.write(tmp_path / "x.biotrail")


def test_calls_by_name_as_json_text_and_csv(cli: Cli, database: Path) -> None:
    # GIVEN a log with timed calls  WHEN its report is asked for
    calls = cli.json("report", database)["calls"]
    # THEN those with I/O come first, and each has its count, errors, bytes and time
    names = ("call", "io", "count", "failed", "errors", "bytes", "bios")
    assert [tuple(call[name] for name in names) for call in calls] == [
        ("pread64", True, 4, 1, {"EIO": 1}, 3 * 4096, 4),
        ("fsync", True, 1, 0, {}, 0, 1),
        ("read", False, 1, 0, {}, 10, 0),
    ]
    assert [call["time"]["sum_ns"] for call in calls] == [2000, 1000, 2 * MS]
    # AND its parts, which add up to that
    parts = [{p["part"]: p["sum_ns"] for p in call["parts"]} for call in calls]
    assert parts == [
        {"running": 480, "runnable": 80, "own_io": 1440},
        {"running": 300, "other_io": 700},
        {"running": MS, "otherwise": MS},
    ]
    shares = [sum(part["share"] for part in call["parts"]) for call in calls]
    assert shares == pytest.approx([1, 1, 1], abs=1e-5)
    # GIVEN the same  WHEN it is reported as text
    text = cli("report", database).out
    # THEN there is a table of calls, with a column for each part that occurs
    [head] = [line.split("  ") for line in text.splitlines() if line.startswith("call ")]
    words = [word.strip() for word in head if word.strip()]
    assert words[-5:] == ["running", "to run", "own I/O", "other I/O", "otherwise"]
    [row] = [line for line in text.splitlines() if line.startswith("pread64")]
    assert "EIO 1" in row
    assert "72.0 %" in row
    assert "read (no I/O)" in text
    # AND the CSV has a line for each call and part
    lines = list(csv.DictReader(io.StringIO(cli("report", "--csv", database).out)))
    found = [(x["call"], x["of"], x["stage"], x["sum_ns"]) for x in lines if x["call"]]
    assert found[:2] == [
        ("pread64", "calls", "all", "2000"),
        ("pread64", "calls", "running", "480"),
    ]
    assert found[-1] == ("read", "calls without I/O", "otherwise", str(MS))


def test_logs_that_lack_calls_or_reasons_have_none(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of bios alone  WHEN it is reported
    log = PathLog()
    log.bio(100, 200, call=None)
    path = log.write(tmp_path / "x.biotrail", path=None)
    # THEN there is no call, no completion, and grouping by calls says what to do
    found = cli.json("report", path)
    assert found["calls"] == []
    assert [device["completions"] for device in found["devices"]] == [[]]
    assert "Calls" not in cli("report", path).out
    for word in ("call", "writer"):
        done = cli("report", "--by", word, path)
        assert done.status == 1
        assert "record --path" in done.err
    # GIVEN calls and waits of a log without the part  WHEN it is reported
    log = sample().write(tmp_path / "log", (), ("time", "wait"), NOTES)
    # THEN there is no table of reasons
    assert cli.json("report", log)["waits"] == []
    assert "What calls waited for" not in cli("report", log).out


@pytest.fixture
def two_groups(tmp_path: Path) -> Path:
    """Calls of two processes in two cgroups, one of which queues no bio."""
    log = PathLog()
    log.task(42, b"db")
    log.task(43, b"cp")
    for n in range(3):
        at = 1000 * n
        log.bio(at + 10, at + 300, 42, entry=at, cgroup=7)
        log.bio(at + 20, at + 990, 42, entry=at, cgroup=8)  # ends after its call
        log.returns(at, at + 500, 42, blocked=100, queued=2)
    log.bio(4010, 4050, 43, entry=4000, cgroup=8, call=FSYNC)
    log.returns(4000, 4700, 43, number=FSYNC, result=-28, queued=1)
    log.returns(5000, 5900, 43, blocked=900)
    return log.write(tmp_path / "x.biotrail")


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            "process",
            [("cp", "fsync", 1, 700), ("cp", "pread64", 1, 900), ("db", "pread64", 3, 1500)],
        ),
        ("cgroup", [(7, "pread64", 3, 1500), (0, "pread64", 1, 900), (8, "fsync", 1, 700)]),
    ],
)
@pytest.mark.parametrize("window", [1, 2, 250_000])
def test_calls_by_group(
    by: str, expected: list[tuple[Any, ...]], window: int, two_groups: Path
) -> None:
    # GIVEN calls of two groups, whose bios end in other windows
    trace = Trace(two_groups)
    reporter = Reporter(trace.context, by=by)
    # WHEN they are grouped  THEN a call is grouped as its thread, or as the first of its bios
    for _ in reporter.watch(trace.lifecycles(window)):
        pass
    key = {"process": "process", "cgroup": "cgroup_id"}[by]
    found = reporter.finish(trace).call_groups
    assert [(one.name[key], one.call, one.count, one.time.sum) for one in found] == expected


def test_calls_by_group_as_text_json_and_csv(cli: Cli, two_groups: Path) -> None:
    # GIVEN the same  WHEN it is reported by process
    found = cli.json("report", two_groups, "--by", "process")
    # THEN JSON has each group with its calls' figures, as `calls` has them
    first = found["call_groups"][0]
    assert (first["process"], first["pid"], first["call"]) == ("cp", 43, "fsync")
    assert (first["count"], first["errors"], first["bios"]) == (1, {"ENOSPC": 1}, 1)
    assert sum(part["sum_ns"] for part in first["parts"]) == first["time"]["sum_ns"] == 700
    assert set(first) - {"process", "pid", "title"} == set(found["calls"][0])
    # AND there is a table, and a section in the CSV
    text = cli("report", "--by", "process", two_groups).out
    assert "Calls that queued I/O or waited, by process" in text
    lines = list(
        csv.DictReader(io.StringIO(cli("report", "--by", "process", "--csv", two_groups).out))
    )
    rows = [(x["process"], x["call"], x["ios"]) for x in lines if x["section"] == "call groups"]
    assert rows[0] == ("cp", "fsync", "1")
    # AND without --by, or by what calls have not, there is none
    assert cli.json("report", two_groups)["call_groups"] == []
    assert cli.json("report", two_groups, "--by", "device")["call_groups"] == []


@pytest.fixture
def chosen(tmp_path: Path) -> Path:
    """A read and a write of one process, a read of another, and its wait without a bio."""
    log = PathLog()
    log.task(42, b"db")
    log.task(43, b"cp")
    for tid, entry, call, opf in (
        (42, 1000, PREAD, 0),
        (42, 2000, PWRITE, WRITE),
        (43, 1500, PREAD, 0),
    ):
        log.bio(entry + 10, entry + 300, tid, call=call, entry=entry, opf=opf)
        log.waits(entry, entry + 20, entry + 310, entry + 311, tid)
        log.returns(entry, entry + 400, tid, number=call, blocked=290, runnable=1, queued=1)
    log.waits(3000, 3010, 3200, 3200, 43)
    log.returns(3000, 3300, 43, blocked=190)
    return log.write(tmp_path / "x.biotrail")


@pytest.mark.parametrize(
    ("options", "entries"),
    [
        ((), [1000, 1500, 2000, 3000]),
        (("--pid", "42"), [1000, 2000]),
        (("--comm", "cp"), [1500, 3000]),
        (("--op", "write"), [2000]),
        (("--op", "read"), [1000, 1500]),
        (("--comm", "cp", "--op", "read"), [1500]),
        (("--device", "vda"), [1000, 1500, 2000]),
        (("--from", "1200ns"), [1500, 2000, 3000]),
        (("--to", "1600ns"), [1000]),
    ],
)
def test_chosen_calls(options: tuple[str, ...], entries: list[int], cli: Cli, chosen: Path) -> None:
    # GIVEN some calls  WHEN I/O is chosen by thread, by what the bios are, or by time
    rows = cli("export", "--what", "calls", "--format", "jsonl", *options, chosen).out
    # THEN calls are chosen by their thread, or as the bios that they queued
    found = sorted(json.loads(line)["entry_ns"] - START for line in rows.splitlines())
    assert found == entries
    # AND waits as their calls
    rows = cli("export", "--what", "waits", "--format", "jsonl", *options, chosen).out
    waits = {json.loads(line)["entry_ns"] - START for line in rows.splitlines()}
    assert waits == set(entries) or options == ("--to", "1600ns")


# What a report says of what calls waited for, and of journals' commits.

NOTES = {
    "stacks": {
        "wait": {
            "7": [["schedule", "", 1], ["jbd2_log_wait_commit", "", 1]],
            "8": [["schedule", "", 1], ["filemap_read", "", 1]],
        }
    }
}


def sample() -> PathLog:
    """Two fsyncs that wait for commits, one also for a page; a read; a call at the end."""
    log = PathLog()
    log.task(42, b"db")
    log.waits(100, 200, 500, 510, stack=7, waker=900)
    log.returns(100, 1000, number=FSYNC, blocked=300, runnable=10, waits=1)
    log.bio(1150, 1400, call=FSYNC, entry=1100)
    log.waits(1100, 1200, 1400, 1400, stack=8)
    log.waits(1100, 1500, 1900, 1900, stack=7, waker=900)
    log.returns(1100, 2000, number=FSYNC, blocked=600, waits=2, queued=1)
    log.waits(2100, 2200, 2300, 2300, stack=8)
    log.waits(2100, 2400, 2450, 2450, stack=-11)
    log.returns(2100, 2500, blocked=150, waits=2)
    log.waits(3000, 3100, 3200, 3200, stack=7)
    log.commit(11, 150, 160, 170, 180, 490)
    log.commit(12, 1450, 1460, 1470, 1480, 1890)
    return log


def test_waits_outside_of_timed_calls_have_names_of_their_own(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a timed read and one that is not, with a wait each, and two page faults, of which one
    # waits for a known file; the wait of a reaping thread has no I/O in flight
    log = PathLog()
    log.task(42, b"db")
    log.name(11, b"mapped")
    log.waits(100, 200, 500, 510, stack=8)
    log.returns(100, 1000, blocked=300, runnable=10, waits=1)
    log.waits_alone(1200, 1300, 1310, stack=8)
    log.waits_alone(2000, 2400, 2410, number=PAGE_FAULT, stack=8)
    log.waits_alone(3000, 3100, 3110, number=PAGE_FAULT, stack=8, file=11)
    log.waits_alone(4000, 4100, 4110, number=IO_URING_ENTER, state=1 | STATE_IO_WAIT)
    # WHEN what they waited for is read
    made = log.write(tmp_path / "log", (), WITH_REASONS, NOTES, files={})
    found = {one["call"]: one for one in cli.json("report", made)["waits"]}
    # THEN each has its row, and that of page faults how much is for files that are not known
    assert {name: (one["sum_ns"], one["no_file_ns"]) for name, one in found.items()} == {
        "page fault": (500, 400),
        "pread64": (300, None),
        "pread64 (wait)": (100, None),
    }
    text = cli("report", made).out
    assert "(wait): not timed, a wait alone" in text
    assert "no file" in text
    # AND the slowest are shown with the timed ones
    slow = cli("slow", "--calls", made).out
    assert "among 1 timed call and 4 waits outside of such calls" in slow
    assert "this wait of page fault took 410 ns" in slow


@pytest.mark.parametrize("cuts", [(), (250, 1300, 1450, 1600)])
def test_waits_are_by_call_and_reason(cli: Cli, tmp_path: Path, cuts: tuple[int, ...]) -> None:
    # GIVEN calls that wait, their waits in the same part of the log or in one before
    report = cli.json("report", sample().write(tmp_path / "log", cuts, WITH_REASONS, NOTES))
    # WHEN what they waited for is read
    found = {(w["call"], w["reason"]): w for w in report["waits"]}
    # THEN each name and reason has its waits, but for the call that has not returned
    assert {key: (w["count"], w["sum_ns"], w["own_io_ns"]) for key, w in found.items()} == {
        ("fsync", "journal commit"): (2, 700, 0),
        ("fsync", "page read"): (1, 200, 200),
        ("pread64", "page read"): (1, 100, 0),
        ("pread64", "unknown"): (1, 50, 0),
    }
    # AND its share of the time of these calls, the longest first
    assert found["fsync", "journal commit"]["share"] == round(700 / 1800, 6)
    assert [w["sum_ns"] for w in report["waits"]] == [700, 200, 100, 50]
    assert report["waits_dropped"] == 0
    # AND what they waited adds up to what their calls were blocked for I/O
    parts = {p["part"]: p["sum_ns"] for c in report["calls"] for p in c["parts"]}
    assert sum(w["own_io_ns"] for w in report["waits"]) == parts["own_io"]


def test_commits_are_by_journal_with_phases_and_waits(cli: Cli, tmp_path: Path) -> None:
    # GIVEN two commits and the waits for them  WHEN they are reported
    log = sample().write(tmp_path / "log", (), WITH_REASONS, NOTES)
    report = cli.json("report", log)
    (journal,) = report["commits"]
    # THEN there is how many, how long, who waited, and the phases, which add up
    assert (journal["commits"], journal["waits"]) == (2, 2)
    assert journal["time"]["sum_ns"] == 340 + 440
    phases = {one["phase"]: one["sum_ns"] for one in journal["phases"]}
    assert phases == {"starting": 20, "locking": 20, "flushing": 20, "logging": 310 + 410}
    assert sum(one["share"] for one in journal["phases"]) == pytest.approx(1, abs=1e-5)
    # AND text and CSV have the waits and the commits
    text, table = cli("report", log).out, cli("report", "--csv", log).out
    for words in ("What calls waited for", "journal commit", "Commits of journals (jbd2)"):
        assert words in text
    lines = [line.split(",") for line in table.splitlines()]
    assert {line[1].strip('"') for line in lines} >= {"waits", "commits"}


# NOWAIT tries that failed at once stand beside the I/Os, in every answer.

LOAD = """
0    Q WM 0+128 bio=1 pid=11 comm=fio
5    c WM 0+128 bio=1 err=12
10   Q W 0+128 bio=2 pid=11 comm=fio
11 Gs W 0+128 bio=2 rq=2
13 D 113 C W 0+128 bio=2 rq=2 tag=1/1
200  Q WM 1000+8 bio=3 pid=11 comm=fio
205  c WM 1000+8 bio=3 err=10
300  Q R 2000+8 bio=4 pid=12 comm=dd
305  c R 2000+8 bio=4 err=12
"""
"""A NOWAIT write that ends in AGAIN and is repeated, one that fails otherwise, and a read that
ends in AGAIN though it had not asked for that."""
NOWAIT = {**captures.FLAG_BITS, "NOWAIT": captures.FLAG_BITS["META"]}
"""A kernel whose NOWAIT is written M here: the kernel's rwbs has no letter for it."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.biotrail"
    header = captures.header()
    bits = {name: bit for name, bit in NOWAIT.items() if name != "META"}
    header["kernel"]["flag_bits"] = bits
    captures.write_log(path, events_of(LOAD), header)
    return path


def test_a_report_counts_tries_beside_the_ios(cli: Cli, log: Path) -> None:
    # GIVEN a log with a try WHEN it is reported on
    report = cli.json("report", log)
    total = report["total"]
    # THEN the try is none of the I/Os, has no bytes, no latency, no stage, and is no failure
    assert (total["ios"], total["bytes"], total["done_bytes"]) == (3, 144 * 512, 128 * 512)
    assert (total["tries"], total["tried_bytes"]) == (1, 128 * 512)
    assert total["errors"] == {"IOERR": 1, "AGAIN": 1}
    assert total["latency"]["count"] == total["size"]["count"] == 3
    assert total["nowait"] == 1
    stages = {stage["stage"]: stage["count"] for stage in total["stages"]}
    assert stages["failed"] == 2
    assert sum(report["certainty"].values()) == total["ios"]
    # AND the text says how many there were, and of what
    text = cli("report", log).out
    assert "1 failed NOWAIT attempt (AGAIN), of 64.0 KiB: beside the bios" in text
    # AND the CSV has them in columns of their own
    rows = list(csv.DictReader(io.StringIO(cli("report", "--csv", log).out)))
    [writes] = [
        row
        for row in rows
        if (row["section"], row["of"], row["stage"]) == ("devices", "bios", "Q2C")
        and row["operation"] == "write"
    ]
    assert (writes["ios"], writes["tries"], writes["tried_bytes"]) == ("2", "1", "65536")


def test_tries_are_no_latencies_no_failures_and_compared(cli: Cli, log: Path) -> None:
    # GIVEN a log with a try WHEN latencies and sizes are counted
    for measure in ((), ("--size",)):
        found = cli.json("hist", *measure, log)
        # THEN it is told, and in no histogram
        assert found["tries"] == 1
        assert sum(one["count"] for one in found["histograms"]) == 3
    assert "1 failed NOWAIT attempt (AGAIN) left out" in cli("hist", log).out
    # GIVEN a log with a try WHEN what failed is asked for
    found = cli.json("slow", "--failed", log)
    # THEN the try is not among it, but counted
    assert [one["io"]["status"] for one in found["ios"]] == ["IOERR", "AGAIN"]
    assert (found["counts"]["ios"], found["counts"]["tries"]) == (3, 1)
    assert "1 failed NOWAIT attempt" in cli("slow", log).out
    # AND a cut of failures is the same I/Os
    assert cli.json("report", "--failed", log)["total"]["ios"] == 2
    # GIVEN a log with a try WHEN it is compared THEN tries are a figure of their own
    found = cli.json("diff", log, log)
    [device] = found["devices"]
    [writes] = [one for one in device["operations"] if one["operation"] == "write"]
    tries = [one for one in writes["figures"] if one["name"] == "tries_per_io"]
    assert [one["a"] for one in tries] == [0.5]
    assert writes["ios_a"] == 2
