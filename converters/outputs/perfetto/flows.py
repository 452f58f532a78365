# SPDX-License-Identifier: Apache-2.0
"""Arrows along an I/O: call → bio → request → lower bio, to the wait that it ended, to its commit.

The UI draws an arrow from the end of its source to the begin of its target. What causes an I/O
goes on while it does, so arrows leave from marks, slices of no length within their source, at the
moment when the target begins (`Slices.mark`). Each arrow is a flow of its own: two slices with the
same id. A slice may have the id of an arrow whose other end is never drawn; then there is none.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from biotrail.converters.calls.keys import Keys, rows_among, rows_of
from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.path_tables import Calls, Commits, PathTables, Waits
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    U32,
    U64,
    Bios,
    Bool,
    Lifecycles,
    Table,
    WaitCause,
)
from biotrail.converters.events.tasks import by_threads
from biotrail.converters.lifecycles.purposes import JOURNAL_THREADS
from biotrail.converters.outputs.perfetto.columns import INT, Flows, Slices
from biotrail.converters.outputs.perfetto.names import (
    GUEST_STAGE_ARGUMENTS,
    MARKS,
    TO_HOST,
    Interned,
)
from biotrail.converters.outputs.perfetto.place import Arrows, Crossing

_SOON = 100_000
"""ns from a completion to the wake-up that it causes, at most: a large bio ends page by page."""
_MOST_KEPT = 1 << 18
"""Bios that are kept at most until their call returns; the oldest are dropped first."""
_UNKNOWN = -1
"""Context of a completion: not recorded."""
_MOST_JOURNAL = 1 << 12
"""Bios of journals' threads that are kept at most until a commit ends; the newest."""
WAITERS = 16
"""Waits, at most, to which arrows lead from a commit that ended them."""


class Arrow(IntEnum):
    """What an arrow leads to. The first six are numbered by MARKS: whence they leave."""

    BIO = 0
    """From the call that queued it."""
    REQUEST = 1
    """From the bio that it finished."""
    LOWER = 2
    """From the request of the upper device, or its bio, to a bio."""
    SLOWEST = 3
    """From the bio to its slice among the slowest I/Os."""
    COMMIT = 4
    """From the bio of the journal's thread to the end of the commit."""
    WOKEN = 5
    """From the request, or the bio, to the wait that its completion ended."""
    RELEASED = 6
    """From a commit to a wait for it."""


@dataclass
class _Journal(Table):
    """Bios of the threads that commit journals."""

    number: I64
    tid: I64
    queue: I64
    complete: I64


@dataclass
class _CallBios(Table):
    """One row per bio whose call and its entry time are known."""

    number: I64
    tid: I64
    entry: I64
    """Entry time (ns) of the call that queued it; with `tid`, the call's key."""
    queue: I64
    """Time of Q (ns)."""
    complete: I64
    """Time of the completion (ns); FAR where it is not in the log so far."""
    context: I64
    """Where its request was completed: 0 task, 1 softirq, 2 interrupt; _UNKNOWN."""
    shown: Bool
    """Whether its arrows are drawn."""

    @classmethod
    def of(cls, bios: Bios, path: PathTables, shown: Bool, *, in_flight: bool) -> "_CallBios":
        """Return a row for each of `bios` whose Q and call's entry are known, in their order."""
        paths = path.open_bios if in_flight else path.bios
        place, known = rows_of(paths.number, bios.number)
        rows = np.flatnonzero(known & (bios.queue != NEVER))
        rows = rows[paths.entry[place[rows]] != NEVER]
        ended, has = rows_of(path.interrupts.number, bios.request[rows])
        context = np.full(len(rows), _UNKNOWN, dtype=np.int64)
        context[has] = path.interrupts.context[ended[has]]
        complete = bios.complete[rows]
        return cls(
            number=bios.number[rows],
            tid=bios.tid[rows].astype(np.int64),
            entry=paths.entry[place[rows]],
            queue=bios.queue[rows],
            complete=np.where(complete == NEVER, FAR, complete),
            context=context,
            shown=shown[rows],
        )


