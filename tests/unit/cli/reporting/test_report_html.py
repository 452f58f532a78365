# SPDX-License-Identifier: Apache-2.0
"""biotrail report --html: a page with the figures of --json; bounded; safe with any name."""

import hashlib
import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.cli.reporting.page import collect
from biotrail.converters.analysis.distributions.sketch import SUB_BITS, Distribution, bucket_begin
from biotrail.converters.analysis.page import data as html_data
from biotrail.converters.analysis.page import html
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.analysis.report.timeline import MOST_COLUMNS, Timeline
from biotrail.converters.pipeline import Trace
from tests.support import captures
from tests.support.cli_runner import Cli, page_data, page_text
from tests.support.paths import ROOT, SAMPLE
from tests.support.record_command import BIOTRAIL

LIBRARY = ROOT / "converters" / "analysis" / "page" / "echarts" / "echarts.min.js"
LIBRARY_SHA256 = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
MOST_BYTES = 5_000_000
NASTY = (
    '</script><script>document.documentElement.dataset.hit="1"</script><img src=x onerror=alert(1)>'
)


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    return json.loads(json.dumps(collect(lambda: Trace(str(SAMPLE)))))


def told(cli: Cli, *arguments: str | Path) -> dict[str, Any]:
    return json.loads(cli(*arguments).out)


def test_the_page_holds_the_report(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a page of the sample log
    path = tmp_path / "out.html"
    done = cli("report", "--html", path, SAMPLE)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"wrote {path} (")
    # THEN its data is the JSON report, whole
    data = page_data(path)
    assert data["report"] == told(cli, "report", "--blame", "--json", SAMPLE)
    assert data["left_out"] == {}
    # AND its operations are those of all devices, with requests
    by_op = told(cli, "report", "--json", "--by", "op", SAMPLE)["groups"]
    by_op.sort(key=lambda one: -one["ios"])
    of_list = ("time_share", "by_operation")
    by_op = [{k: v for k, v in one.items() if k not in of_list} for one in by_op]
    assert [
        {k: v for k, v in one.items() if k != "requests"} for one in data["operations"]
    ] == by_op
    # AND its slow I/Os those of `biotrail slow`
    slow = told(cli, "slow", "--json", SAMPLE)
    assert data["slow"]["counts"] == slow["counts"]
    assert data["slow"]["slowest"] == len(slow["ios"]) == 20
    for ours, theirs in zip(data["slow"]["ios"][:20], slow["ios"], strict=True):
        assert ours["io"] == theirs["io"]
        assert ours["surroundings"] == theirs["surroundings"]
        assert len(ours["events"]) <= html_data.MOST_EVENTS
        left = ours["events_left_out"] - theirs["events_left_out"]
        assert len(ours["events"]) + left == len(theirs["events"])


def test_each_device_and_operation_has_its_slowest(cli: Cli, sample: dict[str, Any]) -> None:
    # GIVEN the slow I/Os of the page THEN none is there twice
    ios = [slow["io"] for slow in sample["slow"]["ios"]]
    assert len({io["number"] for io in ios}) == len(ios)
    # AND the slowest few of each device and operation are what `biotrail slow` finds
    for device in sample["report"]["devices"]:
        for operation in device["operations"]:
            of = (device["device"], operation["operation"])
            asked = ("--top", "5", "-d", of[0], "--op", of[1])
            slow = told(cli, "slow", "--json", *asked, SAMPLE)["ios"]
            ours = sorted(
                (io for io in ios if (io["device"], io["operation"]) == of),
                key=lambda io: (-io["waited_ns"], io["number"]),
            )
            assert [io["number"] for io in ours[:5]] == [one["io"]["number"] for one in slow]


def test_its_columns_are_intervals_of_the_report(cli: Cli, sample: dict[str, Any]) -> None:
    # GIVEN the page's columns WHEN the report is asked for intervals as long
    line = sample["timeline"]
    assert 1 < line["columns"] <= MOST_COLUMNS
    asked = f"{line['interval_ns'] / 1e3:g}us"
    intervals = told(cli, "report", "--json", "--interval", asked, SAMPLE)["intervals"]
    assert len(intervals) == line["columns"]
    # THEN each device and operation has the same figures in each
    of = {(s["device"], s["operation"]): s for s in line["series"]}
    for column, interval in enumerate(intervals):
        assert of[None, None]["ios"][column] == sum(g["ios"] for g in interval["groups"])
        for group in interval["groups"]:
            series = of[group["device"], group["operation"]]
            assert series["ios"][column] == group["ios"]
            assert series["bytes"][column] == group["bytes"]
            if group["latency"]["count"]:
                for name in ("p50_ns", "p90_ns", "p99_ns", "max_ns"):
                    assert series[name][column] == group["latency"][name]
            assert sum(series["heat"][column][1:]) == group["latency"]["count"]
        for depth in interval["depths"]:
            [ours] = [d for d in line["depths"] if d["device"] == depth["device"]]
            for name in ("queue_mean", "queue_max", "issued_mean", "issued_max"):
                assert ours[name][column] == depth[name], (column, name)


