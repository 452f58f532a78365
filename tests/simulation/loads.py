# SPDX-License-Identifier: Apache-2.0
"""Histories: a kernel, some devices, some tasks with loads on them, all drawn from one source.

`history(rng, size)` makes one. `size` is about how many loads run; `theme` picks devices.
"""

import random
from collections.abc import Callable
from typing import Any

from tests.simulation.clockwork import Process, Sim
from tests.simulation.delivery import deliver
from tests.simulation.devices import RequestDevice
from tests.simulation.model import (
    EVERYTHING,
    EVERYTHING_WITHOUT_START,
    LIFECYCLE,
    LIFECYCLE_WITHOUT_START,
    MINIMAL,
    SECTOR,
    History,
    Kernel,
)
from tests.simulation.operations import (
    DISCARD,
    FUA,
    PREFLUSH,
    READ,
    SYNC,
    WRITE,
    WRITE_ZEROES,
    ZONE_APPEND,
)
from tests.simulation.stacked import (
    BioDevice,
    Disk,
    LoopDevice,
    MappedDevice,
    MultipathMap,
    through,
)
from tests.simulation.traits import Task
from tests.simulation.world import UNIT, VDA, VDB, Devices

THEMES = ["disk", "two disks", "zram", "zram", "dm", "dm", "md", "md", "loop", "loop"]
THEMES += ["multipath", "multipath", "disk"]


class World(Devices):
    """The devices of one history, and what loads do to them."""

    # Loads. Each is a process of one task.

    def unplug(self, task: Task) -> Process:
        """The task lets go what it held back."""
        for dev in sorted({rq.dev for rq in task.plug}):
            yield from self.disks[dev].unplug(task)

    def place(self) -> int:
        """A sector; few different ones, so that I/O meets."""
        return self.sim.rng.randrange(16) * UNIT

    def single(self, task: Task, disk: Disk, part: int) -> Process:
        sim = self.sim
        opf = sim.choose([READ, WRITE, WRITE | SYNC])
        size = sim.choose([8, 8, 16, 1, 40, 72]) * SECTOR
        yield from disk.submit(task, self.bio(task, disk, part, self.place(), size, opf))

    def identical(self, task: Task, disk: Disk, part: int) -> Process:
        sim = self.sim
        sector = self.place()
        sim.features["identical concurrent reads"] += 1
        for number in range(sim.choose([2, 3])):
            other = Task(task.tid + number * sim.choose([0, 50]), sim.rng.randrange(sim.cpus))
            yield from disk.submit(other, self.bio(other, disk, part, sector, UNIT * SECTOR, READ))

    def run_of(self, task: Task, disk: Disk, part: int) -> Process:
        """Neighbours under a plug, forwards, backwards, shuffled, or with gaps filled late."""
        sim = self.sim
        count = sim.choose([3, 8, 12])
        order = list(range(count))
        shape = sim.rng.randrange(4)
        if shape == 1:
            order.reverse()
        elif shape == 2:
            order = order[::2] + order[1::2]
        elif shape == 3:
            sim.rng.shuffle(order)
        opf = sim.choose([WRITE, READ])
        base = self.place() + sim.rng.randrange(4) * 256
        task.plugged = not sim.chance(0.4)
        for number in order:
            sector = base + number * UNIT
            yield from disk.submit(task, self.bio(task, disk, part, sector, UNIT * SECTOR, opf))
        task.plugged = False
        yield from self.unplug(task)

    def twins(self, task: Task, disk: Disk, part: int) -> Process:
        """Two tasks read the same neighbours at once, more than a short chain names."""
        sim = self.sim
        sim.features["the same run twice at once"] += 1
        base = self.place() + 4096
        tasks = [task, Task(task.tid + 50, sim.rng.randrange(sim.cpus))]
        for one in tasks:
            one.plugged = True
        for number in range(sim.choose([10, 12])):
            for one in tasks:
                sector = base + number * UNIT
                yield from disk.submit(one, self.bio(one, disk, part, sector, UNIT * SECTOR, READ))
        for one in tasks:
            one.plugged = False
            yield from self.unplug(one)

    def gap(self, task: Task, disk: Disk, part: int) -> Process:
        """Two that the scheduler holds, and what lies between, from another task's plug."""
        sim = self.sim
        opf = sim.choose([WRITE, READ])
        base = self.place() + 2048
        other = Task(task.tid + 50, sim.rng.randrange(sim.cpus), plugged=True)
        # Where more is held further on, what the first unplug joined is joined again.
        third = Task(task.tid + 100, sim.rng.randrange(sim.cpus), plugged=True)
        owners = {1: other, 3: third}
        for number in (1, 0, 2) if sim.chance(0.3) else (1, 3, 0, 2, 4):
            owner = owners.get(number, task)
            bio = self.bio(owner, disk, part, base + number * UNIT, UNIT * SECTOR, opf)
            yield from disk.submit(owner, bio)
        for owner in (third, other):
            owner.plugged = False
            yield from self.unplug(owner)

    def large(self, task: Task, disk: Disk, part: int) -> Process:
        """More than the limit."""
        sim = self.sim
        opf = sim.choose([WRITE, READ])
        size = sim.choose([100, 200, 130]) * SECTOR
        sector = self.place()
        task.plugged = sim.chance(0.5)
        if task.plugged:  # what the first piece can join
            before = self.bio(task, disk, part, sector, UNIT * SECTOR, opf)
            yield from disk.submit(task, before)
            sector += UNIT
        yield from disk.submit(task, self.bio(task, disk, part, sector, size, opf))
        task.plugged = False
        yield from self.unplug(task)

    def discards(self, task: Task, disk: Disk, part: int) -> Process:
        """Several discards under a plug, and a large one."""
        sim = self.sim
        task.plugged = True
        for _ in range(sim.choose([2, 5, 9])):
            size = sim.choose([8, 16, 24, 80]) * SECTOR
            yield from disk.submit(task, self.bio(task, disk, part, self.place(), size, DISCARD))
        task.plugged = False
        yield from self.unplug(task)

    def zeroes(self, task: Task, disk: Disk, part: int) -> Process:
        size = self.sim.choose([8, 100]) * SECTOR
        yield from disk.submit(task, self.bio(task, disk, part, self.place(), size, WRITE_ZEROES))

    def append(self, task: Task, disk: Disk, part: int) -> Process:
        for _ in range(self.sim.choose([1, 3])):
            size = self.sim.choose([8, 16]) * SECTOR
            yield from disk.submit(task, self.bio(task, disk, part, 1024, size, ZONE_APPEND))

    def fsyncs(self, task: Task, disk: Disk, part: int) -> Process:
        for _ in range(self.sim.choose([1, 2, 3])):
            flush = self.bio(task, disk, part, 0, 0, WRITE | PREFLUSH | SYNC)
            yield from disk.submit(task, flush)

    def commits(self, task: Task, disk: Disk, part: int) -> Process:
        """FUA writes, and journal commits (flush, data, flush)."""
        opf = WRITE | SYNC | FUA | (PREFLUSH if self.sim.chance(0.5) else 0)
        yield from disk.submit(task, self.bio(task, disk, part, self.place(), 4096, opf))

    def passthrough(self, task: Task, disk: Disk, part: int) -> Process:
        """A command that a program made."""
        del part
        if isinstance(disk, RequestDevice):
            yield from through(self.sim, disk, task, lambda: None)

    def loads_for(self, disk: Disk) -> list[Callable[[Task, Disk, int], Process]]:
        """What a disk can be asked."""
        common = [self.single, self.single, self.identical, self.run_of, self.run_of, self.large]
        if isinstance(disk, MappedDevice):
            common += [self.large] * 4
        if isinstance(disk, RequestDevice):
            common += [self.gap, self.twins]
        if not isinstance(disk, RequestDevice):
            flush = [] if isinstance(disk, BioDevice) else [self.fsyncs, self.commits]
            return common + flush
        more = [self.fsyncs, self.fsyncs, self.commits, self.zeroes, self.passthrough]
        if isinstance(disk, LoopDevice | MultipathMap):
            return common + more
        return common + more + [self.discards, self.discards, self.append]


