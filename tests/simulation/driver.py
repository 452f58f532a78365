# SPDX-License-Identifier: Apache-2.0
"""The driver's side of a request-based device: issues, requeues, completions.

What each event means, when it fires and what it carries follows the kernel as the design
notes of the block events describe it; names are the kernel's where there are any.
"""

from collections.abc import Callable

from tests.simulation.bios import end_piece
from tests.simulation.clockwork import REQUEST_BASE, Pool, Process, Sim
from tests.simulation.flush import FlushMachine
from tests.simulation.model import IOERR, NO_TAG, SECTOR, Bio, Rec, Request
from tests.simulation.operations import DISCARD, FUA, MERGEABLE, NOMERGE, WRITE_ZEROES, ZONE_APPEND
from tests.simulation.tags import Tags
from tests.simulation.traits import Traits


class DrivenDevice:
    """A disk that issues, requeues and completes the requests in its queue."""

    def __init__(self, sim: Sim, dev: int, name: str, traits: Traits) -> None:
        self.sim, self.dev, self.name, self.traits = sim, dev, name, traits
        self.partitions: dict[int, int] = {}
        self.queue: list[Request] = []
        """Inserted, not issued: what a scheduler can still merge into."""
        self.in_flight = 0
        self.pool = Pool(REQUEST_BASE | (dev & 0xFFFFF) << 24, 0x140)
        self.flush = FlushMachine(self)
        self.after_requeue: Callable[[DrivenDevice, Request], None] | None = None
        self.tags = Tags(traits.hw_queues, scheduler=traits.scheduler != "none")

    def _dispatch(self, cpu: int) -> Process:
        sim = self.sim
        while self.queue and self.in_flight < self.traits.depth:
            pick = 0
            if self.traits.scheduler != "none" and len(self.queue) > 1 and sim.chance(0.5):
                pick = sim.rng.randrange(len(self.queue))
                sim.features["issue out of order"] += bool(pick)
            rq = self.queue.pop(pick)
            self.in_flight += 1
            self.tags.dispatch(rq)
            sim.spawn(self._drive(cpu, rq))
            yield sim.delay(50, 1000)

    def _drive(self, cpu: int, rq: Request) -> Process:
        """From the issue to the last completion of one request."""
        sim, traits = self.sim, self.traits
        if sim.chance(traits.fails_before_issue) and not (rq.sequence or rq.requeued):
            sim.features["failure before the issue"] += 1
            yield sim.delay(100, 1000)
            yield from self._finish(cpu, rq, IOERR)
            return
        self.issue(cpu, rq)
        if sim.chance(traits.requeues):
            yield sim.delay(100, 3000)
            yield from self._requeue(cpu, rq)
            return
        yield from self.serve(rq)
        cpu = sim.rng.randrange(sim.cpus)
        whole = rq.sequence or rq.op == ZONE_APPEND or rq.bytes <= 2 * SECTOR
        if not whole and sim.chance(traits.partial):
            again = yield from self._complete_part(cpu, rq)
            if again:
                return
        bad = IOERR if sim.chance(traits.errors) else 0
        yield from self._finish(cpu, rq, bad)

    def issue(self, cpu: int, rq: Request) -> None:
        """D and its chain, of one time."""
        sim = self.sim
        rest = rq.bios[1:]
        slots = 6 * sim.kernel.chain_records
        cut = len(rest) > slots
        sim.features["chain cut"] += cut
        rest = rest[:slots]
        rec = sim.request_record(
            "D", cpu, rq, hctx=rq.hctx, nr_bios=len(rq.bios[:1]) + len(rest), flags=int(cut)
        )
        for first in range(0, len(rest), 6):
            part = rest[first : first + 6]
            slots_of = [b.pointer for b in part] + [0] * (6 - len(part))
            fields = {"rq": rq.pointer, "bios": slots_of}
            sim.emit("b", cpu, fields, part, rq, same_time=True)
        rec.bios += rest
        rec.held = list(rq.bios)

    def serve(self, rq: Request) -> Process:
        """The device works."""
        yield self.sim.delay(2_000, 90_000) * self.traits.slow

    def _requeue(self, cpu: int, rq: Request) -> Process:
        """R; the tag changes; a scheduler may merge into it again."""
        sim = self.sim
        sim.features["requeue"] += 1
        old = rq.tag
        self.tags.put_driver_tag(rq)
        sim.request_record("R", cpu, rq)
        rq.requeued = True
        self.in_flight -= 1
        yield sim.delay(500, 20_000)
        self.queue.insert(0, rq)
        if rq.sector != rq.records[0].fields["sector"] and sim.chance(0.5):
            sim.request_record("I", cpu, rq)
        sim.spawn(self._dispatch(cpu), sim.delay(500, 10_000))
        if self.after_requeue is not None and rq.op in MERGEABLE and not rq.opf & NOMERGE:
            self.after_requeue(self, rq)
        yield 20_001
        sim.features["tag changes at a requeue"] += rq.tag not in (old, NO_TAG)

    def _complete_part(self, cpu: int, rq: Request) -> Process:
        """C of less than the whole; True where the rest goes out again."""
        sim = self.sim
        sim.features["partial completion"] += 1
        part = sim.rng.randrange(1, rq.bytes // SECTOR) * SECTOR
        rec = sim.request_record("C", cpu, rq, bytes=part, status=0)
        self.consume(rq, rec, part, 0)
        yield sim.delay(500, 4000)
        if sim.chance(0.6):
            sim.features["partial completion, then a requeue"] += 1
            yield from self._requeue(cpu, rq)
            return True
        if sim.chance(0.5):
            sim.features["partial completion, then an error"] += 1
            yield from self._finish(cpu, rq, IOERR)
            return True
        yield sim.delay(500, 10_000)
        return False

    def _finish(self, cpu: int, rq: Request, status: int) -> Process:
        sim = self.sim
        rq.status = status or rq.status
        self._count_completion(rq, status)
        written = rq.sector
        if rq.op == ZONE_APPEND and not status:
            sim.features["zone append"] += 1
            written = rq.sector + 8 * sim.rng.randrange(1, 8)
        size = rq.bytes
        rec = sim.request_record("C", cpu, rq, bytes=size, status=status, sector=written)
        if status:
            yield sim.delay(1, 200)
            sim.request_record("E", cpu, rq, bytes=size, status=status)
        if rq.sequence:
            rq.good += 0 if status else size
            rq.bytes = 0
        else:
            self.consume(rq, rec, size, status)
        if sim.kernel.has_start:
            yield sim.delay(1, 300)
            sim.emit("d", cpu, {"rq": rq.pointer, "dev": rq.dev}, request=rq)
        self.in_flight -= 1
        if rq.sequence:
            self.tags.put_driver_tag(rq)
            self.flush.data_done(cpu, rq, status)
        else:
            self.give_back(rq)
        sim.spawn(self._dispatch(cpu), sim.delay(50, 1000))

    def _count_completion(self, rq: Request, status: int) -> None:
        features = self.sim.features
        features["failed completion"] += bool(status)
        features["completion of several bios"] += len(rq.bios) > 1
        if rq.op == WRITE_ZEROES:
            features["write zeroes"] += 1
        if rq.op == DISCARD:
            features["discard"] += 1
        if rq.opf & FUA:
            features["FUA by the device"] += 1

    def consume(self, rq: Request, rec: Rec, size: int, status: int) -> None:
        """blk_update_request: the bios take the bytes in order; those without any left end."""
        rq.good += 0 if status else size
        rq.status = status or rq.status
        if size < rq.bytes:
            # blk_update_request moves on only while something is left: a flush sequence
            # ends with a C at its first sector.
            rq.sector += size // SECTOR
        rq.bytes -= size
        while rq.bios:
            bio = rq.bios[0]
            taken = min(size, bio.left)
            size -= taken
            bio.left -= taken
            bio.sector += taken // SECTOR
            bio.bytes -= taken
            bio.good += 0 if status else taken
            if taken or not bio.piece:
                bio.status = status or bio.status
            if bio.left:
                return
            rq.bios.pop(0)
            end_piece(self.sim, bio, rec)

    def end_bio(self, bio: Bio, rec: Rec) -> None:
        """A piece ends with this completion."""
        end_piece(self.sim, bio, rec)

    def give_back(self, rq: Request) -> None:
        self.tags.free(rq)
        self.sim.later(lambda: self.pool.give(rq.pointer), self.sim.delay(0, 2000))
