# SPDX-License-Identifier: Apache-2.0
"""A long log of plain I/Os, each known, and what a cut of it must hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biotrail.recorder.log import LogWriter
from tests.support import captures

SECONDS = 600
EVERY_NS = 125_000_000
"""From one I/O to the next."""
MS, S = 1_000_000, 1_000_000_000
MARGIN = 5 * S
DEVICES = ("7:1", "7:2")
TASKS = ((100, 100, "postgres-1"), (101, 100, "postgres-2"), (200, 200, "fio"))
CGROUPS = {11: "/system.slice/db.service", 12: "/system.slice/db.service/worker", 13: "/user"}
LOSS = {"start": 90 * S, "end": 91 * S, "cpu": 0, "level": 0, "kind": 14, "count": 3}


@dataclass(frozen=True)
class Io:
    """One I/O: ns since recording began. Its sector is its name."""

    index: int
    queue: int
    issue: int
    complete: int

    @property
    def sector(self) -> int:
        return 8 * self.index

    @property
    def device(self) -> str:
        return DEVICES[self.index % 3 == 0]

    @property
    def op(self) -> str:
        return "W" if self.index % 4 == 1 else "R"

    @property
    def task(self) -> tuple[int, int, str]:
        return TASKS[self.index % 3]

    @property
    def cgroup(self) -> int:
        return 11 + self.index % 3

    @property
    def failed(self) -> bool:
        return self.index % 97 == 0

    @property
    def latency(self) -> int:
        return self.complete - self.queue

    @property
    def times(self) -> tuple[int, ...]:
        return self.queue, self.queue + 300, self.queue + 500, self.issue, self.complete

    def cut(self, begin: int, end: int) -> tuple[Any, ...] | None:
        """(begins before it, complete in it, failed in it, latency in it); None: not in it.

        A recording of a little more than that time alone has no more to say of it.
        """
        times = [t for t in self.times if begin - MARGIN <= t < end]
        if not times or (self.complete < begin) or (self.queue >= end):
            return None
        done = self.complete < end
        if times[0] != self.queue and not done and times[-1] < begin:
            return None  # nobody knows whether it goes on
        whole = done and self.queue >= begin
        return self.queue < begin, done, done and self.failed, self.latency if whole else None


def all_ios(seconds: int = SECONDS) -> Iterator[Io]:
    """Most take 1 to 9 ms; some several seconds, of which some are longer than a cut's margin."""
    for index in range(seconds * S // EVERY_NS):
        queue = index * EVERY_NS + 1000
        latency = (1 + index * 7 % 9) * MS + index
        if index % 50 == 7:
            latency = 1_300 * MS + index
        if index % 400 == 11:
            latency = 8 * S + index
        yield Io(index, queue, queue + latency // 10, queue + latency)


def events(io: Io) -> list[dict[str, Any]]:
    """Its records."""
    place, status = (io.device, io.op, io.sector, 8), 10 * io.failed
    of_cpu: dict[str, int] = {"cpu": io.index % 2, "status": status, "cgroup": io.cgroup}
    return captures.io_events(io.times, 0x400 + io.index % 512, place, io.task, **of_cpu)


def write(path: Path, seconds: int = SECONDS, *, whole: bool = True) -> list[Io]:
    """Writes the log, a chunk for each second. whole: not interrupted."""
    ios = list(all_ios(seconds))
    rows = sorted((e for io in ios for e in events(io)), key=lambda e: int(e["ns"]))
    encoder, rings = captures.encoding()
    with path.open("wb") as stream:
        log = LogWriter(stream, captures.header())
        log.write_note("cgroups", {str(k): v for k, v in CGROUPS.items()})
        at = 0
        last = rows[-1]["ns"]
        for second in range(1, last // S + 2):
            piece = []
            while at < len(rows) and rows[at]["ns"] < second * S:
                piece.append((rows[at]["cpu"], encoder.encode(rows[at])))
                at += 1
            if piece:
                log.write_chunk(rings.segments(piece), captures.clock(second * S))
            if second == LOSS["end"] // S:
                times = {k: captures.BASE_NS + int(LOSS[k]) for k in ("start", "end")}
                log.write_loss([{**LOSS, **times}])
        if whole:
            log.close({"clocks": captures.clock((last // S + 1) * S)})
    return ios


def chosen(ios: list[Io], begin: int, end: int) -> dict[int, tuple[Any, ...]]:
    """{sector: what Io.cut says} of those in a cut; ns since recording began."""
    found = {io.sector: io.cut(begin, end) for io in ios}
    return {sector: what for sector, what in found.items() if what is not None}
