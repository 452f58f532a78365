# SPDX-License-Identifier: Apache-2.0
"""Latencies in doubt: in no figure of any output, counted beside them, and taken in on demand.

tests/data/ftrace/not-told-lost.txt has three reads of which two, at one place at once, differ by 10
µs, and three writes: one is whole; of two at one place a completion is missing, and the one that is
there may end either (80.001002 s or 1002 µs).
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.measuring.live_model import figures
from biotrail.cli.reporting.page import collect
from biotrail.converters.analysis.figures import as_json as snapshot_dict
from biotrail.converters.analysis.live.live import Live
from biotrail.converters.analysis.live.totals import Totals
from biotrail.converters.analysis.stacks.stacks import StackTable
from biotrail.converters.pipeline import Trace
from biotrail.text.record.lines import Json, Text
from tests.support.cli_runner import Cli
from tests.support.paths import DATA

LOG = DATA / "ftrace" / "not-told-lost.txt"
DOUBTFUL = 80_001_002_000
"""ns: the latency in doubt."""
KNOWN = 1_002_000
"""ns: the latency of the other write."""
MEAN = (DOUBTFUL + KNOWN) / 2
INCLUDE = "--include-ambiguous"
SAID = "1 of 2 latencies"


def found(told: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths of numbers that are the latency in doubt, or a stage of it."""
    if isinstance(told, dict):
        for key, value in told.items():
            yield from found(value, *path, str(key))
    elif isinstance(told, list):
        for value in told:
            yield from found(value, *path)
    elif isinstance(told, int | float) and not isinstance(told, bool):
        of = {"ns": 1, "us": 1e3, "ms": 1e6}
        if any(abs(told * unit - DOUBTFUL) < 10_000 for unit in of.values()):
            yield path


def unmarked(told: Any) -> list[tuple[str, ...]]:
    """Paths of the latency in doubt without a key that says so. Depths have bounds of their own."""
    beside = ("doubtful", "depth")
    return [path for path in found(told) if not any(word in key for key in path for word in beside)]


def windows(**how: bool) -> tuple[Trace, list[Any]]:
    trace = Trace(str(LOG), **how)
    return trace, list(trace.lifecycles())


def snapshot(**how: bool) -> dict[str, Any]:
    """What `top --json` shows of the log."""
    trace, read = windows(**how)
    live = Live(trace.context, 10**12)
    for window in read:
        live.add(window)

    class Source:
        lost_records, skipped_ns = 0, 0

    return snapshot_dict(live.snapshot(Source(), last=True))  # type: ignore[arg-type]


def printed(**how: bool) -> list[dict[str, Any]]:
    """What `record --print --json` prints of the log."""
    trace, read = windows(**how)
    lines = Json(trace.context)
    return [json.loads(line) for window in read for line in lines.ios(window, window.bios)]


def page(**how: bool) -> dict[str, Any]:
    """What a report's page has."""
    return collect(lambda: Trace(str(LOG), **how))


