# SPDX-License-Identifier: Apache-2.0
"""The flush machinery of one disk (block/blk-flush.c), simulated."""

from typing import TYPE_CHECKING

from tests.simulation.clockwork import Process
from tests.simulation.model import IOERR, NO_SECTOR, Bio, Request
from tests.support.captures import FLAG_BITS, OPS

if TYPE_CHECKING:
    from tests.simulation.devices import RequestDevice
    from tests.simulation.traits import Task

PREFLUSH, FUA = 1 << FLAG_BITS["PREFLUSH"], 1 << FLAG_BITS["FUA"]
FLUSH_OPF = OPS["FLUSH"] | PREFLUSH


class FlushMachine:
    """Requests wait for a flush, run their data, and wait for another; one flush at a time."""

    def __init__(self, device: "RequestDevice") -> None:
        self.device = device
        self.pending: list[Request] = []
        self.running: list[Request] = []
        self._pointer = 0
        self._after_data: set[Request] = set()
        """Those that need a flush when their data is done; `data_in_flight`: not done yet."""

    def submit(self, task: "Task", bio: Bio) -> Process:
        """A bio that wants a flush first, or FUA from a device that has none."""
        device, sim = self.device, self.device.sim
        device.becomes_piece(bio)
        preflush = bool(bio.opf & PREFLUSH)
        fua = bool(bio.opf & FUA) and not device.traits.hw_fua and bio.bytes > 0
        self._count(bio, preflush)
        yield from device.allocate(task, bio)
        rq = bio.request
        assert rq is not None
        rq.sequence = True
        rq.opf &= ~PREFLUSH
        if not device.traits.hw_fua:
            rq.opf &= ~FUA
        if fua:
            self._after_data.add(rq)
        yield sim.delay(50, 800)
        if preflush:
            self.pending.append(rq)
            sim.spawn(self._kick(task.cpu), sim.delay(0, 3000))
        else:
            yield from device.insert(task.cpu, [rq])

    def _count(self, bio: Bio, preflush: bool) -> None:
        features = self.device.sim.features
        if not bio.bytes:
            features["fsync"] += 1
        elif preflush:
            features["journal commit"] += 1
        else:
            features["FUA by a flush"] += 1

    def _kick(self, cpu: int) -> Process:
        """Issues the flush request when some wait and none is under way."""
        device, sim = self.device, self.device.sim
        if not self.pending or self.running:
            return
        self.running, self.pending = self.pending, []
        sim.features["flush shared"] += len(self.running) > 1
        self._pointer = self._pointer or device.pool.take()
        rq = Request(self._pointer, device.dev, NO_SECTOR, 0, FLUSH_OPF, kind="flush")
        device.tags.lend(self.running[0], rq)
        device.tags.dispatch(rq)
        sim.requests.append(rq)
        sim.features["flush request"] += 1
        device.issue(cpu, rq)
        yield sim.delay(5_000, 80_000) * device.traits.slow
        if sim.chance(device.traits.requeues):
            sim.features["requeued flush"] += 1
            device.tags.put_driver_tag(rq)
            sim.request_record("R", cpu, rq)
            yield sim.delay(500, 5000)
            device.tags.dispatch(rq)
            device.issue(cpu, rq)
            yield sim.delay(5_000, 80_000)
        cpu = sim.rng.randrange(sim.cpus)
        status = IOERR if sim.chance(device.traits.errors) else 0
        sim.features["failed flush"] += bool(status)
        sim.request_record("C", cpu, rq, bytes=0, status=status)
        device.tags.put_driver_tag(rq)
        rq.status = status
        if sim.kernel.has_start:
            sim.emit("d", cpu, {"rq": rq.pointer, "dev": rq.dev}, request=rq)
        served, self.running = self.running, []
        if sim.chance(0.3):
            sim.spawn(self._kick(cpu), 0)
        yield sim.delay(50, 1000)
        for waiting in served:
            yield from self._flushed(cpu, waiting, status)
        sim.spawn(self._kick(cpu), sim.delay(0, 2000))

    def _flushed(self, cpu: int, rq: Request, status: int) -> Process:
        device = self.device
        data_to_do = rq.bytes > 0
        if status or not data_to_do:
            self._end(cpu, rq, status)
        else:
            yield from device.insert(cpu, [rq])
        yield device.sim.delay(50, 500)

    def data_done(self, cpu: int, rq: Request, status: int) -> None:
        sim = self.device.sim
        if rq in self._after_data and not status:
            self._after_data.discard(rq)
            self.pending.append(rq)
            sim.spawn(self._kick(cpu), sim.delay(0, 2000))
        else:
            sim.later(lambda: self._end(cpu, rq, status), sim.delay(50, 500))

    def _end(self, cpu: int, rq: Request, status: int) -> None:
        """The last C, of no bytes unless the data never ran: only this one ends the bio."""
        device, sim = self.device, self.device.sim
        rq.status = status or rq.status
        rec = sim.request_record("C", cpu, rq, bytes=rq.bytes, status=status)
        if status:
            sim.features["failed flush sequence"] += 1
            sim.request_record("E", cpu, rq, bytes=rq.bytes, status=status)
        if sim.kernel.has_start:
            sim.emit("d", cpu, {"rq": rq.pointer, "dev": rq.dev}, request=rq)
        for bio in list(rq.bios):
            bio.good, bio.status = (rq.good, rq.status)
            device.end_bio(bio, rec)
        rq.bios = []
        device.give_back(rq)
