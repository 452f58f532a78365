# SPDX-License-Identifier: Apache-2.0
"""I/O of stacked devices counts once, as it was submitted; by device each device's own."""

from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.reporting.page import collect
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.select import Selection
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.fleet.part import read_part
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
from tests.scenarios import stacks
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.followed_logs import follow, patient
from tests.support.window_loads import HEADER

__all__ = ["patient"]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """The log of one write to a volume on dm-crypt on a mirror on two disks: five bios."""
    case = next(c for c in stacks.CASES if "dm-crypt" in c.name)
    path = tmp_path / "log.biotrail"
    captures.write_log(path, events_of(case.given), HEADER)
    return path


def reported(path: Path, window: int = 1 << 20, devices: tuple[str, ...] = (), **how: Any) -> Any:
    trace = Trace(path)
    windows = Selection(Choice(trace.context, devices)).of(trace.lifecycles(window))
    return as_json(make_report(trace, windows, **how))


def test_a_write_to_a_mirror_is_one_write(mirror: Path) -> None:
    # GIVEN a write that became four more bios WHEN it is reported on
    one = reported(mirror, by="process")
    size = one["total"]["bytes"]
    # THEN it is one bio of its size for all, and in each list
    assert one["total"]["ios"] == 1 and size > 0
    assert one["lower"] == {"bios": 4, "bytes": 4 * size}
    for name in ("processes", "cgroups", "cpus", "groups"):
        assert [(g["ios"], g["bytes"]) for g in one[name]] == [(1, size)], name
    # AND each device has its own, of which certainty is counted, too
    assert [d["total"]["ios"] for d in one["devices"]] == [1] * 5
    assert sum(one["certainty"].values()) == 5


@pytest.mark.parametrize("by", ["device", None])
def test_groups_of_devices_have_each_devices_own(mirror: Path, by: str | None) -> None:
    # GIVEN the same WHEN it is grouped by device, and over time
    one = reported(mirror, by=by, interval=10**9)
    # THEN each device has its bio
    assert len(one["groups"]) == (5 if by else 0)
    assert len([g for i in one["intervals"] for g in i["groups"]]) == 5
    # AND groups of anything else over time have it once
    once = reported(mirror, by="op", interval=10**9)
    assert [g["ios"] for i in once["intervals"] for g in i["groups"]] == [1]


def test_windows_change_nothing(mirror: Path) -> None:
    # GIVEN the same WHEN it is read at once and event by event THEN the figures are the same
    assert reported(mirror) == reported(mirror, window=1)


def test_a_lower_device_alone_has_its_bios(mirror: Path) -> None:
    # GIVEN the same WHEN devices are chosen whose upper bio is left out
    devices = reported(mirror)["devices"]
    lower = [d["device"] for d in devices if not d["stacked_on"]]
    one = reported(mirror, devices=tuple(lower))
    # THEN their bios count
    assert len(lower) == 2
    assert (one["total"]["ios"], one["lower"]["bios"]) == (2, 0)
    # AND with the uppermost beside them, whatever lies between, it is that one alone
    [top] = {d["device"] for d in devices} - {n for d in devices for n in d["stacked_on"]}
    one = reported(mirror, devices=(top, *lower))
    assert (one["total"]["ios"], one["lower"]["bios"]) == (1, 2)


def test_the_page_has_it_once(mirror: Path) -> None:
    # GIVEN the same WHEN its page is made
    data = collect(lambda: Trace(str(mirror)))
    # THEN all devices together have one write, over time too, and each device has its own
    assert [one["ios"] for one in data["operations"]] == [1]
    ios = {(s["device"], s["operation"]): sum(s["ios"]) for s in data["timeline"]["series"]}
    assert ios[None, None] == 1
    assert sorted(n for (device, op), n in ios.items() if device and not op) == [1] * 5


@pytest.mark.usefixtures("patient")
def test_top_has_it_once(mirror: Path) -> None:
    # GIVEN the same WHEN it is followed
    shown = [one.now for one in follow(mirror)]
    # THEN rates and processes have it once, the rows of devices each
    assert sum(one.total.bios.ios for one in shown) == 1
    assert sum(g.ios for one in shown for g in one.processes) == 1
    assert sum(o.bios.ios for one in shown for o in one.operations) == 5


@pytest.mark.parametrize(("by", "groups"), [("host", [1]), ("device", [1] * 5)])
def test_a_fleet_has_it_once(mirror: Path, by: str, groups: list[int]) -> None:
    # GIVEN the same WHEN it is a part of a fleet
    trace = Trace(mirror)
    part = read_part(trace, trace.lifecycles(), by, {}, [])
    # THEN the fleet and the host have it once, devices each
    assert sum(both.bios["ios"] for both in part.whole.operations.values()) == 1
    found = [sum(b.bios["ios"] for b in s.operations.values()) for s in part.groups.values()]
    assert found == groups


def test_the_text_says_so(cli: Cli, mirror: Path) -> None:
    # GIVEN the same WHEN it is printed THEN the head says what is not in it
    out = " ".join(cli("report", mirror).out.split())
    assert " 1 bio, " in out
    assert "4 further bios" in out and "I/O counts once, as it was submitted" in out
