# SPDX-License-Identifier: Apache-2.0
"""Request-based devices at work: merges, schedulers, issues, requeues, completions.

What each event means, when it fires and what it carries follows the kernel as the design
notes of the block events describe it; names are the kernel's where there are any.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.clockwork import REQUEST_BASE, Pool, Process, Sim
from tests.simulation.flush import FlushMachine
from tests.simulation.model import AGAIN, IOERR, NO_TAG, SECTOR, Bio, Rec, Request
from tests.simulation.tags import Tags
from tests.support.capture_text import FLAG_BITS, OPS

PREFLUSH, FUA = 1 << FLAG_BITS["PREFLUSH"], 1 << FLAG_BITS["FUA"]
NOMERGE, SYNC = 1 << FLAG_BITS["NOMERGE"], 1 << FLAG_BITS["SYNC"]
READ, WRITE, FLUSH, DISCARD = OPS["READ"], OPS["WRITE"], OPS["FLUSH"], OPS["DISCARD"]
ZONE_APPEND, WRITE_ZEROES, DRV_IN = OPS["ZONE_APPEND"], OPS["WRITE_ZEROES"], OPS["DRV_IN"]
MERGEABLE = {READ, WRITE, DISCARD}


@dataclass
class Task:
    """A thread that submits I/O from one CPU; holds requests back while plugged."""

    tid: int
    cpu: int
    comm: str = "load"
    plugged: bool = False
    plug: list[Request] = field(default_factory=list)


@dataclass
class Traits:
    """How a device behaves. Shares are of requests or bios."""

    scheduler: str = "none"
    max_bytes: int = 64 * SECTOR
    depth: int = 4
    hw_fua: bool = False
    ranges: int = 1
    """Ranges that one discard may have."""
    fails_early: float = 0.0
    fails_before_issue: float = 0.0
    requeues: float = 0.0
    partial: float = 0.0
    errors: float = 0.0
    hw_queues: int = 1
    slow: int = 1
    """Factor on all service times."""


class RequestDevice:
    """A disk with a request queue."""

    def __init__(self, sim: Sim, dev: int, name: str, traits: Traits) -> None:
        self.sim, self.dev, self.name, self.traits = sim, dev, name, traits
        self.partitions: dict[int, int] = {}
        self.queue: list[Request] = []
        """Inserted, not issued: what a scheduler can still merge into."""
        self.in_flight = 0
        self.pool = Pool(REQUEST_BASE | (dev & 0xFFFFF) << 24, 0x140)
        self.flush = FlushMachine(self)
        self.after_requeue: Callable[[RequestDevice, Request], None] | None = None
        self.tags = Tags(traits.hw_queues, scheduler=traits.scheduler != "none")

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
        """A request is free: its memory and its tag."""
        self.tags.free(rq)
        self.sim.later(lambda: self.pool.give(rq.pointer), self.sim.delay(0, 2000))


def queue_fields(bio: Bio) -> dict[str, int]:
    """What Q alone says."""
    return {"part": bio.part, "cgroup": bio.cgroup, "page": bio.page, "ioprio": 0, "hint": 0}


def cut_front(sim: Sim, cpu: int, bio: Bio, size: int) -> Bio:
    """Splits a front piece off (bio_split): X."""
    front = Bio(sim.memory.take(), bio.dev, bio.sector, size, bio.opf, bio.tid, part=bio.part)
    front.root = bio.root
    front.no_merge = not sim.kernel.fronts_merge
    new = (bio.sector + size // SECTOR) & 0xFFFFFFFF
    sim.bio_record("X", cpu, front, parent=bio.pointer, new_sector=new)
    bio.records.append(front.records[-1])
    bio.sector += size // SECTOR
    bio.bytes -= size
    if front.no_merge:
        front.opf |= NOMERGE
    return front


def join(rq: Request, bio: Bio, *, front: bool) -> None:
    """A bio becomes part of a request."""
    rq.bios.insert(0 if front else len(rq.bios), bio)
    if bio.request is not None:
        bio.request.members.remove(bio)
    rq.members.append(bio)
    bio.request = rq
    bio.requests.append(rq)


def end_piece(sim: Sim, bio: Bio, rec: Rec) -> None:
    """A piece has ended; its whole bio ends with the last one."""
    bio.end = rec
    root = bio.root
    root.open_pieces -= 1
    if bio is not root:
        sim.free_bio(bio)
    if root.open_pieces:
        return
    if root.failure is not None:
        cpu, status, size = root.failure
        sim.now += 100
        end_without_request(sim, cpu, root, status, size)
    elif not root.unsent:
        end_whole(sim, root)


def end_without_request(sim: Sim, cpu: int, bio: Bio, status: int, size: int) -> None:
    """c: bio-based, or failed before a request took it. It waits for fronts that were sent."""
    if bio.open_pieces:
        bio.failure = (cpu, status, size)
        return
    bio.own_end = sim.bio_record("c", cpu, bio, status=status, bytes=size)
    bio.own_status = status
    end_whole(sim, bio)


def end_whole(sim: Sim, root: Bio) -> None:
    """bio_endio of what the submitter sees."""
    if root.ended:
        return
    root.ended = True
    for action in root.after:
        action()
    if root.page and not root.lent_page:
        sim.pages.give(root.page)
    sim.free_bio(root)
