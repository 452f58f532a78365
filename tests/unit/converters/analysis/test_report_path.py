# SPDX-License-Identifier: Apache-2.0
"""What the report says of logs with the path: calls, completions, --by call and --by writer."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.report.calls import calls as calls_of_log
from biotrail.converters.analysis.report.calls.calls import CallsByGroup
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.path_logs import FSYNC, MS, PREAD, PWRITE, WRITE, PathLog
from tests.support.stack_logs import START


def report(cli: Cli, log: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("report", "--json", *options, log).out)
    return found


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


def test_calls_by_name(cli: Cli, database: Path) -> None:
    # GIVEN a log with timed calls  WHEN its report is asked for
    calls = report(cli, database)["calls"]
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


def test_calls_as_text_and_csv(cli: Cli, database: Path) -> None:
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


def test_calls_that_were_timed_for_a_while(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log whose recorder ceased to time calls, as that took too much
    log = PathLog()
    log.bio(120, 480, entry=100)
    log.returns(100, 600, blocked=300, queued=1)
    note = {"until": START + 700_100, "percent": 7.5, "budget": 5.0}
    path = log.write(tmp_path / "x.biotrail", notes={"call_timing": note})
    # WHEN it is reported  THEN it says until when
    assert report(cli, path)["calls_until_ns"] == START + 700_100
    assert "timed in the first 700 µs only (--call-budget)" in cli("report", path).out


def test_a_log_without_the_path_has_no_calls(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of bios alone  WHEN it is reported
    log = PathLog()
    log.bio(100, 200, call=None)
    path = log.write(tmp_path / "x.biotrail", path=None)
    # THEN there is no call, no completion, and grouping by calls says what to do
    found = report(cli, path)
    assert found["calls"] == []
    assert [device["completions"] for device in found["devices"]] == [[]]
    assert "Calls" not in cli("report", path).out
    for word in ("call", "writer"):
        done = cli("report", "--by", word, path)
        assert done.status == 1
        assert "record --path" in done.err


def test_by_call(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with the call of each bio alone: two preads, a page fault, a 32-bit program's
    # call, and a bio of a kernel thread
    log = PathLog()
    for at, call, foreign in ((0, PREAD, 0), (1, PREAD, 0), (2, -1, 0), (3, 3, 1)):
        log.bio(at, at + 100, call=call, foreign=bool(foreign))
    log.bio(4, 90, call=None)
    path = log.write(tmp_path / "x.biotrail", (), ("call",))
    # WHEN its I/O is grouped by call
    found = report(cli, path, "--by", "call")
    # THEN each name is a group, and there is no table of calls, as they were not timed
    groups = [(group["call"], group["ios"]) for group in found["groups"]]
    assert groups[0] == ("pread64", 2)
    assert sorted(groups[1:], key=str) == [
        ("32-bit syscall 3", 1),
        ("page fault", 1),
        (None, 1),
    ]
    assert found["calls"] == []
    assert "(kernel thread)" in cli("report", "--by", "call", path).out


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
        (
            "cgroup",
            [(7, "pread64", 3, 1500), (0, "pread64", 1, 900), (8, "fsync", 1, 700)],
        ),
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


def test_calls_by_group_can_be_reported_again(
    two_groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN calls by process, where all codes stand for one group
    trace = Trace(two_groups)
    calls = CallsByGroup(trace.context, "process")
    for window in trace.lifecycles():
        calls.add(window)
    one = min(code for code, _ in calls._figures)
    monkeypatch.setattr(calls_of_log, "canonical", lambda _key, _code: one)
    # WHEN they are reported twice  THEN the figures are the same
    assert calls.reports() == calls.reports()


def test_calls_by_group_as_text_json_and_csv(cli: Cli, two_groups: Path) -> None:
    # GIVEN the same  WHEN it is reported by process
    found = report(cli, two_groups, "--by", "process")
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
    assert report(cli, two_groups)["call_groups"] == []
    assert report(cli, two_groups, "--by", "device")["call_groups"] == []


def test_by_writer(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a kworker that writes back pages of two writers, and one of nobody known
    log = PathLog()
    log.task(7, b"kworker/u8:1")
    for at, dirtied in enumerate([(5, 42, b"db"), (5, 42, b"db"), (9, 50, b"cp"), None]):
        group = 77 if dirtied and dirtied[2] == b"db" else 0
        log.bio(100 + at, 200 + at, 7, call=None, opf=WRITE, dirtied=dirtied, dirtied_in=group)
    path = log.write(tmp_path / "x.biotrail", notes={"cgroups": {"77": "/shop/db"}})

    def groups(word: str) -> list[tuple[Any, ...]]:
        found = report(cli, path, "--by", word)["groups"]
        return sorted((g["ios"], g["process"] or g["writer"], g["pid"]) for g in found)

    # WHEN it is grouped by writer  THEN each is charged, the rest to nobody
    assert groups("writer") == [(1, "cp", 50), (1, "not known", None), (2, "db", 42)]
    # AND to the cgroup in which it was
    found = [
        (g["process"], g["cgroup"], g["cgroup_id"])
        for g in report(cli, path, "--by", "writer")["groups"]
    ]
    assert ("db", "/shop/db", 77) in found
    assert ("cp", None, 0) in found
    assert "/shop/db" in cli("report", "--by", "writer", path).out
    # AND by process it stays with the submitter
    assert groups("process") == [(4, "kworker/u8:1", 7)]


def test_ways_of_completion(cli: Cli, tmp_path: Path) -> None:
    # GIVEN requests completed in each way, with the steps' times before C
    log = PathLog()
    log.request(1000, 2000, context=2, hard=300, irq=36)
    log.request(3000, 4000, context=1, hard=400, raised=350, soft=100, irq=36)
    log.request(5000, 6000, context=1, raised=60, soft=10)
    log.request(7000, 8000, context=0)
    # AND one whose interrupt is older than its issue
    log.request(9000, 9100, context=1, hard=150, raised=140, soft=20, irq=36)
    # AND one without a record
    log.request(10_000, 10_500)
    path = log.write(tmp_path / "x.biotrail")
    # WHEN the log is reported
    [device] = report(cli, path)["devices"]
    # THEN each way has its steps, from issue to completion
    found = {
        one["way"]: (
            one["requests"],
            one["undivided"],
            {step["step"]: step["sum_ns"] for step in one["steps"]},
        )
        for one in device["completions"]
    }
    assert found == {
        "interrupt": (1, 0, {"D to interrupt": 700, "interrupt to C": 300}),
        "softirq": (
            2,
            1,
            {"D to interrupt": 600, "interrupt to softirq": 300, "softirq to C": 100},
        ),
        "softirq without interrupt": (
            1,
            0,
            {"D to raise": 940, "raise to softirq": 50, "softirq to C": 10},
        ),
        "task": (1, 0, {"D to C": 1000}),
    }
    assert "From issue to completion: vda" in cli("report", path).out


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
