# SPDX-License-Identifier: Apache-2.0
"""The report's page in a real browser: no error, no network, and the JSON's numbers in the DOM."""

import html.parser
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.causes import FLOOD
from tests.scenarios.stacks import FOUR_LEVELS
from tests.scenarios.tools import devices_with, events_of
from tests.support import captures, file_logs
from tests.support.chromium import (
    SAMPLE,
    Figures,
    at,
    browse,
    check,
    make,
    visit,
    with_script,
)
from tests.support.path_logs import MS, PathLog
from tests.support.paths import ROOT
from tests.support.record_command import in_json
from tests.support.stack_logs import DEV, START

pytestmark = pytest.mark.xdist_group("the sample's page")

LEAST_FIGURES = 200
DIVISION = "share of the calls' time by part"
"""Label of the chart of system calls."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(SAMPLE, tmp_path_factory.mktemp("page") / "sample.html")


@pytest.fixture(scope="module")
def visited(page: Path) -> Callable[[str], Figures]:
    """What a browser makes of the sample's page, by what is chosen in its address."""
    return cache(partial(visit, page))


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    told: dict[str, Any] = in_json("report", "--blame", SAMPLE)
    return told


def test_the_numbers_shown_are_those_of_the_json(
    visited: Callable[[str], Figures], report: dict[str, Any]
) -> None:
    # GIVEN the page of the sample log WHEN a browser opens it without any network
    found = visited("")
    # THEN its figures are the report's, of every list
    check(found, report)
    shown = {path.split(".")[0] for path, *_ in found.figures}
    assert shown >= {
        "total",
        "operations",
        "devices",
        "processes",
        "cgroups",
        "cpus",
        "slow",
        "blame",
    }
    assert len(found.figures) > LEAST_FIGURES
    # AND charts are drawn, one of them on a canvas
    assert found.tags.count("svg") >= 8 and found.tags.count("canvas") >= 1
    # AND it says that the log was recorded with a filter, and what its figures say
    assert "recorded with filters: -d loop1" in found.text
    assert report["verdict"][0]["sentence"] in found.text
    # AND of a log without the path there is no card of calls
    assert DIVISION not in found.labels
    assert not [p for p, *_ in found.figures if p.startswith("calls.") or ".completions." in p]


@pytest.mark.parametrize(
    ("choice", "path"),
    [
        ("device=loop1&theme=dark", "devices.0.total"),
        ("device=loop1&operation=read", "devices.0.operations.1"),
        ("operation=write", "operations.0"),
    ],
)
def test_what_is_chosen_is_shown(
    visited: Callable[[str], Figures], report: dict[str, Any], choice: str, path: str
) -> None:
    # GIVEN a device, an operation or both in the page's address WHEN it is opened
    found = visited(choice)
    # THEN the summary is of these
    check(found, report)
    [ios] = [value for one, value, *_ in found.figures[:1] if one == f"{path}.ios"]
    assert int(ios) == at(found.data, path)["ios"]
    assert found.root["data-theme"] == ("dark" if "dark" in choice else "light")


def test_an_operation_shows_what_was_in_flight_of_it(visited: Callable[[str], Figures]) -> None:
    # GIVEN a device and an operation in the page's address WHEN it is opened
    found = visited("device=loop1&operation=read")
    # THEN its summary has the operation's depth and active time, not the whole device's
    mine, device = "devices.0.operations.1.depth.queue", "devices.0.depth.queue"
    summary = [path for path, *_ in found.figures[:30]]
    for name in ("mean", "max", "active_ns", "idle_ns"):
        assert f"{mine}.{name}" in summary
        assert f"{device}.{name}" not in summary
    assert at(found.data, f"{mine}.active_ns") < at(found.data, f"{device}.active_ns")
    # AND of an operation of all devices there is none
    every = [path for path, *_ in visited("operation=write").figures]
    assert not [path for path in every if path.startswith("operations.") and "depth" in path]


def test_rates_of_the_last_column_are_by_its_actual_length(page: Path, tmp_path: Path) -> None:
    # GIVEN the page, and a script that asks for the length of each column
    asked = "[...Array(timeline.columns).keys()].map(secondsIn)"
    script = f"root.dataset.seconds = JSON.stringify({asked});"
    # WHEN it is opened
    found = visit(with_script(page, tmp_path / "asked.html", script))
    # THEN each column has a column's length, and the last one ends with the log
    line, span = found.data["timeline"], found.data["report"]["time"]["span_ns"]
    *whole, last = json.loads(found.root["data-seconds"] or "")
    assert whole == [line["interval_ns"] / 1e9] * (line["columns"] - 1)
    rest_ns = span - len(whole) * line["interval_ns"]
    assert last == pytest.approx(max(rest_ns, line["interval_ns"] / 10) / 1e9)
    assert last < whole[0]


