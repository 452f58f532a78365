# SPDX-License-Identifier: Apache-2.0
"""biotrail diff: what changed is told, what only varies is not."""

import atexit
import itertools
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.analysis.diff.diff import Comparison
from biotrail.converters.analysis.diff.figures import Resampling, interval
from biotrail.converters.analysis.diff.runs import student_t, t_beyond
from biotrail.converters.analysis.diff.tree import Diff, Figure
from biotrail.converters.analysis.distributions.slots import (
    LEAST_SLOTS,
    MOST_SLOTS,
    Recording,
    read_slots,
)
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
DOC = ROOT / "docs" / "diff.md"
IOS = 1500


@cache
def load(seed: int, *, factor: float = 1.0, ios: int = IOS, lose: int = 0) -> Path:
    """A log of one reader whose device has good and bad stretches of time; factor: of its D2C."""
    rng = np.random.default_rng(seed)
    lines, now, mood = [], 10.0, 0.0
    for number in range(ios):
        mood = 0.9 * mood + rng.normal() * 0.15
        serve = 400.0 * np.exp(mood + 0.3 * rng.normal()) * factor
        wait = float(rng.exponential(5000.0))
        rest = f"R {8 * int(rng.integers(0, 1000))}+8 bio=b1"
        d = now + 20
        lines += [
            f"{now:.1f} Q 254:0 {rest}",
            f"{now + 4:.1f} G 254:0 {rest}",
            f"{now + 5:.1f} s 254:0 {rest} rq=1",
            f"{now + 6:.1f} I 254:0 {rest} rq=1",
            f"{d:.1f} D 254:0 {rest} rq=1",
            f"{d + serve:.1f} C 254:0 {rest} rq=1"
            + (" err=-5" if lose and not number % lose else ""),
            f"{d + serve + 1:.1f} d 254:0 {rest} rq=1",
        ]
        now = d + serve + 1 + wait
    path = Path(tempfile.mkdtemp()) / f"{seed}.biotrail"
    atexit.register(shutil.rmtree, path.parent)
    header = captures.header(log_id=f"{seed:032x}")
    captures.write_log(path, events_of("\n".join(lines)), header)
    return path


def diff_of(a: Path, b: Path, **options: Any) -> Diff:
    return Comparison(read_slots(Trace(a)), read_slots(Trace(b)), **options).diff()


def figure(diff: Diff, name: str, stage: str | None = None, of: str = "bios") -> Figure:
    found = [
        f
        for f in diff.devices[0].operations[0].figures
        if (f.of, f.stage, f.name) == (of, stage, name)
    ]
    assert len(found) == 1
    return found[0]


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
    diffs = [Comparison(a, b).diff() for a, b in itertools.pairwise(made)]
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
    # WHEN they are compared
    diff = diff_of(a, b)
    # THEN D2C differs, with the true factor in the interval
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


def test_failures_are_told_where_there_were_none() -> None:
    # GIVEN a recording without failures, and one with one in ten
    a = load(1)
    b = load(2, lose=10)
    # WHEN they are compared
    found = figure(diff_of(a, b), "failed_per_io")
    # THEN there is a difference, though no factor
    assert found.differs and found.a == 0 and found.b == pytest.approx(0.1)
    assert found.relative is None and found.relative_low is None


def test_a_short_recording_has_no_intervals(cli: Cli) -> None:
    # GIVEN a recording that is too short
    a, b = load(1), load(2, ios=20, factor=9)
    # WHEN it is compared THEN nothing is said to differ, and why
    done = cli("diff", a, b)
    assert done.status == 0
    assert "too short for intervals" in done.out and "differ" not in done.out
    found = json.loads(cli("diff", "--json", a, b).out)
    assert found["compared"] == found["differing"] == 0 and found["b"]["blocks"] == 0
    assert {f["differs"] for o in found["devices"][0]["operations"] for f in o["figures"]} == {None}


def test_percentiles_that_few_ios_decide_have_none() -> None:
    # GIVEN recordings of 1,500 I/Os WHEN compared THEN p99.9, which one or two decide, is open
    diff = diff_of(load(1), load(2))
    assert figure(diff, "p99_9", "D2C").differs is None
    assert figure(diff, "p99_9", "D2C").why == "too few I/Os"
    assert figure(diff, "p99", "D2C").differs is not None


def test_the_same_every_time(cli: Cli) -> None:
    # GIVEN two recordings WHEN compared twice THEN the same is said, unless asked to draw anew
    a, b = load(1), load(2)
    first = cli("diff", "--json", a, b).out
    assert cli("diff", "--json", a, b).out == first
    assert cli("diff", "--json", "--seed", "1", a, b).out != first


def test_slots_widen_and_hold_the_same() -> None:
    # GIVEN a log WHEN it is read in small windows and in one
    path = load(1)
    small, large = Trace(path), Trace(path)
    one = read_slots(small, small.lifecycles(100))
    other = read_slots(large, large.lifecycles(1 << 20))

    def content(recording: Recording) -> Any:
        place = recording.slots.places()[0]
        bios = recording.slots.bios(place)
        return {s: (g["ios"], g.latency.sum, g.latency.buckets()) for s, g in sorted(bios.items())}

    # THEN there are as many slots as there shall be, and each has the same
    assert LEAST_SLOTS <= len(one.slots.times(one.end_ns)) <= MOST_SLOTS
    assert content(one) == content(other)
    assert int(one.slots.times(one.end_ns).sum()) == one.span_ns


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    # GIVEN many series of values that depend on those before them
    held, tries, slots = 0, 300, 120
    for number in range(tries):
        rng = np.random.default_rng([7, number])
        values = np.zeros(slots)
        for i in range(1, slots):
            values[i] = 0.4 * values[i - 1] + rng.normal()
        drawn = Resampling.of(slots, 500, (number,))
        assert drawn is not None
        # WHEN each one's mean gets an interval
        span = interval(drawn.sums(values) / drawn.sums(np.ones(slots)), 0.95, drawn.blocks)
        assert span is not None
        held += span[0] < 0.0 < span[1]
    # THEN some 95 % of them hold the true one
    assert 0.89 < held / tries < 0.985


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
    found = json.loads(
        cli("diff", "--json", "--device-a", "/dev/vda", "--device-b", "loop1", a, SAMPLE).out
    )
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
    told = json.loads(cli("diff", "--json", a, b).out)
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
    found = json.loads(cli("diff", "--json", SAMPLE, SAMPLE).out)
    assert found["format"] == 2
    missing = {name for name in names_in(found) if f"`{name}`" not in text}
    assert not missing
    figures = [f for d in found["devices"] for o in d["operations"] for f in o["figures"]]
    assert not {f["name"] for f in figures if f"`{f['name']}`" not in text}
