# SPDX-License-Identifier: Apache-2.0
"""biotrail report: text for people, JSON and CSV for scripts, one set of figures."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from biotrail.text import units
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
DOC = ROOT / "docs" / "report.md"


def report_of(cli: Cli, *arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("report", "--json", *arguments).out)
    return found


def test_text_json_and_csv_say_the_same(cli: Cli) -> None:
    # GIVEN the sample log WHEN it is reported on in three ways
    said, told = cli("report", SAMPLE).out, report_of(cli, SAMPLE)
    rows = list(csv.DictReader(io.StringIO(cli("report", "--csv", SAMPLE).out)))
    assert told["format"] == 2
    for device in told["devices"]:
        for operation in device["operations"]:
            if not operation["ios"]:
                continue
            mine = [
                row
                for row in rows
                if (row["section"], row["of"]) == ("devices", "bios")
                and (row["device"], row["operation"]) == (device["device"], operation["operation"])
            ]
            # THEN the CSV has a line for the whole and for each stage, with the JSON's figures
            stages = [{"stage": "Q2C"} | operation["latency"], *operation["stages"]]
            assert [row["stage"] for row in mine] == [stage["stage"] for stage in stages]
            for row, stage in zip(mine, stages, strict=True):
                assert row["ios"] == str(operation["ios"])
                for name in ("count", "sum_ns", "min_ns", "p50_ns", "p99_9_ns", "max_ns"):
                    assert row[name] == str(stage[name]), name
            # AND the text has them, rounded
            line = next(
                x for x in said.splitlines() if re.search(rf"\b{operation['operation']} +\d", x)
            )
            assert units.count(operation["ios"]) in line
            assert units.duration(operation["latency"]["p99_ns"]) in line
            assert units.duration(operation["latency"]["max_ns"]) in line


def test_a_series_and_groups_are_in_every_form(cli: Cli) -> None:
    # GIVEN the sample log WHEN a time series by process is asked for
    asked = ("--interval", "500ms", "--by", "process")
    told = report_of(cli, *asked, SAMPLE)
    # THEN the JSON has both
    assert told["interval_ns"] == 500_000_000 and told["by"] == "process"
    assert sum(g["ios"] for g in told["groups"]) == told["total"]["ios"]
    assert sum(g["ios"] for i in told["intervals"] for g in i["groups"]) == told["total"]["ios"]
    # AND so have the CSV and the text
    rows = csv.DictReader(io.StringIO(cli("report", "--csv", *asked, SAMPLE).out))
    assert {"groups", "intervals"} <= {row["section"] for row in rows}
    said = cli("report", *asked, SAMPLE).out
    assert "By process" in said and "Over time, 500 ms each" in said
    assert "demo-database" in said


def test_what_is_missing_is_said(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with a loss window
    path = tmp_path / "lossy.biotrail"
    window = {"start": 0, "end": 1 << 60, "cpu": 0, "level": 0, "kind": 14, "count": 3}
    captures.write_log(path, captures.load("fsync-virtio"), losses=[window])
    # WHEN it is reported on THEN both forms say what was lost
    assert "3 events lost while recording" in cli("report", path).out
    told = report_of(cli, path)
    assert sum(told["loss"]["lost_records"].values()) == 3
    assert told["loss"]["loss_windows"] == 1


def test_errors_are_named(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with an I/O that failed WHEN it is reported on THEN its status is named
    path = tmp_path / "failed.biotrail"
    captures.write_log(path, captures.load("partial-completion-error-loop"))
    told = report_of(cli, path)
    assert sum(told["total"]["errors"].values()) == told["total"]["failed"] > 0
    [name] = told["total"]["errors"]
    assert f"{name} 1" in cli("report", path).out


def test_it_reads_blktrace_data_and_standard_input(cli: Cli) -> None:
    # GIVEN blktrace's files, and a log in a pipe
    told = report_of(cli, ROOT / "tests" / "data" / "blktrace" / "vda")
    assert told["total"]["ios"] > 0
    command = [sys.executable, "-m", "biotrail.cli.main", "report", "--json", "-"]
    with SAMPLE.open("rb") as stream:
        done = subprocess.run(command, stdin=stream, capture_output=True, cwd=ROOT, check=True)
    # THEN both are reported on
    assert json.loads(done.stdout) == report_of(cli, SAMPLE)
    assert done.stderr == b""


def test_some_devices_alone(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of two devices
    path = tmp_path / "two.biotrail"
    captures.write_log(path, captures.load("kyber-loop-and-virtio"))
    whole = report_of(cli, path)
    assert len(whole["devices"]) == 2
    for device in whole["devices"]:
        # WHEN one is asked for, by its name, path or number
        for name in (device["device"], f"/dev/{device['device']}", device["dev"]):
            told = report_of(cli, "-d", name, path)
            # THEN its figures are those that it has in the whole report
            assert told["devices"] == [device]
            assert told["total"]["ios"] == device["total"]["ios"]
            assert told["total"]["latency"] == device["total"]["latency"]
    # AND a device that is not there is named, with those that are
    for name in ("sdz", "8:99", "1:2:3"):
        done = cli("report", "-d", name, path)
        assert (done.status, done.out) == (1, "")
        assert name in done.err and whole["devices"][0]["device"] in done.err


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_pipe_gets_plain_text_as_wide_as_it_is_told(width: int) -> None:
    # GIVEN a width WHEN a report goes to a pipe
    command = [sys.executable, "-m", "biotrail.cli.main", "report", str(SAMPLE)]
    environment = os.environ | {"COLUMNS": str(width), "TERM": "xterm-256color"}
    done = subprocess.run(
        command, capture_output=True, cwd=ROOT, check=True, env=environment, text=True
    )
    # THEN it has no colours, and no line is wider
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= width
    assert "Q2G" in done.stdout or width < 80


def test_names_cannot_write_to_the_terminal(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a thread that named itself with an escape sequence and with markup
    path = tmp_path / "named.biotrail"
    events = captures.load("fsync-virtio")
    captures.write_log(path, [dict(e, comm="\x1b[31m[b]x") if "comm" in e else e for e in events])
    # WHEN it is reported on THEN the sequence does not get through, and markup is text
    said = cli("report", path).out
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("no-such-file",), 1, "no-such-file"),
        ((str(ROOT / "pyproject.toml"),), 1, "pyproject.toml"),
        (("--interval", "0", str(SAMPLE)), 2, "--interval"),
        (("--interval", "x", str(SAMPLE)), 2, "duration"),
        (("--interval", "1us", str(SAMPLE)), 1, "--interval 1s or longer"),
        (("--by", "weather", str(SAMPLE)), 2, "weather"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    cli: Cli, arguments: tuple[str, ...], status: int, message: str
) -> None:
    done = cli("report", *arguments)
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert "Traceback" not in done.err


def fields(value: Any, path: str = "") -> set[str]:
    """Every field of a JSON value: `devices[].depth.queue.mean`."""
    if isinstance(value, list):
        return set().union(*(fields(one, f"{path}[]") for one in value))
    if isinstance(value, dict) and value:
        inner = f"{path}." if path else ""
        return set().union(*(fields(one, f"{inner}{name}") for name, one in value.items()))
    return {path}


def test_every_field_is_in_the_documentation(cli: Cli) -> None:
    # GIVEN the documentation's tables
    cells = re.findall(r"^\| (`[^|]+) \|", DOC.read_text(), re.M)
    documented = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    # WHEN a report has all there is
    told = report_of(cli, "--interval", "1s", "--by", "cpu", SAMPLE)
    names = {part.removesuffix("[]") for field in fields(told) for part in field.split(".")}
    open_ended = {"errors", "events", "shared", "lost_records", "certainty"}
    known = {
        name
        for field in fields(told)
        for place, name in enumerate(field.split("."))
        if place and field.split(".")[place - 1].removesuffix("[]") in open_ended
    }
    # THEN each name stands in one of them
    assert {n for n in names if n.removesuffix("[]") not in documented | known} == set()
