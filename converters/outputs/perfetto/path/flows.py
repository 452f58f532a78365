# SPDX-License-Identifier: Apache-2.0
"""Arrows along a call's I/O: call → bio → request → lower bio, and to the wait that it ended.

A flow has one id: the slices that have the id are joined by arrows in the order of their begins.
Each bio of a call has a flow of its own; a call with several bios has the ids of all of them.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.calls.keys import Keys, rows_of
from biotrail.converters.events.path_tables import Calls, PathTables, Waits
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    U64,
    Bios,
    Bool,
    Lifecycles,
    Requests,
    Table,
    WaitCause,
)
from biotrail.converters.outputs.perfetto.packets.columns import Flows, Slices

_SOON = 100_000
"""ns from a completion to the wake-up that it causes, at most: a large bio ends page by page."""
_MOST_KEPT = 1 << 18
"""Bios that are kept at most until their call returns; the oldest are dropped first."""
_UNKNOWN = -1
"""Context of a completion: not recorded."""


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

    @classmethod
    def of(cls, bios: Bios, path: PathTables, *, in_flight: bool) -> "_CallBios":
        """Return a row for each of `bios` whose Q and call's entry time are known, in their order.

        bios: of the window; in_flight: whether they are its open bios. path: the window's.
        `context` is that of the completion of the request that finished the bio; _UNKNOWN without
        one.
        """
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
        )


class FlowMaker:
    """Gives the slices of each window, in order, the flows that join them."""

    def __init__(self, first: int) -> None:
        """Start before the first window.

        first: id of the flow of bio 0, below 2^64. Further ones follow, in the order of the bios'
        numbers, modulo 2^64, so that a hash keeps the flows of several logs apart.
        """
        self._first = np.uint64(first)
        none = np.zeros(0, dtype=np.int64)
        self._kept = _CallBios(none, none, none, none, none, none)
        """Bios that ended, of calls that have not returned."""
        self._known = self._kept
        """Bios of calls, as far as a call that is drawn now may have queued them."""
        self.settled = FAR
        """ns: the earliest completion of a call's bio of which not all is known, as the window has
        the bio as open; FAR: there is none."""

    def add(self, window: Lifecycles, bios: Slices, requests: Slices) -> None:
        """Set `flows` of a window's bios and requests, and note the bios of its calls.

        bios, requests: slices of the window's tables, changed here. A bio has a flow if its call
        was timed, or the call of the topmost bio that it works for. The flow leads on to the
        request that finished it, unless that one began before the bio was queued (a merge), and
        comes to a lower bio from the request of the bio above, or from that bio if no request of
        it is drawn. Without `window.path` no slice has a flow. Sets `settled`.
        """
        path = window.path
        self._known, self.settled = self._kept, FAR
        if path is None:
            return
        closed = _CallBios.of(window.bios, path, in_flight=False)
        still = _CallBios.of(window.open_bios, path, in_flight=True)
        self._known = _CallBios.concatenate([self._kept, closed, still])
        self._kept = _CallBios.concatenate([self._kept, closed])
        self.settled = int(still.complete.min(initial=FAR))
        pairs = _Pairs.of(window, bios, requests, np.isin(window.bios.number, closed.number))
        bios.flows = self._flows(len(bios), *pairs.bios)
        requests.flows = self._flows(len(requests), *pairs.requests)

    def of_calls(self, table: Calls) -> Flows | None:
        """Return the flows of the calls of `table`, one per bio; None: none of them has a bio.

        A call is known by its thread and entry time; the bios are those of the last `add`, and
        those kept from windows before. The flows of a call are in the order of the bios' numbers.
        A wait outside of timed calls began after the Q of its bios: none leads from it to them.
        """
        known = self._known
        keys = Keys.among((table.tid, table.entry), (known.tid, known.entry))
        row_of = np.full(len(keys.tid), -1, dtype=np.int64)
        row_of[keys.of[0]] = np.arange(len(table))
        row = row_of[keys.of[1]]
        drawn = (row >= 0) & (known.queue >= known.entry)
        return self._flows(len(table), row[drawn], known.number[drawn])

    def of_waits(self, waits: Waits) -> U64:
        """Return per wait (n,) the flow of the bio whose completion ended it; 0: none for certain.

        waits: of calls that have returned. A wait was ended by a bio if all of this holds. It was
        for the call's own I/O, and its wake-up was recorded. The bio was in flight when the wait
        began, and is the last of the call's to complete by the wake-up: within the wait, at most
        100 µs before its end, and in the same context (task, softirq, interrupt), both recorded. No
        other bio of the call completed during the wait, or none that was queued before the wait
        was in flight at the wake-up any more.
        """
        known = self._known
        found = np.zeros(len(waits), dtype=np.uint64)
        if not len(waits) or not len(known):
            return found
        keys = Keys.among((waits.tid, waits.entry), (known.tid, known.entry))
        asked, key = keys.of
        order = np.lexsort((known.complete, key))
        before, _ = _up_to(key, known.complete, asked, waits.out)
        done, place = _up_to(key, known.complete, asked, waits.woken)
        queued, _ = _up_to(key, known.queue, asked, waits.out)
        last = order[np.maximum(place - 1, 0)]
        context = known.context[last]
        certain = (waits.cause == WaitCause.OWN_IO) & (waits.run > waits.woken)
        certain &= (done > before) & (waits.woken - known.complete[last] <= _SOON)
        certain &= (known.queue[last] <= waits.out) & (context == waits.context)
        certain &= (done - before == 1) | (queued == done)
        found[certain] = self._ids(known.number[last[certain]])
        return found

    def forget(self, table: Calls) -> None:
        """Drop the kept bios of the calls of `table`, of which none may be drawn later.

        At most 262,144 bios stay kept, the newest.
        """
        kept = self._kept
        keys = Keys.among((table.tid, table.entry), (kept.tid, kept.entry))
        returned = np.zeros(len(keys.tid), dtype=np.bool_)
        returned[keys.of[0]] = True
        self._kept = kept.take(np.flatnonzero(~returned[keys.of[1]])[-_MOST_KEPT:])

    def _ids(self, number: I64) -> U64:
        """Return the ids (n,) of the flows of bios, by their numbers; never 0."""
        ids: U64 = number.astype(np.uint64) + self._first
        ids[ids == 0] = 1
        return ids

    def _flows(self, count: int, row: I64, number: I64) -> Flows | None:
        """Return the flows of `count` slices; None: there is no flow.

        row, number: (n,), index of the slice and number of the bio of each flow, in any order.
        Those of a slice are in the order of the numbers.
        """
        if not len(row):
            return None
        order = np.lexsort((number, row))
        counts = np.bincount(row, minlength=count)
        return Flows(np.cumsum(counts) - counts, counts, self._ids(number[order]))


@dataclass
class _Pairs:
    """Which slice has which bio's flow: (index of the slice, number of the bio), both (n,)."""

    bios: tuple[I64, I64]
    requests: tuple[I64, I64]

    @classmethod
    def of(cls, window: Lifecycles, bios: Slices, requests: Slices, called: Bool) -> "_Pairs":
        """Return which slices of a window have which bios' flows, by the rules of FlowMaker.add.

        bios, requests: slices of `window.bios` and `window.requests`, by their `rows`. called: mask
        over `window.bios` of those with a timed call. Bios without a slice of their own have no
        flow.
        """
        table = window.bios
        top, known = _find(table.number, table.family)
        flows = called | ((table.parent != NEVER) & known & called[top])
        drawn = _drawn(bios, len(table))
        flows &= drawn >= 0
        rows = np.flatnonzero(flows)
        request = _requests_of(table, window.requests, _drawn(requests, len(window.requests)))
        began = np.append(requests.start, 0)
        mine = rows[(request[rows] >= 0) & (began[request[rows]] >= table.queue[rows])]
        above, has = _find(table.number, table.parent)
        lower = rows[has[rows] & (drawn[above[rows]] >= 0)]
        by = request[above[lower]]
        issued = (by >= 0) & (began[by] <= table.queue[lower])
        by_request, by_bio = lower[issued], lower[~issued]
        return cls(
            _joined((drawn[rows], rows), (drawn[above[by_bio]], by_bio), table.number),
            _joined((request[mine], mine), (by[issued], by_request), table.number),
        )