def draw_kernel(sim_choice: Callable[[list[Any]], Any], chance: Callable[[float], bool]) -> Kernel:
    letters = sim_choice(
        [
            EVERYTHING,
            EVERYTHING,
            LIFECYCLE,
            LIFECYCLE_WITHOUT_START,
            EVERYTHING_WITHOUT_START,
            MINIMAL,
        ]
    )
    old = chance(0.4)
    return Kernel(
        letters=letters,
        has_start="s" in letters or (letters == MINIMAL and not old),
        tells_merge=old and "s" not in letters,
        splits_silently=old,
        dm_says_x=not old,
        fronts_merge=chance(0.6),
        chain_records=1 if chance(0.35) else 43,
    )


def history(rng: random.Random, size: int = 12) -> History:
    """One history, ended and delivered."""
    sim = Sim(rng, Kernel())
    sim.kernel = draw_kernel(sim.choose, sim.chance)
    sim.cpus = sim.choose([2, 1, 4])
    world = World(sim)
    theme = sim.choose(THEMES)
    _build(world, theme)
    span = sim.choose([100_000, 1_000_000, 20_000_000])
    for number in range(1 + sim.rng.randrange(size)):
        tid = 100 + sim.rng.randrange(4)
        task = Task(tid, sim.rng.randrange(sim.cpus), comm=f"load{tid}")
        disk, parts = sim.choose(world.targets)
        load = sim.choose(world.loads_for(disk))
        sim.spawn(_named(sim, task, load(task, disk, sim.choose(parts))), sim.delay(0, span))
        del number
    sim.run()
    bios = [b for b in sim.bios if b.records]
    bios.sort(key=lambda b: b.records[0].order)
    found = History(sim.kernel, world.devices, sim.records, bios, sim.requests, sim.features)
    found.label = theme
    deliver(found, rng)
    return found


def _named(sim: Sim, task: Task, load: Process) -> Process:
    sim.name_task(task.tid, task.cpu, task.comm)
    yield 1
    yield from load


def _build(world: World, theme: str) -> None:
    if theme == "disk":
        world.disk(VDA, "vda")
    elif theme == "two disks":
        world.disk(VDA, "vda")
        world.disk(VDB, "vdb")
    else:
        getattr(world, theme)()
    if theme == "zram":
        world.disk(VDB, "vdb")
