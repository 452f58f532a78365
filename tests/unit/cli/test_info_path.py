# SPDX-License-Identifier: Apache-2.0
"""`info` says from when to when calls were timed, and what that cost."""

from pathlib import Path
from typing import Any

from tests.support.cli_runner import Cli
from tests.support.path_logs import PathLog
from tests.support.stack_logs import START


def said(cli: Cli, path: Path) -> str:
    return " ".join(cli("info", path).out.split())


def log(tmp_path: Path, *parts: str, **facts: Any) -> Path:
    made = PathLog()
    made.bio(120, 480, entry=100)
    made.returns(100, 600, blocked=300, queued=1)
    return made.write(tmp_path / "log", (), parts or ("call", "time"), **facts)


OWN = {"cpu_seconds": 0.1, "max_rss_bytes": 1 << 20}
COST = {"calls": 4000, "timed": 3000, "seconds": {"time": 0.011, "wait": 0.002}}


def test_calls_that_were_timed_throughout(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a whole recording with timed calls  WHEN it is looked at
    text = said(cli, log(tmp_path, end={"seconds": 1.1, "path": COST, "recorder": OWN}))
    # THEN it says for how long, how many, and at what cost
    assert "calls timed from " in text
    assert "), 4,000 calls: about 11 ms of CPU (1.0 %)" in text
    assert "path cost CPU time of the programs beside these: time 11 ms, wait 2 ms" in text


def test_calls_that_cost_too_much(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log whose recorder ceased to time calls
    note = {"until": START + 700_100, "percent": 7.5, "budget": 5.0}
    # WHEN it is looked at  THEN it says when, and why
    text = said(cli, log(tmp_path, notes={"call_timing": note}))
    assert "(700 µs), then no longer: it took about 7.5 % of a CPU, more than" in text
    assert "more than --call-budget 5" in text


def test_a_later_file_knows_that_timing_had_ended(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a file of several, which began after the end of timing
    note = {"until": START - 1, "percent": 7.5, "budget": 5.0}
    # WHEN it is looked at  THEN it says so
    text = said(cli, log(tmp_path, notes={"call_timing": note}))
    assert "calls not timed in this file: timing ended at " in text


def test_a_log_without_timed_calls_says_nothing_of_them(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with the call of each bio alone  WHEN it is looked at  THEN no line is about time
    assert " timed " not in said(cli, log(tmp_path, "call"))
