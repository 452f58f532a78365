# SPDX-License-Identifier: Apache-2.0
"""The steps of drivers in a report, and in the table of requests."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_runner import Cli
from tests.support.driver_logs import LOOP, NVME, SCSI, request, sample
from tests.support.path_logs import PathLog
from tests.support.stack_logs import START


def drivers(cli: Cli, path: Path) -> dict[str, Any]:
    """The device's drivers in the report's JSON, by name."""
    [device] = json.loads(cli("report", "--json", path).out)["devices"]
    return {one["driver"]: one for one in device["drivers"]}


def test_each_driver_has_its_steps(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a request of each driver and one without steps WHEN they are reported
    path = sample().write(tmp_path / "x.biotrail")
    found = drivers(cli, path)
    # THEN each driver has its steps, which add up to D2C
    steps = {
        name: [(step["step"], step["sum_ns"]) for step in one["steps"]]
        for name, one in found.items()
    }
    assert steps == {
        "nvme": [("D to answer", 700), ("answer to driver done", 200), ("driver done to C", 100)],
        "scsi": [("D to dispatch", 100), ("dispatch to answer", 850), ("answer to C", 50)],
        "loop": [("D to file I/O", 400), ("file I/O", 400), ("file I/O to C", 200)],
    }
    for one in found.values():
        assert (one["requests"], one["undivided"]) == (1, 0)
        assert sum(step["share"] for step in one["steps"]) == pytest.approx(1)
    # AND NVMe the setup before them, SCSI its failures
    assert found["nvme"]["setup"]["sum_ns"] == 5
    assert found["scsi"]["setup"] is None
    assert (found["scsi"]["errors"], found["scsi"]["timeouts"]) == (2, 1)
    # AND the text has the same
    text = cli("report", path).out
    assert "Steps of the driver: vda (2 failed dispatches, 1 time-out)" in " ".join(text.split())
    assert "setup to D" in text


def test_what_has_no_steps_is_counted(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a request that was issued twice, one without an answer, one that began before its issue
    log = PathLog()
    request(log, 1000, 2000, {"driver": SCSI, "begun": 900, "answered": 50}, tries=2)
    request(log, 3000, 4000, {"driver": SCSI, "begun": 900})
    request(log, 5000, 6000, {"driver": SCSI, "begun": 1005, "answered": 50})
    # AND one that can be divided
    request(log, 7000, 8000, {"driver": SCSI, "begun": 900, "answered": 50})
    # WHEN they are reported THEN it alone has steps, and the others are counted
    one = drivers(cli, log.write(tmp_path / "x.biotrail"))["scsi"]
    assert (one["requests"], one["undivided"]) == (4, 3)
    assert [step["count"] for step in one["steps"]] == [1, 1, 1]


def test_without_steps_there_is_no_table(cli: Cli, tmp_path: Path) -> None:
    # GIVEN requests without steps WHEN they are reported THEN nothing is said of drivers
    log = PathLog()
    request(log, 1000, 2000)
    path = log.write(tmp_path / "x.biotrail")
    assert drivers(cli, path) == {}
    assert "Steps of the driver" not in cli("report", path).out


def test_csv_has_a_line_for_each_step(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same requests WHEN the report is written as CSV
    path = sample().write(tmp_path / "x.biotrail")
    rows = list(csv.DictReader(io.StringIO(cli("report", "--csv", path).out)))
    mine = [row for row in rows if row["section"] == "drivers"]
    # THEN each step is a line, and the setup one without a share
    assert [(row["of"], row["stage"], row["sum_ns"]) for row in mine[:4]] == [
        ("nvme", "setup to D", "5"),
        ("nvme", "D to answer", "700"),
        ("nvme", "answer to driver done", "200"),
        ("nvme", "driver done to C", "100"),
    ]
    assert mine[0]["share"] == ""
    assert {row["failed"] for row in mine if row["of"] == "scsi"} == {"2"}
    assert len(mine) == 10


def test_the_table_of_requests_has_them(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same requests WHEN they are exported
    path = sample().write(tmp_path / "x.biotrail")
    lines = cli("export", "--what", "requests", "--format", "jsonl", path).out.splitlines()
    rows = sorted((json.loads(line) for line in lines), key=lambda row: row["issue_ns"])
    # THEN each has its driver's times and counts, null where there is none
    names = ("begun", "answered", "finished")
    times = [[row.get(f"driver_{name}_ns") for name in names] for row in rows]
    assert times == [
        [START + 995, START + 1700, START + 1900],
        [START + 3100, START + 3950, None],
        [START + 5400, START + 5800, None],
        [None, None, None],
    ]
    assert [row.get("driver") for row in rows] == ["nvme", "scsi", "loop", None]
    assert [row.get("driver_errors") for row in rows] == [None, 2, None, None]
    assert [row.get("driver_timeouts") for row in rows] == [None, 1, None, None]
    assert [(row.get("sq_head"), row.get("sq_tail")) for row in rows[:2]] == [(4, 7), (None, None)]


def test_an_archive_says_the_same(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same log as an archive WHEN both are reported THEN they say the same
    path, archive = sample().write(tmp_path / "x.biotrail"), tmp_path / "x.parquet"
    assert cli("archive", path, "-o", archive).status == 0
    assert drivers(cli, archive) == drivers(cli, path)


def test_a_driver_that_a_later_version_knows_is_left_out(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a request of a driver with a number that no name is known for
    log = PathLog()
    request(log, 1000, 2000, {"driver": LOOP + NVME, "begun": 900, "answered": 50})
    path = log.write(tmp_path / "x.biotrail")
    # WHEN it is reported and exported THEN it has no steps, and no name
    assert drivers(cli, path) == {}
    row = json.loads(cli("export", "--what", "requests", "--format", "jsonl", path).out)
    assert row.get("driver") is None
