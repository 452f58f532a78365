# SPDX-License-Identifier: Apache-2.0
"""Who slows a reader, where the device's times are set and the truth can be computed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.events.tables import Bios
from tests.support.record_command import biotrail
from tests.vm.machine import WRITE, Case, Machine

APP, BACKUP = "app", "backup"
POINTS = 0.10
"""How far blame's share may be from the truth, as on disks (docs/blame.md)."""


def told(command: str, log: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(biotrail(command, "--json", *options, log).stdout)
    return found


def victims(log: Path) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in told("blame", log, "--by", "process")["victims"]}


def behind(victim: dict[str, Any]) -> Counter[str]:
    parts = [part for part in victim["parts"] if part["kind"] == "other I/O"]
    return Counter({part["culprit"]: part["wait_ns"] for part in parts})


def reads(case: Case, of: Path) -> Bios:
    log = case.logs[f"{case.directory.name}/{of.name}"]
    mine = (log.bios.dev == log.dev(case.top)) & (log.comms == APP)
    return log.bios.take(mine)


def test_the_writer_costs_what_blame_says(vm: Machine) -> None:
    # GIVEN reads that wait for the only tag beside writes, and then have it alone
    case = vm.case("blamed")
    log = case.directory / "log.biotrail"
    mine, every = reads(case, log), case.log.bios
    writes = every.take((every.opf & 0xFF) == WRITE)
    beside = mine.queue < int(writes.complete.max())
    latency = mine.complete - mine.queue
    assert beside.sum() >= 100 and (~beside).sum() >= 100
    # WHEN what the writer costs is computed from the mean without it
    usual = float(latency[~beside].mean())
    assert usual == pytest.approx(case.told["completion_ns"], rel=0.25)
    truth = float((latency[beside] - usual).sum()) / int(latency.sum())
    assert truth > 0.1
    # THEN blame says as much, of the writer and of nobody else
    app = victims(log)[APP]
    culprits = behind(app)
    assert abs(culprits[BACKUP] / app["wait_ns"] - truth) <= POINTS
    assert sum(culprits.values()) - culprits[BACKUP] <= 0.02 * app["wait_ns"]
    # AND what the mean would be without it
    [without] = [one for one in app["without"] if one["culprit"] == BACKUP]
    assert without["mean_ns"] == pytest.approx(usual, rel=0.1)


def test_a_device_that_is_slow_by_itself_is_named_alone(vm: Machine) -> None:
    # GIVEN the same reads of the same device with nobody beside them
    case = vm.case("blamed")
    log = case.directory / "alone.biotrail"
    # WHEN they are blamed / THEN nobody is: they take so long by themselves
    app = victims(log)[APP]
    assert not behind(app)
    parts = {part["kind"]: part["wait_ns"] for part in app["parts"]}
    assert parts["own service"] >= 0.9 * app["wait_ns"]
    # AND the report says that the time is in the device, and names nobody who was beside them
    found = {one["rule"]: one for one in told("report", log)["verdict"]}
    assert "is in the device (D2C)" in found["main-part"]["sentence"]
    waited = found["waits"]["figures"]
    assert waited["process"] == APP and not waited.get("beside")
    assert "for its own I/O on" in found["waits"]["sentence"]
