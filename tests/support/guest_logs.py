# SPDX-License-Identifier: Apache-2.0
"""Logs by hand of a guest and its host: transfers whose way through both is known.

The guest has its virtual disk at vda, the host has the image on loop1, used by process 700.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support import captures
from tests.support.captures import Event

HOST_PID = 700
HOST_NAME = "qemu-system-x86"
VDA, LOOP = "254:0", "7:1"
MICROSECOND = 1_000
MILLISECOND = 1_000_000


@dataclass(frozen=True)
class Transfer:
    """A request of the guest, at true times (ns); by default its bio is alone, and as large."""

    at: int
    """Issue in the guest."""
    sector: int
    sectors: int = 8
    op: str = "R"
    to_host: int = 30 * MICROSECOND
    on_host: int = 100 * MICROSECOND
    """From the host's Q to its completion; its D is 2 µs after Q."""
    from_host: int = 40 * MICROSECOND
    pieces: tuple[tuple[int, int], ...] | None = None
    """(sector, sectors) of its bios on the host's device; (): the host's page cache answered."""
    pid: int = HOST_PID
    comm: str = ""
    """Name of the thread that queues the bios; empty: the process's."""
    cgroup: int = 0

    @property
    def bios(self) -> tuple[tuple[int, int], ...]:
        """The pieces, or the request's own range."""
        return ((self.sector, self.sectors),) if self.pieces is None else self.pieces

    @property
    def end(self) -> int:
        """When the guest sees the completion."""
        return self.at + self.to_host + self.on_host + self.from_host


@dataclass(frozen=True)
class Clock:
    """The guest's clock: what it shows at true time t is (t - behind) * (1 + fast)."""

    behind: int = 0
    """ns."""
    fast: float = 0.0

    def at(self, true: int) -> int:
        """Return what the guest's clock shows."""
        since = true - self.behind
        return since + round(since * self.fast)


def transfers(count: int, *, seed: int = 1, apart: int = MILLISECOND) -> list[Transfer]:
    """Return reads and writes at distinct sectors, with some variety in each part of their way."""
    draw = random.Random(seed)
    places = draw.sample(range(1 << 16), count)
    return [
        Transfer(
            at=(number + 1) * apart + draw.randrange(200 * MICROSECOND),
            sector=place * 16,
            op=draw.choice("RW"),
            to_host=draw.randrange(20, 120) * MICROSECOND,
            on_host=draw.randrange(50, 300) * MICROSECOND,
            from_host=draw.randrange(20, 150) * MICROSECOND,
        )
        for number, place in enumerate(places)
    ]


def _io(
    dev: str,
    op: str,
    place: tuple[int, int],
    times: tuple[int, int, int],
    number: int,
    who: tuple[int, str],
) -> list[Event]:
    """Return the events of a bio with a request of its own. times: Q, D and C, ns."""
    pid, comm = who
    queue, *rest = times
    return captures.io_events(
        (queue, queue, queue, *rest), number, (dev, op, *place), (pid, pid, comm)
    )


def write(
    directory: Path,
    moved: Sequence[Transfer],
    clock: Clock = Clock(),
    *,
    name: str = HOST_NAME,
    losses: Sequence[dict[str, int]] = (),
) -> tuple[Path, Path]:
    """Write both logs; return the guest's and the host's.

    name: of the host's process. losses: of the host's log, as `captures.write_log` takes them.
    """
    guest, host, number = [], [], 0
    for count, one in enumerate(moved, 1):
        place = one.sector, one.sectors
        times = clock.at(one.at - 5000), clock.at(one.at), clock.at(one.end)
        guest += _io(VDA, one.op, place, times, count, (11, "fio"))
        queued = one.at + one.to_host
        for step, piece in enumerate(one.bios):
            number += 1
            begin = queued + step * 1000
            span = begin, begin + 2000, queued + one.on_host
            who = one.pid, one.comm or name
            events = _io(LOOP, one.op, piece, span, number, who)
            host += [{**event, "cgroup": one.cgroup} for event in events]
    return (
        _log(directory / "guest.biotrail", guest, "guest", "a"),
        _log(directory / "host.biotrail", host, "host", "b", losses),
    )


def _log(
    path: Path,
    events: list[Event],
    host: str,
    letter: str,
    losses: Sequence[dict[str, int]] = (),
) -> Path:
    machine = {"name": host, "boot_id": letter * 32}
    events = sorted(events, key=lambda event: event["ns"])
    header = {"host": machine, "log_id": letter * 32}
    return captures.write_log(path, events, header, chunks=4, losses=losses)


def merged(first: Transfer, second: Transfer) -> tuple[Transfer, Transfer]:
    """Return two neighbours that the hypervisor sends as one bio: the first one's."""
    whole = ((first.sector, first.sectors + second.sectors),)
    return replace(first, pieces=whole), replace(second, pieces=())
