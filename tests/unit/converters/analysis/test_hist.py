# SPDX-License-Identifier: Apache-2.0
"""Distributions and sums of I/Os: buckets, sketches, and compiled loops beside numpy."""

import itertools
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.distributions import depth, samples, sketch
from biotrail.converters.analysis.distributions.depth import Depth, Span
from biotrail.converters.analysis.distributions.histograms import (
    MOST_COLUMNS,
    Columns,
    Histogram,
    Histograms,
    Measure,
    Question,
    Scale,
)
from biotrail.converters.analysis.distributions.sketch import (
    RELATIVE_ERROR,
    Distribution,
    add_grouped,
)
from biotrail.converters.analysis.figures import SHARES
from biotrail.converters.analysis.report import tails
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events import distinct
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import NEVER, Stage
from biotrail.converters.pipeline import Trace
from biotrail.text import hist as hist_text
from tests.scenarios.tools import join, tables_of
from tests.simulation.delivery import log_of
from tests.simulation.loads import history
from tests.support import captures
from tests.support.both_ways import uncompiled
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT, SAMPLE

# hist: values fall into the right buckets, and look as people know them.


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def test_buckets_are_bccs_and_linear_ones_end() -> None:
    # GIVEN values at the edges of buckets / WHEN they are counted
    scale = Scale()
    slots = scale.slots(ints(0, 1, 2, 3, 4, 7, 8, 1023, 1024, 2**40))
    # THEN 0 and 1 are together, and each power of two begins a bucket
    assert slots.tolist() == [0, 0, 1, 1, 2, 2, 3, 9, 10, 40]
    assert [scale.bounds(s) for s in (0, 1, 2, 10)] == [(0, 1), (2, 3), (4, 7), (1024, 2047)]
    # GIVEN buckets of ten / WHEN a value is beyond all of them / THEN it is in the last
    scale = Scale(10)
    found = scale.slots(ints(0, 9, 10, 10_229, 10_230, 10**9))
    assert found.tolist() == [0, 0, 1, 1022, 1023, 1023]
    assert [scale.bounds(s) for s in (0, 1, 1023)] == [(0, 9), (10, 19), (10_230, None)]


