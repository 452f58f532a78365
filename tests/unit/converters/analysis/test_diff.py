# SPDX-License-Identifier: Apache-2.0
"""biotrail diff: what changed is told, what only varies is not."""

import atexit
import itertools
import json
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.cli import diff as diff_command
from biotrail.converters.analysis.diff.diff import make_diff, options_of
from biotrail.converters.analysis.diff.runs import (
    EQUAL,
    TOO_FEW_RUNS,
    A,
    B,
    Design,
    Run,
    mark,
    student_t,
    t_beyond,
)
from biotrail.converters.analysis.diff.tree import CallDiff, Diff, Figure
from biotrail.converters.analysis.distributions.slots import read_slots
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
from tests.scenarios.tools import events_of
from tests.support import blame_logs, captures
from tests.support.blame_logs import MS, US, Io
from tests.support.cli_runner import Cli
from tests.support.path_logs import FSYNC, PathLog
from tests.support.paths import ROOT, SAMPLE
from tests.support.stack_logs import START

DOC = ROOT / "docs" / "diff.md"
IOS = 1500


def write_reads(
    path: Path, seed: int, reads: Iterable[tuple[float, int, float, str]], **header: Any
) -> Path:
    """A log of reads in turn: µs with the device, sector, µs until the next, its end's facts."""
    lines, now = [], 10.0
    for serve, sector, wait, facts in reads:
        rest, done = f"254:0 R {sector}+8 bio=b1", now + 20 + serve
        steps = [(now + 5, "s", ""), (now + 6, "I", ""), (now + 20, "D", "")]
        steps += [(done, "C", facts), (done + 1, "d", "")]
        lines += [f"{now:.1f} Q {rest}", f"{now + 4:.1f} G {rest}"]
        lines += [f"{at:.1f} {letter} {rest} rq=1{more}" for at, letter, more in steps]
        now = done + 1 + wait
    made = {**captures.header(log_id=f"{seed:032x}"), **header}
    return captures.write_log(path, events_of("\n".join(lines)), made)


@cache
def load(seed: int, *, factor: float = 1.0, ios: int = IOS, lose: int = 0) -> Path:
    """A log of one reader whose device has good and bad stretches of time; factor: of its D2C."""
    rng = np.random.default_rng(seed)
    reads, mood = [], 0.0
    for number in range(ios):
        mood = 0.9 * mood + rng.normal() * 0.15
        serve = 400.0 * np.exp(mood + 0.3 * rng.normal()) * factor
        wait = float(rng.exponential(5000.0))
        facts = " err=-5" if lose and not number % lose else ""
        reads.append((serve, 8 * int(rng.integers(0, 1000)), wait, facts))
    path = Path(tempfile.mkdtemp()) / f"{seed}.biotrail"
    atexit.register(shutil.rmtree, path.parent)
    return write_reads(path, seed, reads)


def diff_of(a: Path, b: Path, **options: Any) -> Diff:
    return make_diff(read_slots(Trace(a)), read_slots(Trace(b)), **options)


def figure(diff: Diff, name: str, stage: str | None = None, of: str = "bios") -> Figure:
    figures = diff.devices[0].operations[0].figures
    [found] = [f for f in figures if (f.of, f.stage, f.name) == (of, stage, name)]
    return found


