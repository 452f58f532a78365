# SPDX-License-Identifier: Apache-2.0
"""Processes have the sum of their threads, and their leader's name."""

from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.followed_logs import follow, patient
from tests.support.path_logs import PathLog

__all__ = ["patient"]
LEADER = 40
WRITE = 1


def pool(path: Path, *, leader: bytes | None = b"python3", threads: int = 4) -> Path:
    """A log in which the threads of process LEADER write, one after the other, 4 KiB each."""
    made = PathLog()
    if leader is not None:
        made.task(LEADER, leader)
    for number in range(threads):
        tid = LEADER + 1 + number
        made.task(tid, b"pool-%d" % number, LEADER)
        made.bio(1000 * (number + 1), 1000 * (number + 1) + 500, opf=WRITE, tid=tid)
    return made.write(path)


def reported(path: Path, by: str, window: int = 1 << 20, **how: Any) -> Any:
    trace = Trace(path)
    return as_json(make_report(trace, trace.lifecycles(window), by=by, **how))


def test_a_process_is_one_row(tmp_path: Path) -> None:
    # GIVEN a process whose threads have names of their own, and whose leader did nothing
    log = pool(tmp_path / "log")
    # WHEN it is grouped by process, at once or event by event
    for window in (1 << 20, 1):
        one = reported(log, "process", window, interval=10**9)
        # THEN it has its leader's name and the sum, in the list, over time and of writers
        for groups in (one["groups"], one["processes"], one["intervals"][0]["groups"]):
            assert [(g["process"], g["pid"], g["ios"]) for g in groups] == [("python3", LEADER, 4)]


def test_each_thread_has_a_row_by_thread(tmp_path: Path) -> None:
    # GIVEN the same WHEN it is grouped by thread
    groups = reported(pool(tmp_path / "log"), "thread")["groups"]
    # THEN each thread is a row, with its process
    assert sorted((g["thread"], g["tid"], g["process"], g["pid"], g["ios"]) for g in groups) == [
        (f"pool-{number}", LEADER + 1 + number, "python3", LEADER, 1) for number in range(4)
    ]


@pytest.mark.parametrize(
    ("threads", "name"),
    [(1, "pool-0"), (3, "pool-0, pool-1, pool-2"), (4, "pool-0, pool-1, pool-2, …")],
)
def test_threads_stand_for_a_leader_that_is_not_known(
    tmp_path: Path, threads: int, name: str
) -> None:
    # GIVEN a log without the leader's name WHEN it is grouped by process
    groups = reported(pool(tmp_path / "log", leader=None, threads=threads), "process")["groups"]
    # THEN it is one process all the same
    assert [(g["process"], g["pid"], g["ios"]) for g in groups] == [(name, LEADER, threads)]


def test_after_exec_the_last_name_counts(tmp_path: Path) -> None:
    # GIVEN a shell that did I/O, became another program, and did more
    made = PathLog()
    made.task(LEADER, b"sh")
    made.bio(1000, 1500, opf=WRITE, tid=LEADER)
    made.task(LEADER, b"dd", at=2000)
    made.bio(3000, 3500, opf=WRITE, tid=LEADER)
    # WHEN it is grouped over time THEN it has one name
    one = reported(made.write(tmp_path / "log"), "process", 1, interval=1000)
    assert [(g["process"], g["ios"]) for g in one["groups"]] == [("dd", 2)]
    assert {g["process"] for i in one["intervals"] for g in i["groups"]} == {"dd"}


def test_the_first_sentence_and_top_name_the_process(
    cli: Cli, tmp_path: Path, patient: None
) -> None:
    # GIVEN the same pool WHEN it is reported on and followed
    log = pool(tmp_path / "log")
    # THEN the sentence is about the process, and top has one row for it
    assert f"of all time is of python3 (pid {LEADER})" in " ".join(cli("report", log).out.split())
    rows = [g.name for one in follow(log) for g in one.now.processes]
    assert rows == [{"process": "python3", "pid": LEADER, "title": None}]
