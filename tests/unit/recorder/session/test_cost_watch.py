# SPDX-License-Identifier: Apache-2.0
"""The cost in the open: runs counted now and then, a warning above --max-cpu."""

from pathlib import Path

import pytest

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.cost import ns_per_run
from biotrail.recorder.log import LogReader
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.session.cost_watch import (
    EARLY_TICKS,
    QUIET_NS,
    SAMPLE_BYTES,
    SAMPLE_TICKS,
    TICK_NS,
    WINDOW_NS,
    CostWatch,
)
from biotrail.recorder.session.session import record
from biotrail.text.values import LEAST_PER_CENT, Percent
from tests.support.fake_probes import FakeProbes, options


def program(runs: int, spent: int, misses: int = 0) -> ProgramInfo:
    return ProgramInfo("bt_queue", "Q", "block_bio_queue", True, "", runs, spent, misses)


def test_runs_are_counted_for_one_tick_in_many() -> None:
    # GIVEN a watch
    asked: list[bool] = []
    watch = CostWatch(FakeProbes(), asked.append, None, 0)
    # WHEN twice as many ticks pass as lie between two samples
    now_ns, calls = 0, 0
    while now_ns < 2 * SAMPLE_TICKS * TICK_NS:
        now_ns = watch.due_ns
        watch.tick(now_ns, 0)
        calls += 1
    watch.end()
    # THEN counting was on for two of them, and some at the beginning; it is off at the end
    assert asked.count(True) == 2 + len(EARLY_TICKS)
    assert not asked[-1]
    # AND the recorder was woken at their ends alone: runs are counted no longer than a tick
    assert calls == 2 * (2 + len(EARLY_TICKS)) - 1


def test_a_sample_ends_early_where_much_is_recorded() -> None:
    # GIVEN a watch that begins a sample
    asked: list[bool] = []
    watch = CostWatch(FakeProbes(), asked.append, None, 0)
    watch.end_full_sample(SAMPLE_BYTES)
    watch.tick(watch.due_ns, 0)
    assert asked[-1]
    # WHEN little comes out of the rings THEN it goes on
    watch.end_full_sample(2 * SAMPLE_BYTES - 1)
    assert asked[-1]
    # WHEN enough has come THEN it ends, once
    asked.clear()
    watch.end_full_sample(2 * SAMPLE_BYTES)
    watch.end_full_sample(4 * SAMPLE_BYTES)
    assert asked == [False]


def test_a_warning_comes_above_the_limit_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN programs that take a microsecond a run, and a recorder that takes nothing itself
    programs = [program(1000, 1_000_000)]
    probes = FakeProbes()
    monkeypatch.setattr(probes, "programs", lambda: programs)
    monkeypatch.setattr(cost, "read", lambda p: cost.Reading(0, 0.0, p))
    watch = CostWatch(probes, lambda _on: None, 5.0, 0)
    # WHEN a million events a window come: 20 % of a core; and after that none
    first = watch.tick(WINDOW_NS, 1e6)
    second = watch.tick(2 * WINDOW_NS, 2e6)
    idle = watch.tick(3 * WINDOW_NS, 2e6)
    later = watch.tick(QUIET_NS + 4 * WINDOW_NS, 1e9)
    # THEN the first and the last are told, the second only counted
    assert first.startswith("recording takes 20.0 % of one core, more than --max-cpu 5")
    assert (second, idle) == ("", "")
    assert later.startswith("recording takes")
    assert watch.warnings == 3
    assert ns_per_run(programs) == 1000
    assert ns_per_run([]) == 0


def test_the_end_says_what_recording_cost(tmp_path: Path) -> None:
    # GIVEN a recording with a limit
    path = tmp_path / "x"
    # WHEN it ends
    summary = record(options(path, duration=0.05, max_cpu=1000.0), probes=FakeProbes())
    # THEN its end has the recorder's account, and each program's
    end = LogReader(path).end
    assert end is not None
    assert end["recorder"]["max_cpu"] == 1000.0
    assert end["recorder"]["max_cpu_exceeded"] == 0
    assert end["recorder"]["max_rss_bytes"] > 0
    assert end["events"] == summary.events
    assert {"run_count", "run_ns", "recursion_misses"} <= set(end["programs"][0])


def test_program_rows_are_differences() -> None:
    # GIVEN two readings WHEN the second is told from the first THEN it holds what came between
    then, now = (cost.Reading(0, 0.0, [program(*n)]) for n in ((5, 500, 1), (8, 900, 3)))
    (row,) = cost.program_rows(then, now)
    assert (row["run_count"], row["run_ns"], row["recursion_misses"]) == (3, 400, 2)


def test_percentages_are_understood() -> None:
    # GIVEN what users write WHEN it is converted THEN it is a number, or refused
    assert [Percent(LEAST_PER_CENT).convert(text, None, None) for text in ("5", "2.5%")] == [
        5.0,
        2.5,
    ]
    for bad in ("0", "-1", "nan", "inf", "x", ""):
        with pytest.raises(Exception, match=r"no percentage|not between"):
            Percent(LEAST_PER_CENT).convert(bad, None, None)