def test_columns_widen_as_time_goes_on() -> None:
    # GIVEN values over a longer and longer time
    rng = np.random.default_rng(7)
    columns, histogram = Columns(1000), Histogram(Scale())
    times: list[int] = []
    for length in (10**6, 10**8, 10**9, 10**11):
        more = 1000 + rng.integers(0, length, 50)
        values = rng.integers(0, 5000, 50)
        at, merged = columns.of(more)
        if merged > 1:
            histogram.merge_columns(min(merged, MOST_COLUMNS))
        histogram.add(values, at)
        times += more.tolist()
    # THEN none is lost, and each is in the column of its time
    assert histogram.cells.sum(axis=1).tolist() == histogram.counts.tolist()
    expected = np.bincount((np.array(times) - 1000) // columns.width, minlength=MOST_COLUMNS)
    assert histogram.cells.sum(axis=0).tolist() == expected.tolist()
    assert columns.used <= MOST_COLUMNS
    assert not histogram.cells[:, columns.used :].any()


@pytest.mark.parametrize("stage", ["Q2C", "D2C", "Q2G", "I2D", "M2D"])
def test_latencies_are_those_of_the_tables(cli: Cli, stage: str) -> None:
    # GIVEN the sample's tables
    trace = Trace(SAMPLE)
    values: dict[str, list[int]] = {}
    for window in trace.lifecycles():
        table, bios = window.bio_stages, window.bios
        for row in range(len(bios)):
            begin, end = int(bios.queue[row]), int(bios.complete[row])
            if NEVER in (begin, end):
                continue
            took: int | None = end - begin
            if stage != "Q2C":
                ours = (table.owner == bios.number[row]) & (table.stage == Stage[stage])
                took = int((table.end - table.start)[ours].sum()) if ours.any() else None
            if took is not None:
                flush = not bios.bytes[row]
                op = "flush" if flush else trace.context.op_name(int(bios.opf[row]))
                values.setdefault(op, []).append(took)
    # WHEN histograms of a stage are asked for / THEN they count what stands there
    found = cli.json("hist", "--stage", stage.lower(), "--in", "ns", SAMPLE)
    assert {h["operation"] for h in found["histograms"]} == set(values)
    for histogram in found["histograms"]:
        expected = values[histogram["operation"]]
        assert (histogram["count"], histogram["total"]) == (len(expected), sum(expected))
        assert histogram["max"] == max(expected)
        for bucket in histogram["buckets"]:
            inside = [v for v in expected if bucket["from"] <= v <= bucket["to"]]
            assert bucket["count"] == len(inside)


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("seed", range(12))
def test_windows_do_not_matter(measure: Measure, seed: int) -> None:
    # GIVEN a block layer at work, nothing of it lost
    log = history(random.Random(seed), size=4)
    if log.losses or {r for r in log.records if r.letter in log.kernel.seen} - log.recorded:
        log.window_events = 1 << 20
    # WHEN it is read in small windows and in one / THEN the same is counted
    counted = []
    for size in (log.window_events, 1 << 20):
        trace = Trace(log_of(log))
        found = Histograms(trace.context, Choice(trace.context), Question(measure))
        for window in trace.lifecycles(size):
            found.add(window)
        counted.append({k: (g.counts.tolist(), g.total) for k, g in found.groups.items()})
    assert counted[0] == counted[1]


def test_depth_is_what_every_pair_says() -> None:
    # GIVEN captured sequences
    for path in sorted(captures.DATA.glob("*.txt")):
        events = captures.load(path.stem)
        bios = tables_of(events).bios
        expected, found = Counter[int](), Counter[int]()
        for queue, dev in zip(bios.queue.tolist(), bios.dev.tolist(), strict=True):
            if queue == NEVER:
                continue
            here = (bios.dev == dev) & (bios.queue <= queue)
            depth = int((here & ((bios.complete > queue) | (bios.complete == NEVER))).sum())
            expected[depth] += 1
        # WHEN the depth at each queueing is counted
        tables = tables_of(events)
        question = Question(Measure.DEPTH, scale=Scale(1))
        distribution = Histograms(tables.context, Choice(tables.context), question)
        for window in join(tables.windows, tables.context, tables.account).windows:
            distribution.add(window)
        for group in distribution.groups.values():
            found.update(dict(enumerate(group.counts.tolist())))
        # THEN it is what every pair of I/Os says
        assert found == expected, path.stem


def test_sizes_choices_and_unknown_devices(cli: Cli) -> None:
    # GIVEN the sample / WHEN sizes are asked for, of one operation
    found = cli.json("hist", "--size", "--op", "read", "-d", "loop1", SAMPLE)
    # THEN only that is counted
    assert [(h["device"], h["operation"]) for h in found["histograms"]] == [("loop1", "read")]
    assert found["unit"] == "Kbytes"
    assert {b["from"] for b in found["histograms"][0]["buckets"]} == {0, 4, 128}
    # GIVEN a device that the log does not have / WHEN it is asked for / THEN that is said
    done = cli("hist", "-d", "9:9", SAMPLE)
    assert (done.status, "no device 9:9" in done.err) == (1, True)


def test_a_heat_map_has_all_that_its_histogram_has(cli: Cli) -> None:
    # GIVEN the sample / WHEN a heat map is asked for
    found = cli.json("hist", "--heatmap", SAMPLE)
    # THEN its cells add up to the buckets
    assert found["columns"]["width_ns"] > 0
    for histogram in found["histograms"]:
        sums = Counter[int]()
        for cell in histogram["cells"]:
            sums[cell["from"]] += cell["count"]
        assert sums == {b["from"]: b["count"] for b in histogram["buckets"]}
    # AND in a pipe it is plain ASCII
    text = cli("hist", "--heatmap", SAMPLE).out
    assert "each column is" in text
    assert text.replace("µ", "").isascii()
    assert "\x1b" not in text


def test_a_terminal_gets_colours_or_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    # WHEN shades are chosen / THEN they are colours
    assert "\x1b[48;5;226m" in hist_text.shaded(hist_text.shades(), [0, 1, 10], 10)
    # AND characters where no colours are wanted
    monkeypatch.setenv("NO_COLOR", "1")
    row = hist_text.shaded(hist_text.shades(), [0, 1, 10], 10)
    assert row in (" ░█", " .@")
    counts = [0, 1, 10, 100, 1000]
    assert hist_text.shaded(list(hist_text.BLOCKS), counts, 1000) == " ░▒▓█"


def test_one_pass_is_enough_for_a_pipe(cli: Cli, tmp_path: Path) -> None:
    # GIVEN an empty log / WHEN it is read / THEN a line says that there is nothing
    empty = captures.write_log(tmp_path / "empty.biotrail", [])
    for options in ((), ("--size",), ("--depth",), ("--heatmap",)):
        done = cli("hist", *options, empty)
        assert (done.status, done.out[:6]) == (0, "no I/O"), options
        assert cli.json("hist", *options, empty)["histograms"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        ("--stage", "Q2X"),
        ("--size", "--depth"),
        ("--size", "--stage", "D2C"),
        ("--linear", "soon"),
        ("--linear", "0"),
        ("--linear", "9" * 400),
        ("--depth", "--linear", "9" * 40),
        ("--linear", "1500ns"),
        ("--size", "--linear", "100"),
        ("--depth", "--linear", "1ms"),
        ("--in", "bytes"),
        ("--size", "--in", "ms"),
        ("--op", "reed"),
    ],
)
def test_wrong_usage(cli: Cli, wrong: tuple[str, ...]) -> None:
    # GIVEN options that say nothing / WHEN they are used / THEN it is a usage error
    done = cli("hist", *wrong, SAMPLE)
    assert done.status == 2, done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize("step", ["1us", "50us", "55us", "100us", "250us", "700us", "1.1ms"])
