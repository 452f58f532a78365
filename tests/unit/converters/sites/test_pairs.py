# SPDX-License-Identifier: Apache-2.0
"""Pairs of events from log to figures: tables, choices, intervals, limits, comparison."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.analysis.diff.diff import make_diff, pooled
from biotrail.converters.analysis.distributions.slots import read_slots
from biotrail.converters.analysis.report import pair_figures as figures
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.lifecycles.cutting import Span
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.converters.sites import pair_names
from tests.support.cli_runner import Cli
from tests.support.path_logs import MS
from tests.support.perfetto_check import render
from tests.support.perfetto_make import traced
from tests.support.site_logs import ISSUE, SOFTIRQ, SiteLog
from tests.support.stack_logs import DEV, START

SITES = {"set": "sites", "letters": ["p"]}
SECOND = 1000 * MS


def pairs_of(data: bytes, window_events: int = WINDOW_EVENTS, span: Span | None = None) -> Pairs:
    """All rows of a log's pairs."""
    trace = Trace(io.BytesIO(data))
    if span is not None:
        trace.span = span
    windows = trace.lifecycles(window_events, small=True)
    return Pairs.concatenate([w.sites.pairs for w in windows if w.sites is not None])


def busy(seed: int = 1, factor: float = 1.0, count: int = 2000) -> SiteLog:
    """A log of 2 s: softirqs of two vectors on two CPUs. factor: of the latency of vector 4."""
    rng = np.random.default_rng(seed)
    log = SiteLog(pairs=[SOFTIRQ])
    for n in range(count):
        vector = 4 if n % 2 else 1
        took = int(20_000 * np.exp(0.3 * rng.normal()) * (factor if vector == 4 else 1))
        began = n * 2 * SECOND // count
        log.pair(began, began + took, vector, n % 2, by=vector, cpu=n % 2)
    return log


def written(path: Path, log: SiteLog, number: int = 7) -> Path:
    path.write_bytes(log.data(events=SITES, log_id=f"{number:032x}"))
    return path


Row = tuple[int, int, int, int, int]
"""(began, latency, key, CPU, declared pair)"""


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9), st.integers(0, 10**8), st.integers(0, 3), st.integers(0, 2),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 20),
    st.lists(st.integers(0, 10**9), max_size=4),
)  # fmt: skip
def test_windows_of_any_size_give_the_same_table(
    rows: list[Row], window_events: int, cuts: Sequence[int]
) -> None:
    # GIVEN pairs on several CPUs, in chunks, some beside block I/O
    log = SiteLog()
    for place, (began, took, key, cpu, pair) in enumerate(rows):
        log.pair(began, began + took, key, pair=pair, cpu=cpu, tid=place)
        if key == 3:
            log.bio(began, began + 10)
    data = log.data(cuts)
    # WHEN they are read in windows of any size
    whole, cut = pairs_of(data), pairs_of(data, window_events)
    # THEN the rows are the same, each once, in order of time
    assert len(whole) == len(rows)
    for name in vars(whole):
        assert getattr(whole, name).tolist() == getattr(cut, name).tolist(), name
    assert (np.diff(whole.ended) >= 0).all()
    assert sorted(whole.latency.tolist()) == sorted(row[1] for row in rows)


def test_a_cut_has_the_pairs_that_began_and_ended_in_it() -> None:
    # GIVEN pairs before, across both edges of, and within a cut
    log = SiteLog()
    for began, ended in ((100, 200), (900, 1_100), (1_200, 1_300), (1_900, 2_100), (2_200, 2_300)):
        log.pair(began, ended, began)
    # WHEN that part is read / THEN it has what a recording of this time would have
    found = pairs_of(log.data(), span=Span(START + 1_000, START + 2_000))
    assert found.key0.tolist() == [1_200]


