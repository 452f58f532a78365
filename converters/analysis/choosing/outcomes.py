# SPDX-License-Identifier: Apache-2.0
"""Choice of I/Os and pairs of events by their outcome: their duration, or that they failed."""

import errno
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.events.context import Context
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    Requests,
    Tasks,
)
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.lifecycles.windows import first_seen, last_seen, sure_complete
from biotrail.recorder.schema.records import BLK_STATUS

_AGAIN = np.array(
    [*(number for number, name in BLK_STATUS.items() if name == "AGAIN"), -errno.EAGAIN]
)
"""BLK_STS_AGAIN, and -EAGAIN for kernels that report an errno."""


def failed_nowait(context: Context, table: Bios | Requests) -> Bool:
    """Mark failed NOWAIT attempts: bool (n,), by row of the table.

    The kernel ends a REQ_NOWAIT bio with BLK_STS_AGAIN or -EAGAIN (bio_wouldblock_error) if it
    cannot get a request or room in the queue without waiting; io_uring then submits the same I/O
    again, without REQ_NOWAIT.
    """
    asked: Bool = (table.opf & np.uint32(context.flag_mask("NOWAIT"))) != 0
    if not asked.any():
        return asked
    return np.asarray(asked & np.isin(table.status, _AGAIN), dtype=np.bool_)


@dataclass(frozen=True)
class OutcomeFilter:
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
    wanted: OutcomeFilter = OutcomeFilter()
    """What requests that serve no bio are chosen by."""

    def bios(self, bios: Bios) -> Bool:
        """Mark the chosen bios, shape (n,); a bio has the same answer in every window."""
        if self.numbers is None:
            return np.ones(len(bios), dtype=np.bool_)
        return np.isin(bios.number, self.numbers)

    def requests(self, requests: Requests) -> Bool:
        """Mark the requests with the wanted outcome, of those that serve no known bio: bool (n,).

        None with `wanted.slowest`, as the slowest are chosen among bios.
        """
        if self.numbers is None:
            return np.ones(len(requests), dtype=np.bool_)
        if self.wanted.slowest:
            return np.zeros(len(requests), dtype=np.bool_)
        known = (requests.start != NEVER) & (sure_complete(requests) != NEVER)
        waited = np.where(known, requests.complete - requests.start, 0)
        return _matches(self.wanted, waited, requests)


ANY = Outcome()


def _waited(all_bios: Bios, numbers: I64, end: int) -> I64:
    """Return how long bios took: ns, int64 (n,), in the order of `numbers`.

    all_bios: the table of a window's bios before a cut (a part of the log's time) shortened them;
    ascending by number, and with every one of `numbers` (n,).

    Counted from a bio's first known time, which is Q if that was recorded, to its completion.
    Without a completion: to the bio's last known time if its certainty is LOST, else to `end` (ns).
    0 if none of the bio's times is known, or its completion is in doubt: what is known of it does
    not make it slow.
    """
    bios = all_bios.take(np.searchsorted(all_bios.number, numbers))
    start = first_seen(bios)
    going_on = np.where(bios.certainty == Certainty.LOST, last_seen(bios), end)
    until = np.where(bios.complete != NEVER, bios.complete, going_on)
    return np.where((start == NEVER) | bios.doubtful, 0, np.maximum(until - start, 0))


def _matches(wanted: OutcomeFilter, waited: I64, table: Bios | Requests) -> Bool:
    chosen = waited >= wanted.slower_than
    if wanted.failed:
        chosen &= table.status != 0
    return chosen


@dataclass
class Finder:
    """Finds the bios of a choice that have the wanted outcome, in a first pass over the log.

    Pass `watch` to `Trace.lifecycles(on_window=...)`. A second pass over the same part of the log
    gives bios the same numbers, and so can choose by `found`.
    """

    choice: Choice
    wanted: OutcomeFilter
    _numbers: list[I64] = field(default_factory=list)
    _waited: list[I64] = field(default_factory=list)
    _held: int = 0

    def found(self) -> Outcome:
        """Return the outcome by which the second pass chooses, once all windows were read."""
        numbers, _ = self._best()
        return Outcome(np.sort(numbers), self.wanted)

    def watch(self, result: Result, window: Lifecycles) -> None:
        """Add a window's bios that have the wanted outcome to those found so far.

        result: the window's bios as they were before a cut, whose time outside the cut counts, too.
        """
        bios = window.bios
        took = _waited(result.bios, bios.number, window.end)
        chosen = _matches(self.wanted, took, bios) & self.choice.mask(bios, window.tasks)
        if self.wanted.failed:  # as reports count failures
            chosen &= ~failed_nowait(self.choice.context, bios)
        rows = np.flatnonzero(chosen)
        self._numbers.append(bios.number[rows])
        self._waited.append(took[rows])
        self._held += len(rows)
        if self.wanted.slowest and self._held > 2 * self.wanted.slowest:
            numbers, took = self._best()
            self._numbers, self._waited, self._held = [numbers], [took], len(numbers)

    def _best(self) -> tuple[I64, I64]:
        """Return (numbers, ns) of the bios found so far: all, or the `slowest`, slowest first."""
        none = np.zeros(0, dtype=np.int64)
        numbers = np.concatenate([none, *self._numbers])
        took = np.concatenate([none, *self._waited])
        if not self.wanted.slowest:
            return numbers, took
        order = np.lexsort((numbers, -took))[: self.wanted.slowest]
        return numbers[order], took[order]


_FIELDS = ("key0", "key1", "by")


def chosen_pairs(pairs: Pairs, tasks: Tasks, choice: Choice, outcome: Outcome) -> Bool:
    """Mark the chosen pairs: bool (n,), by row of `pairs`.

    By the thread that ended a pair (of processes: its own id where its process is not known), its
    name as in the record; by device where the key or --by is one; by how long it took. No pair is
    chosen by operation, file, cgroup, among the slowest I/Os, or as failed: it has none of these.
    tasks: the threads that `pairs.task` is the row of.
    """
    who = choice.who
    wanted = outcome.wanted
    if choice.by_what_is_done or who.by_cgroup or wanted.slowest or wanted.failed:
        return np.zeros(len(pairs), dtype=np.bool_)
    chosen = np.asarray(pairs.latency >= wanted.slower_than)
    if who.pids:
        chosen &= who.of_processes(pairs, tasks)
    if who.comms:
        names, of = np.unique(pairs.comm, return_inverse=True)
        named = [who.is_named(name.decode("utf-8", "replace")) for name in names.tolist()]
        chosen &= np.array(named, dtype=np.bool_)[of]
    if choice.by_device:
        chosen &= _on_devices(pairs, choice)
    return chosen


def _on_devices(pairs: Pairs, choice: Choice) -> Bool:
    """Mark the pairs of whose key or --by a field is one of the choice's devices."""
    sites: Any = choice.context.header.get("sites") or {}
    devices = np.array(choice.devices(), dtype=np.uint64)
    found = np.zeros(len(pairs), dtype=np.bool_)
    for number, facts in enumerate(sites.get("pairs", ())):
        formats = facts.get("formats") or {}
        rows = pairs.pair == number
        for name in _FIELDS:
            if formats.get(name) == "dev":
                found |= rows & np.isin(getattr(pairs, name), devices)
    return found