def test_every_whole_step_is_taken(cli: Cli, step: str) -> None:
    # GIVEN a step of whole microseconds, which a float of seconds cannot always hold
    width = round(float(step[:-2]) * (1000 if step.endswith("ms") else 1))
    # WHEN it is the width of buckets  THEN each is as wide as that
    done = cli.json("hist", "--linear", step, SAMPLE)
    buckets = [bucket for one in done["histograms"] for bucket in one["buckets"]]
    assert {b["to"] - b["from"] for b in buckets if b["to"] is not None} == {width - 1}


@pytest.mark.parametrize(("what", "words"), [("I/O", "1 to 3 I/Os"), ("pair", "1 to 3 pairs")])
def test_a_heat_map_says_what_it_counts(what: str, words: str) -> None:
    # GIVEN shades up to 3 WHEN they are explained THEN what is counted has its name
    assert hist_text.legend(list(" .:@"), 3, what).endswith(words)


# Distributions beside what numpy finds exactly.

MANY = settings(max_examples=150, deadline=None)
value = st.one_of(
    st.integers(0, 300),
    st.integers(0, 10**7),
    st.integers(0, 1 << 52),
    st.sampled_from([0, 1, 127, 128, 255, 256, 511, 512, (1 << 40) - 1, 1 << 40]),
)
values = st.lists(value, min_size=1, max_size=400)


def counted(numbers: list[int]) -> Distribution:
    made = Distribution()
    made.add(np.array(numbers, dtype=np.int64))
    return made


def exact(numbers: list[int], share: float) -> int:
    """The smallest value that at least this share of all do not pass."""
    ranks = np.sort(np.array(numbers, dtype=np.int64))
    return int(ranks[max(math.ceil(share * len(ranks) - 1e-9), 1) - 1])


def state(of: Distribution) -> tuple[object, ...]:
    return of.count, of.sum, of.min, of.max, of.buckets()


@MANY
@given(values)
def test_percentiles_are_within_the_error_that_is_told(numbers: list[int]) -> None:
    # GIVEN any values WHEN they are counted
    made = counted(numbers)
    shares = [0.0, *SHARES, 1.0]
    # THEN each percentile is as near to the exact one as promised
    for share, found in zip(shares, made.percentiles(shares), strict=True):
        true = exact(numbers, share)
        assert abs(found - true) <= true * RELATIVE_ERROR, (share, found, true)
    # AND from below, at most twice as far
    for share, found in zip(shares, made.percentiles(shares, low=True), strict=True):
        true = exact(numbers, share)
        assert true * (1 - 2 * RELATIVE_ERROR) <= found <= true
    # AND the rest is exact
    assert (made.count, made.sum) == (len(numbers), sum(numbers))
    assert (made.min, made.max) == (min(numbers), max(numbers))
    assert made.mean == sum(numbers) / len(numbers)


@MANY
@given(st.lists(values, min_size=1, max_size=5), st.randoms())
def test_parts_add_up_in_any_order(parts: list[list[int]], random: object) -> None:
    # GIVEN values in parts, and all of them in another order
    whole = [number for part in parts for number in part]
    random.shuffle(whole)  # type: ignore[attr-defined]
    # WHEN the parts are counted one by one, and merged
    merged = Distribution()
    for part in parts:
        merged.merge(counted(part))
    one_by_one = Distribution()
    for part in parts:
        one_by_one.add(np.array(part, dtype=np.int64))
    # THEN both are what counting all at once gives
    assert state(merged) == state(one_by_one) == state(counted(whole))