@pytest.mark.parametrize(
    "options, chosen",
    [
        ((), 5),
        (("--comm", "db"), 2),
        (("--comm", "d*"), 3),
        (("--pid", "7"), 1),
        (("--slower-than", "2us"), 2),
        (("-d", "vda"), 2),
        (("--op", "read"), 0),
        (("--failed",), 0),
        (("--comm", "db", "--slower-than", "2us"), 1),
    ],
)
def test_pairs_are_chosen_by_what_their_records_have(
    options: Sequence[str], chosen: int, cli: Cli, tmp_path: Path
) -> None:
    # GIVEN pairs of several threads, two of a device
    log = SiteLog()
    log.pair(0, 1_000, 1, 0, by=1, comm=b"db")
    log.pair(0, 5_000, 4, 0, by=4, comm=b"db")
    log.pair(0, 500, 4, 1, by=4, tid=7, comm=b"dd")
    log.pair(0, 1_500, DEV, 8, pair=1)
    log.pair(0, 2_500, DEV, 16, pair=1)
    path = written(tmp_path / "a.biotrail", log)
    # WHEN some are asked for / THEN the report is of these alone, and says how many they are
    done = cli("report", "--json", *options, path)
    assert sum(pair["time"]["count"] for pair in json.loads(done.out)["pairs"]) == chosen
    text = cli("report", *options, path).out
    assert f"chosen: {chosen} of 5 pairs" in text or not options
    # AND so is a histogram, which is not by outcome
    if not {"--slower-than", "--failed"} & set(options):
        drawn = cli.json("hist", *options, path)["histograms"]
        assert sum(one["count"] for one in drawn) == chosen


def test_intervals_add_up_to_the_whole(cli: Cli, tmp_path: Path) -> None:
    # GIVEN pairs for two seconds
    path = written(tmp_path / "a.biotrail", busy())
    # WHEN a report is made with intervals / THEN each pair is in one of them
    report = cli.json("report", "--interval", "300ms", path)
    counts = [pair["time"]["count"] for one in report["intervals"] for pair in one["pairs"]]
    assert sum(counts) == report["pairs"][0]["time"]["count"] == 2000
    assert len(report["intervals"]) == 7 and report["intervals_left_out"] == 0
    # AND the text has a row for each, CSV a line
    text = cli("report", "--interval", "300ms", path).out
    assert "Pairs over time, 300 ms each" in text
    lines = list(
        csv.DictReader(cli("report", "--csv", "--interval", "300ms", path).out.split("\n"))
    )
    of = [line for line in lines if line["section"] == "pair intervals"]
    assert [int(line["ios"]) for line in of] == counts
    whole = [line for line in lines if line["section"] == "pairs"]
    assert [(line["pair"], line["ios"]) for line in whole] == [("softirq", "2000")]
    groups = {line["by"]: line["ios"] for line in lines if line["section"] == "pair groups"}
    assert groups == {"TIMER": "1000", "BLOCK": "1000"}


def test_values_and_keys_past_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN more values and keys than are kept, the first ones later in sorting order
    monkeypatch.setattr(figures, "MOST_GROUPS", 3)
    monkeypatch.setattr(figures, "MOST_KEYS", 5)
    log = SiteLog(pairs=[SOFTIRQ])
    for n in range(20):
        log.pair(10 * n, 10 * n + 5, 100 - n, by=100 - n)
    for window_events in (1, 7, 100):
        # WHEN a report is made from windows of any size
        trace = Trace(io.BytesIO(log.data()))
        [pair] = make_report(trace, trace.lifecycles(window_events, small=True)).pairs
        # THEN the first that occurred are kept, and the others counted
        assert sorted(group.value for group in pair.groups) == [98, 99, 100]
        assert (pair.groups_left_out, pair.keys_known, pair.keys_left_out) == (17, 5, 15)
        assert pair.time.count == 20


def recorded(log: SiteLog) -> Any:
    return read_slots(Trace(io.BytesIO(log.data(events=SITES))))


