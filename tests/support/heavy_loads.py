# SPDX-License-Identifier: Apache-2.0
"""Logs of one kind of load, of any length: a simulated stretch, repeated later and later.

Every stretch ends with nothing in flight, so addresses may live again in the next.
"""

import dataclasses
import io
import random
from collections.abc import Callable

from biotrail.recorder.log import LogWriter
from tests.simulation.clockwork import Process, Sim
from tests.simulation.delivery import encode
from tests.simulation.devices import RequestDevice
from tests.simulation.model import (
    EVERYTHING,
    EVERYTHING_WITHOUT_START,
    LIFECYCLE,
    LIFECYCLE_WITHOUT_START,
    MINIMAL,
    SECTOR,
    Kernel,
    Rec,
)
from tests.simulation.operations import PREFLUSH, READ, SYNC, WRITE
from tests.simulation.traits import Task, Traits
from tests.simulation.world import UNIT, VDA, Devices
from tests.support import captures

EVENT_SETS = {
    "minimal": MINIMAL,
    "lifecycle": LIFECYCLE,
    "lifecycle, G for s": LIFECYCLE_WITHOUT_START,
    "all": EVERYTHING,
    "all, no s": EVERYTHING_WITHOUT_START,
}
"""Letters by the name of an event set; without s as Linux 6.1 has it."""
_STRETCH = 50
"""Times that a load runs in a stretch."""
_PER_CHUNK = 20_000
"""Records in a chunk, about."""


class _World(Devices):
    """One disk with a scheduler, on which nothing fails."""

    def traits(self) -> Traits:
        return Traits(scheduler="mq-deadline", max_bytes=64 * SECTOR, depth=16)

    def write(self, task: Task, sector: int, units: int = 1, opf: int = WRITE) -> Process:
        """One bio of that many UNITs."""
        disk = self.disks[VDA]
        yield from disk.submit(task, self.bio(task, disk, VDA, sector, units * UNIT * SECTOR, opf))

    def unplug(self, tasks: list[Task]) -> Process:
        """All of them let go what they held back, the first one first."""
        for task in tasks:
            task.plugged = False
            yield from self.disks[VDA].unplug(task)


def merges(world: _World, at: int) -> Process:
    """Neighbours under a plug: bios join requests by M and F."""
    task = Task(100, 0, plugged=True)
    for number in (2, 3, 1, 4, 0, 5):
        yield from world.write(task, at * 1024 + number * UNIT)
    yield from world.unplug([task])


def request_merges(world: _World, at: int) -> Process:
    """Neighbours of several tasks: the scheduler joins their requests, by m."""
    tasks = [Task(100 + number, number % 2, plugged=True) for number in range(3)]
    for number in (0, 2, 4):
        yield from world.write(tasks[0], at * 1024 + number * UNIT)
    for number in (1, 3):
        yield from world.write(tasks[number // 2 + 1], at * 1024 + number * UNIT)
    yield from world.unplug(tasks)


def splits(world: _World, at: int) -> Process:
    """Reads larger than the device takes."""
    yield from world.write(Task(100, 0), at * 1024, 40, READ)


def flushes(world: _World, at: int) -> Process:
    """Writes and fsyncs of two tasks at once, that share flushes."""
    for tid in (100, 101):
        task = Task(tid, tid % 2)
        yield from world.write(task, at * 1024 + tid * UNIT)
        disk = world.disks[VDA]
        bio = world.bio(task, disk, VDA, 0, 0, WRITE | PREFLUSH | SYNC)
        yield from disk.submit(task, bio)


Load = Callable[[_World, int], Process]
LOADS: dict[str, Load] = {
    "merges": merges,
    "request merges": request_merges,
    "splits": splits,
    "flushes": flushes,
}


@dataclasses.dataclass
class Stretch:
    """Records of one load from idle to idle, in the order of their time, and their devices."""

    records: list[Rec]
    devices: list[dict[str, object]]
    letters: str


def stretch(load: str, letters: str, *, fsync: bool = False) -> Stretch:
    """Simulate one. fsync: there is a single one at its end."""
    has_start = "s" in letters or letters == MINIMAL
    sim = Sim(random.Random(7), Kernel(letters=letters, has_start=has_start))
    world = _World(sim)
    world.disk(VDA, "vda")
    assert isinstance(world.disks[VDA], RequestDevice)

    def work() -> Process:
        for number in range(_STRETCH):
            yield from LOADS[load](world, number)
            yield 200_000
        if fsync:
            yield from world.write(Task(100, 0), 0, 0, WRITE | PREFLUSH | SYNC)

    sim.spawn(work())
    sim.run()
    wanted = sim.kernel.seen | {"T"}
    return Stretch([r for r in sim.records if r.letter in wanted], world.devices, letters)


def log_of(one: Stretch, events: int, last: Stretch | None = None) -> tuple[io.BytesIO, int]:
    """(a log of about so many events, how many it has): the stretch again and again.

    last: what it ends with.
    """
    span = one.records[-1].ts + 1_000_000
    times = max(1, events // len(one.records))
    rows = [
        dataclasses.replace(rec, ts=rec.ts + number * span)
        for number in range(times)
        for rec in one.records
    ]
    rows += [dataclasses.replace(r, ts=r.ts + times * span) for r in last.records] if last else []
    stream = io.BytesIO()
    letters = {"set": "all", "letters": sorted(set(one.letters)), "missing": []}
    writer = LogWriter(stream, captures.header(devices=one.devices, events=letters), level=0)
    rings = captures.Rings()
    for begin in range(0, len(rows), _PER_CHUNK):
        part = rows[begin : begin + _PER_CHUNK]
        segments = rings.segments([(rec.cpu, [encode(rec)]) for rec in part])
        writer.write_chunk(segments, captures.clock(part[-1].ts + 1))
    writer.close({"clocks": captures.clock(rows[-1].ts + 2)})
    stream.seek(0)
    return stream, len(rows)
