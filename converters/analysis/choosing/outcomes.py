# SPDX-License-Identifier: Apache-2.0
"""Choosing I/Os by how they went: slower than, the slowest, failed."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.tries import tries
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    Requests,
)
from biotrail.converters.lifecycles.lifecycles import Result
from biotrail.converters.lifecycles.windows import first_seen, last_seen


@dataclass(frozen=True)
class Wish:
    """slower_than: ns, at least that slow. slowest: how many at most, 0: all. failed: only such."""

    slower_than: int = 0
    slowest: int = 0
    failed: bool = False


@dataclass(frozen=True)
class Outcome:
    """Chosen by number: how an I/O went is known when it is over. None: all are meant."""

    numbers: I64 | None = None
    wish: Wish = Wish()

    def bios(self, bios: Bios) -> Bool:
        """Which of them are meant, shape (n,); the same in every window."""
        if self.numbers is None:
            return np.ones(len(bios), dtype=np.bool_)
        return np.isin(bios.number, self.numbers)

    def requests(self, requests: Requests) -> Bool:
        """Of requests that serve no bio: which of them went so, shape (n,)."""
        if self.numbers is None:
            return np.ones(len(requests), dtype=np.bool_)
        if self.wish.slowest:  # these are bios
            return np.zeros(len(requests), dtype=np.bool_)
        known = (requests.start != NEVER) & (requests.complete != NEVER)
        waited = np.where(known, requests.complete - requests.start, 0)
        return _as_wished(self.wish, waited, requests)


ANY = Outcome()


def _waited(whole: Bios, numbers: I64, end: int) -> I64:
    """ns that the bios of these numbers took, from the first to the last that is known of them.

    whole: a table with all of them, not cut. What is under way at `end` (ns) waited until then.
    """
    bios = whole.take(np.searchsorted(whole.number, numbers))
    start = first_seen(bios)
    going_on = np.where(bios.certainty == Certainty.LOST, last_seen(bios), end)
    until = np.where(bios.complete != NEVER, bios.complete, going_on)
    return np.where(start == NEVER, 0, np.maximum(until - start, 0))


def _as_wished(wish: Wish, waited: I64, table: Bios | Requests) -> Bool:
    chosen = waited >= wish.slower_than
    if wish.failed:
        chosen &= table.status != 0
    return chosen


@dataclass
class Finder:
    """Finds the bios that went as wished, among those of a choice.

    `watch` is for a first `Trace.lifecycles(on_window=...)`; what is found is of the numbers that a
    second reading of the same part of the log gives.
    """

    choice: Choice
    wish: Wish
    _numbers: list[I64] = field(default_factory=list)
    _waited: list[I64] = field(default_factory=list)
    _held: int = 0

    def found(self) -> Outcome:
        """What the second reading is to choose."""
        numbers, _ = self._best()
        return Outcome(np.sort(numbers), self.wish)

    def watch(self, result: Result, window: Lifecycles) -> None:
        """Takes in one window. What was cut off of an I/O counts as well."""
        bios = window.bios
        took = _waited(result.bios, bios.number, window.end)
        chosen = _as_wished(self.wish, took, bios) & self.choice.mask(bios, window.tasks)
        if self.wish.failed:  # as reports count failures
            chosen &= ~tries(self.choice.context, bios)
        rows = np.flatnonzero(chosen)
        self._numbers.append(bios.number[rows])
        self._waited.append(took[rows])
        self._held += len(rows)
        if self.wish.slowest and self._held > 2 * self.wish.slowest:
            numbers, took = self._best()
            self._numbers, self._waited, self._held = [numbers], [took], len(numbers)

    def _best(self) -> tuple[I64, I64]:
        none = np.zeros(0, dtype=np.int64)
        numbers = np.concatenate([none, *self._numbers])
        took = np.concatenate([none, *self._waited])
        if not self.wish.slowest:
            return numbers, took
        order = np.lexsort((numbers, -took))[: self.wish.slowest]
        return numbers[order], took[order]
