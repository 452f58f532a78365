# SPDX-License-Identifier: Apache-2.0
"""biotrail diff of logs with the path: system calls by name, with intervals."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.analysis.diff.diff import Comparison
from biotrail.converters.analysis.diff.side import pooled
from biotrail.converters.analysis.diff.tree import CallDiff, Diff, Figure
from biotrail.converters.analysis.distributions.slots import read_slots
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.path_logs import FSYNC, MS, PathLog
from tests.support.stack_logs import START

SECOND = 1000 * MS


@cache
def data(seed: int, factor: float = 1.0, until: int | None = None, number: int = FSYNC) -> bytes:
    """A log of 2 s with 2,000 calls, each of which waits for its bio; factor: of that wait."""
    rng = np.random.default_rng(seed)
    log = PathLog()
    log.task(42, b"db")
    for n in range(2000):
        entry = n * MS + int(rng.integers(0, 100_000))
        wait = int(200_000 * factor * np.exp(0.3 * rng.normal()))
        out, woken = entry + 15_000, entry + 15_000 + wait
        log.bio(entry + 10_000, woken - 1000, call=number, entry=entry)
        log.waits(entry, out, woken, woken + 5000)
        log.returns(
            entry, woken + 20_000, number=number, result=0, blocked=wait, runnable=5000, queued=1
        )
    notes = {} if until is None else {"call_timing": {"until": START + until, "percent": 7.5}}
    return log.data(notes=notes, log_id=f"{seed:032x}")


def write(path: Path, *arguments: Any) -> Path:
    path.write_bytes(data(*arguments))
    return path


def diff_of(a: Path, b: Path) -> Diff:
    return Comparison(read_slots(Trace(a)), read_slots(Trace(b))).diff()


def figure(call: CallDiff, name: str, stage: str | None = None) -> Figure:
    [found] = [f for f in call.figures if (f.stage, f.name) == (stage, name)]
    assert found.of == "calls"
    return found


def test_figures_are_those_of_the_report(tmp_path: Path) -> None:
    # GIVEN a log with calls  WHEN it is compared with itself
    log = write(tmp_path / "a", 1)
    [call] = diff_of(log, log).calls
    [reported] = make_report(trace := Trace(log), trace.lifecycles()).calls
    # THEN the figures are those of its report, and none differs
    assert (call.call, call.io, call.count_a, call.count_b) == ("fsync", True, 2000, 2000)
    for name in ("mean", "p50", "p90", "p99", "p99_9"):
        assert figure(call, name, "all").a == pytest.approx(getattr(reported.time, name))
    for part in reported.parts:
        assert figure(call, "share", part.stage).a == pytest.approx(part.share)
        assert figure(call, "mean", part.stage).a == pytest.approx(part.time.sum / 2000)
    assert figure(call, "bios_per_call").a == 1
    assert figure(call, "failed_per_call").a == 0
    assert figure(call, "calls_per_s").a == pytest.approx(1000, rel=0.01)
    shares = [f.a for f in call.figures if f.name == "share"]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)
    assert all(f.difference == 0 for f in call.figures if f.difference is not None)


def test_what_differs_and_what_only_varies(tmp_path: Path) -> None:
    # GIVEN two logs of one load, and one whose waits for own I/O last 30 % longer
    a, same = write(tmp_path / "a", 1), write(tmp_path / "b", 2)
    slower = write(tmp_path / "c", 3, 1.3)
    # WHEN they are compared  THEN the slower one's calls are, by the part that is
    [call] = diff_of(a, slower).calls
    for name in ("mean", "p50", "p99"):
        assert figure(call, name, "all").differs, name
    assert figure(call, "mean", "own_io").differs
    assert figure(call, "mean", "own_io").relative == pytest.approx(0.3, abs=0.05)
    assert figure(call, "share", "running").differs  # less of a longer time
    assert not figure(call, "mean", "running").differs
    assert not figure(call, "mean", "runnable").differs
    # AND of the same load nearly nothing is
    [call] = diff_of(a, same).calls
    assert sum(f.differs is True for f in call.figures) <= 2


def test_rates_refer_to_the_time_in_which_calls_were_timed(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log in which calls were timed for half a second  WHEN it is compared
    log = write(tmp_path / "a", 1, 1.0, SECOND // 2)
    diff = diff_of(log, log)
    # THEN rates are by that time, which is said
    assert diff.a.calls_ns == pytest.approx(SECOND / 2, rel=0.01)
    assert figure(diff.calls[0], "calls_per_s").a == pytest.approx(4000, rel=0.01)
    assert "calls were timed for 500 ms only" in cli("diff", log, log).out


def test_calls_of_one_side_only(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with timed calls and one without  WHEN they are compared
    log, other = write(tmp_path / "a", 1), tmp_path / "b"
    plain = PathLog()
    plain.bio(100, 300)
    plain.write(other, (), ("call",))
    # THEN no call is compared, and it is said why
    assert diff_of(log, other).calls == []
    assert "calls were timed in A only" in cli("diff", log, other).out
    # AND a name that one side lacks has no value there
    [fsync, read] = diff_of(log, write(tmp_path / "c", 4, 1.0, None, 17)).calls
    assert {fsync.call, read.call} == {"fsync", "pread64"}
    assert {f.why for f in (*fsync.figures, *read.figures)} == {"not in A", "not in B"}


def test_several_recordings_as_one_side(tmp_path: Path) -> None:
    # GIVEN two recordings as one side  WHEN they are pooled and compared
    logs = [read_slots(Trace(write(tmp_path / str(seed), seed))) for seed in (1, 2)]
    both = pooled(logs)
    [call] = Comparison(both, both).diff().calls
    # THEN their calls are together
    assert call.count_a == 4000
    assert figure(call, "calls_per_s").a == pytest.approx(1000, rel=0.01)


def test_json_and_text(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same  WHEN it is compared as JSON and as text
    a, slower = write(tmp_path / "a", 1), write(tmp_path / "c", 3, 1.3)
    made = json.loads(cli("diff", "--json", a, slower).out)
    # THEN both have the calls
    [call] = made["calls"]
    assert (call["call"], call["io"], call["count_a"], call["count_b"]) == (
        "fsync",
        True,
        2000,
        2000,
    )
    assert made["compared"] == sum(
        f["differs"] is not None
        for one in (*made["devices"][0]["operations"], made["devices"][0], *made["calls"])
        for f in one["figures"]
    )
    text = cli("diff", a, slower).out
    assert "entry to return" in text
    assert "own I/O" in text