def _joined(first: tuple[I64, I64], second: tuple[I64, I64], number: I64) -> tuple[I64, I64]:
    """Return two lists of (slice, row of the bio) as one of (slice, number of the bio)."""
    slices, rows = (np.concatenate(pair) for pair in zip(first, second, strict=True))
    return slices, number[rows]


def _drawn(slices: Slices, count: int) -> I64:
    """Return per row (count,) of a table the index of its slice, -1: it has none."""
    drawn = np.full(count, -1, dtype=np.int64)
    drawn[slices.rows] = np.arange(len(slices))
    return drawn


def _requests_of(bios: Bios, requests: Requests, drawn: I64) -> I64:
    """Return per bio the index of the slice of the request that finished it; -1: none is drawn.

    drawn: per row of `requests`, the index of its slice or -1.
    """
    row, known = _find(requests.number, bios.request)
    if not len(requests):
        return np.full(len(bios), -1, dtype=np.int64)
    return np.where(known, drawn[row], -1)


def _find(number: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return the row of each wanted number in `number` (distinct, any order), and if it is there.

    The row is 0 where it is not.
    """
    order = np.argsort(number, kind="stable")
    row, known = rows_of(number[order], wanted)
    return (order[row] if len(order) else row), known & (wanted != NEVER)


def _up_to(key: I64, time: I64, asked: I64, at: I64) -> tuple[I64, I64]:
    """Return per question how many rows of its key are not after its time, and the place behind.

    key, time: (n,). asked, at: (m,), key and time of each question. The place is an index into the
    rows in the order of (key, time): the last row that is not after is the one before it.
    """
    times, rank = np.unique(np.concatenate([time, at]), return_inverse=True)
    rows = np.sort(key * len(times) + rank[: len(key)])
    place = np.searchsorted(rows, asked * len(times) + rank[len(key) :], side="right")
    return place - np.searchsorted(rows, asked * len(times), side="left"), place
