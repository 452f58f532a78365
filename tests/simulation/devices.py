# SPDX-License-Identifier: Apache-2.0
"""Request-based devices at work: submission, splits, merges, plugs and schedulers.

What each event means, when it fires and what it carries follows the kernel as the design
notes of the block events describe it; names are the kernel's where there are any.
"""

from tests.simulation.bios import cut_front, end_without_request, join, queue_fields
from tests.simulation.clockwork import Process
from tests.simulation.driver import DrivenDevice
from tests.simulation.model import AGAIN, Bio, Request
from tests.simulation.operations import DISCARD, FUA, MERGEABLE, PREFLUSH
from tests.simulation.traits import Task


class RequestDevice(DrivenDevice):
    """A disk with a request queue."""

    # Submission, as submit_bio and blk_mq_submit_bio.

    def submit(self, task: Task, bio: Bio) -> Process:
        """A task submits a bio to this disk or to one of its partitions (bio.part)."""
        sim = self.sim
        bio.dev = bio.queue_dev = self.dev
        if bio.part in self.partitions and bio.bytes:  # blk_partition_remap: not without data
            self._remap_partition(task, bio)
            yield sim.delay(50, 2000)
        sim.bio_record("Q", task.cpu, bio, **queue_fields(bio))
        yield sim.delay(100, 3000)
        yield from self.admit(task, bio)

    def _remap_partition(self, task: Task, bio: Bio) -> None:
        self.sim.features["partition remap"] += 1
        source = bio.sector
        bio.sector += self.partitions[bio.part]
        bio.first = bio.sector
        remap = {"from_sector": source, "from_dev": bio.part, "part": bio.part}
        self.sim.bio_record("A", task.cpu, bio, **remap)

    def admit(self, task: Task, bio: Bio) -> Process:
        """A bio that was queued, here or on the device above that sends it on."""
        sim, traits = self.sim, self.traits
        if sim.chance(traits.fails_early):
            sim.features["early failure"] += 1
            yield sim.delay(100, 2000)
            end_without_request(sim, task.cpu, bio, AGAIN, bio.bytes)
            return
        if bio.bytes == 0 or bio.opf & PREFLUSH or (bio.opf & FUA and not traits.hw_fua):
            yield from self.flush.submit(task, bio)
            return
        yield from self._split(task, bio)

    def _split(self, task: Task, bio: Bio) -> Process:
        sim, limit = self.sim, self.traits.max_bytes
        pieces = 1
        while bio.bytes > limit:
            # Too many segments cut earlier than too many bytes do.
            front = cut_front(sim, task.cpu, bio, limit // (2 if sim.chance(0.3) else 1))
            pieces += 1
            yield sim.delay(50, 500)
            yield from self.place(task, front)
            if sim.chance(self.traits.fails_early):
                sim.features["rest of a split fails early"] += 1
                end_without_request(sim, task.cpu, bio, AGAIN, bio.bytes)
                return
        if pieces > 1:
            sim.features["split by the limit"] += 1
            if bio.op == DISCARD:
                sim.features["discard split"] += 1
        yield from self.place(task, bio)

    def place(self, task: Task, bio: Bio) -> Process:
        """Merges a bio into a request that waits, or gives it one of its own."""
        sim = self.sim
        self.becomes_piece(bio)
        if not self._merge(task, bio):
            yield from self.allocate(task, bio)
            rq = bio.request
            assert rq is not None
            if task.plugged:
                if not task.plug:
                    sim.emit("P", task.cpu, {"dev": self.dev, "tid": task.tid})
                task.plug.append(rq)
                if len(task.plug) >= 16:
                    yield from self.unplug(task)
            else:
                yield sim.delay(100, 1000)
                yield from self.insert(task.cpu, [rq])
        yield sim.delay(50, 500)

    def becomes_piece(self, bio: Bio) -> None:
        """A bio is about to go to a request."""
        bio.piece, bio.left, bio.piece_sector = bio.bytes, bio.bytes, bio.sector
        bio.root.pieces.append(bio)
        bio.root.open_pieces += 1

    def allocate(self, task: Task, bio: Bio) -> Process:
        """G and s."""
        sim = self.sim
        rq = Request(self.pool.take(), self.dev, bio.sector, bio.bytes, bio.opf)
        rq.no_merge = bio.no_merge
        sim.requests.append(rq)
        self.tags.start(rq, task.cpu)
        join(rq, bio, front=False)
        sim.bio_record("G", task.cpu, bio)
        if sim.kernel.has_start:
            yield sim.delay(1, 300)
            sim.request_record("s", task.cpu, rq)
        rq.started = True

    # Merges.

    def _merge(self, task: Task, bio: Bio) -> bool:
        """Joins a request of this task's plug, or one that the scheduler holds."""
        if bio.op not in MERGEABLE or bio.no_merge or bio.opf & (PREFLUSH | FUA):
            return False  # REQ_NOMERGE_FLAGS
        held = [r for r in reversed(task.plug) if r.dev == self.dev and r.started]
        if self.traits.scheduler in ("mq-deadline", "bfq"):
            held += [r for r in reversed(self.queue) if r not in held]
        for rq in held:
            if rq.no_merge or rq.sequence or rq.opf != bio.opf:
                continue
            if self._multi_range(rq, bio):
                return True
            if rq.bytes + bio.bytes > self.traits.max_bytes:
                continue
            if rq.op == DISCARD and self.traits.ranges > 1:
                continue
            if rq.end_sector == bio.sector or bio.end_sector == rq.sector:
                front = rq.end_sector != bio.sector
                self._merge_bio(task, rq, bio, front)
                return True
        return False

    def _multi_range(self, rq: Request, bio: Bio) -> bool:
        """Discards of several ranges: bios join without an event and need not be adjacent."""
        if rq.op != DISCARD or self.traits.ranges <= len(rq.bios) or self.traits.ranges == 1:
            return False
        self.sim.features["multi-range discard"] += 1
        join(rq, bio, front=False)
        rq.bytes += bio.bytes
        bio.merged = True
        return True

    def _merge_bio(self, task: Task, rq: Request, bio: Bio, front: bool) -> None:
        sim = self.sim
        told = rq.pointer if sim.kernel.tells_merge else 0
        rec = sim.bio_record("F" if front else "M", task.cpu, bio, rq=told)
        if told:
            rq.records.append(rec)
        sim.features["front merge" if front else "back merge"] += 1
        if rq.requeued:
            sim.features["merge after a requeue"] += 1
        if bio.root is not bio or len(bio.root.pieces) > 1:
            sim.features["fragment merges"] += 1
        bio.merged = True
        join(rq, bio, front=front)
        rq.bytes += bio.bytes
        if front:
            rq.sector = bio.sector
        if rq in self.queue:
            self._absorb_neighbours(task.cpu, rq)

    def _absorb_neighbours(self, cpu: int, rq: Request) -> None:
        """m: what the scheduler holds before or behind joins, as long as there is any."""
        if self.traits.scheduler not in ("mq-deadline", "bfq"):
            return
        while True:
            pair = next((p for p in self._adjacent(rq)), None)
            if pair is None:
                return
            taker, gone = pair
            self._absorb(cpu, taker, gone)
            rq = taker

    def _adjacent(self, rq: Request) -> list[tuple[Request, Request]]:
        found = []
        for other in self.queue:
            if other is rq or other.opf != rq.opf or rq.op == DISCARD or rq.opf & FUA:
                continue
            if any(r.no_merge or r.sequence or r.op not in MERGEABLE for r in (rq, other)):
                continue
            if rq.bytes + other.bytes > self.traits.max_bytes:
                continue
            if rq.end_sector == other.sector and not other.requeued:
                found.append((rq, other))
            elif other.end_sector == rq.sector and not rq.requeued:
                found.append((other, rq))
        return found

    def _absorb(self, cpu: int, taker: Request, gone: Request) -> None:
        sim = self.sim
        sim.request_record("m", cpu, gone)
        sim.features["request merge"] += 1
        if any(len(b.requests) > 1 for b in gone.bios):
            sim.features["chained request merge"] += 1
        for bio in list(gone.bios):
            join(taker, bio, front=False)
        taker.bytes += gone.bytes
        gone.bios, gone.absorbed_by = [], taker
        self.queue.remove(gone)
        self.tags.free(gone)
        sim.later(lambda: self.pool.give(gone.pointer), sim.delay(0, 3000))

    # The way to the driver.

    def unplug(self, task: Task) -> Process:
        """Lets go what the task held back for this disk."""
        sim = self.sim
        mine = [r for r in task.plug if r.dev == self.dev]
        task.plug = [r for r in task.plug if r.dev != self.dev]
        if not mine:
            return
        cpu = task.cpu
        if sim.chance(0.2):
            sim.features["plug flushed by another task"] += 1
            cpu = sim.rng.randrange(sim.cpus)
        gone = {"dev": self.dev, "tid": task.tid, "depth": len(mine), "explicit": 1}
        sim.emit("U", cpu, gone)
        yield sim.delay(50, 1000)
        yield from self.insert(cpu, mine)

    def insert(self, cpu: int, requests: list[Request]) -> Process:
        """Gives requests to the scheduler, or to the driver where there is none."""
        sim = self.sim
        kind = self.traits.scheduler
        for rq in requests:
            if kind == "none" and self.in_flight < self.traits.depth:
                self.in_flight += 1
                sim.spawn(self._drive(cpu, rq), sim.delay(0, 500))
                continue
            self.queue.append(rq)
            self._absorb_neighbours(cpu, rq)
            if rq.absorbed_by is None and rq in self.queue:
                sim.features[f"insert under {kind}"] += 1
                sim.request_record("I", cpu, rq)
            yield sim.delay(50, 800)
        sim.spawn(self._dispatch(cpu), sim.delay(100, 60_000 if kind != "none" else 4000))