def test_names_run_nothing(tmp_path: Path) -> None:
    # GIVEN a log whose threads are named as markup
    name = "</script><img>"
    events = captures.load("fsync-virtio")
    log = captures.write_log(
        tmp_path / "named.biotrail", [dict(e, comm=name) if "comm" in e else e for e in events]
    )
    # WHEN its page is opened THEN the name is text
    found = visit(make(log, tmp_path / "named.html"))
    assert "img" not in found.tags
    assert name in found.text


@pytest.mark.parametrize("name", ["bio-based-zram", "partial-completion-error-loop"])
def test_small_logs_have_pages_too(tmp_path: Path, name: str) -> None:
    # GIVEN a few I/Os, or none WHEN the page is opened THEN there is no error
    log = captures.write_log(tmp_path / "a.biotrail", captures.load(name))
    assert visit(make(log, tmp_path / "a.html")).figures


def test_an_empty_log_has_a_page_too(tmp_path: Path) -> None:
    log = captures.write_log(tmp_path / "a.biotrail", [])
    found = visit(make(log, tmp_path / "a.html"))
    assert re.search(r"\b0\b", found.text)


USE = """
(async () => {
  const told = [];
  const tipsOf = () => {
    for (const one of shown) {
      const { series } = one.made.getOption();
      series.forEach((each, seriesIndex) => {
        for (const dataIndex of [0, Math.floor(each.data.length / 2)]) {
          one.made.dispatchAction({ type: "showTip", seriesIndex, dataIndex });
          told.push(one.place.textContent);
        }
      });
    }
  };
  const pause = () => new Promise((done) => setTimeout(done, 50));
  const set = (name, value) => {
    byId(name).value = value;
    byId(name).dispatchEvent(new Event("change"));
  };
  tipsOf();
  byId("theme").click();
  tipsOf();
  for (const row of document.querySelectorAll("details")) row.open = true;
  await pause();
  root.dataset.opened = document.querySelectorAll("details .inside").length;
  set("device", "loop1");
  tipsOf();
  set("operation", "read");
  tipsOf();
  window.dispatchEvent(new Event("beforeprint"));
  root.dataset.printed = root.dataset.theme;
  window.dispatchEvent(new Event("afterprint"));
  window.dispatchEvent(new Event("resize"));
  set("device", "");
  await pause();
  await pause();
  await pause();
  root.dataset.tips = told.filter((text) => /share|p99|to below|of it|write/.test(text)).length;
  root.dataset.used = location.hash;
})();
"""


def test_everything_can_be_used(page: Path, tmp_path: Path) -> None:
    # GIVEN the page, with a script that points at every chart, chooses, opens and prints
    used = with_script(page, tmp_path / "used.html", USE)
    # WHEN that runs THEN there is no error (`visit` looks), and all was shown
    found = visit(used, "theme=dark")
    assert int(found.root["data-tips"] or 0) > 40
    assert int(found.root["data-opened"] or 0) >= 20
    assert found.root["data-printed"] == "light"
    # AND the address has what was chosen last
    assert found.root["data-used"] == "#operation=read&theme=light"


def test_files_are_listed(tmp_path: Path) -> None:
    # GIVEN a log that tells files
    records = [*file_logs.names(START, 12, b"db", b"table"), *file_logs.bio(0, 12)]
    records += [*file_logs.bio(1, None), *file_logs.bio(2, DEV, dev=0)]
    # WHEN a browser opens its page
    found = visit(make(file_logs.write(tmp_path / "x.biotrail", records), tmp_path / "x.html"))
    # THEN it lists them with the report's figures, and says what has no file
    check(found, found.data["report"])
    assert {path.split(".")[1] for path, *_ in found.figures if path.startswith("files.")} == {
        "0",
        "1",
        "2",
    }
    for cell in ("/srv/db/table", "(file not known: direct I/O, buffers)", "(vda: metadata, or"):
        assert cell in found.text


def test_calls_and_completions_are_shown(tmp_path: Path) -> None:
    # GIVEN a log with the path
    log = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
    # WHEN a browser opens its page
    found = visit(opened := make(log, tmp_path / "x.html"))
    # THEN it has the report's calls, the parts of their time, and the steps to the completion
    check(found, found.data["report"])
    paths = [path for path, *_ in found.figures]
    calls = found.data["report"]["calls"]
    assert {path.split(".")[1] for path in paths if path.startswith("calls.")} == {
        str(place) for place in range(len(calls))
    }
    for place, call in enumerate(calls):
        assert call["call"] in found.text
        for part in range(len(call["parts"])):
            assert f"calls.{place}.parts.{part}.share" in paths
    assert any(".completions." in path for path in paths)
    # AND a chart
    assert DIVISION in found.labels
    # AND of a chosen device its own completions
    device = found.data["report"]["devices"][1]["device"]
    steps = [p for p, *_ in visit(opened, f"device={device}").figures if ".completions." in p]
    assert {path.split(".")[1] for path in steps} == {"1"}