@MANY
@given(values)
def test_powers_of_two_are_exact(numbers: list[int]) -> None:
    # GIVEN any values WHEN they are shown by powers of two
    rows = counted(numbers).log2()
    # THEN each row holds what is in it, and all rows hold all
    for begin, end, count in rows:
        assert sum(begin <= number < end for number in numbers) == count > 0
    assert sum(count for *_, count in rows) == len(numbers)


def test_nothing_is_zeros_and_less_than_nothing_is_nothing() -> None:
    made = Distribution()
    made.add(np.zeros(0, dtype=np.int64))
    assert (made.mean, made.percentiles(SHARES), made.buckets()) == (0.0, [0] * 4, [])
    made.add(np.array([-5, 5]))
    assert (made.min, made.max, made.sum) == (0, 5, 5)


# Sums of I/Os by compiled loops, by their sources uncompiled, and by numpy: all the same.

LOOPS = uncompiled("converters/analysis/distributions/sum_loops.py")
NUMBERING = uncompiled("converters/events/distinct_loops.py")
LOGS = ("biotrail/data/demo.biotrail", "tests/data/calls/ext4-on-loop.biotrail")
VALUE = st.integers(-3, 1 << 40) | st.integers(-(1 << 63), (1 << 62))


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("interval", [0, 10_000_000])
def test_a_report_is_the_same_uncompiled(monkeypatch, log, interval) -> None:
    # GIVEN a log's report by the compiled loops
    def made() -> object:
        trace = Trace(ROOT / log)
        return make_report(trace, interval=interval, by="process")

    compiled = plainly(made())
    # WHEN it is made by the loops' sources THEN it is the same
    for module in (sketch, depth, samples, tails):
        monkeypatch.setattr(module, "loops", LOOPS)
    monkeypatch.setattr(distinct, "loops", NUMBERING)
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
    with patch.object(distinct, "loops", distinct.loops if compiled else NUMBERING):
        names, rows, of = distinct_values(column)
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
    # WHEN all are counted at once / THEN each group has its own
    made = [Distribution() for _ in range(5)]
    with patch.object(sketch, "loops", sketch.loops if compiled else LOOPS):
        add_grouped(codes, values, made, negative=negative)
    assert plainly(made) == plainly(wanted)


def follow_sorted(one: Depth, begin: int, end: int, up: Any, down: Any) -> None:
    """Does as Depth.update, by sorting all times and the intervals' edges."""
    edges = np.arange(one.origin, end, one.interval) if one.interval else np.zeros(0, np.int64)
    edges = edges[edges >= begin]
    at = np.concatenate([[begin], down, up, edges])
    steps = [[0], np.full(len(down), -1), np.ones(len(up)), np.zeros(len(edges))]
    # The sort is stable: an I/O that ends when another one begins is not in flight any more.
    order = np.argsort(at, kind="stable")
    at, step = at[order], np.concatenate(steps).astype(np.int64)[order]
    level = one._level + np.cumsum(step)
    one.met.add(level[step > 0] - 1)
    one._level, level = int(level[-1]), np.maximum(level, 0)
    lasts = np.diff(at, append=max(end, int(at[-1])))
    place = (at - one.origin) // max(one.interval, 1)
    spans = [(one.whole, at >= begin)]
    if one.interval:
        spans += [(one.spans.setdefault(n, Span()), place == n) for n in np.unique(place).tolist()]
    for span, mine in spans:
        depth_ns, busy = (level * lasts)[mine].sum(), lasts[mine & (level > 0)].sum()
        span.add(int(lasts[mine].sum()), int(depth_ns), int(busy), int(level[mine].max()))


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
        (follow_sorted, depth.loops),
        (Depth.update, depth.loops),
        (Depth.update, LOOPS),
    ):
        # WHEN the depth is followed by sorting, compiled and uncompiled
        one = Depth(100 - origin, interval)
        with patch.object(depth, "loops", loops):
            for begin, window in zip(itertools.count(100, 40), windows):
                up, down = (
                    np.array(sorted(begin + at for at, is_up in window if is_up == way), np.int64)
                    for way in (True, False)
                )
                update(one, begin, begin + 40, up, down)
        made.append(one)
    # THEN all are the same
    assert all(isinstance(span, Span) for span in made[0].spans.values())
    assert plainly(made[0]) == plainly(made[1]) == plainly(made[2])


def test_times_of_damaged_records_make_no_intervals() -> None:
    # GIVEN an I/O that ends days after the window in which it is said to end
    one = Depth(0, 10)
    # WHEN the depth is followed THEN it is in flight until the window's end, in its intervals alone
    one.update(0, 100, np.array([50]), np.array([10**15]))
    assert (one.whole.depth_ns, max(one.spans)) == (50, 10)
