# SPDX-License-Identifier: Apache-2.0
"""Parts of a log: whole I/Os, whatever the windows are, and counters that are right within."""

import io
from bisect import bisect_right

import pytest

from biotrail.converters.analysis.choosing.select import around, excerpt
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.pipeline import Trace
from tests.support.paths import ROOT
from tests.support.perfetto_check import read

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
MS = 1_000_000


def test_times_that_touch_are_one() -> None:
    # GIVEN times / WHEN a margin is added / THEN what overlaps is one, in order
    assert around([(50, 60), (10, 20), (35, 40)], 8) == [(2, 68)]
    assert around([(50, 60), (10, 20)], 8) == [(2, 28), (42, 68)]
    assert around([], 8) == []


def spans() -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Two times of the sample, and all of its bios as (number, begin, end)."""
    trace = Trace(SAMPLE)
    bios = []
    for window in trace.lifecycles():
        table = window.bios
        bios += zip(
            table.number.tolist(), table.queue.tolist(), table.complete.tolist(), strict=True
        )
    first = trace.account.first_ns
    return [(first + 300 * MS, first + 320 * MS), (first + 1100 * MS, first + 1130 * MS)], bios


@pytest.mark.parametrize("window", [50, 700, 1 << 20])
def test_what_was_under_way_is_there_whole(window: int) -> None:
    # GIVEN two times of a log
    times, bios = spans()
    trace = Trace(SAMPLE)
    out = io.BytesIO()
    # WHEN these are drawn, from windows of any size
    convert(excerpt(trace.lifecycles(window), times), trace.context, out)
    # THEN the trace is sound
    found = read(out.getvalue())
    drawn = {s.args["number"]: s for s in found.slices("bio")}
    # AND everything that was under way then is there, from its beginning to its end
    sure = {n: (b, e) for n, b, e in bios if b >= 0 and e >= 0}
    expected = {n for n, (b, e) in sure.items() if any(b <= y and e >= x for x, y in times)}
    assert expected == set(drawn) & set(sure)
    assert 0 < len(expected) < len(sure) / 2
    for number in expected:
        assert (drawn[number].start, drawn[number].end) == sure[number]


@pytest.mark.parametrize("window", [50, 700, 1 << 20])
def test_counters_are_right_within_the_times(window: int) -> None:
    # GIVEN the counters of a whole log, and of an excerpt
    times, _ = spans()
    whole, part = Trace(SAMPLE), Trace(SAMPLE)
    outs = io.BytesIO(), io.BytesIO()
    convert(whole.lifecycles(), whole.context, outs[0])
    convert(excerpt(part.lifecycles(window), times), part.context, outs[1])
    found = [read(out.getvalue()) for out in outs]
    # WHEN they are looked at within the chosen times / THEN both say the same
    for name in ("queued", "in device"):
        counters = [trace.counter(name) for trace in found]
        for begin, end in times:
            for at in range(begin, end, MS // 4):
                values = [value_at(samples, at) for samples in counters]
                assert values[0] == values[1], (name, at - begin)


def value_at(samples: list[tuple[int, float]], at: int) -> float:
    place = bisect_right(samples, (at, float("inf")))
    return samples[place - 1][1] if place else 0.0