def test_what_calls_waited_for_is_shown(tmp_path: Path) -> None:
    # GIVEN a log of a call that waits for the journal, by its stack
    log = PathLog()
    log.bio(2000, 3 * MS, entry=1000)
    log.waits(1000, 1500, 3 * MS, 3 * MS, stack=5)
    log.returns(1000, 4 * MS, blocked=3 * MS - 1500, queued=1)
    stacks = {"wait": {"5": [["jbd2_log_wait_commit", "jbd2", 0]]}}
    made = log.write(
        tmp_path / "x.biotrail", (), ("call", "time", "wait", "fs"), {"stacks": stacks}
    )
    # WHEN a browser opens its page
    found = visit(make(made, tmp_path / "x.html"))
    # THEN it has the wait's reason, with the report's figures
    check(found, found.data["report"])
    assert [wait["reason"] for wait in found.data["report"]["waits"]] == ["journal commit"]
    assert "waits.0.share" in [path for path, *_ in found.figures]


# The page on paper: charts are as wide as the sheet, and whole.

WORD = re.compile(r'<word xMin="([\d.]+)" yMin="([\d.]+)" xMax="([\d.]+)"[^>]*>(.*?)</word>')
SHEET = re.compile(r'<page width="([\d.]+)"')
WINDOW = 1280
"""Pixels: charts on a screen this wide are wider than paper."""
PRINTED = """
const drawn = () => [...document.querySelectorAll("canvas")].map((one) => one.toDataURL()).join();
const charts = () => [...document.querySelectorAll(".chart")].map((one) => one.firstElementChild);
const widest = () => Math.max(...charts().map((one) => one.offsetWidth));
root.dataset.screen = widest();
window.dispatchEvent(new Event("beforeprint"));
const [first, sizes] = [drawn(), [...document.querySelectorAll(".chart svg, .chart canvas")]];
root.dataset.paper = Math.max(...sizes.map((one) => one.getBoundingClientRect().width));
setTimeout(() => {
  root.dataset.settled = String(first === drawn());
  window.dispatchEvent(new Event("afterprint"));
  root.dataset.again = widest();
}, 500);
"""


