# SPDX-License-Identifier: Apache-2.0
"""Histories that are mostly plain: ordinary I/O on a disk, with a fault here and there.

What `loads` makes is nearly all odd, which proves little about I/O that is settled as plain; here
nearly all is plain, and what is odd stands beside it.
"""

import random

from tests.simulation.clockwork import Process, Sim
from tests.simulation.delivery import deliver
from tests.simulation.loads import World, draw_kernel
from tests.simulation.model import SECTOR, History, Kernel
from tests.simulation.operations import READ, SYNC, WRITE
from tests.simulation.stacked import BioDevice, Disk, MappedDevice, Target
from tests.simulation.traits import Task, Traits
from tests.simulation.world import DM, MD, UNIT, VDA, VDA1, VDB, ZRAM

FAULTS = ("fails_early", "fails_before_issue", "requeues", "partial", "errors")
RARE = 0.01


class PlainWorld(World):
    """Disks that rarely do anything but serve."""

    places = 1 << 10
    """Pairs of sectors that scattered I/O goes to."""

    def traits(self) -> Traits:
        sim = self.sim
        faults = {sim.choose(list(FAULTS)): RARE} if sim.chance(0.5) else {}
        return Traits(
            scheduler=sim.choose(["none", "mq-deadline", "bfq", "kyber"]),
            max_bytes=sim.choose([64, 24, 1024]) * SECTOR,
            depth=sim.choose([4, 2, 16]),
            hw_fua=sim.chance(0.7),
            slow=sim.choose([1, 1, 8]),
            **faults,
        )

    def scattered(self, task: Task, disk: Disk, part: int) -> Process:
        sim = self.sim
        for _ in range(sim.choose([60, 100])):
            opf = sim.choose([READ, WRITE, WRITE | SYNC])
            size = sim.choose([1, 8, 8, 16]) * SECTOR
            sector = sim.rng.randrange(self.places) * 2
            yield from disk.submit(task, self.bio(task, disk, part, sector, size, opf))

    def stacks(self) -> None:
        """A linear map of the disks, mirrors, or one upon the other; at times a bio-based disk.

        The map begins on a disk or a partition, and at times goes on on the other disk.
        """
        sim, self.places = self.sim, 1 << 16
        vda, vdb = self.disk(VDA, "vda"), self.disk(VDB, "vdb")
        parts = [0, VDA1] if sim.chance(0.5) else [0]
        first = sim.choose([1 << 20, 1 << 20, 1 << 12])
        linear = [Target(0, first, vda, 100, sim.choose(parts)), Target(first, 1 << 20, vdb, 100)]
        mirrors = [Target(0, 1 << 20, disk, 5000) for disk in (vda, vdb)]
        kinds = ["linear", "linear", "mirror", "both"]
        kind = sim.choose(kinds)
        late = 0.3 if sim.chance(0.3) else 0.0
        says_x = "rest" if sim.kernel.dm_says_x else "none"
        below: list[Target] = linear
        if kind != "linear":
            self._stacked(MD, "md0", "md")
            array = MappedDevice(sim, MD, mirrors, mirrors=True, says_x="none")
            self.targets.append((array, [MD]))
            below = [Target(0, 1 << 21, array, 2048)]
        if kind != "mirror":
            self._stacked(DM, "dm-0", "dm")
            mapped = MappedDevice(sim, DM, below, deferred=late, says_x=says_x)
            self.targets += [(mapped, [DM])] * 4
        if sim.chance(0.3):
            self.devices.append({"dev": ZRAM, "name": "zram1", "kind": "disk"})
            zram = BioDevice(sim, ZRAM, keeps_size=sim.chance(0.5), errors=0.0, limit=1 << 20)
            self.targets.append((zram, [ZRAM]))

    def _stacked(self, dev: int, name: str, kind: str) -> None:
        below = [MD] if kind == "dm" and any(d["dev"] == MD for d in self.devices) else [VDA, VDB]
        self.devices.append({"dev": dev, "name": name, "kind": kind, "stacked_on": below})

    def sequential(self, task: Task, disk: Disk, part: int) -> Process:
        """Runs of neighbours under a plug, forwards."""
        for _ in range(self.sim.choose([2, 5])):
            base = self.sim.rng.randrange(self.places // 16) * 16
            task.plugged = True
            for number in range(self.sim.choose([4, 9])):
                sector = base + number * UNIT
                bio = self.bio(task, disk, part, sector, UNIT * SECTOR, WRITE)
                yield from disk.submit(task, bio)
            task.plugged = False
            yield from self.unplug(task)

    def wide(self, task: Task, disk: Disk, part: int) -> Process:
        """Bios that are split, some at the edge of the limit."""
        sim = self.sim
        for _ in range(sim.choose([2, 6])):
            size = sim.choose([64, 65, 100, 128, 129]) * SECTOR
            sector = sim.rng.randrange(self.places // 2)
            yield from disk.submit(task, self.bio(task, disk, part, sector, size, READ))

    def synced(self, task: Task, disk: Disk, part: int) -> Process:
        """Writes, each with an fsync or a commit behind it, as a database's log makes them."""
        sim = self.sim
        for _ in range(sim.choose([4, 12])):
            sector = sim.rng.randrange(self.places) * 2
            yield from disk.submit(task, self.bio(task, disk, part, sector, 8 * SECTOR, WRITE))
            yield sim.delay(1_000, 200_000)
            yield from sim.choose([self.fsyncs, self.commits])(task, disk, part)


def plain_history(rng: random.Random, *, stacked: bool = False) -> History:
    """One history of several tasks, ended and delivered. stacked: of devices upon each other."""
    sim = Sim(rng, Kernel())
    sim.kernel = draw_kernel(sim.choose, sim.chance)
    if not sim.chance(0.1):  # chains that were cut make whole requests odd
        sim.kernel.chain_records = Kernel.chain_records
    sim.cpus = sim.choose([2, 1, 4])
    world = PlainWorld(sim)
    if stacked:
        world.stacks()
    else:
        world.disk(VDA, "vda")
        if sim.chance(0.3):
            world.disk(VDB, "vdb")
    scattered = [world.scattered] * (6 if stacked else 2)
    loads = [*scattered, world.sequential, world.wide, world.synced]
    odd = [world.discards, world.identical, world.passthrough]
    for number in range(sim.choose([4, 8])):
        task = Task(100 + number, sim.rng.randrange(sim.cpus), comm=f"load{number}")
        disk, parts = sim.choose(world.targets)
        load = sim.choose(odd if number == 0 and sim.chance(0.3) else loads)
        sim.spawn(load(task, disk, sim.choose(parts)), sim.delay(0, 1_000_000))
    sim.run()
    bios = [b for b in sim.bios if b.records]
    bios.sort(key=lambda b: b.records[0].order)
    found = History(sim.kernel, world.devices, sim.records, bios, sim.requests, sim.features)
    found.label = "stacked" if stacked else "plain"
    deliver(found, rng, whole=True)
    return found
