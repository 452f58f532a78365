# SPDX-License-Identifier: Apache-2.0
"""A discrete-event simulation of tasks and devices: time, memory, choices, records.

Processes are generators that yield how many ns they take; `Sim.run` interleaves them. All
choices come from one `random.Random`, so that a history is repeated by its seed, and shrinks
when hypothesis makes the choices (zero always means: nothing unusual).
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from tests.simulation.model import Bio, Kernel, Rec, Request

T = TypeVar("T")
Process = Generator[int, None, None]

BIO_BASE = 0xFFFF_8881_0000_0000
REQUEST_BASE = 0xFFFF_8882_0000_0000
PAGE_BASE = 0xFFFF_EA00_0000_0000


class Pool:
    """Addresses that are used again soon after they are given back."""

    def __init__(self, base: int, stride: int) -> None:
        self._free: list[int] = []
        self._next, self._stride = base, stride

    def take(self) -> int:
        """The address given back last; a new one where none is free."""
        if self._free:
            return self._free.pop()
        self._next += self._stride
        return self._next

    def give(self, address: int) -> None:
        self._free.append(address)


class Sim:
    """Time, choices and records. All times are ns."""

    def __init__(self, rng: random.Random, kernel: Kernel, cpus: int = 2) -> None:
        self.rng, self.kernel, self.cpus = rng, kernel, cpus
        self.now = 0
        self.records: list[Rec] = []
        self.features: Counter[str] = Counter()
        self.bios: list[Bio] = []
        self.requests: list[Request] = []
        self.memory = Pool(BIO_BASE, 0x100)
        self.pages = Pool(PAGE_BASE, 0x4000)
        self._heap: list[tuple[int, int, Process]] = []
        self._spawned = 0
        self._last = 0
        self._named: set[int] = set()

    # Choices. Zero is the plain case.

    def chance(self, share: float) -> bool:
        """True in that share of cases."""
        return self.rng.random() >= 1 - share

    def choose(self, options: Sequence[T]) -> T:
        return options[self.rng.randrange(len(options))]

    def delay(self, low: int, high: int) -> int:
        """A time in ns."""
        return self.rng.randint(low, high)

    # Time.

    def spawn(self, process: Process, after: int = 0) -> None:
        self._spawned += 1
        heapq.heappush(self._heap, (self.now + after, self._spawned, process))

    def later(self, action: Callable[[], Any], after: int) -> None:
        """Does something in `after` ns."""

        def process() -> Process:
            action()
            yield from ()

        self.spawn(process(), after)

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._heap:
            at, _, process = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            try:
                wait = next(process)
            except StopIteration:
                continue
            self.spawn(process, wait)

    # Records.

    def emit(
        self,
        letter: str,
        cpu: int,
        fields: dict[str, Any],
        bios: Sequence[Bio] = (),
        request: Request | None = None,
        *,
        same_time: bool = False,
    ) -> Rec:
        """Writes a record. No two have one time, but for D and its chain."""
        self.now = self._last if same_time else max(self.now, self._last + 1)
        self._last = self.now
        rec = Rec(letter, self.now, cpu, fields, list(bios), request, len(self.records))
        self.records.append(rec)
        for bio in bios:
            bio.records.append(rec)
        if request is not None:
            request.records.append(rec)
        return rec

    def bio_record(self, letter: str, cpu: int, bio: Bio, **more: Any) -> Rec:
        fields = {
            "bio": bio.pointer,
            "sector": bio.sector,
            "bytes": bio.bytes,
            "opf": bio.opf,
            "dev": bio.dev,
            "tid": bio.tid,
        }
        return self.emit(letter, cpu, fields | more, [bio])

    def request_record(self, letter: str, cpu: int, rq: Request, **more: Any) -> Rec:
        head = rq.bios[:1]
        fields = {
            "rq": rq.pointer,
            "bio": head[0].pointer if head else 0,
            "sector": rq.sector,
            "bytes": rq.bytes,
            "opf": rq.opf,
            "dev": rq.dev,
            "tag": rq.tag,
            "sched_tag": rq.sched_tag,
        }
        return self.emit(letter, cpu, fields | more, head, rq)

    def name_task(self, tid: int, cpu: int, comm: str) -> None:
        """Writes a task record, once per task."""
        if tid not in self._named:
            self._named.add(tid)
            self.emit("T", cpu, {"tid": tid, "tgid": tid, "comm": comm.encode()})

    # Bios.

    def new_bio(self, dev: int, sector: int, size: int, opf: int, tid: int, **more: Any) -> Bio:
        """Allocates a bio; its page, when it has data, is its own."""
        bio = Bio(self.memory.take(), dev, sector, size, opf, tid, **more)
        bio.left = size
        self.bios.append(bio)
        return bio

    def free_bio(self, bio: Bio) -> None:
        self.later(lambda: self.memory.give(bio.pointer), self.delay(0, 3000))
