# SPDX-License-Identifier: Apache-2.0
"""Half a million events of blktrace data, imported: btt's table, to its printed precision.

The kernel's ftrace `blk` tracer records a load that btt can follow, again and again until there
are enough events, and must lose none. `tests/live/test_beside_btt.py` has the load and the
comparison, and holds each difference of a harder load to the rule of btt's behind it.
"""

import re
import sys
import tempfile
from pathlib import Path

import click
import pytest

from tests.prove.claims import Claim, failed, not_run, table
from tests.reference.btt_rules import STAGES, printed
from tests.support import devices
from tests.support.blk_tracer import clean_load, traced
from tests.support.blktrace_records import NOTIFY, records
from tests.support.btt_tables import (
    Whole,
    associated,
    blkparse_binary,
    btt,
    check_sizes,
    check_table,
)

PART = "btt"
EVENTS = 500_000
SIZE = 64 * devices.MEBIBYTE
ROUNDS = 100
"""More are not tried."""


def tracefs() -> Path:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return Path(next(m[1] for m in mounts if m[2] == "tracefs"))


def lost() -> int:
    """Records that the tracer had no room for."""
    found = 0
    for stats in tracefs().glob("per_cpu/cpu*/stats"):
        text = stats.read_text()
        for name in ("overrun", "commit overrun", "dropped events"):
            found += sum(map(int, re.findall(rf"^{name}: (\d+)$", text, re.M)))
    return found


def number_of_events(stream: Path) -> int:
    found = records(stream.read_bytes())
    return sum(not int.from_bytes(one[28:32], "little") & NOTIFY for one in found)


def recorded(wanted: int, directory: Path) -> tuple[Path, int, int]:
    """The set that the tracer made; how many events, and how many it lost."""
    missed = []

    def load() -> None:
        stream = directory / "stream.bin"
        least = wanted * 48  # bytes of a record without a payload; notes and payloads come on top
        for _ in range(ROUNDS):
            clean_load(devices.fio, device.path)
            if stream.stat().st_size > least * 1.25:
                break
        missed.append(lost())

    with devices.loop(SIZE) as device:
        prefix = traced(device, directory, load)
    return prefix, number_of_events(directory / "stream.bin"), missed[0]


def difference(whole: Whole, report: str) -> str:
    """What is not as btt has it; empty where all is."""
    try:
        check_table(whole, report)
        check_sizes(whole, report)
    except AssertionError as error:
        return str(error).splitlines()[0] or "differs"
    return ""


def stage_table(report: str) -> str:
    """btt's rows, which are also ours."""
    rows = [
        f"| {stage} | {row.least} | {row.average} | {row.most} | {row.count} |"
        for stage, row in printed(report).items()
        if stage in STAGES
    ]
    head = "| stage | MIN (s) | AVG (s) | MAX (s) | N |\n|---|---|---|---|---|"
    return "\n".join([head, *rows])


def prove(wanted: int = EVENTS) -> list[Claim]:
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
            directory = Path(name)
            prefix, events, missed = recorded(wanted, directory)
            whole = associated(prefix)
            report = btt(blkparse_binary(prefix, directory / "merged.bin"))
    except pytest.skip.Exception as reason:
        return [not_run(PART, str(reason))]
    click.echo(stage_table(report))
    what = difference(whole, report)
    return [
        Claim(
            PART, "events of blktrace data imported", f"{events:,}", f"{wanted:,}", events >= wanted
        ),
        Claim(PART, "records that the tracer lost", f"{missed:,}", "0", not missed),
        Claim(
            PART,
            f"btt's table, {len(STAGES)} stages, merges and sizes",
            what or "the same, to the printed precision",
            "the same",
            not what,
        ),
    ]


@click.command()
@click.option("--events", default=EVENTS, show_default=True, help="How many, at least.")
def main(events: int) -> None:
    found = prove(events)
    click.echo(f"\n{table(found)}")
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
