# SPDX-License-Identifier: Apache-2.0
"""Timelines of slow I/Os in a real browser: bars stand where the data's times put them."""

import html.parser
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.causes import FLOOD
from tests.scenarios.stacks import FOUR_LEVELS
from tests.scenarios.tools import devices_with, events_of
from tests.support import captures
from tests.support.chromium import (
    PATIENCE,
    SAMPLE,
    Figures,
    at,
    check,
    chromium,
    make,
    visit,
)

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


def dom(page: Path, choice: str) -> str:
    with tempfile.TemporaryDirectory(prefix="bt-", ignore_cleanup_errors=True) as own:
        done = subprocess.run(
            [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND",
             f"--user-data-dir={own}/profile", "--window-size=1280,900",
             "--virtual-time-budget=20000", "--dump-dom", f"{page.as_uri()}#{choice}"],
            capture_output=True, text=True, timeout=PATIENCE, check=True,
            env={"TMPDIR": own, "HOME": own, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        )  # fmt: skip
    return done.stdout


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


def test_each_slow_io_has_its_timeline(tmp_path: Path) -> None:
    # GIVEN the sample log's page WHEN all slow I/Os are opened
    page = make(SAMPLE, tmp_path / "sample.html")
    text = dom(page, "slow=open")
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
    text = dom(make(log, tmp_path / "a.html"), "slow=open")
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
