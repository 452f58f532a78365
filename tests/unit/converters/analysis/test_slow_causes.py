# SPDX-License-Identifier: Apache-2.0
"""What report and slow call the cause, where it is known how long each stage took."""

import json
from pathlib import Path

import pytest

from tests.scenarios.tools import devices_with, events_of
from tests.support import captures
from tests.support.cli_runner import Cli

MERGED = """
0    Q W 0+8 bio=1
1    G W 0+8 bio=1
2    s W 0+8 bio=1 rq=1
10   Q W 8+8 bio=2
11   M W 8+8 bio=2
1000 D W 0+16 bio=1 rq=1 tag=7/-1 bios=2
1100 C W 0+16 bio=1 rq=1
"""
"""A write (bio 2, 1,090 µs) that joins another's request waits 989 µs for its issue."""
GIVEN_BACK = """
0    Q R 0+8 bio=1
1    G R 0+8 bio=1
2    s R 0+8 bio=1 rq=1
3    I R 0+8 bio=1 rq=1
5    D R 0+8 bio=1 rq=1 tag=1/1
10   R R 0+8 bio=1 rq=1
400  D R 0+8 bio=1 rq=1 tag=1/1
402  R R 0+8 bio=1 rq=1
900  D R 0+8 bio=1 rq=1 tag=2/1
1000 C R 0+8 bio=1 rq=1
"""
"""A read (1,000 µs) that the driver gives back twice, for 888 µs in all."""


def log_of(directory: Path, text: str, scheduler: str | None = None) -> Path:
    entry = {"name": "vda", "kind": "disk", "sectors": 1 << 20}
    entry |= {"scheduler": scheduler} if scheduler else {}
    devices = {"devices": devices_with([("254:0", entry)])}
    return captures.write_log(directory / "a.biotrail", events_of(text), devices)


@pytest.mark.parametrize(
    ("scheduler", "inserted", "stage", "longest", "cause"),
    [
        ("none", "", "M2D", "989 µs", "held back (plugged)"),
        ("mq-deadline", "@990", "M2I", "979 µs", "held back (plugged) before the scheduler got it"),
        ("mq-deadline", "@20", "I2D", "980 µs", "waited in the scheduler"),
        ("mq-deadline", "@5", "I2D", "989 µs", "waited in the scheduler"),
        ("mq-deadline", "", "M2D", "989 µs", "not issued yet (plugged, or in the scheduler)"),
        (None, "", "M2D", "989 µs", "not issued yet (plugged, or in the scheduler)"),
    ],
)
def test_what_held_back_a_merged_write_is_named(
    cli: Cli,
    tmp_path: Path,
    scheduler: str | None,
    inserted: str,
    stage: str,
    longest: str,
    cause: str,
) -> None:
    # GIVEN a write that joined a request, which was inserted late, early, before, or never
    insert = f"{inserted[1:]} I W 0+{8 if inserted == '@5' else 16} bio=1 rq=1"
    log = log_of(tmp_path, MERGED + insert * bool(inserted), scheduler)
    # WHEN the slowest are told
    lines = cli("slow", log).out.splitlines()
    # THEN the stage is named, and who held it back where the log tells
    *_, line = [line for line in lines if line.startswith(f"  > {stage} ")]
    assert longest in line
    assert line.endswith(cause)


def test_a_request_that_the_driver_gives_back_is_named(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a read that the driver gives back, and that waits for its next issue
    log = log_of(tmp_path, GIVEN_BACK, "mq-deadline")
    # WHEN the slowest is told
    said = cli("slow", log).out
    # THEN its longest wait is named, and how often that happened
    [line] = [line for line in said.splitlines() if line.startswith("  > ")]
    assert line.startswith("  > R2D           498 µs  49.8 %")
    assert line.endswith("was given back by the driver, and waited to be issued again")
    assert "    2 requeues\n" in said
    # AND the report has the stage and the count
    [device] = json.loads(cli("report", "--json", log).out)["devices"]
    assert device["events"]["requeues"] == 2
    [read] = device["operations"]
    stages = {stage["stage"]: stage for stage in read["stages"]}
    assert (stages["R2D"]["count"], stages["R2D"]["sum_ns"]) == (2, 888_000)
    assert stages["R2D"]["share"] == pytest.approx(0.888)
    assert " R2D " in cli("report", log).out