def printed(page: Path, pdf: Path, choice: str = "") -> None:
    """What a browser with a wide window prints."""
    paper = (f"--window-size={WINDOW},900", "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    browse(page, choice, *paper)


def words(pdf: Path) -> tuple[float, list[tuple[float, float, float, str]]]:
    """(the sheet's width, (left, top, right, word) of the first sheet), in points."""
    if shutil.which("pdftotext") is None:
        pytest.skip("poppler-utils is not installed")
    command = ["pdftotext", "-bbox", "-l", "1", pdf, "-"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [(float(x), float(y), float(end), w) for x, y, end, w in WORD.findall(told)]
    return float(SHEET.findall(told)[0]), found


@pytest.mark.parametrize("choice", ["", "theme=dark"])
def test_stage_bars_end_on_the_sheet(page: Path, tmp_path: Path, choice: str) -> None:
    # GIVEN the page in a window that is wider than paper WHEN it is printed
    printed(page, tmp_path / "page.pdf", choice)
    # THEN the axis of the stage bars goes from 0 % to 100 %, within the sheet
    width, found = words(tmp_path / "page.pdf")
    shares = {
        int(word): (left, right)
        for (left, top, _, word), (_, beside, right, unit) in pairwise(found)
        if unit == "%" and word in ("0", "20", "40", "60", "80", "100") and abs(top - beside) < 1
    }
    assert sorted(shares) == [0, 20, 40, 60, 80, 100]
    assert shares[0][0] < 0.2 * width
    assert 0.8 * width < shares[100][1] < 0.96 * width


def test_charts_are_drawn_when_printing_begins(page: Path, tmp_path: Path) -> None:
    # GIVEN the page, and a script that does as a browser does that prints
    # WHEN it is opened
    found = visit(with_script(page, tmp_path / "printed.html", PRINTED))
    # THEN charts are as wide as the sheet, and the heat map is drawn whole before the next frame
    assert float(found.root["data-screen"] or 0) > 1000
    assert float(found.root["data-paper"] or 0) <= 703
    assert found.root["data-settled"] == "true"
    # AND afterwards they are as wide as the window again
    assert found.root["data-again"] == found.root["data-screen"]


# Timelines of slow I/Os: bars stand where the data's times put them.

NEAR = 0.02
"""Percent of a timeline's width: what rounding may make of a place."""


class Bars(html.parser.HTMLParser):
    """Each timeline as its bars: (data-path, left %, width %)."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.timelines: list[list[tuple[str, float, float]]] = []
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("class") == "timeline":
            self.timelines.append([])
        if tag == "i" and self.timelines and found.get("data-path"):
            style = {
                part.split(":", 1)[0].strip(): part.split(":", 1)[1].strip(" %")
                for part in str(found["style"]).split(";")
                if ":" in part
            }
            bar = str(found["data-path"]), float(style["left"]), float(style["width"])
            self.timelines[-1].append(bar)


def times(data: dict[str, Any], path: str) -> tuple[int, int] | None:
    """(start, end) of a bar in ns since the I/O was queued; None: not of stages or neighbours."""
    found = at(data, path.rsplit(".", 1)[0] if path.endswith("_ns") else path)
    if ".surroundings.before." in path:
        if path.endswith("waited_ns"):
            return found["queue_ns"], found["issue_ns"]
        if found["issue_ns"] is None or found["end_ns"] is None:
            return None
        return found["issue_ns"], found["end_ns"]
    if ".io.stages." in path:
        return found["start_ns"], found["start_ns"] + found["ns"]
    return None


def scale(bars: list[tuple[str, float, float]], data: dict[str, Any]) -> tuple[float, float]:
    """(% of the I/O's beginning, % of a ns), by the I/O's own stages."""
    own = [(path, left, wide) for path, left, wide in bars if ".io.stages." in path]
    (_, left, _), (path, last, wide) = own[0], own[-1]
    end = times(data, path)
    assert end is not None
    return left, (last + wide - left) / end[1]


def told(bars: list[tuple[str, float, float]], data: dict[str, Any]) -> Iterator[str]:
    zero, of_ns = scale(bars, data)
    for path, left, wide in bars:
        if (span := times(data, path)) is None:
            continue
        begin, end = (min(max(zero + of_ns * ns, 0), 100) for ns in span)
        assert left == pytest.approx(begin, abs=NEAR), path
        assert wide == pytest.approx(end - begin, abs=NEAR), path
        yield path


def test_each_slow_io_has_its_timeline(page: Path) -> None:
    # GIVEN the sample log's page WHEN all slow I/Os are opened
    text = browse(page, "slow=open", "--window-size=1280,900", "--dump-dom").stdout
    found = Figures(text)
    check(found, found.data["report"])
    # THEN each has a timeline whose bars lie where the JSON's times are
    timelines = Bars(text).timelines
    assert len(timelines) == found.data["slow"]["slowest"] == 20
    shown = {path for bars in timelines for path in told(bars, found.data)}
    # AND all of its stages, of its mates', and of what the device had before it, are drawn
    for place, slow in enumerate(found.data["slow"]["ios"][:20]):
        base = f"slow.ios.{place}"
        paths = [f"{base}.io.stages.{n}" for n in range(len(slow["io"]["stages"]))]
        before = enumerate(slow["surroundings"]["before"])
        known = [n for n, one in before if None not in (one["issue_ns"], one["end_ns"])]
        paths += [f"{base}.surroundings.before.{n}.in_device_ns" for n in known]
        assert shown >= set(paths), place
        drawn = {path for bars in timelines for path, *_ in bars}
        for n, mate in enumerate(slow["mates"]):
            count = len(mate["stages"])
            assert drawn >= {f"{base}.mates.{n}.stages.{s}" for s in range(count)}


@pytest.mark.parametrize("choice", ["slow=open", "slow=open&theme=dark"])
def test_what_was_in_the_way_is_drawn(tmp_path: Path, choice: str) -> None:
    # GIVEN a read that waits behind writes WHEN its page is opened THEN there is no error
    log = captures.write_log(tmp_path / "flood.biotrail", events_of(FLOOD))
    found = visit(make(log, tmp_path / "flood.html"), f"{choice}&operation=read")
    # AND the three writes that the device had before it are there
    assert "the device had before it: 3" in found.text
    assert found.text.count("write 64.0 KiB, writer") >= 3


def test_what_is_below_is_drawn(tmp_path: Path) -> None:
    # GIVEN a write on four devices upon each other WHEN its page is opened
    header = {"devices": devices_with(FOUR_LEVELS.devices)}
    log = captures.write_log(tmp_path / "a.biotrail", events_of(FOUR_LEVELS.given), header)
    text = browse(
        make(log, tmp_path / "a.html"), "slow=open", "--window-size=1280,900", "--dump-dom"
    ).stdout
    found = Figures(text)
    # THEN the stages of each lower bio are drawn
    [slow] = found.data["slow"]["ios"][: found.data["slow"]["slowest"]]
    [bars] = Bars(text).timelines
    wanted = {
        f"slow.ios.0.children.{place}.stages.{stage}"
        for place, io in enumerate(slow["children"])
        for stage in range(len(io["stages"]))
    }
    assert len(slow["children"]) == 4 and {path for path, *_ in bars} >= wanted
    assert "below it (4)" in found.text