def test_the_figures_are_those_of_the_report() -> None:
    # GIVEN the sample log WHEN it is compared with itself
    diff = diff_of(SAMPLE, SAMPLE)
    report = make_report(trace := Trace(SAMPLE), trace.lifecycles())
    # THEN every figure of the report is there, and no difference
    assert [d.device_a for d in diff.devices] == [d.device for d in report.devices]
    for found, device in zip(diff.devices, report.devices, strict=True):
        of_device = {(f.stage, f.name): f.a for f in found.figures}
        assert of_device["Q2C", "in_flight"] == pytest.approx(device.queue.mean)
        assert of_device["D2C", "in_flight"] == pytest.approx(device.issued.mean)
        operations = {str(o.bios.name["operation"]): o for o in device.operations}
        assert {o.operation for o in found.operations} == set(operations)
        for one in found.operations:
            mine = operations[one.operation]
            told = {(f.of, f.stage, f.name): f.a for f in one.figures}
            if not mine.bios.ios:
                continue
            assert told["bios", None, "ios_per_s"] == pytest.approx(mine.bios.ios_per_s)
            assert told["bios", None, "bytes_per_s"] == pytest.approx(mine.bios.bytes_per_s)
            stages = {"Q2C": mine.bios.latency} | {s.stage: s.time for s in mine.bios.stages}
            for name, time in stages.items():
                if time.count:
                    assert told["bios", name, "mean"] == pytest.approx(time.mean)
                    for share in ("p50", "p90", "p99", "p99_9"):
                        assert told["bios", name, share] == getattr(time, share)
    assert all(f.difference == 0 for f in diff.figures() if f.difference is not None)
    assert diff.differing == 0 and diff.compared


def test_noise_is_not_read_as_change() -> None:
    # GIVEN recordings of the same load, whose latencies drift
    made = [read_slots(Trace(load(seed))) for seed in range(6)]
    # WHEN each is compared with the next
    diffs = [make_diff(a, b) for a, b in itertools.pairwise(made)]
    compared, differing = (sum(getattr(d, n) for d in diffs) for n in ("compared", "differing"))
    # THEN few more are told to differ than the confidence lets through (figures depend on each
    # other: of one seed there can be several, or none), and none to have changed
    assert compared > 200
    assert differing / compared < 0.10
    assert {f.changed for d in diffs for f in d.figures()} == {None}


def test_a_slower_device_is_told() -> None:
    # GIVEN a recording, and one of a device that takes 1.5 times as long
    a = load(1)
    b = load(2, factor=1.5)
    # WHEN they are compared / THEN D2C differs, with the true factor in the interval
    diff = diff_of(a, b)
    for name in ("mean", "p50", "p90"):
        found = figure(diff, name, "D2C")
        assert found.differs, name
        assert found.relative_low is not None and found.relative_high is not None
        assert found.relative_low < 0.5 < found.relative_high, name
        assert figure(diff, name, "Q2C").differs
    # AND what is no different does not
    assert not figure(diff, "mean", "Q2G").differs
    assert not figure(diff, "mean", "I2D").differs
    assert figure(diff, "mean", "Q2G").a == pytest.approx(4000)


def test_failures_and_percentiles_of_few_are_told() -> None:
    # GIVEN a recording without failures, and one with one in ten
    a = load(1)
    b = load(2, lose=10)
    # WHEN they are compared / THEN there is a difference, though no factor
    found = figure(diff_of(a, b), "failed_per_io")
    assert found.differs and found.a == 0 and found.b == pytest.approx(0.1)
    assert found.relative is None and found.relative_low is None
    # GIVEN recordings of 1,500 I/Os WHEN compared THEN p99.9, which one or two decide, is open
    diff = diff_of(load(1), load(2))
    assert figure(diff, "p99_9", "D2C").differs is None
    assert figure(diff, "p99_9", "D2C").why == "too few I/Os"
    assert figure(diff, "p99", "D2C").differs is not None


def test_a_short_recording_has_no_intervals(cli: Cli) -> None:
    # GIVEN a recording that is too short
    a, b = load(1), load(2, ios=20, factor=9)
    # WHEN it is compared THEN nothing is said to differ, and why
    done = cli("diff", a, b)
    assert done.status == 0
    assert "too short for intervals" in done.out and "differ" not in done.out
    found = cli.json("diff", a, b)
    assert found["compared"] == found["differing"] == 0 and found["b"]["blocks"] == 0
    assert {f["differs"] for o in found["devices"][0]["operations"] for f in o["figures"]} == {None}