class FlowMaker:
    """Gives the slices of each window, in order, the flows that join them."""

    def __init__(self, first: int, names: Interned, *, every: bool = True) -> None:
        """Start before the first window.

        first: from which on arrows are numbered, modulo 2^64. every: whether all arrows are drawn;
        else those of the bios that are given to `add`.
        """
        self._first = np.uint64(first & ~7)
        self._every = every
        self._marks = [names.id(name) for name in MARKS]
        self._kept = _CallBios.none()
        """Bios that ended, of calls that have not returned."""
        self._known = self._kept
        """Bios of calls, as far as a call that is drawn now may have queued them."""
        self._journal = _Journal.none()
        """Bios of journals' threads whose arrows are drawn."""
        self._waiters: dict[int, int] = {}
        """Arrows so far from each commit, by its key."""
        self.settled = FAR
        """ns: the earliest completion of a call's bio of which not all is known, as the window has
        the bio as open; FAR: there is none."""

    def add(
        self, window: Lifecycles, bios: Slices, requests: Slices, slowest: I64, shown: I64
    ) -> None:
        """Set flows and marks of a window's bios and requests, and note the bios of its calls.

        slowest: numbers of bios that have an arrow to their slice among the slowest. shown: numbers
        of the topmost bios whose other arrows are drawn, with those of their families; with `every`
        those of all bios of timed calls, and of the families of these. An arrow leads to the
        request that finished a bio, unless that one began before the bio was queued (a merge); and
        to a lower bio from the request of the bio above, or from that bio if no request of it is
        drawn. Sets `settled`.
        """
        path, table = window.path, window.bios
        self._known, self.settled = self._kept, FAR
        drawn = _drawn(bios, len(table))
        row = drawn[rows_among(table.number, slowest)[0]] if len(table) else slowest
        row = row[row >= 0]
        self._mark(bios, Arrow.SLOWEST, row, bios.start[row], bios.number[row])
        shows = np.isin(table.family, shown)
        called = np.zeros(len(table), dtype=np.bool_)
        if path is not None:
            closed = _CallBios.of(table, path, shows | self._every, in_flight=False)
            unknown = np.full(len(window.open_bios), self._every)
            still = _CallBios.of(window.open_bios, path, unknown, in_flight=True)
            self._known = _CallBios.concatenate([self._kept, closed, still])
            self._kept = _CallBios.concatenate([self._kept, closed])
            self.settled = int(still.complete.min(initial=FAR))
            called = np.isin(table.number, closed.number)
        if self._every:
            top, known = rows_among(table.number, table.family)
            shows |= called | ((table.parent != NEVER) & known & called[top])
        number, queue = table.number, table.queue
        rows = np.flatnonzero(shows & (drawn >= 0))
        drawn_requests = np.append(_drawn(requests, len(window.requests)), -1)
        # Requests that an arrow leads to, from their bios.
        row, known = rows_among(window.requests.number, table.request[rows])
        request = np.where(known, drawn_requests[row], -1)
        began = np.append(requests.start, 0)
        served = (request >= 0) & (began[request] >= queue[rows])
        mine, by, alone = rows[served], request[served], rows[~served]
        # Bios that an arrow leads to, from the request above or the bio above.
        upper, has = rows_among(number, table.parent[rows])
        has[has] = drawn[upper[has]] >= 0
        lower, upper = rows[has], upper[has]
        row, known = rows_among(window.requests.number, table.request[upper])
        above = np.where(known, drawn_requests[row], -1)
        issued = (above >= 0) & (began[above] <= queue[lower])
        under, of_bio = lower[issued], lower[~issued]
        # Bios of journals' threads, from which an arrow leads to their commit.
        theirs = by_threads(JOURNAL_THREADS, table.task, window.tasks)
        theirs &= (table.complete != NEVER) & (shows | self._every) & (drawn >= 0)
        journal = np.flatnonzero(theirs)
        if len(journal):
            few = table.take(journal)
            more = _Journal(few.number, few.tid.astype(np.int64), few.queue, few.complete)
            both = _Journal.concatenate([self._journal, more])
            self._journal = both.take(np.arange(len(both))[-_MOST_JOURNAL:])
        self._mark(bios, Arrow.REQUEST, drawn[mine], began[by], number[mine])
        self._mark(requests, Arrow.LOWER, above[issued], queue[under], number[under])
        self._mark(bios, Arrow.LOWER, drawn[upper[~issued]], queue[of_bio], number[of_bio])
        bios.flows = self._flows(
            len(bios),
            (Arrow.BIO, drawn[rows], number[rows]),
            (Arrow.LOWER, drawn[lower], number[lower]),
            (Arrow.WOKEN, drawn[alone], number[alone]),
            (Arrow.COMMIT, drawn[journal], number[journal]),
        )
        requests.flows = self._flows(
            len(requests), (Arrow.REQUEST, by, number[mine]), (Arrow.WOKEN, by, number[mine])
        )

    def of_calls(self, slices: Slices, table: Calls) -> None:
        """Put a mark into the slices of the calls of `table` for each bio that has an arrow.

        Bios kept from windows before are dropped: no arrow of these calls may be drawn later. A
        wait outside of timed calls began after the Q of its bios: none leads from it to them.
        """
        known = self._known
        keys = Keys.among((table.tid, table.entry), (known.tid, known.entry))
        row_of = np.full(len(keys.tid), -1, dtype=np.int64)
        row_of[keys.of[0]] = np.arange(len(table))
        row = row_of[keys.of[1]]
        drawn = (row >= 0) & (known.queue >= known.entry) & known.shown
        self._mark(slices, Arrow.BIO, row[drawn], known.queue[drawn], known.number[drawn])
        kept = self._kept
        keys = Keys.among((table.tid, table.entry), (kept.tid, kept.entry))
        returned = np.zeros(len(keys.tid), dtype=np.bool_)
        returned[keys.of[0]] = True
        self._kept = kept.take(np.flatnonzero(~returned[keys.of[1]])[-_MOST_KEPT:])

    def of_commits(self, slices: Slices, table: Commits) -> None:
        """Give commits arrows from the bios of their threads, and ids of arrows to their waits."""
        bios = self._journal
        tid, begun = table.tid.astype(np.int64), slices.start
        row, bio = np.nonzero(
            (bios.tid == tid[:, None])
            & (bios.queue >= begun[:, None])
            & (bios.complete <= table.end[:, None])
        )
        self._mark(slices, Arrow.COMMIT, row, table.end[row], bios.number[bio])
        keys = _commit_keys(table.dev, table.transaction)
        each = np.repeat(np.arange(len(table)), WAITERS)
        slots = np.tile(np.arange(WAITERS), len(table))
        slices.flows = self._flows(len(table), (Arrow.RELEASED, each, keys[each] + slots))

    def of_waits(self, waits: Waits, shown: Bool) -> U64:
        """Return per wait (n,) the arrow to its end: from a bio or a commit; 0: none for certain.

        waits: of calls that have returned. shown: per wait, whether an arrow from a commit is drawn
        in any case; the first WAITERS waits of a commit have one. A wait was ended by a bio if all
        of this holds. It was for the call's own I/O, and its wake-up was recorded. The bio was in
        flight when the wait began, and is the last of the call's to complete by the wake-up: within
        the wait, at most 100 µs before its end, and in the same context (task, softirq, interrupt),
        both recorded. No other bio of the call completed during the wait, or none that was queued
        before the wait was in flight at the wake-up any more.
        """
        known = self._known
        found = np.zeros(len(waits), dtype=np.uint64)
        released = (waits.commit != NEVER) & (waits.run > waits.woken) & (shown | self._every)
        rows = np.flatnonzero(released)
        keys = _commit_keys(waits.commit_dev[rows], waits.commit[rows])
        for row, key in zip(rows.tolist(), keys.tolist(), strict=True):
            number = self._waiters.get(key, 0)
            if number < WAITERS:
                self._waiters[key] = number + 1
                found[row] = self.ids(Arrow.RELEASED, np.array([key + number]))[0]
        if not len(waits) or not len(known):
            return found
        asked, key = Keys.among((waits.tid, waits.entry), (known.tid, known.entry)).of
        order = np.lexsort((known.complete, key))
        before, _ = _up_to(key, known.complete, asked, waits.out)
        done, place = _up_to(key, known.complete, asked, waits.woken)
        queued, _ = _up_to(key, known.queue, asked, waits.out)
        last = order[np.maximum(place - 1, 0)]
        context = known.context[last]
        certain = (waits.cause == WaitCause.OWN_IO) & (waits.run > waits.woken)
        certain &= (done > before) & (waits.woken - known.complete[last] <= _SOON)
        certain &= (known.queue[last] <= waits.out) & (context == waits.context)
        certain &= ((done - before == 1) | (queued == done)) & known.shown[last]
        found[certain] = self.ids(Arrow.WOKEN, known.number[last[certain]])
        return found

    def ids(self, arrow: Arrow, number: I64) -> U64:
        """Return the ids (n,) of the arrows to what has these numbers; never 0."""
        ids: U64 = number.astype(np.uint64) * np.uint64(8) + (self._first + np.uint64(arrow))
        ids[ids == 0] = 1 << 63
        return ids

    def _mark(self, slices: Slices, arrow: Arrow, row: I64, at: I64, number: I64) -> None:
        """Put the marks of arrows into their sources' slices, at `at` (ns) of the slices `row`.

        Of two slices with one id that begin at once, the one written first is the source. Calls and
        requests are written behind bios, so their marks are 1 ns before.
        """
        if arrow in (Arrow.BIO, Arrow.LOWER):
            at = at - 1
        slices.mark(row, at, self.ids(arrow, number), self._marks[arrow])

    def _flows(self, count: int, *arrows: tuple[Arrow, I64, I64]) -> Flows | None:
        """Return the flows of `count` slices. arrows: with slice and number of each, (n,)."""
        rows = np.concatenate([row for _, row, _ in arrows])
        if not len(rows):
            return None
        ids = np.concatenate([self.ids(arrow, number) for arrow, _, number in arrows])
        order = np.argsort(rows, kind="stable")
        counts = np.bincount(rows, minlength=count)
        return Flows(counts, ids[order])


