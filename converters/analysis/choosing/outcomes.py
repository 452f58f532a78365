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


def tries(context: Context, table: Bios | Requests) -> Bool:
    """Mark bios (requests) that were NOWAIT tries: bool (n,), by row of the table.

    A try has REQ_NOWAIT and ended with BLK_STS_AGAIN, or -EAGAIN on kernels that report an errno.
    The kernel ends a REQ_NOWAIT bio so (bio_wouldblock_error) if it cannot get a request or room in
    the queue without waiting; io_uring then submits the same I/O again, without REQ_NOWAIT. All
    False if the recording kernel has no REQ_NOWAIT.
    """
    asked: Bool = (table.opf & np.uint32(context.flag_mask("NOWAIT"))) != 0
    if not asked.any():
        return asked
    return np.asarray(asked & np.isin(table.status, _AGAIN), dtype=np.bool_)


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
        """Mark the requests with the wanted outcome: bool (n,), by row of `requests`.

        For requests that serve no known bio; all others are chosen by their bios. All True if
        `numbers` is None, because then everything is chosen. All False if `wish.slowest` is set,
        because the slowest are chosen among bios. Else a request has to take `wish.slower_than` ns
        or more from start to completion (0 ns if either was not recorded or is in doubt) and, with
        `wish.failed`, to have a status other than 0.
        """
        if self.numbers is None:
            return np.ones(len(requests), dtype=np.bool_)
        if self.wish.slowest:
            return np.zeros(len(requests), dtype=np.bool_)
        known = (requests.start != NEVER) & (sure_complete(requests) != NEVER)
        waited = np.where(known, requests.complete - requests.start, 0)
        return _as_wished(self.wish, waited, requests)


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
        """Add a window's bios that have the wanted outcome to those found so far.

        A bio counts if `choice` has it, if it took `wish.slower_than` ns or more (from its first
        known time to its completion; without one as _waited), and, with `wish.failed`, if it ended
        with an error and was no NOWAIT try (REQ_NOWAIT ended by BLK_STS_AGAIN). Appends to
        `_numbers` and `_waited`, and counts in `_held`. When more than twice `wish.slowest` are
        held, all but the `wish.slowest` slowest are dropped (never if it is 0).

        result: the window's bios as they were before a cut of the log's time, whose time outside
        the cut counts, too. window: the same bios within the cut.
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
        """Return (numbers, ns) of the bios found so far: int64 (n,) each, number and duration.

        With `wish.slowest` only that many, the slowest first, equal ones by number. Without it all,
        in the order in which they were found.
        """
        none = np.zeros(0, dtype=np.int64)
        numbers = np.concatenate([none, *self._numbers])
        took = np.concatenate([none, *self._waited])
        if not self.wish.slowest:
            return numbers, took
        order = np.lexsort((numbers, -took))[: self.wish.slowest]
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
    wish = outcome.wish
    if choice.by_what_is_done or who.by_cgroup or wish.slowest or wish.failed:
        return np.zeros(len(pairs), dtype=np.bool_)
    chosen = np.asarray(pairs.latency >= wish.slower_than)
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
