# SPDX-License-Identifier: Apache-2.0
"""The devices of a generated history, each with a character drawn by chance."""

from typing import Any

from tests.simulation.clockwork import Sim
from tests.simulation.devices import RequestDevice
from tests.simulation.model import SECTOR, Bio, Request
from tests.simulation.operations import READ, WRITE
from tests.simulation.stacked import (
    BioDevice,
    Disk,
    LoopDevice,
    MappedDevice,
    MultipathMap,
    Resubmitting,
    Target,
)
from tests.simulation.traits import Task, Traits
from tests.support.captures import device_number

UNIT = 8
VDA, VDB = device_number("254:0"), device_number("254:16")
LOOP, ZRAM = device_number("7:1"), device_number("253:1")
DM, MD, NVME = device_number("252:0"), device_number("9:0"), device_number("259:8")
VDA1, VDA2 = device_number("254:1"), device_number("254:2")
REQUESTS = {"nr_hw_queues": 1}


class Devices:
    """The devices of one history, and bios for them."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.devices: list[dict[str, Any]] = []
        self.disks: dict[int, RequestDevice] = {}
        self.targets: list[tuple[Disk, list[int]]] = []
        """What loads go to: a disk, and the parts of it that may be addressed."""

    def traits(self) -> Traits:
        """How a disk behaves; plain when all choices are zero."""
        sim = self.sim
        odd = sim.chance(0.5)
        return Traits(
            scheduler=sim.choose(["none", "mq-deadline", "bfq", "kyber"]),
            max_bytes=sim.choose([64, 24, 1024]) * SECTOR,
            depth=sim.choose([4, 1, 2, 16]),
            hw_fua=sim.chance(0.4),
            ranges=sim.choose([1, 4, 12]),
            fails_early=0.15 if odd and sim.chance(0.5) else 0.0,
            fails_before_issue=0.06 if odd and sim.chance(0.25) else 0.0,
            requeues=0.25 if odd and sim.chance(0.6) else 0.0,
            partial=0.25 if odd and sim.chance(0.6) else 0.0,
            errors=0.12 if odd and sim.chance(0.6) else 0.0,
            slow=sim.choose([1, 1, 8, 60]),
        )

    def disk(self, dev: int, name: str, *, target: bool = True) -> RequestDevice:
        """A request-based disk; vda has partitions."""
        traits = self.traits()
        traits.hw_queues = 2 if dev == VDB else 1
        disk = RequestDevice(self.sim, dev, name, traits)
        self.disks[dev] = disk
        queue = {"nr_hw_queues": traits.hw_queues}
        entry = {"dev": dev, "name": name, "kind": "disk", "queue": queue}
        self.devices.append(entry)
        parts = [dev]
        if dev == VDA:
            for part, start in ((VDA1, 2048), (VDA2, 4096)):
                disk.partitions[part] = start
                place = {"disk": dev, "start": start, "sectors": 2048}
                self.devices.append(
                    {"dev": part, "name": f"{name}{part - dev}", "kind": "partition"} | place
                )
                parts.append(part)
        if target:
            self.targets.append((disk, parts))
        disk.after_requeue = self._meet if self.sim.chance(0.6) else None
        return disk

    def _meet(self, disk: RequestDevice, rq: Request) -> None:
        """Somebody writes or reads on, right behind a request that was requeued."""
        task = Task(100 + self.sim.rng.randrange(4), self.sim.rng.randrange(self.sim.cpus))
        bio = self.bio(task, disk, disk.dev, rq.end_sector, UNIT * SECTOR, rq.opf)
        self.sim.spawn(disk.submit(task, bio))

    def zram(self) -> None:
        """A bio-based device."""
        sim = self.sim
        self.devices.append({"dev": ZRAM, "name": "zram1", "kind": "disk"})
        disk = BioDevice(
            sim,
            ZRAM,
            keeps_size=not sim.chance(0.5),
            errors=0.25 if sim.chance(0.6) else 0.0,
            limit=sim.choose([1024, 32, 32]) * SECTOR,
        )
        self.targets.append((disk, [ZRAM]))

    def dm(self) -> None:
        """dm: linear, of several targets, or striped."""
        sim = self.sim
        vda, vdb = self.disk(VDA, "vda"), self.disk(VDB, "vdb")
        self.devices.append(
            {"dev": DM, "name": "dm-0", "kind": "dm", "dm_name": "data", "stacked_on": [VDA, VDB]}
        )
        size = sim.choose([4096, 32, 32])
        targets = [
            Target(0, size, vda, 10_000),
            Target(size, 48, vdb, 20_000),
            Target(size + 48, 4096, vda, 30_000),
        ]
        if sim.chance(0.7):
            targets[0] = Target(0, size, vda, 100, VDA1)
        mapped = MappedDevice(
            sim,
            DM,
            targets,
            deferred=0.3 if sim.chance(0.4) else 0.0,
            says_x="rest" if sim.kernel.dm_says_x else "none",
        )
        self.targets += [(mapped, [DM])] * 4

    def md(self) -> None:
        """md raid1 (every write twice) or striped."""
        sim = self.sim
        vda, vdb = self.disk(VDA, "vda"), self.disk(VDB, "vdb")
        self.devices.append({"dev": MD, "name": "md0", "kind": "md", "stacked_on": [VDA, VDB]})
        mirrors = not sim.chance(0.5)
        chunk = 0 if mirrors else 16
        lowers = [vda, vdb] if mirrors else [vda]
        targets = [Target(0, 1 << 20, lower, 5000) for lower in lowers]
        says_x = "none" if sim.kernel.splits_silently else "front"
        array = MappedDevice(
            sim,
            MD,
            targets,
            mirrors=mirrors,
            chunk=chunk or sim.choose([32, 1024]),
            deferred=0.3 if sim.chance(0.4) else 0.0,
            says_x=says_x,
        )
        self.targets += [(array, [MD])] * 4

    def loop(self) -> None:
        sim = self.sim
        vda = self.disk(VDA, "vda")
        direct = not sim.chance(0.5)
        backing = {"backing_dev": VDA, "direct_io": direct}
        self.devices.append(
            {"dev": LOOP, "name": "loop1", "kind": "loop", "loop": backing, "queue": REQUESTS}
        )
        loop = LoopDevice(sim, LOOP, "loop1", self.traits(), vda, direct=direct)
        self.disks[LOOP] = loop
        self.targets += [(loop, [LOOP])] * 2

    def multipath(self) -> None:
        sim = self.sim
        vdb = self.disk(VDB, "vdb", target=sim.chance(0.5))
        if sim.chance(0.5):
            self.devices.append(
                {"dev": DM, "name": "dm-0", "kind": "dm", "stacked_on": [VDB], "queue": REQUESTS}
            )
            self.disks[DM] = MultipathMap(sim, DM, "dm-0", self.traits(), vdb)
            self.targets.append((self.disks[DM], [DM]))
            return
        self.devices.append({"dev": NVME, "name": "nvme0n1", "kind": "disk", "stacked_on": [VDB]})
        head = Resubmitting(sim, NVME, vdb, queues_below=sim.chance(0.4))
        self.targets.append((head, [NVME]))

    def bio(self, task: Task, disk: Disk, part: int, sector: int, size: int, opf: int) -> Bio:
        bio = self.sim.new_bio(disk.dev, sector, size, opf, task.tid)
        bio.part = part
        if size and bio.op in (READ, WRITE):
            bio.page = self.sim.pages.take()
        bio.cgroup = task.tid & 1
        return bio
