# SPDX-License-Identifier: Apache-2.0
"""Every command on a light log: it works, or says in one message what it needs."""

import json
from pathlib import Path

import pytest

import biotrail
from biotrail.recorder.schema.records import Kind
from tests.support.cli_runner import Cli
from tests.support.light_logs import WRITE, Light, write_log

MS = 1_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Requests of two bios each, the odd ones writes."""
    lights = [
        Light(
            (n + 3) * MS,
            n * MS,
            (n + 1) * MS,
            sector=n * 8,
            opf=WRITE if n % 2 else 0,
            rq=0xFFFF888000000000 + n * 384,
            bios=2,
        )
        for n in range(20)
    ]
    return write_log(tmp_path / "light.biotrail", lights)


def test_a_report_says_that_its_bios_are_requests(cli: Cli, log: Path) -> None:
    # GIVEN a light log WHEN it is reported on
    told = json.loads(cli("report", "--json", log).out)
    # THEN it says so, and has the latency from start to completion and its stages
    assert told["light"] is True
    assert "light recording: an I/O is a request" in cli("report", log).out
    (device,) = told["devices"]
    read = next(one for one in device["operations"] if one["operation"] == "read")
    assert (read["ios"], read["latency"]["min_ns"], read["latency"]["max_ns"]) == (
        *(10, 3 * MS, 3 * MS),
    )
    stages = {stage["stage"]: stage["max_ns"] for stage in read["stages"]}
    assert stages == {"G2D": MS, "D2C": 2 * MS}
    # AND what was in flight is counted by starts and completions (at one time: either first)
    assert device["depth"]["queue"]["max"] in (3, 4)


def test_an_archive_gives_the_same_report(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN a light log's archive, as one file
    assert cli("archive", log, "-o", tmp_path / "light.parquet").status == 0
    # WHEN both are reported on THEN the figures are the same
    one, other = (
        json.loads(cli("report", "--json", path).out) for path in (log, tmp_path / "light.parquet")
    )
    assert one["devices"] == other["devices"]
    assert one["light"] is other["light"] is True


def test_traces_and_tables_are_made(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN a light log WHEN it is converted and exported
    for target in ("a.pftrace", "a.otf2"):
        assert cli("convert", log, "-o", tmp_path / target).status == 0
    assert cli("archive", log, "-o", tmp_path / "dataset").status == 0
    # THEN tables have a row for each request, with the number of its bios
    opened = biotrail.open(log)
    assert len(opened.bios) == len(opened.requests) == len(opened.events) == 20
    assert set(opened.requests["others"].to_pylist()) == {1}
    assert opened.events["kind"].to_pylist() == ["L"] * 20
    assert opened.events["since_issue"].to_pylist() == [2 * MS] * 20


def test_a_part_and_other_commands_of_a_light_log(cli: Cli, log: Path) -> None:
    # GIVEN requests that complete each millisecond from the third on, on a log of 22 ms
    # WHEN 10 ms of it are asked for, by the time since the log's begin
    told = json.loads(cli("report", "--json", "--from", "10ms", "--to", "20ms", log).out)
    # THEN those that complete in these are there, also where they began before
    (device,) = told["devices"]
    assert device["total"]["ios"] == 10
    assert device["total"]["ended"] == 7, "of three the start is outside"
    # GIVEN a light log THEN commands that show I/Os one by one, or compare logs, have them
    assert cli("diff", log, log).status == 0
    assert "the slowest 1 of 20 I/Os" in cli("slow", "-n", "1", log).out
    assert "count: 10" in cli("hist", log).out
    assert cli("verify", log).status == 0
    assert f"L  {Kind.LIGHT.name.lower()}" in cli("info", log).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("convert", "-o", "x.blktrace"), "record again with biotrail record --events minimal"),
        (("stacks",), "record again with biotrail record --stacks"),
        (("slow", "--calls"), "record again with biotrail record --path"),
        (("tree",), "this log follows no objects"),
        (("report", "--by", "file"), "record again with biotrail record --files"),
    ],
)
def test_what_a_light_log_has_not_is_said(
    cli: Cli, log: Path, arguments: tuple[str, ...], message: str, monkeypatch, tmp_path: Path
) -> None:
    # GIVEN a light log WHEN it is asked for what it has not THEN one message says what is needed
    monkeypatch.chdir(tmp_path)
    done = cli(arguments[0], log, *arguments[1:])
    assert done.status == 1
    assert message in done.err
    assert done.err.startswith("biotrail: error: ")
