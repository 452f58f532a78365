# SPDX-License-Identifier: Apache-2.0
"""Devices without requests of their own, and devices upon devices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.simulation.bios import cut_front, end_without_request, queue_fields
from tests.simulation.clockwork import Process, Sim
from tests.simulation.devices import RequestDevice
from tests.simulation.model import IOERR, SECTOR, Bio, Request
from tests.simulation.operations import DRV_IN, NOMERGE, PREFLUSH, READ
from tests.simulation.traits import Task, Traits


class Disk(Protocol):
    """What can be submitted to."""

    dev: int

    def submit(self, task: Task, bio: Bio) -> Process:
        """Q and all that follows."""


class BioDevice:
    """zram, brd, pmem: Q and c, nothing between."""

    def __init__(self, sim: Sim, dev: int, *, keeps_size: bool, errors: float, limit: int) -> None:
        self.sim, self.dev = sim, dev
        self._keeps_size, self._errors, self._limit = keeps_size, errors, limit

    def submit(self, task: Task, bio: Bio) -> Process:
        """Q; splits at the limit; c."""
        sim = self.sim
        bio.dev = bio.queue_dev = self.dev
        sim.bio_record("Q", task.cpu, bio, **queue_fields(bio))
        size, start = bio.bytes, bio.sector
        fronts = []
        while bio.bytes > self._limit:
            sim.features["split of a bio-based device"] += 1
            fronts.append(cut_front(sim, task.cpu, bio, self._limit))
            yield sim.delay(100, 2000)
        yield sim.delay(200, 20_000)
        bad = IOERR if sim.chance(self._errors) else 0
        for front in fronts:
            sim.free_bio(front)
        sim.features["bio-based"] += 1
        finish_bio_based(sim, task.cpu, bio, start, size, bad, keeps_size=self._keeps_size)


def finish_bio_based(
    sim: Sim, cpu: int, bio: Bio, start: int, size: int, status: int, *, keeps_size: bool
) -> None:
    """c with the whole range, or with the size gone and the end as sector."""
    if not keeps_size:
        sim.features["c without a size"] += 1
        bio.sector, bio.bytes = start + size // SECTOR, 0
    else:
        bio.sector, bio.bytes = start, size
    sim.features["failure of a bio-based bio"] += bool(status)
    end_without_request(sim, cpu, bio, status, bio.bytes)


@dataclass
class Target:
    """A piece of a mapped device: `[start, start + sectors)` lies at `to` on `lower`."""

    start: int
    sectors: int
    lower: Disk
    to: int
    part: int = 0
    """The partition of `lower` that `to` counts from; 0: none."""


Part = tuple[int, int, list[tuple[Disk, int, int]]]
"""First sector, sectors, and the places below: (disk, sector, partition or 0)."""


class MappedDevice:
    """dm and md over clones: A then Q below for each part, c when all are done."""

    def __init__(
        self,
        sim: Sim,
        dev: int,
        targets: list[Target],
        *,
        mirrors: bool = False,
        deferred: float = 0.0,
        chunk: int = 0,
        says_x: str = "none",
    ) -> None:
        self.sim, self.dev, self.targets = sim, dev, targets
        self.mirrors, self.deferred, self.chunk, self.says_x = mirrors, deferred, chunk, says_x
        self.worker = Task(tid=900 + (dev & 0xFF), cpu=0, comm="kworker/u8:1")

    def submit(self, task: Task, bio: Bio) -> Process:
        """Q, then the clones, by the same task or by a worker."""
        sim = self.sim
        bio.dev = bio.queue_dev = self.dev
        sim.bio_record("Q", task.cpu, bio, **queue_fields(bio))
        yield sim.delay(100, 2000)
        parts = self._parts(bio)
        if len(parts) > 1:
            sim.features["stacked bio with several parts"] += 1
        if sim.chance(self.deferred):
            sim.features["clones sent by a worker"] += 1
            sim.spawn(self._send(self.worker, bio, parts), sim.delay(500, 20_000))
        else:
            yield from self._send(task, bio, parts)

    def _parts(self, bio: Bio) -> list[Part]:
        """(first sector, sectors, places below) of each part."""
        if not bio.bytes:
            places = [(t.lower, 0, t.part) for t in self.targets]
            return [(bio.sector, 0, places if self.mirrors else places[:1])]
        at, end, parts = bio.sector, bio.end_sector, []
        while at < end:
            of = [t for t in self.targets if t.start <= at < t.start + t.sectors]
            stop = min([end, *(t.start + t.sectors for t in of)])
            if self.chunk:
                stop = min(stop, at - at % self.chunk + self.chunk)
            if self.mirrors and bio.op == READ:
                of = [self.sim.choose(of)]
            parts.append((at, stop - at, [(t.lower, t.to + at - t.start, t.part) for t in of]))
            at = stop
        return parts

    def _send(self, task: Task, bio: Bio, parts: list[Part]) -> Process:
        sim = self.sim
        start, size = bio.sector, bio.bytes
        left = [sum(len(places) for _, _, places in parts)]
        for number, (at, sectors, places) in enumerate(parts):
            last = number == len(parts) - 1
            if not last and self.says_x == "front":
                front = cut_front(sim, task.cpu, bio, sectors * SECTOR)
                sim.features["md split with X"] += 1
                sim.later(lambda f=front: sim.free_bio(f), 500_000)
            for place in places:
                yield from self._clone(task, bio, (at, sectors, place), left, (start, size))
            if not last and self.says_x == "rest":
                sim.features["dm says X for the rest"] += 1
                bio.sector, bio.bytes = at + sectors, size - (at + sectors - start) * SECTOR
                bio_x = {"parent": 0xFFFF_8883_0000_7700, "new_sector": bio.sector}
                sim.bio_record("X", task.cpu, bio, **bio_x)
            elif not last and self.says_x == "none":
                sim.features["split without X"] += 1
            yield sim.delay(50, 1500)

    def _clone(
        self,
        task: Task,
        bio: Bio,
        part: tuple[int, int, tuple[Disk, int, int]],
        left: list[int],
        whole: tuple[int, int],
    ) -> Process:
        sim = self.sim
        at, sectors, (lower, to, partition) = part
        clone = sim.new_bio(lower.dev, to, sectors * SECTOR, bio.opf, task.tid)
        clone.upper = bio
        clone.part = partition or lower.dev
        source = {"from_sector": at, "from_dev": self.dev, "part": clone.part}
        sim.bio_record("A", task.cpu, clone, **source)
        sim.features["clone sent to a partition"] += bool(partition)
        sim.features["md clone" if self.mirrors or self.chunk else "dm clone"] += 1

        def ended() -> None:
            left[0] -= 1
            if not left[0]:
                sim.later(lambda: self._end(bio, whole), sim.delay(200, 4000))

        clone.after.append(ended)
        yield sim.delay(50, 1500)
        yield from lower.submit(task, clone)

    def _end(self, bio: Bio, whole: tuple[int, int]) -> None:
        cpu = self.sim.rng.randrange(self.sim.cpus)
        keeps = self.sim.chance(0.3)
        finish_bio_based(self.sim, cpu, bio, *whole, 0, keeps_size=keeps)


class Resubmitting:
    """NVMe multipath, and md that sends the very bio on: A with the same pointer, no clone."""

    def __init__(self, sim: Sim, dev: int, lower: RequestDevice, *, queues_below: bool) -> None:
        self.sim, self.dev, self.lower, self.queues_below = sim, dev, lower, queues_below

    def submit(self, task: Task, bio: Bio) -> Process:
        """Q above, A, and on to the lower disk's requests."""
        sim = self.sim
        bio.dev = bio.queue_dev = self.dev
        sim.bio_record("Q", task.cpu, bio, **queue_fields(bio))
        yield sim.delay(100, 2000)
        at = bio.sector
        bio.dev = bio.part = self.lower.dev
        bio.sector += 4096
        source = {"from_sector": at, "from_dev": self.dev, "part": self.lower.dev}
        sim.bio_record("A", task.cpu, bio, **source)
        sim.features["the same bio sent on"] += 1
        yield sim.delay(50, 1000)
        if self.queues_below:
            sim.bio_record("Q", task.cpu, bio, **queue_fields(bio))
            yield sim.delay(50, 1000)
        yield from self.lower.admit(task, bio)


