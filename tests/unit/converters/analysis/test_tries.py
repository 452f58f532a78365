# SPDX-License-Identifier: Apache-2.0
"""failed NOWAIT attempts stand beside the I/Os, in every answer."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli

LOAD = """
0    Q WM 0+128 bio=1 pid=11 comm=fio
5    c WM 0+128 bio=1 err=12
10   Q W 0+128 bio=2 pid=11 comm=fio
11   G W 0+128 bio=2
12   s W 0+128 bio=2 rq=2
13   D W 0+128 bio=2 rq=2 tag=1/1
113  C W 0+128 bio=2 rq=2
200  Q WM 1000+8 bio=3 pid=11 comm=fio
205  c WM 1000+8 bio=3 err=10
300  Q R 2000+8 bio=4 pid=12 comm=dd
305  c R 2000+8 bio=4 err=12
"""
"""A NOWAIT write that ends in AGAIN and is repeated, one that fails otherwise, and a read that
ends in AGAIN though it had not asked for that."""
NOWAIT = {**captures.FLAG_BITS, "NOWAIT": captures.FLAG_BITS["META"]}
"""A kernel whose NOWAIT is written M here: the kernel's rwbs has no letter for it."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.biotrail"
    header = captures.header()
    bits = {name: bit for name, bit in NOWAIT.items() if name != "META"}
    header["kernel"]["flag_bits"] = bits
    captures.write_log(path, events_of(LOAD), header)
    return path


def told(cli: Cli, *arguments: str | Path) -> Any:
    return json.loads(cli(*arguments).out)


def test_a_report_counts_tries_beside_the_ios(cli: Cli, log: Path) -> None:
    # GIVEN a log with a try WHEN it is reported on
    total = told(cli, "report", "--json", log)["total"]
    # THEN the try is none of the I/Os, has no bytes, no latency, no stage, and is no failure
    assert (total["ios"], total["bytes"], total["done_bytes"]) == (3, 144 * 512, 128 * 512)
    assert (total["tries"], total["tried_bytes"]) == (1, 128 * 512)
    assert total["errors"] == {"IOERR": 1, "AGAIN": 1}
    assert total["latency"]["count"] == total["size"]["count"] == 3
    assert total["nowait"] == 1
    stages = {stage["stage"]: stage["count"] for stage in total["stages"]}
    assert stages["failed"] == 2
    # AND the text says how many there were, and of what
    text = cli("report", log).out
    assert "1 failed NOWAIT attempt (AGAIN), of 64.0 KiB: beside the bios" in text
    # AND the CSV has them in columns of their own
    rows = list(csv.DictReader(io.StringIO(cli("report", "--csv", log).out)))
    [writes] = [
        row
        for row in rows
        if (row["section"], row["of"], row["stage"]) == ("devices", "bios", "Q2C")
        and row["operation"] == "write"
    ]
    assert (writes["ios"], writes["tries"], writes["tried_bytes"]) == ("2", "1", "65536")


def test_certainties_are_those_of_ios(cli: Cli, log: Path) -> None:
    # GIVEN a log with a try WHEN it is reported on THEN certainties add up to the I/Os
    report = told(cli, "report", "--json", log)
    assert sum(report["certainty"].values()) == report["total"]["ios"]


def test_histograms_leave_tries_out(cli: Cli, log: Path) -> None:
    # GIVEN a log with a try WHEN latencies and sizes are counted
    for measure in ((), ("--size",)):
        found = told(cli, "hist", *measure, "--json", log)
        # THEN it is told, and in no histogram
        assert found["tries"] == 1
        assert sum(one["count"] for one in found["histograms"]) == 3
    assert "1 failed NOWAIT attempt that failed at once (AGAIN) left out" in cli("hist", log).out


def test_failures_are_chosen_without_tries(cli: Cli, log: Path) -> None:
    # GIVEN a log with a try WHEN what failed is asked for
    found = told(cli, "slow", "--failed", "--json", log)
    # THEN the try is not among it, but counted
    assert [one["io"]["status"] for one in found["ios"]] == ["IOERR", "AGAIN"]
    assert (found["counts"]["ios"], found["counts"]["tries"]) == (3, 1)
    assert "1 failed NOWAIT attempt" in cli("slow", log).out
    # AND a cut of failures is the same I/Os
    assert told(cli, "report", "--failed", "--json", log)["total"]["ios"] == 2


def test_recordings_are_compared_by_their_tries(cli: Cli, log: Path) -> None:
    # GIVEN a log with a try WHEN it is compared THEN tries are a figure of their own
    found = told(cli, "diff", "--json", log, log)
    [device] = found["devices"]
    [writes] = [one for one in device["operations"] if one["operation"] == "write"]
    tries = [one for one in writes["figures"] if one["name"] == "tries_per_io"]
    assert [one["a"] for one in tries] == [0.5]
    assert writes["ios_a"] == 2