def test_slower_pairs_are_found_by_diff() -> None:
    # GIVEN two recordings, in the second of which one vector takes twice as long
    a, b = recorded(busy(1)), recorded(busy(2, factor=2.0))
    # WHEN they are compared / THEN that vector's mean differs, and the other's does not
    diff = make_diff(a, b)
    by = {one.by: one for one in diff.pairs}
    assert diff.pairs[0].by == "" and set(by) == {"", "TIMER", "BLOCK"}
    mean = {name: next(f for f in one.figures if f.name == "mean") for name, one in by.items()}
    assert mean["BLOCK"].differs and 0.8 < (mean["BLOCK"].relative or 0) < 1.2
    assert not mean["TIMER"].differs
    assert by[""].count_a == by[""].count_b == 2000
    # AND a mean is the report's
    trace = Trace(io.BytesIO(busy(1).data(events=SITES)))
    assert mean[""].a == pytest.approx(make_report(trace).pairs[0].time.mean)


def test_sides_of_several_recordings_are_pooled(cli: Cli, tmp_path: Path) -> None:
    # GIVEN three recordings, one of them longer
    logs = [busy(1), busy(2), busy(3, count=500)]
    # WHEN two are compared with one / THEN the side has all pairs
    pool = pooled([recorded(logs[0]), recorded(logs[2])])
    [whole, *_] = make_diff(pool, recorded(logs[1])).pairs
    assert (whole.count_a, whole.count_b) == (2500, 2000)
    # AND the command line says so
    paths = [written(tmp_path / f"{n}.biotrail", log, n) for n, log in enumerate(logs)]
    done = cli("diff", paths[0], paths[2], "--", paths[1])
    assert done.status == 0 and "Pairs of events" in done.out and "no device" not in done.out


def test_a_pair_that_only_one_side_declares_is_not_compared() -> None:
    # GIVEN recordings of different pairs
    other = SiteLog(pairs=[ISSUE])
    other.pair(0, 100, DEV, 8)
    # WHEN they are compared  THEN nothing is
    assert make_diff(recorded(busy()), recorded(other)).pairs == []


def test_perfetto_names_a_bounded_number_of_keys_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN more keys and values of --by than a trace names
    monkeypatch.setattr(pair_names, "MOST_KEYS", 2)
    monkeypatch.setattr(pair_names, "MOST_TEXTS", 4)
    log = SiteLog(pairs=[SOFTIRQ])
    for n in range(8):
        log.pair(100 * n, 100 * n + 50, 20 + n, 3, by=30 + n)
    # WHEN it is drawn, in windows of any size
    for window_events in (1, 100):
        text = render(traced(log.data(), window_events, small=True))
        # THEN the first have their names, and others are there, as numbers
        tracks = [line.strip() for line in text.splitlines() if "vec=" in line or "other" in line]
        assert [name for name in ("vec=20, @cpu=3", "vec=21, @cpu=3") if name in text]
        assert "other keys" in text and tracks
        for n in range(2, 8):
            assert f"key0={20 + n}" in text or f"key0: {20 + n}" in text, text
        assert text.count("softirq") >= 4


def test_a_page_shows_pairs_and_no_empty_block_io(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of pairs alone, with many values of --by
    log = busy(count=40)
    for n in range(60):
        log.pair(n, n + 50, n, by=n)
    path, out = written(tmp_path / "a.biotrail", log), tmp_path / "a.html"
    # WHEN its page is made / THEN it has the pairs, in bounded lists that say what they leave out
    assert cli("report", "--html", out, path).status == 0
    text = out.read_text("utf-8").split('id="data">', 1)[1].split("</script>", 1)[0]
    [pair] = json.loads(text)["report"]["pairs"]
    assert len(pair["groups"]) == 24 and pair["groups_cut"] == 60 - 24
    assert pair["time"]["count"] == 100 and len(pair["slowest_keys"]) == 10