class LoopDevice(RequestDevice):
    """Requests become I/O of a worker on the disk below; direct I/O keeps the pages."""

    def __init__(
        self, sim: Sim, dev: int, name: str, traits: Traits, lower: Disk, *, direct: bool
    ) -> None:
        super().__init__(sim, dev, name, traits)
        self.lower, self.direct = lower, direct
        self._workers = 0

    def serve(self, rq: Request) -> Process:
        """A worker reads or writes the backing file."""
        sim = self.sim
        if not rq.bytes or (not self.direct and sim.chance(0.4)):
            yield sim.delay(1000, 20_000)
            return
        yield sim.delay(500, 20_000)
        self._workers += 1
        worker = Task(tid=800 + self._workers % 4, cpu=sim.rng.randrange(sim.cpus), comm="kworker")
        sim.features["loop, direct" if self.direct else "loop, buffered"] += 1
        head = rq.bios[0]
        lower = sim.new_bio(self.lower.dev, 8192 + rq.sector, rq.bytes, head.opf, worker.tid)
        lower.opf &= ~(PREFLUSH | NOMERGE)
        lower.lent_page = True
        if self.direct and head.root.page:
            ahead = rq.sector - head.root.first
            lower.page = head.root.page + 0x40 * (ahead // 8)
            lower.upper = head.root if ahead < 8 else None  # the same page
        done: list[bool] = []
        lower.after.append(lambda: done.append(True))
        yield from self.lower.submit(worker, lower)
        while not done:
            yield 2000


def through(sim: Sim, disk: RequestDevice, task: Task, done: Callable[[], None]) -> Process:
    """Passthrough (sg, an nvme ioctl): D and C alone, sector 0, data maybe in a bio."""
    sim.features["passthrough"] += 1
    rq = Request(disk.pool.take(), disk.dev, 0, sim.choose([0, 512, 4096]), DRV_IN)
    rq.kind = "passthrough"
    sim.requests.append(rq)
    disk.tags.start(rq, task.cpu)
    if rq.bytes and sim.chance(0.5):
        bio = Bio(sim.memory.take(), disk.dev, 0, rq.bytes, DRV_IN, task.tid, hidden=True)
        bio.piece = bio.left = rq.bytes
        rq.bios.append(bio)
    disk.tags.dispatch(rq)
    disk.issue(task.cpu, rq)
    yield sim.delay(2000, 50_000)
    sim.request_record("C", task.cpu, rq, bytes=rq.bytes, status=0)
    rq.good = rq.bytes
    if sim.kernel.has_start:
        sim.emit("d", task.cpu, {"rq": rq.pointer, "dev": rq.dev}, request=rq)
    for bio in rq.bios:
        sim.free_bio(bio)
    disk.give_back(rq)
    done()


def remapped_request(sim: Sim, upper: Request, lower: RequestDevice, cpu: int) -> Process:
    """Request-based dm: its request goes to a lower disk as another request (a)."""
    sim.features["request-based dm"] += 1
    rq = Request(lower.pool.take(), lower.dev, upper.sector + 64, upper.bytes, upper.opf)
    rq.kind, rq.upper = "clone", upper
    sim.requests.append(rq)
    for of in upper.bios:
        bio = Bio(sim.memory.take(), lower.dev, of.sector + 64, of.bytes, of.opf, of.tid)
        bio.hidden = True
        rq.bios.append(bio)
    lower.tags.start(rq, cpu)
    where = {"from_dev": upper.dev, "from_sector": upper.sector}
    sim.request_record("a", cpu, rq, **where)
    yield sim.delay(100, 1000)
    if sim.kernel.has_start:
        sim.request_record("s", cpu, rq)
    lower.tags.dispatch(rq)
    lower.issue(cpu, rq)
    yield sim.delay(2000, 60_000)
    sim.request_record("C", cpu, rq, bytes=rq.bytes, status=0)
    rq.good = rq.bytes
    if sim.kernel.has_start:
        sim.emit("d", cpu, {"rq": rq.pointer, "dev": rq.dev}, request=rq)
    for bio in rq.bios:
        sim.free_bio(bio)
    lower.give_back(rq)


class MultipathMap(RequestDevice):
    """Request-based dm (multipath)."""

    def __init__(self, sim: Sim, dev: int, name: str, traits: Traits, lower: RequestDevice) -> None:
        super().__init__(sim, dev, name, traits)
        self.lower = lower

    def serve(self, rq: Request) -> Process:
        """The lower disk's request does the work."""
        yield self.sim.delay(200, 2000)
        yield from remapped_request(self.sim, rq, self.lower, self.sim.rng.randrange(self.sim.cpus))