def test_the_same_every_time(cli: Cli) -> None:
    # GIVEN two recordings WHEN compared twice THEN the same is said, unless asked to draw anew
    a, b = load(1), load(2)
    first = cli("diff", "--json", a, b).out
    assert cli("diff", "--json", a, b).out == first
    assert cli("diff", "--json", "--seed", "1", a, b).out != first


@pytest.mark.parametrize(
    ("freedom", "known"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (29, 2.0452), (100, 1.9840)]
)
def test_students_t(freedom: int, known: float) -> None:
    # GIVEN tables' values WHEN computed THEN equal
    assert student_t(0.975, freedom) == pytest.approx(known, rel=2e-5)
    assert student_t(0.025, freedom) == -student_t(0.975, freedom)
    assert t_beyond(known, freedom) == pytest.approx(0.05, rel=1e-4)


def test_devices_are_chosen_by_name(cli: Cli) -> None:
    # GIVEN logs of different devices WHEN compared THEN none has its like
    a = load(1)
    said = cli("diff", a, SAMPLE).out
    assert "only in A: vda" in said and "only in B: loop1" in said
    # UNLESS both are named
    found = cli.json("diff", "--device-a", "/dev/vda", "--device-b", "loop1", a, SAMPLE)
    assert [(d["device_a"], d["device_b"]) for d in found["devices"]] == [("vda", "loop1")]
    # AND a name that is not there is a usage error that tells those that are
    done = cli("diff", "--device-a", "sdx", a, a)
    assert done.status == 2 and "vda" in done.err


def test_what_cannot_be_compared_is_one_message(cli: Cli) -> None:
    # GIVEN no log WHEN compared THEN one line, status 1
    done = cli("diff", SAMPLE, "/nowhere/none.biotrail")
    assert done.status == 1 and done.err.count("\n") <= 2 and "none.biotrail" in done.err
    assert cli("diff", "-", "-").status == 2


def test_two_recordings_only_differ(cli: Cli) -> None:
    # GIVEN a slowdown, recorded once a side  WHEN compared
    a = load(1)
    b = load(2, factor=1.5)
    told = cli.json("diff", a, b)
    said = cli("diff", "--all", a, b).out
    # THEN as many lines say that they differ as figures do, none that it changed, and what to do
    lines = [line for line in said.splitlines() if line.rstrip().endswith("differs")]
    assert len(lines) == told["differing"] > 0
    assert told["changed"] == told["tested"] == 0 and not told["by_runs"]
    assert f"{told['differing']} of {told['compared']} figures differ between" in said
    assert "▲" not in said and "record each side three times or more" in " ".join(said.split())


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(names_in(v) for v in value.values()))
    return set().union(*(names_in(v) for v in value)) if isinstance(value, list) else set()


def test_the_json_is_documented(cli: Cli) -> None:
    # GIVEN docs/diff.md WHEN a comparison is made THEN every name in it is there
    text = DOC.read_text()
    found = cli.json("diff", SAMPLE, SAMPLE)
    assert found["format"] == 2
    missing = {name for name in names_in(found) if f"`{name}`" not in text}
    assert not missing
    figures = [f for d in found["devices"] for o in d["operations"] for f in o["figures"]]
    assert not {f["name"] for f in figures if f"`{f['name']}`" not in text}


# diff --blame: what a victim's I/O waited longer for, and because of whom.


def log(path: Path, name: str, beside: int, takes: int = 2) -> Path:
    """Reads of `takes` ms each 10 ms, of 6 ms where `beside` of ten are beside a write.

    A sixth read in sixty is followed by a write alone, so that its base is known.
    """
    ios = []
    for at in range(300):
        begin, slow = at * 10 * MS, at % 10 < beside
        ios.append(Io("app", begin, begin + US, begin + (6 if slow else takes) * MS))
        if slow:
            ios.append(Io("backup", begin - US, begin - US, begin + 6 * MS, "W", 2048))
        elif beside and at % 20 == 19:
            ios.append(Io("backup", begin + 3 * MS, begin + 3 * MS, begin + 9 * MS, "W", 2048))
    return blame_logs.write(path / f"{name}.biotrail", ios, host=name)


