# SPDX-License-Identifier: Apache-2.0
"""Sums of I/Os by compiled loops and by their sources uncompiled: the same."""

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.distributions import depth, samples, sketch, sums
from biotrail.converters.analysis.distributions.depth import Depth, Span
from biotrail.converters.analysis.distributions.sketch import Distribution, add_grouped
from biotrail.converters.analysis.report import tails
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events import distinct
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.pipeline import Trace
from tests.support.both_ways import uncompiled
from tests.support.paths import ROOT

LOOPS = uncompiled("converters/analysis/distributions/sum_loops.py")
NUMBERING = uncompiled("converters/events/distinct_loops.py")
USERS = (sums, sketch, depth, samples, tails)
LOGS = ("biotrail/data/demo.biotrail", "tests/data/calls/ext4-on-loop.biotrail")
MANY = settings(max_examples=200, deadline=None)
VALUE = st.integers(-3, 1 << 40) | st.integers(-(1 << 63), (1 << 62))


def use(monkeypatch: pytest.MonkeyPatch, loops: ModuleType, numbering: ModuleType) -> None:
    for module in USERS:
        monkeypatch.setattr(module, "loops", loops)
    monkeypatch.setattr(distinct, "loops", numbering)


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("interval", [0, 10_000_000])
def test_a_report_is_the_same_uncompiled(monkeypatch, log, interval) -> None:
    # GIVEN a log's report by the compiled loops
    def made() -> object:
        trace = Trace(ROOT / log)
        return make_report(trace, interval=interval, by="process")

    compiled = plainly(made())
    # WHEN it is made by the loops' sources THEN it is the same
    use(monkeypatch, LOOPS, NUMBERING)
    assert plainly(made()) == compiled


def plainly(value: object) -> object:
    """A report as plain values, distributions and arrays too."""
    if isinstance(value, Distribution):
        rows = [part.tolist() for part in value.rows()]
        return (value.count, value.sum, value.min, value.max, rows)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plainly(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plainly(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: plainly(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


@MANY
@given(st.lists(VALUE, max_size=60), st.booleans())
def test_distinct_values_are_those_of_numpy(values: list[int], compiled: bool) -> None:
    # GIVEN values WHEN they are numbered by the loops
    column = np.array(values, np.int64)
    before, distinct.loops = distinct.loops, distinct.loops if compiled else NUMBERING
    try:
        names, rows, of = distinct_values(column)
    finally:
        distinct.loops = before
    # THEN the names, first rows and numbers are numpy's
    found = np.unique(column, return_index=True, return_inverse=True)
    assert [part.tolist() for part in found] == [names.tolist(), rows.tolist(), of.tolist()]


def test_too_many_values_are_numbered_by_numpy() -> None:
    # GIVEN more different values than the loop tells apart
    column = np.arange(distinct._MOST_NAMES + 9)[::-1].copy()
    # WHEN they are numbered THEN each has its own
    names, rows, of = distinct_values(column)
    assert np.array_equal(names[of], column)
    assert np.array_equal(column[rows], names)


@MANY
@given(st.lists(st.tuples(st.integers(0, 4), VALUE), max_size=60), st.booleans(), st.booleans())
def test_grouped_values_are_those_of_sorting(rows, negative, compiled) -> None:
    # GIVEN values of five groups
    codes, values = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    values = np.minimum(values, 1 << 50)
    wanted = [Distribution() for _ in range(5)]
    for code, value in zip(codes.tolist(), values.tolist(), strict=True):
        if negative or value >= 0:
            wanted[code].add(np.array([value]))
    # WHEN all are counted at once
    made = [Distribution() for _ in range(5)]
    before, sketch.loops = sketch.loops, sketch.loops if compiled else LOOPS
    try:
        add_grouped(codes, values, made, negative=negative)
    finally:
        sketch.loops = before
    # THEN each group has its own
    assert plainly(made) == plainly(wanted)


@MANY
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=12), max_size=4),
    st.sampled_from([0, 7, 40]),
    st.integers(0, 3),
)
def test_depths_are_those_of_sorting(windows, interval: int, origin: int) -> None:
    # GIVEN windows of 40 ns with beginnings and ends of I/Os, after the origin
    made: list[Depth] = []
    for update, loops in (
        (Depth._update_sorted, depth.loops),
        (Depth.update, depth.loops),
        (Depth.update, LOOPS),
    ):
        before, depth.loops = depth.loops, loops
        try:
            # WHEN the depth is followed by sorting, compiled and uncompiled
            one = Depth(100 - origin, interval)
            for number, window in enumerate(windows):
                begin = 100 + 40 * number
                times = {way: sorted(begin + at for at, is_up in window if is_up == way)
                         for way in (True, False)}  # fmt: skip
                up, down = (np.array(times[way], np.int64) for way in (True, False))
                update(one, begin, begin + 40, up, down)
        finally:
            depth.loops = before
        made.append(one)
    # THEN all are the same
    assert all(isinstance(span, Span) for span in made[0].spans.values())
    assert plainly(made[0]) == plainly(made[1]) == plainly(made[2])
