# SPDX-License-Identifier: Apache-2.0
"""Logs of I/Os whose times are chosen, of programs that share a disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biotrail.recorder.log import LogWriter
from tests.support import captures

US, MS, S = 1_000, 1_000_000, 1_000_000_000
DISK, RAM = "254:0", "7:1"


@dataclass(frozen=True)
class Io:
    """One I/O. Times are ns since recording began."""

    comm: str
    queue: int
    issue: int
    complete: int
    op: str = "R"
    sectors: int = 8
    device: str = DISK
    cgroup: int = 0
    own: bool = False
    """Whether it is the recording's own."""


def _events(io: Io, index: int) -> list[dict[str, Any]]:
    tid = 100 + sum(map(ord, io.comm))
    times = io.queue, io.queue, io.queue, io.issue, io.complete
    place = io.device, io.op, 4096 * index, io.sectors
    more = {"cgroup": io.cgroup, "flags": int(io.own)}
    task = tid, tid, io.comm
    return captures.io_events(times, 0x400 + index, place, task, cpu=index % 2, **more)


def write(
    path: Path,
    ios: Sequence[Io],
    chunk: int = 50,
    paused: Sequence[dict[str, Any]] = (),
    host: str = "testhost",
    **notes: Any,
) -> Path:
    """Write the log, with `chunk` events in each chunk.

    notes: written first. paused: notes of an experiment, written last; its times are ns since
    recording began. host: that recorded.
    """
    rows = [event for index, io in enumerate(ios) for event in _events(io, index)]
    rows.sort(key=lambda event: (event["ns"], "QGsDC".index(event["letter"])))
    encoder, rings = captures.encoding()
    with path.open("wb") as stream:
        header = captures.header(log_id=f"{sum(map(ord, host)):032x}")
        header["host"]["name"] = host
        log = LogWriter(stream, header)
        for name, payload in notes.items():
            log.write_note(name, payload)
        for at in range(0, len(rows), chunk):
            piece = [(row["cpu"], encoder.encode(row)) for row in rows[at : at + chunk]]
            log.write_chunk(rings.segments(piece), captures.clock(rows[at + len(piece) - 1]["ns"]))
        for one in paused:
            begin, end = (captures.BASE_NS + one[key] for key in ("from", "to"))
            log.write_note("paused", {**one, "from": begin, "to": end})
        log.close({"clocks": captures.clock(rows[-1]["ns"] if rows else 0)})
    return path


def alone(comm: str, count: int, every: int, begin: int = 0, takes: int = 50 * US) -> list[Io]:
    """Reads one after the other: 1 µs until their issue, the rest with the device."""
    times = [begin + every * at for at in range(count)]
    return [Io(comm, at, at + US, at + takes) for at in times]


def beside_a_writer(rounds: int = 60) -> list[Io]:
    """A reader whose reads take 50 µs, and 550 µs beside a write of 1 MiB, which takes 2 ms alone.

    Of each ten reads two are beside a write; each sixth write is alone.
    """
    ios = alone("app", 10 * rounds, 10 * MS)
    made = []
    for at, read in enumerate(ios):
        io = read
        if at % 10 in (3, 4):
            io = Io("app", read.queue, read.issue, read.queue + 550 * US)
            made.append(Io("backup", io.queue - US, io.queue - US, io.queue + 1999 * US, "W", 2048))
        if at % 60 == 5:
            begin = io.queue + 3 * MS
            made.append(Io("backup", begin, begin, begin + 2 * MS, "W", 2048))
        made.append(io)
    return made


def experiment(rounds: int = 8, suspect: str = "backup") -> tuple[list[Io], list[dict[str, Any]]]:
    """A reader, and a writer that is stopped each other second; with the notes of that.

    Reads take 50 µs, and 550 µs beside a write, which 2 of 10 are while the writer runs.
    """
    ios, notes = [], []
    for at, read in enumerate(alone("app", 200 * rounds, 10 * MS)):
        runs = at % 200 < 100
        made = read
        if runs and at % 10 in (3, 4):
            made = Io("app", read.queue, read.issue, read.queue + 550 * US)
            begin = read.queue - US
            ios.append(Io(suspect, begin, begin, begin + 2 * MS, "W", 2048))
        if runs and at % 10 == 5:
            begin = read.queue + 3 * MS
            ios.append(Io(suspect, begin, begin, begin + 2 * MS, "W", 2048))
        ios.append(made)
    tid = 100 + sum(map(ord, suspect))
    for at in range(rounds):
        period = {"from": (2 * at + 1) * S, "to": (2 * at + 2) * S}
        who = {"name": suspect, "label": f"{suspect} ({tid})", "cgroup": "", "pids": [tid]}
        notes.append({**period, **who})
    return ios, notes