def _commit_keys(dev: U32, transaction: I64 | U32) -> I64:
    """Return per commit a number from which on WAITERS are its own."""
    wide = dev.astype(np.int64) << 32 | (transaction.astype(np.int64) & 0xFFFFFFFF)
    return wide * WAITERS


def _drawn(slices: Slices, count: int) -> I64:
    """Return per row (count,) of a table the index of its slice, -1: it has none."""
    drawn = np.full(count, -1, dtype=np.int64)
    drawn[slices.rows] = np.arange(len(slices))
    return drawn


def _up_to(key: I64, time: I64, asked: I64, at: I64) -> tuple[I64, I64]:
    """Return per question how many rows of its key are not after its time, and the place behind.

    key, time: (n,). asked, at: (m,), key and time of each question. The place is an index into the
    rows by (key, time), behind the last that is not after.
    """
    times, rank = np.unique(np.concatenate([time, at]), return_inverse=True)
    rows = np.sort(key * len(times) + rank[: len(key)])
    place = np.searchsorted(rows, asked * len(times) + rank[len(key) :], side="right")
    return place - np.searchsorted(rows, asked * len(times), side="left"), place


# Arguments and arrows that join slices to the other log of a guest.


def mark_crossing(crossing: Crossing, bios: Slices, requests: Slices, names: Interned) -> None:
    """Add the flows of a crossing, and the arguments of linked requests, to a window's slices."""
    row, ids = _found(bios, crossing.bios)
    if len(ids):
        flows = bios.flows or Flows(np.zeros(len(bios), np.int64), np.zeros(0, np.uint64))
        row = np.concatenate([np.repeat(np.arange(len(bios)), flows.count), row])
        ids = np.concatenate([flows.id, ids])
        counts = np.bincount(row, minlength=len(bios))
        bios.flows = Flows(counts, ids[np.argsort(row, kind="stable")])
    row, ids = _found(requests, crossing.requests)
    requests.mark(row, requests.start[row], ids, names.id(TO_HOST))
    row, known = rows_of(crossing.timed, requests.number)
    if known.any():
        for at, argument in enumerate(GUEST_STAGE_ARGUMENTS):
            requests.put(argument.name, crossing.stages[row, at], known, INT)


def _found(slices: Slices, arrows: Arrows) -> tuple[I64, U64]:
    """Return the arrows of each slice's number: (index of the slice, id of the arrow), (m,)."""
    order = np.argsort(arrows.number, kind="stable")
    number = arrows.number[order]
    first = np.searchsorted(number, slices.number, side="left")
    count = np.searchsorted(number, slices.number, side="right") - first
    row = np.repeat(np.arange(len(slices)), count)
    return row, arrows.id[order[spread(first, count)]]