def row_begin(row: int) -> int:
    """The least value (ns) in a row of a heat map."""
    return bucket_begin(((row - 1) << (SUB_BITS - html_data.ROW_BITS)) + 1) if row else 0


def test_rows_of_the_heat_map_and_json_are_harmless() -> None:
    # GIVEN values of all sizes THEN each lies in its row, and rows grow
    for value in [*range(2000), *(3**n for n in range(38)), 2**61]:
        times = Distribution()
        times.add(np.array([value]))
        row, *counts = html_data.heat(times)
        assert counts == [1]
        assert row_begin(row) <= value
        assert value < row_begin(row + 1) or value < 4
    begins = [row_begin(row) for row in range(200)]
    assert begins == sorted(begins)
    # GIVEN text with everything that ends a script, and a lone surrogate
    value = {"a": "</script><!--<script>&]]>\u2028\ud800"}
    text = html_data.as_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


def test_names_are_only_text(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log whose threads, host and devices are named to break out of a page
    log, path = tmp_path / f"{NASTY.replace('/', '_')[:60]}.biotrail", tmp_path / "out.html"
    events = captures.load("fsync-virtio")
    captures.write_log(log, [dict(e, comm=NASTY[:15]) if "comm" in e else e for e in events])
    # WHEN a page is made
    assert cli("report", "--html", path, log).status == 0
    page = path.read_text("utf-8")
    # THEN there are the page's own scripts only, and the names are in the data
    assert len(re.findall(r"<script", page)) == 3 + html._part(html._LIBRARY).count("<script")
    assert "<" not in page_text(path)
    assert NASTY[:15] in [p["process"] for p in page_data(path)["report"]["processes"]]
    # AND the policy allows these scripts by their hash alone, and no network
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy


def test_a_page_is_small_whatever_the_log(sample: dict[str, Any]) -> None:
    # GIVEN all room for data used to the full, and the page's own parts
    own = len(html.page("page", "", {}).encode())
    twice = ("problems", "remarks")
    most = own + sum(html_data.ROOM.values()) + html_data.ROOM["words"] * len(twice) + 50_000
    # THEN that is less than what a page may have
    assert most < MOST_BYTES
    # AND lists keep to their room
    kept, left = html_data.bounded(["x" * 90] * 100, room=1000)
    assert len(html_data.as_json(kept)) <= 1000 and len(kept) + left == 100
    assert html_data.bounded(range(10), room=1000, most=3) == ([0, 1, 2], 7)


def test_what_the_header_says_of_the_host_is_cut(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log whose host and kernel have names without end
    log, path = tmp_path / "a.biotrail", tmp_path / "out.html"
    long = {"host": {"name": "h" * 6_000_000}, "kernel": {"release": "6" * 6_000_000}}
    captures.write_log(log, captures.load("fsync-virtio"), long)
    # WHEN a page is made
    assert cli("report", "--html", path, log).status == 0
    # THEN it is small, and has the beginnings
    assert path.stat().st_size < MOST_BYTES
    told_of = page_data(path)["report"]["log"]
    assert told_of["host"] == "h" * 199 + "…"
    assert told_of["kernel"] == "6" * 199 + "…"


def test_what_does_not_fit_is_counted(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of more devices and processes than a page has, over an hour
    events = [
        dict(event, ns=event["ns"] + n * 51 * 10**9, dev=8 + n, comm=f"task{n}", pid=1000 + n)
        for n in range(70)
        for event in captures.load("fsync-virtio")
        if "dev" in event
    ]
    log, path = captures.write_log(tmp_path / "a.biotrail", events), tmp_path / "out.html"
    # WHEN its page is made
    assert cli("report", "--html", path, log).status == 0
    data, report = page_data(path), told(cli, "report", "--json", log)
    # THEN the page is small, and says how much is not in it
    assert path.stat().st_size < MOST_BYTES
    for name in ("devices", "processes"):
        kept = data["report"][name]
        assert kept == report[name][: len(kept)] and 0 < len(kept) <= html_data.MOST[name]
        assert data["left_out"][name] == len(report[name]) - len(kept) > 0
    # AND what is told of all of them is complete
    assert data["report"]["total"] == report["total"]
    whole = data["timeline"]["series"][0]
    assert (whole["device"], whole["operation"]) == (None, None)
    assert sum(whole["ios"]) == report["total"]["ios"]


def test_the_page_is_private_and_replaces_nothing(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a page
    path = tmp_path / "out.html"
    assert cli("report", "--html", path, SAMPLE).status == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # WHEN it is made again THEN only --force replaces it
    path.write_text("mine")
    done = cli("report", "--html", path, SAMPLE)
    assert done.status == 1 and "--force" in done.err and path.read_text() == "mine"
    assert cli("report", "--force", "--html", path, SAMPLE).status == 0
    assert path.read_text().startswith("<!doctype html>")


def test_some_devices_alone_and_standard_input(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log in a pipe WHEN a page of one of its devices is asked for
    path = tmp_path / "out.html"
    command = [*BIOTRAIL, "report", "-d", "loop1", "--html", path, "-"]
    with SAMPLE.open("rb") as stream:
        subprocess.run(command, stdin=stream, capture_output=True, cwd=ROOT, check=True)
    # THEN it holds the report of that device
    data = page_data(path)
    assert data["report"] == told(cli, "report", "--blame", "--json", "-d", "loop1", SAMPLE)
    assert data["log_name"] == "standard input"
    assert {slow["io"]["device"] for slow in data["slow"]["ios"]} == {"loop1"}


def test_an_empty_log_makes_a_page(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log without events
    log, path = tmp_path / "empty.biotrail", tmp_path / "out.html"
    captures.write_log(log, [])
    # WHEN a page is made THEN it says so with zeros
    assert cli("report", "--html", path, log).status == 0
    data = page_data(path)
    assert data["report"]["total"]["ios"] == 0 and data["timeline"]["columns"] <= 1


def test_the_library_is_as_published() -> None:
    assert hashlib.sha256(LIBRARY.read_bytes()).hexdigest() == LIBRARY_SHA256


def test_times_far_apart_make_wide_columns(tmp_path: Path) -> None:
    # GIVEN a sequence, and the same again a year later
    events = captures.load("fsync-virtio")
    year = 365 * 86_400 * 10**9
    later = [dict(event, ns=event["ns"] + year) for event in events if "ns" in event]
    path = captures.write_log(tmp_path / "long.biotrail", [*events, *later])
    # WHEN it is put in columns THEN there are not too many, and all I/O is in them
    data = collect(lambda: Trace(str(path)))
    line = data["timeline"]
    assert line["columns"] <= MOST_COLUMNS and line["columns"] * line["interval_ns"] >= year
    ios = np.array(line["series"][0]["ios"])
    assert ios.sum() == data["report"]["total"]["ios"] and (ios > 0).sum() == 2


def test_columns_do_not_depend_on_windows() -> None:
    # GIVEN a log in one window, and in many
    lines = []
    for window_events in (1_000_000, 300):
        trace, timeline = Trace(str(SAMPLE)), Timeline()
        reporter = Reporter(trace.context, timeline=timeline)
        for window in trace.lifecycles(window_events):
            reporter.add(window)
        lines.append((timeline, reporter.finish(trace)))
    # WHEN both are put in columns as wide (a window can end after the last event)
    (one, report), (other, _) = lines
    while one.interval < other.interval:
        one._widen()
    assert one.interval == other.interval
    ours, theirs = one.courses(), other.courses()
    # THEN they hold the same
    assert set(ours) == set(theirs)
    for place, course in ours.items():
        width = len(course.ios)
        assert course.ios.tolist() == theirs[place].ios[:width].tolist()
        assert course.bytes.tolist() == theirs[place].bytes[:width].tolist()
        assert {c: (d.sum, d.min, d.max, d.buckets()) for c, d in course.latency.items()} == {
            c: (d.sum, d.min, d.max, d.buckets()) for c, d in theirs[place].latency.items()
        }
    # AND all I/O with a latency is in them
    latencies = [d for course in ours.values() for d in course.latency.values()]
    assert sum(d.count for d in latencies) == report.total.bios.latency.count
    assert sum(d.sum for d in latencies) == report.total.bios.latency.sum