def figures(found: dict[str, Any], victim: str) -> dict[str, dict[str, Any]]:
    [one] = [one for one in found["blame"] if one["victim"] == victim]
    return {figure["stage"]: figure for figure in one["figures"]}


def test_what_grew_because_of_whom(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader alone (but for a few writes), and one of whose reads four of ten are beside one
    a, b = log(tmp_path, "a", beside=0), log(tmp_path, "b", beside=4)
    # WHEN they are compared / THEN the mean's growth is the culprit's, who is not there in A
    found = cli.json("diff", "--blame=process", a, b)
    app = figures(found, "app")
    assert (app["Q2C"]["a"], app["Q2C"]["b"]) == (2 * MS, 3.6 * MS)
    assert (app["behind backup"]["a"], app["behind backup"]["b"]) == (0, 1.6 * MS)
    assert (app["own service"]["a"], app["own service"]["b"]) == (2 * MS, 2 * MS)
    assert app["behind backup"]["differs"] and not app["own service"]["differs"]
    assert app["behind backup"]["difference_low"] > 1 * MS
    # AND B's parts are those of blame, to the nanosecond
    told = cli.json("blame", "--by", "process", b)["victims"]
    [mine] = [one for one in told if one["name"] == "app"]
    for part in mine["parts"]:
        name = f"behind {part['culprit']}" if part["culprit"] else part["kind"]
        assert app[name]["b"] * mine["ios"] == pytest.approx(part["wait_ns"], abs=1)
    # AND the text says so in a sentence
    text = " ".join(cli("diff", "--blame=process", a, b).out.split())
    assert "Whose I/O made whose I/O wait, mean of each I/O, by process" in text
    assert "* app: the mean grew by 1.6 ms, from 2 ms to 3.6 ms: 1.6 ms (" in text
    assert ") of waiting behind backup." in text


def test_nothing_grows_between_equal_logs_or_unasked(tmp_path: Path, cli: Cli) -> None:
    # GIVEN two logs of one load WHEN they are compared THEN nobody made anything grow
    found = cli.json(
        "diff", "--blame=process", log(tmp_path, "a", beside=2), log(tmp_path, "b", beside=2)
    )
    assert found["blame"] and found["blame_by"] == "process"
    assert not any(one["differs"] for app in found["blame"] for one in app["figures"])
    # GIVEN two logs WHEN they are compared without blame THEN there is none
    done = cli("diff", "--json", log(tmp_path, "a", beside=0), log(tmp_path, "b", beside=4))
    found = json.loads(done.out)
    assert (found["blame"], found["blame_by"]) == ([], None)


def test_runs_tell_who_made_it_grow(tmp_path: Path, cli: Cli) -> None:
    # GIVEN three runs with a few writes beside, and three with more, of differing service
    sides = [
        [log(tmp_path, f"{name}{at}", beside, takes=2 + at % 2) for at in range(3)]
        for name, beside in (("a", 0), ("b", 4))
    ]
    # WHEN they are compared by runs
    found = cli.json("diff", "--blame=process", *sides[0], "--", *sides[1])
    # THEN the culprit's part changed, which is nothing in runs without it
    part = figures(found, "app")["behind backup"]
    assert found["by_runs"] and part["changed"] and part["a"] == 0
    assert part["b"] > 1 * MS


# biotrail diff of logs with the path: system calls by name, with intervals.

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


def call_figure(call: CallDiff, name: str, stage: str | None = None) -> Figure:
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
        assert call_figure(call, name, "all").a == pytest.approx(getattr(reported.time, name))
    for part in reported.parts:
        assert call_figure(call, "share", part.stage).a == pytest.approx(part.share)
        assert call_figure(call, "mean", part.stage).a == pytest.approx(part.time.sum / 2000)
    assert call_figure(call, "bios_per_call").a == 1
    assert call_figure(call, "failed_per_call").a == 0
    assert call_figure(call, "calls_per_s").a == pytest.approx(1000, rel=0.01)
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
        assert call_figure(call, name, "all").differs, name
    assert call_figure(call, "mean", "own_io").differs
    assert call_figure(call, "mean", "own_io").relative == pytest.approx(0.3, abs=0.05)
    assert call_figure(call, "share", "running").differs  # less of a longer time
    assert not call_figure(call, "mean", "running").differs
    assert not call_figure(call, "mean", "runnable").differs
    # AND of the same load nearly nothing is
    [call] = diff_of(a, same).calls
    assert sum(f.differs is True for f in call.figures) <= 2


def test_rates_refer_to_the_time_in_which_calls_were_timed(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log in which calls were timed for half a second  WHEN it is compared
    log = write(tmp_path / "a", 1, 1.0, SECOND // 2)
    diff = diff_of(log, log)
    # THEN rates are by that time, which is said
    assert diff.a.calls_ns == pytest.approx(SECOND / 2, rel=0.01)
    assert call_figure(diff.calls[0], "calls_per_s").a == pytest.approx(4000, rel=0.01)
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


# biotrail diff by runs: what changed by more than runs of one load differ.

FIGURES = 84
LEADING = 2
TRIES = 100
NAMES = tuple((str(place),) for place in range(FIGURES))


def in_turn(count: int, rng: random.Random) -> list[int]:
    """`count` pairs of A and B in an order drawn at random."""
    return [side for _ in range(count) for side in rng.sample((A, B), 2)]


def drawn(
    sides: Sequence[int],
    rng: random.Random,
    *,
    spread: float = 0.04,
    slower: float = 0.0,
    drift: float = 0.0,
) -> list[Run]:
    """Runs whose figures differ from run to run, half of that together, as those of a run do.

    spread: standard deviation of a run's logarithm. slower: of B, as a share. drift: what each run
    moves on from the one before.
    """
    runs, level = [], 0.0
    for at, side in enumerate(sides):
        level += rng.gauss(0, drift)
        together = level + (math.log1p(slower) if side == B else 0.0)
        together += rng.gauss(0, spread * math.sqrt(0.5))
        values = {
            name: 1e5 * math.exp(together + rng.gauss(0, spread * math.sqrt(0.5))) for name in NAMES
        }
        runs.append(Run(side, "db1", f"{at:04d}", values))
    return runs


def judged(runs: Sequence[Run], confidence: float = 0.95) -> list[Figure]:
    figures = [
        Figure("bios", "Q2C", "mean", "ns", 1.0, 1.0, leading=place < LEADING)
        for place in range(FIGURES)
    ]
    design = Design.of(runs)
    for name, figure in zip(NAMES, figures, strict=True):
        design.judge(figure, (name, name), confidence)
    mark(figures, confidence)
    return figures


@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_identical_loads_have_no_more_marks_than_is_said(drift: float) -> None:
    # GIVEN a hundred disjoint comparisons of one load's runs, three a side, in turn
    rng = random.Random(8)
    corrected = leading = 0
    for _ in range(TRIES):
        # WHEN each is judged
        figures = judged(drawn(in_turn(3, rng), rng, drift=drift))
        corrected += any(f.changed for f in figures if not f.leading)
        leading += sum(f.changed is True for f in figures if f.leading)
    # THEN corrected figures have a mark in as many as 5 % allows (11 of 100 in all but 0.5 %)
    assert corrected <= 11
    # AND leading ones, each by itself, in 5 % (18 of 200, likewise)
    assert leading <= 18


def test_ten_per_cent_are_found_with_five_runs_a_side() -> None:
    # GIVEN loads of which B is 10 % slower, five runs a side that differ by 4 %
    rng = random.Random(3)
    found, held, sizes = 0, 0, []
    for _ in range(TRIES):
        first, *_ = judged(drawn(in_turn(5, rng), rng, slower=0.10))
        found += first.changed is True
        assert first.relative_low is not None and first.relative_high is not None
        held += first.relative_low < 0.10 < first.relative_high
        sizes.append(first.detectable or 0.0)
    # THEN mean Q2C tells it in nine of ten, with the truth in the interval of 95 %
    assert found >= 87
    assert held >= 89
    # AND the size that would be found in nine of ten is said
    assert 0.08 < sorted(sizes)[TRIES // 2] < 0.12


def test_what_drifts_is_told_by_pairs() -> None:
    # GIVEN runs in turn, of which each pair is far slower than the one before, and B by 5 %
    rng = random.Random(1)
    runs = []
    for at, (pair, side) in enumerate(
        (pair, side) for pair in range(5) for side in rng.sample((A, B), 2)
    ):
        value = 1e5 * 1.5**pair * (1.05 if side == B else 1.0) * math.exp(rng.gauss(0, 0.003))
        runs.append(Run(side, "db1", f"{at:04d}", dict.fromkeys(NAMES, value)))
    # WHEN judged  THEN pairs are compared, and the change is found
    [first, *_] = judged(runs)
    assert first.paired and first.changed
    assert first.relative == pytest.approx(0.05, abs=0.01)
    # UNLESS nobody knows which was when
    unknown = [Run(run.side, run.host, None, run.values) for run in runs]
    assert not judged(unknown)[0].changed and not judged(unknown)[0].paired


def test_hosts_are_compared_each_with_itself() -> None:
    # GIVEN four hosts as different as may be, of which each is 5 % slower afterwards
    rng = random.Random(2)
    runs = [
        Run(
            side,
            host,
            None,
            dict.fromkeys(NAMES, base * (1 + 0.05 * side) * math.exp(rng.gauss(0, 0.003))),
        )
        for side in (A, B)
        for host, base in (("db1", 1e4), ("db2", 1e5), ("db3", 5e5), ("db4", 3e6))
    ]
    # WHEN judged  THEN it is found
    [first, *_] = judged(runs)
    assert first.changed and first.relative == pytest.approx(0.05, abs=0.01)
    # AND with other hosts on the other side, it cannot be
    others = [Run(r.side, r.host + "ab"[r.side], None, r.values) for r in runs]
    assert not judged(others)[0].changed


def test_equal_runs_calibrate_and_buckets_are_no_change() -> None:
    # GIVEN two runs a side, as different as may be  WHEN judged
    runs = [Run(side, "db1", None, dict.fromkeys(NAMES, 1e5 * (1 + side))) for side in (A, A, B, B)]
    [first, *_] = judged(runs)
    # THEN nothing is said of a change, and why
    assert first.changed is first.differs is first.p is None and first.why == TOO_FEW_RUNS
    assert first.relative == pytest.approx(1)
    assert not Design.of(runs).enough
    # GIVEN a run a side that differ by 10 %, and four of one load that differ by 1 % and by 20 %
    for spread, changed in ((0.01, True), (0.2, False)):
        equal = [1e5 * math.exp(spread * at) for at in (-1, -0.5, 0.5, 1)]
        values = [(A, 1e5), (B, 1.1e5), *((EQUAL, one) for one in equal)]
        runs = [Run(side, "db1", None, dict.fromkeys(NAMES, value)) for side, value in values]
        # WHEN judged  THEN that decides
        assert Design.of(runs).enough
        [first, *_] = judged(runs)
        assert first.changed is changed and first.a == pytest.approx(1e5)
    # GIVEN medians that lie in one bucket in all runs of a side, in the next one in the other's
    figure = Figure("bios", "Q2C", "p50", "ns", 1.0, 1.0)
    runs = [Run(s, "db1", None, {"p": v}) for s, v in ((A, 1024.0), (B, 1032.0)) for _ in range(3)]
    # WHEN judged  THEN that is as near as values can be
    Design.of(runs).judge(figure, ("p", "p"), 0.95)
    mark([figure], 0.95)
    assert figure.changed is False
    # GIVEN runs in turn, and such that were not  WHEN looked at  THEN only these are told
    turns = [Run(s, "db1", str(at)) for at, s in enumerate((A, B, B, A, A, B))]
    after = [Run(s, "db1", str(at)) for at, s in enumerate((A, A, A, B, B, B))]
    assert not Design.of(turns).one_after_other
    assert Design.of(after).one_after_other


@pytest.mark.parametrize(
    ("a", "b", "changed"),
    [
        ((4096.0,) * 3, (4096.0,) * 3, False),
        ((4096.0,) * 3, (8192.0,) * 3, True),
        ((0.0,) * 3, (0.0,) * 3, False),
        ((0.0, 0.0, 0.001), (0.0, 0.001, 0.0), False),
        ((0.0, 0.0, 0.001), (0.1, 0.11, 0.12), True),
    ],
)
def test_figures_that_do_not_vary_or_are_0(
    a: Sequence[float], b: Sequence[float], changed: bool
) -> None:
    # GIVEN such figures  WHEN judged  THEN they are compared as they are
    runs = [
        Run(side, "db1", None, dict.fromkeys(NAMES, value))
        for side, values in ((A, a), (B, b))
        for value in values
    ]
    [first, *_] = judged(runs)
    assert first.changed is changed


def run_log(path: Path, seed: int, factor: float, **header: Any) -> Path:
    """A log of 60 reads, which take `factor` times as long."""
    rng = random.Random(seed)
    reads = [
        (400.0 * factor * math.exp(0.2 * rng.gauss(0, 1)), 8 * rng.randrange(1000), 5979.0, "")
        for _ in range(60)
    ]
    return write_reads(path, seed, reads, **header)


def logs(place: Path, seeds: Sequence[int], factor: float = 1.0, **header: Any) -> list[Path]:
    return [run_log(place / f"{seed}.biotrail", seed, factor, **header) for seed in seeds]


def test_logs_of_several_runs(cli: Cli, tmp_path: Path) -> None:
    # GIVEN five runs a side, of which B's are 1.5 times as slow  WHEN compared
    a, b = logs(tmp_path, range(1, 6)), logs(tmp_path, range(6, 11), 1.5)
    told = cli.json("diff", *a, "--", *b)
    # THEN the leading figure changed, with the runs' geometric means and the truth in its interval
    assert told["by_runs"] and (told["a"]["runs"], told["b"]["runs"]) == (5, 5)
    [operation] = told["devices"][0]["operations"]
    [mean] = [f for f in operation["figures"] if f["leading"]]
    assert mean["changed"] and mean["stage"] == "Q2C" and mean["p"] < 0.001
    assert mean["relative_low"] < 0.47 < mean["relative_high"]
    assert mean["b"] / mean["a"] == pytest.approx(1 + mean["relative"])
    alone = [cli.json("diff", one, one)["devices"][0]["operations"][0]["figures"] for one in a]
    product = math.prod(figure["a"] for figures in alone for figure in figures if figure["leading"])
    assert mean["a"] == pytest.approx(product ** (1 / 5))
    assert operation["ios_a"] == 300
    # AND the text says what was compared, and what would be found
    said = " ".join(cli("diff", *a, "--", *b).out.split())
    assert "compared by runs: 5 of A, 5 of B" in said
    assert "1 of 1 leading figure changed" in said and "found in nine of ten tries" in said


def test_logs_of_one_load_calibrate(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log a side, and four runs of one load  WHEN compared with these
    a, b, *equal = logs(tmp_path, range(1, 7))
    given = [f"--equal={one}" for one in equal]
    told = cli.json("diff", *given, a, b)
    # THEN figures are tested
    assert told["by_runs"] and told["equal"] == 4 and told["tested"] > 10
    assert "and 4 runs of one load" in cli("diff", *given, a, b).out
    # AND a run is not its own calibration
    assert cli("diff", f"--equal={a}", a, b).status == 2


def test_options_that_differ_are_told(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a recording with stacks and files, and one without  WHEN compared
    [a] = logs(tmp_path, [1], stacks={"user": True}, files={"direct": True})
    [b] = logs(tmp_path, [2])
    said = cli("diff", a, b).out
    # THEN both are named
    assert "recorded differently: --stacks: A kernel and user; B no" in said
    assert "recorded differently: --files: A yes; B no" in said
    told = cli.json("diff", a, b)
    assert {one["option"] for one in told["unlike_options"]} == {"--stacks", "--files"}
    # AND nothing of the kind where they are alike
    assert "recorded differently" not in cli("diff", a, a).out
    # AND headers of any shape have options
    assert options_of({"events": 1, "stacks": [], "path": {"parts": None}, "filters": 3}) == {
        "--path": ""
    }


def test_the_order_of_runs_is_drawn() -> None:
    # GIVEN many draws  WHEN looked at
    found = {tuple(diff_command.order(3, random.Random(seed))) for seed in range(200)}
    # THEN each pair has both sides, in any order
    assert len(found) == 8
    assert all(set(one[at : at + 2]) == {"A", "B"} for one in found for at in (0, 2, 4))


def test_runs_are_recorded_in_turn(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recorder  WHEN three runs a side are asked for
    ran: list[tuple[tuple[str, ...], str]] = []
    seeds = itertools.count(1)

    def run(command: tuple[str, ...], target: Path, options: Sequence[str]) -> None:
        ran.append((command, target.name))
        assert options == ("--device=sda",)
        run_log(target, next(seeds), 1.5 if command[-1] == "b" else 1.0)

    monkeypatch.setattr(diff_command, "_run", run)
    place = tmp_path / "runs"
    words = ("diff", "--json", "--record", "3", "-o", place, "--record-option=--device=sda")
    python = sys.executable
    done = cli(*words, "--", python, "a", "--", python, "b")
    # THEN each pair of runs has both, their logs are kept by name, and compared
    assert done.status == 0, done.err
    assert [name[0] for _, name in ran] == list("123456")
    for first, second in itertools.pairwise(ran[::1]):
        if int(first[1][0]) % 2:
            assert {first[0][-1], second[0][-1]} == {"a", "b"}
    assert {path.name for path in place.iterdir()} == {name for _, name in ran}
    told = json.loads(done.out)
    assert told["by_runs"] and told["changed"] and told["a"]["runs"] == 3
    # AND logs that are there are not written over
    assert cli(*words, "--", python, "a", "--", python, "b").status == 1
    shutil.rmtree(place)


def test_a_run_that_fails_ends_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recorder that cannot be started  WHEN runs are asked for
    def refused(*_given: Any, **_named: Any) -> None:
        raise PermissionError(1, "not here")

    monkeypatch.setattr("subprocess.Popen._execute_child", refused)
    done = cli("diff", "--record", "3", "-o", tmp_path / "r", "--", "true", "--", "true")
    # THEN that is one message
    assert done.status == 1 and "the recorder cannot be started" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("--record", "3"),
        ("--record", "3", "--", "true"),
        ("--record", "3", "--", "true", "--"),
        ("--record", "3", "--", "true", "--", "true", "--", "true"),
        ("--record", "3", "--", "true", "--", "no-such-command"),
        ("--record", "2", "--", "true", "--", "true"),
        ("--record", "3", "--record-option=-oX", "--", "true", "--", "true"),
        ("--record", "3", "--record-option=sda", "--", "true", "--", "true"),
        ("--record", "3", "x.biotrail", "--", "true", "--", "true"),
        ("--record-option=-dsda", "x.biotrail", "y.biotrail"),
    ],
)
def test_what_cannot_be_recorded_is_wrong_usage(cli: Cli, words: Sequence[str]) -> None:
    # GIVEN such a command line  WHEN it is run  THEN nothing is recorded
    assert cli("diff", *words).status == 2
