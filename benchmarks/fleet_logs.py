# SPDX-License-Identifier: Apache-2.0
"""Archives of many hosts made of a few recordings: each has a host, an id and times of its own."""

import hashlib
from pathlib import Path

from benchmarks.enlarged_logs import clock_later, end_later, later
from biotrail import __version__
from biotrail.converters.inputs.log import LogSource
from biotrail.converters.outputs.parquet import archive
from biotrail.recorder.log import LogReader, LogWriter

HOUR_NS = 3_600_000_000_000
"""Each host's recording begins an hour after the one before."""


def host_name(number: int) -> str:
    return f"host{number:04}"


def move(recorded: Path, number: int, out: Path) -> None:
    """Write a log as one of the host of that number, as many hours later.

    Raises what the reader raises.
    """
    shift = number * HOUR_NS
    with out.open("wb") as stream, LogReader(recorded) as reader:
        header = dict(reader.header)
        header["host"] = {**header.get("host", {}), "name": host_name(number)}
        header["log_id"] = hashlib.md5(f"{reader.header['log_id']} {number}".encode()).hexdigest()
        for name in ("clocks", "started", "start"):
            if isinstance(header.get(name), dict):
                header[name] = clock_later(header[name], shift)
        writer = LogWriter(stream, header)
        for name, payload in reader.notes:
            writer.write_note(name, payload)
        for chunk in reader.chunks():
            moved = [later(one, shift, 0, 0) for one in chunk.segments]
            writer.write_chunk(moved, clock_later(chunk.clock, shift))
        writer.close(end_later(reader.end or {}, shift))


def make(recorded: Path, number: int, folder: Path) -> int:
    """Write `folder`/HOST.parquet, and return its number of events."""
    out = folder / f"{host_name(number)}.parquet"
    log = out.with_suffix(".biotrail.part")
    move(recorded, number, log)
    with out.open("wb") as stream:
        summary = archive.write(LogSource(log), stream, created_by=__version__, log=log.name)
    log.unlink()
    return summary.events
