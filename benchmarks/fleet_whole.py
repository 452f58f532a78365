# SPDX-License-Identifier: Apache-2.0
"""Whether a fleet's report has the figures of `report` over all its I/O in one log.

The one log has the recordings of all hosts one after the other, an hour apart, as one host's: so
rates, mean depths, and what happens between two neighbouring I/Os are of other times, and are left
out of the comparison; all else is to be equal.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.enlarged_logs import clock_later, end_later, extent, later
from benchmarks.fleet_logs import HOUR_NS
from biotrail.recorder.log import LogReader, LogWriter

_OF_TIME = frozenset({"ios_per_s", "bytes_per_s", "depth"})


def concatenate(logs: Sequence[Path], number: int, out: Path) -> None:
    """Write `number` recordings, `logs` in turn, each an hour later than the one before, as one.

    The header is that of the first, and its notes are those of all. Raises what the reader raises,
    and ValueError for recordings of different devices.
    """
    with out.open("wb") as stream, LogReader(logs[0]) as first:
        writer = LogWriter(stream, first.header)
        rings = []
        for log in logs:
            with LogReader(log) as reader:
                if reader.header["devices"] != first.header["devices"]:
                    raise ValueError(f"{log} is of other devices than {logs[0]}: record it again")
                rings.append(extent(reader)[1])
                for name, payload in reader.notes:
                    writer.write_note(name, payload)
        further = 0
        for at in range(number):
            shift = at * HOUR_NS
            with LogReader(logs[at % len(logs)]) as reader:
                for chunk in reader.chunks():
                    moved = [later(one, shift, further, 0) for one in chunk.segments]
                    writer.write_chunk(moved, clock_later(chunk.clock, shift))
                end = end_later(reader.end or {}, shift)
            further += rings[at % len(logs)]
        writer.close(end)


def reported(log: Path) -> dict[str, Any]:
    """Return what `biotrail report --json` says of a log."""
    biotrail = str(Path(sys.executable).with_name("biotrail"))
    text = subprocess.check_output([biotrail, "report", "--json", str(log)])
    found: dict[str, Any] = json.loads(text)
    return found


def figures(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each figure of a report with its name, without those of times between I/Os."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in _OF_TIME:
                yield from figures(one, f"{name}.{key}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from figures(one, f"{name}[{at}]")
    else:
        yield name, value


def compared(fleet: dict[str, Any], whole: dict[str, Any]) -> tuple[int, list[str]]:
    """Return how many figures were compared, and those that differ, with both values.

    fleet, whole: reports as JSON has them; `whole` of one device.
    """
    (device,) = whole["devices"]
    total = fleet["total"]
    operations = {one["operation"]: one for one in device["operations"]}
    theirs = {
        "total": whole["total"],
        "operations": {
            name: {key: one for key, one in found.items() if key != "device"}
            for name, found in operations.items()
        },
        "flushes": device["flushes"],
        "events": device["events"],
        "certainty": whole["certainty"],
    }
    ours = {
        "total": total["total"],
        "operations": {one["operation"]: one for one in total["operations"]},
        "flushes": total["flushes"],
        "events": total["events"],
        "certainty": fleet["certainty"],
    }
    mine, others = dict(figures(ours)), dict(figures(theirs))
    names = sorted(mine.keys() | others.keys())
    different = [
        f"{name.lstrip('.')}: {mine.get(name)} in the fleet's, {others.get(name)} in the whole's"
        for name in names
        if mine.get(name) != others.get(name)
    ]
    return len(names), different