COMMANDS = {
    "report": ("report", "--json"),
    "report-by": ("report", "--json", "--by", "process", "--interval", "1s"),
    "slow": ("slow", "--json"),
    "hist": ("hist", "--json"),
    "hist-stage": ("hist", "--json", "--stage", "D2C", "--heatmap"),
    "diff": ("diff", "--json", LOG),
    "info": ("info", "--json"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_json_has_it_unmarked(cli: Cli, name: str) -> None:
    # GIVEN a log with a latency in doubt WHEN a command prints JSON of it
    done = cli(*COMMANDS[name], LOG)
    # THEN no figure is that latency, and it is said that one is left out
    assert done.status == 0
    told = json.loads(done.out)
    assert not unmarked(told)
    assert '"doubtful": 1' in done.out or '"doubtful_a": 1' in done.out or name == "info"


@pytest.mark.parametrize("name", ["report", "report-by", "slow", "hist", "hist-stage", "diff"])
def test_every_json_has_it_on_demand(cli: Cli, name: str) -> None:
    # GIVEN the log WHEN latencies in doubt are to be taken in
    told = json.loads(cli(*COMMANDS[name], INCLUDE, LOG).out)
    # THEN it is a figure like any other, and nothing is said to be left out
    assert not any("doubtful" in key for path in found(told) for key in path)
    assert unmarked(told) or "hist" in name  # a histogram has but its bucket and µs
    assert '"doubtful": 1' not in json.dumps(told)


@pytest.mark.parametrize("make", [snapshot, printed, page])
def test_nothing_else_has_it_unmarked(make: Any) -> None:
    # GIVEN the log WHEN it is shown live, printed or drawn
    # THEN the latency in doubt is no figure, but on demand it is
    assert not unmarked(make())
    assert unmarked(make(include_ambiguous=True))


def test_a_report_counts_it_and_says_what_it_would_change(cli: Cli) -> None:
    # GIVEN the log WHEN it is reported
    told = json.loads(cli("report", "--json", LOG).out)
    [device] = told["devices"]
    read, write = sorted(device["operations"], key=lambda one: one["operation"])
    # THEN reads whose ends may be exchanged but for 10 µs all count
    assert (read["ended"], read["doubtful"], read["latency"]["count"]) == (3, 0, 3)
    assert "with_doubtful" not in read["latency"]
    # AND of the writes one does; the other one is beside them
    for of, mean in ((write, MEAN), (write["requests"], MEAN - 1000)):
        latency = of["latency"]
        assert (of["ended"], of["doubtful"], latency["count"]) == (2, 1, 1)
        assert latency["with_doubtful"]["count"] == 2
        assert latency["with_doubtful"]["mean_ns"] == pytest.approx(mean, abs=1001)
        assert latency["with_doubtful"]["p99_ns"] == pytest.approx(DOUBTFUL, rel=1 / 256)
    assert write["latency"]["mean_ns"] == KNOWN
    stages = {stage["stage"]: stage for stage in write["stages"]}
    assert (stages["D2C"]["count"], stages["D2C"]["max_ns"]) == (1, KNOWN - 2000)
    # AND the verdict says so, and is made of what is known
    said = {one["rule"]: one for one in told["verdict"]}
    assert said["main-part"]["figures"]["operation"] == "read"
    assert said["in-doubt"]["figures"] == {
        "device": "8:0",
        "operation": "write",
        "count": 1,
        "of": 2,
        "share": 0.5,
        "doubtful": 1,
        "with_doubtful_mean_ns": MEAN,
    }
    assert not any(tail["operation"] == "write" for tail in told.get("tails", []))


def test_a_report_as_text_and_csv(cli: Cli) -> None:
    # GIVEN the log WHEN it is reported THEN text and CSV say what the JSON does
    text = cli("report", LOG).out
    assert "1 of 5 latencies of bios is in doubt (several I/Os fit one completion)" in text
    assert "with it in: mean 16 s, p99 80 s; --include-ambiguous takes it in" in text
    assert "1 (40 s, 80 s)" in text and "without 1 of 5 bios and 1 of 5 requests: in doubt" in text
    rows = list(csv.DictReader(cli("report", "--csv", LOG).out.splitlines()))
    [write] = [
        row
        for row in rows
        if (row["section"], row["operation"], row["of"], row["stage"])
        == ("devices", "write", "bios", "Q2C")
    ]
    assert (write["count"], write["doubtful"], write["mean_ns"]) == ("1", "1", f"{KNOWN}.0")
    assert float(write["mean_with_doubtful_ns"]) == MEAN
    # AND with it in, that is said, and nothing of doubt
    text = cli("report", INCLUDE, LOG).out
    assert "latencies in doubt count as known (--include-ambiguous)" in text
    assert "is in doubt" not in text and "40 s" in text


def test_the_slowest_leave_it_out(cli: Cli) -> None:
    # GIVEN the log WHEN the slowest are listed THEN it is not among them, and counted
    told = json.loads(cli("slow", "--json", LOG).out)
    assert told["counts"]["doubtful"] == 1 and told["counts"]["matching"] == 4
    assert max(one["io"]["latency_ns"] for one in told["ios"]) == KNOWN
    assert SAID.replace("2", "5") in cli("slow", LOG).out
    # AND on demand it is the first
    told = json.loads(cli("slow", "--json", INCLUDE, LOG).out)
    assert told["ios"][0]["io"]["latency_ns"] == DOUBTFUL and told["counts"]["doubtful"] == 0
    assert "#1  80 s" in cli("slow", INCLUDE, LOG).out


def test_histograms_leave_it_out(cli: Cli) -> None:
    # GIVEN the log WHEN its latencies are drawn THEN it is in no bucket, but in a line below
    text = cli("hist", LOG).out
    assert f"avg = {KNOWN // 1000} usecs, max = {KNOWN // 1000} usecs, count: 1" in text
    assert SAID in text and "with it in: mean 40 s, p99 80 s" in text
    _, write = json.loads(cli("hist", "--json", LOG).out)["histograms"]
    assert (write["count"], write["doubtful"]) == (1, 1)
    assert write["with_doubtful"] == {"count": 2, "mean_ns": MEAN, "p99_ns": DOUBTFUL}
    # AND a histogram of it alone has nothing but that line
    alone = cli("hist", "--comm", "a", LOG).out
    assert "usecs" not in alone and "1 of 1 latency is in doubt" in alone
    # AND on demand it has its bucket
    assert f"max = {DOUBTFUL // 1000} usecs, count: 2" in cli("hist", INCLUDE, LOG).out


def test_a_comparison_says_it_of_both_sides(cli: Cli) -> None:
    # GIVEN the log twice WHEN it is compared THEN both sides' counts are said
    told = json.loads(cli("diff", "--json", LOG, LOG).out)
    [device] = told["devices"]
    write = next(one for one in device["operations"] if one["operation"] == "write")
    assert (write["doubtful_a"], write["doubtful_b"]) == (1, 1)
    assert write["with_doubtful_a"]["mean_ns"] == MEAN
    text = cli("diff", LOG, LOG).out
    assert f"A: {SAID} of write is in doubt" in text and f"B: {SAID} of write is in doubt" in text


@pytest.mark.parametrize(("more", "chosen"), [((), 0), ((INCLUDE,), 1)])
def test_a_latency_in_doubt_makes_nothing_slow(
    cli: Cli, more: tuple[str, ...], chosen: int
) -> None:
    # GIVEN the log WHEN I/Os slower than a second, which ended, are chosen
    told = json.loads(cli("report", "--json", "--slower-than", "1s", *more, LOG).out)
    # THEN the one in doubt is not, but on demand
    assert told["total"]["ended"] == chosen


def test_metrics_stacks_and_printed_lines_do_not_weigh_it() -> None:
    # GIVEN the log WHEN the model's figures are served of it
    trace, read = windows()
    totals = Totals(trace.context)
    for window in read:
        totals.add(window)
    served = {one.operation: one for one in (figures(group) for group in totals.groups())}
    # THEN its histogram has the known one, and it is counted
    write = served["write"]
    assert (sum(write.latency.counts), write.latency.sum_ns, write.doubtful) == (1, KNOWN, 1)
    assert served["read"].doubtful == 0
    # GIVEN the log's I/O by call stack WHEN it is added up
    trace, read = windows()
    table = StackTable(trace.context)
    for window in read:
        table.add(window)
    # THEN the thread has its bios, without a latency
    [of] = [one for one in table.callers() if one.comm == "a"]
    assert (of.bios, of.ended, of.doubtful, of.latency_ns) == (2, 0, 1, 0)
    # GIVEN the log WHEN its I/Os are printed as they end
    trace, read = windows()
    lines = [x for w in read for x in Text(trace.context, trace.start).ios(w, w.bios)]
    # THEN the line of the one in doubt has no latency
    [line] = [x for x in lines if " 1000 " in x and " a " in x and "[ambiguous]" in x]
    assert line.split()[-2] == "-"


def test_info_says_how_many_are_in_doubt(cli: Cli) -> None:
    # GIVEN the log WHEN it is described THEN its latencies in doubt are counted
    assert "the latency of 1 bio and of 1 request is in doubt" in cli("info", LOG).out
    told = json.loads(cli("info", "--json", LOG).out)
    assert told["account"]["doubtful"] == {"bios": 1, "requests": 1}


def test_the_page_marks_it(tmp_path: Path) -> None:
    # GIVEN the log WHEN its page's data is made THEN the tables and the list have its counts
    data = page()
    assert data["slow"]["counts"]["doubtful"] == 1
    assert data["report"]["total"]["latency"]["with_doubtful"]["count"] == 5


def test_a_fleet_counts_it(cli: Cli) -> None:
    # GIVEN the log as a fleet's only one WHEN it is reported
    pytest.importorskip("distributed")
    told = json.loads(cli("fleet", "report", "--workers", "1", "--json", LOG).out)
    # THEN it is in no figure, and counted
    assert not unmarked(told)
    assert told["total"]["total"]["doubtful"] == 1
