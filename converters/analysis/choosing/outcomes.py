# SPDX-License-Identifier: Apache-2.0
"""Choosing I/Os by their outcome: slower than some time, among the slowest, or failed."""

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
    """The outcome that I/Os are chosen by; all conditions have to hold."""

    slower_than: int = 0
    """Only I/Os that took at least this long, ns."""
    slowest: int = 0
    """How many at most, the slowest ones; 0: all."""
    failed: bool = False
    """Only I/Os that ended with an error."""


@dataclass(frozen=True)
class Outcome:
    """Bios chosen by their outcome. These are numbers, because it is known only at a bio's end."""

    numbers: I64 | None = None
    """Numbers of the chosen bios, ascending; None: all bios and requests are chosen."""
    wish: Wish = Wish()
    """What requests that serve no bio are chosen by."""

    def bios(self, bios: Bios) -> Bool:
        """Mark the chosen bios, shape (n,); a bio has the same answer in every window."""
        if self.numbers is None:
            return np.ones(len(bios), dtype=np.bool_)
        return np.isin(bios.number, self.numbers)

    def requests(self, requests: Requests) -> Bool:
        """Mark the requests with the wished outcome, shape (n,); meant for those without bios.

        All False where only the slowest are wished for, which are bios. A request without start
        or completion counts as 0 ns.
        """
        if self.numbers is None:
            return np.ones(len(requests), dtype=np.bool_)
        if self.wish.slowest:
            return np.zeros(len(requests), dtype=np.bool_)
        known = (requests.start != NEVER) & (requests.complete != NEVER)
        waited = np.where(known, requests.complete - requests.start, 0)
        return _as_wished(self.wish, waited, requests)


ANY = Outcome()


def _waited(whole: Bios, numbers: I64, end: int) -> I64:
    """Return how long bios took, ns, same shape as `numbers`: from first known time to completion.

    whole: table of bios that has all `numbers`, not restricted by a cut. A bio without a
    completion ends at `end` (ns), or if its completion was lost, when it was last seen. 0: none of
    the bio's times is known.
    """
    bios = whole.take(np.searchsorted(whole.number, numbers))
    start = first_seen(bios)
    going_on = np.where(bios.certainty == Certainty.LOST, last_seen(bios), end)
    until = np.where(bios.complete != NEVER, bios.complete, going_on)
    return np.where(start == NEVER, 0, np.maximum(until - start, 0))


def _as_wished(wish: Wish, waited: I64, table: Bios | Requests) -> Bool:
    """Mark rows (n,) that took long enough (waited: ns, (n,)) and failed, if that is wished."""
    chosen = waited >= wish.slower_than
    if wish.failed:
        chosen &= table.status != 0
    return chosen


@dataclass
class Finder:
    """Finds the bios of a choice that have the wished outcome, in a first pass over the log.

    Pass `watch` to `Trace.lifecycles(on_window=...)`. A second pass over the same part of the log
    gives bios the same numbers, and so can choose by `found`.
    """

    choice: Choice
    wish: Wish
    _numbers: list[I64] = field(default_factory=list)
    _waited: list[I64] = field(default_factory=list)
    _held: int = 0

    def found(self) -> Outcome:
        """Return the outcome by which the second pass chooses, once all windows were read."""
        numbers, _ = self._best()
        return Outcome(np.sort(numbers), self.wish)

    def watch(self, result: Result, window: Lifecycles) -> None:
        """Add one window's bios that have the wished outcome.

        result: has the bios as they were before the cut of the log's time, so that time outside
        the cut counts, too.
        """
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
        """Return (numbers, ns) of the bios found so far; of the slowest only as many as wished."""
        none = np.zeros(0, dtype=np.int64)
        numbers = np.concatenate([none, *self._numbers])
        took = np.concatenate([none, *self._waited])
        if not self.wish.slowest:
            return numbers, took
        order = np.lexsort((numbers, -took))[: self.wish.slowest]
        return numbers[order], took[order]
