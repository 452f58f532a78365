# SPDX-License-Identifier: Apache-2.0
"""What a report says of what calls waited for, and of journals' commits."""

import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.schema.records import STATE_IO_WAIT
from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.support.cli_runner import Cli
from tests.support.path_logs import FSYNC, IO_URING_ENTER, WITH_REASONS, PathLog

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


def reported(cli: Cli, log: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("report", "--json", *options, log).out)
    return found


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
    found = {one["call"]: one for one in reported(cli, made)["waits"]}
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
    report = reported(cli, sample().write(tmp_path / "log", cuts, WITH_REASONS, NOTES))
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
    report = reported(cli, sample().write(tmp_path / "log", (), WITH_REASONS, NOTES))
    (journal,) = report["commits"]
    # THEN there is how many, how long, who waited, and the phases, which add up
    assert (journal["commits"], journal["waits"]) == (2, 2)
    assert journal["time"]["sum_ns"] == 340 + 440
    phases = {one["phase"]: one["sum_ns"] for one in journal["phases"]}
    assert phases == {"starting": 20, "locking": 20, "flushing": 20, "logging": 310 + 410}
    assert sum(one["share"] for one in journal["phases"]) == pytest.approx(1, abs=1e-5)


def test_text_and_csv_have_them(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same log  WHEN it is reported in words and as CSV
    log = sample().write(tmp_path / "log", (), WITH_REASONS, NOTES)
    text, table = cli("report", log).out, cli("report", "--csv", log).out
    # THEN both have the waits and the commits
    assert "What calls waited for" in text
    assert "journal commit" in text
    assert "Commits of journals (jbd2)" in text
    lines = [line.split(",") for line in table.splitlines()]
    assert {line[1].strip('"') for line in lines} >= {"waits", "commits"}


def test_a_log_without_the_part_has_neither(cli: Cli, tmp_path: Path) -> None:
    # GIVEN calls and waits of a log without the part  WHEN it is reported
    log = sample().write(tmp_path / "log", (), ("time", "wait"), NOTES)
    # THEN there is no table of reasons
    assert reported(cli, log)["waits"] == []
    assert "What calls waited for" not in cli("report", log).out


def test_threads_without_io_have_their_calls(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a thread that waited in a call and queued nothing  WHEN it alone is reported
    log = PathLog()
    log.task(42, b"db")
    log.task(43, b"writer")
    log.bio(1150, 1400, call=FSYNC, entry=1100)
    log.waits(100, 200, 500, 510, 43, stack=8)
    log.returns(100, 1000, 43, blocked=300, runnable=10, waits=1)
    path = log.write(tmp_path / "log", (), WITH_REASONS, NOTES)
    text = cli("report", "--comm", "writer", path).out
    # THEN its calls and waits are there
    assert "0 bios" in text
    assert "Calls that queued I/O or waited, from entry to return" in text
    assert "page read" in text
