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

from biotrail.converters.calls.keys import Keys, rows_of
from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.path_tables import Calls, Commits, PathTables, Waits
from biotrail.converters.events.site_tables import JoinedLives
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    U32,
    U64,
    Bios,
    Bool,
    Lifecycles,
    Requests,
    Table,
    WaitCause,
)
from biotrail.converters.events.tasks import by_threads
from biotrail.converters.lifecycles.purposes import JOURNAL_THREADS
from biotrail.converters.outputs.perfetto.columns import Flows, Slices
from biotrail.converters.outputs.perfetto.names import (
    GUEST_STAGE_ARGUMENTS,
    MARKS,
    TO_HOST,
    TO_LIFE,
    Interned,
)
from biotrail.converters.outputs.perfetto.place import Arrows, Crossing
from biotrail.converters.outputs.perfetto.tracks import Identity

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

        first: a hash, below 2^64, from which on arrows are numbered, modulo 2^64: it keeps those of
        several logs apart. every: whether all arrows are drawn; else those of the bios that are
        given to `add`.
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
        self._waiters: dict[tuple[int, int], int] = {}
        """Arrows so far from each commit (device, transaction)."""
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
        row = _drawn(bios, len(table))[_find(table.number, slowest)[0]] if len(table) else slowest
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
            top, known = _find(table.number, table.family)
            shows |= called | ((table.parent != NEVER) & known & called[top])
        self._join(window, bios, requests, shows)

    def _join(self, window: Lifecycles, bios: Slices, requests: Slices, shows: Bool) -> None:
        """Set flows and marks of the slices of a window's bios that are shown."""
        table = window.bios
        number, queue = table.number, table.queue
        drawn = _drawn(bios, len(table))
        rows = np.flatnonzero(shows & (drawn >= 0))
        drawn_requests = _drawn(requests, len(window.requests))
        # Requests that an arrow leads to, from their bios.
        request = _requests_of(table.request[rows], window.requests, drawn_requests)
        began = np.append(requests.start, 0)
        served = (request >= 0) & (began[request] >= queue[rows])
        mine, by, alone = rows[served], request[served], rows[~served]
        # Bios that an arrow leads to, from the request above or the bio above.
        upper, has = _find(number, table.parent[rows])
        has[has] = drawn[upper[has]] >= 0
        lower, upper = rows[has], upper[has]
        above = _requests_of(table.request[upper], window.requests, drawn_requests)
        issued = (above >= 0) & (began[above] <= queue[lower])
        under, of_bio = lower[issued], lower[~issued]
        journal = self._note_journal(window, bios, shows)
        self._mark(bios, Arrow.REQUEST, drawn[mine], began[by], number[mine])
        self._mark(requests, Arrow.LOWER, above[issued], queue[under], number[under])
        self._mark(bios, Arrow.LOWER, drawn[upper[~issued]], queue[of_bio], number[of_bio])
        bios.flows = self._flows(
            len(bios),
            (Arrow.BIO, drawn[rows], number[rows]),
            (Arrow.LOWER, drawn[lower], number[lower]),
            (Arrow.WOKEN, drawn[alone], number[alone]),
            (Arrow.COMMIT, *journal),
        )
        requests.flows = self._flows(
            len(requests), (Arrow.REQUEST, by, number[mine]), (Arrow.WOKEN, by, number[mine])
        )

    def to_slowest(self, number: int) -> int:
        """Return the id of the arrow to the slice of a bio among the slowest I/Os."""
        return int(self._ids(Arrow.SLOWEST, np.array([number]))[0])

    def _note_journal(self, window: Lifecycles, bios: Slices, shows: Bool) -> tuple[I64, I64]:
        """Keep the bios of journals' threads with arrows; return (slice, number) of each."""
        table = window.bios
        theirs = by_threads(JOURNAL_THREADS, table.task, window.tasks)
        if not theirs.any():
            none = np.zeros(0, dtype=np.int64)
            return none, none
        drawn = _drawn(bios, len(table))
        ended = table.complete != NEVER
        rows = np.flatnonzero(theirs & ended & (shows | self._every) & (drawn >= 0))
        few = table.take(rows)
        more = _Journal(few.number, few.tid.astype(np.int64), few.queue, few.complete)
        both = _Journal.concatenate([self._journal, more])
        self._journal = both.take(np.arange(len(both))[-_MOST_JOURNAL:])
        return drawn[rows], few.number

    def of_calls(self, slices: Slices, table: Calls) -> None:
        """Put a mark into the slices of the calls of `table` for each bio that has an arrow.

        The bios are those of the last `add`, and those kept from windows before. A wait outside of
        timed calls began after the Q of its bios: none leads from it to them.
        """
        known = self._known
        keys = Keys.among((table.tid, table.entry), (known.tid, known.entry))
        row_of = np.full(len(keys.tid), -1, dtype=np.int64)
        row_of[keys.of[0]] = np.arange(len(table))
        row = row_of[keys.of[1]]
        drawn = (row >= 0) & (known.queue >= known.entry) & known.shown
        self._mark(slices, Arrow.BIO, row[drawn], known.queue[drawn], known.number[drawn])

    def of_commits(self, slices: Slices, table: Commits) -> None:
        """Give commits arrows from the bios of their threads, and ids of arrows to waits for them.

        slices: of the commits of `table`, in its order; changed here.
        """
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
        in any case. A wait was ended by a bio if all of this holds. It was
        for the call's own I/O, and its wake-up was recorded. The bio was in flight when the wait
        began, and is the last of the call's to complete by the wake-up: within the wait, at most
        100 µs before its end, and in the same context (task, softirq, interrupt), both recorded. No
        other bio of the call completed during the wait, or none that was queued before the wait
        was in flight at the wake-up any more.
        """
        known = self._known
        found = self._released(waits, shown | self._every)
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
        certain &= ((done - before == 1) | (queued == done)) & known.shown[last]
        found[certain] = self._ids(Arrow.WOKEN, known.number[last[certain]])
        return found

    def _released(self, waits: Waits, shown: Bool) -> U64:
        """Return per wait the arrow from the commit that ended it, 0: there is none.

        The first WAITERS waits of a commit have one. shown: per wait, whether it may have one.
        """
        found = np.zeros(len(waits), dtype=np.uint64)
        rows = np.flatnonzero((waits.commit != NEVER) & (waits.run > waits.woken) & shown)
        keys = _commit_keys(waits.commit_dev[rows], waits.commit[rows])
        for row, key in zip(rows.tolist(), keys.tolist(), strict=True):
            commit = int(waits.commit_dev[row]), int(waits.commit[row])
            number = self._waiters.get(commit, 0)
            if number < WAITERS:
                self._waiters[commit] = number + 1
                found[row] = self._ids(Arrow.RELEASED, np.array([key + number]))[0]
        return found

    def forget(self, table: Calls) -> None:
        """Drop the kept bios of the calls of `table`, of which none may be drawn later."""
        kept = self._kept
        keys = Keys.among((table.tid, table.entry), (kept.tid, kept.entry))
        returned = np.zeros(len(keys.tid), dtype=np.bool_)
        returned[keys.of[0]] = True
        self._kept = kept.take(np.flatnonzero(~returned[keys.of[1]])[-_MOST_KEPT:])

    def _ids(self, arrow: Arrow, number: I64) -> U64:
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
        slices.mark(row, at, self._ids(arrow, number), self._marks[arrow])

    def _flows(self, count: int, *arrows: tuple[Arrow, I64, I64]) -> Flows | None:
        """Return the flows of `count` slices; None: there is no flow.

        arrows: with index of the slice and number of each, (n,), in any order.
        """
        rows = np.concatenate([row for _, row, _ in arrows])
        if not len(rows):
            return None
        ids = np.concatenate([self._ids(arrow, number) for arrow, _, number in arrows])
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


def _requests_of(number: I64, requests: Requests, drawn: I64) -> I64:
    """Return the index of the slice of each request, by its number; -1: none is drawn.

    drawn: per row of `requests`, the index of its slice or -1.
    """
    row, known = _find(requests.number, number)
    return np.where(known, drawn[row], -1) if len(requests) else row - 1


def _find(number: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return the row of each number in `number` (distinct, any order), and if it is there."""
    if (number[:-1] < number[1:]).all():
        row, known = rows_of(number, wanted)
        return row, known & (wanted != NEVER)
    order = np.argsort(number, kind="stable")
    row, known = rows_of(number[order], wanted)
    return order[row], known & (wanted != NEVER)


def _up_to(key: I64, time: I64, asked: I64, at: I64) -> tuple[I64, I64]:
    """Return per question how many rows of its key are not after its time, and the place behind.

    key, time: (n,). asked, at: (m,), key and time of each question. The place is an index into the
    rows in the order of (key, time): the last row that is not after is the one before it.
    """
    times, rank = np.unique(np.concatenate([time, at]), return_inverse=True)
    rows = np.sort(key * len(times) + rank[: len(key)])
    place = np.searchsorted(rows, asked * len(times) + rank[len(key) :], side="right")
    return place - np.searchsorted(rows, asked * len(times), side="left"), place


# Arguments and arrows that join slices to followed lives, and to the other log of a guest.


def life_flow(identity: Identity, life: int) -> int:
    """Return the id of the flow between a life's slice and that of its request or bio."""
    return identity.uuid(f"I/O of life {life}")


def mark_lives(
    window: Lifecycles,
    joined: JoinedLives,
    kind: str,
    bios: Slices,
    requests: Slices,
    identity: Identity,
    names: Interned,
) -> None:
    """Add the argument `life`, and a mark with a flow, to the slices of followed requests or bios.

    kind: the struct that the log follows. A bio whose last request was followed has the argument
    too, without a flow. Of several lives of a request, its slice has the first one's number, and a
    flow to each.
    """
    if not len(joined):
        return
    joined = joined.take(np.lexsort((joined.life, joined.number)))
    drawn = requests if kind == "request" else bios
    numbered = [(drawn, drawn.number)]
    if kind == "request":
        numbered.append((bios, window.bios.request[bios.rows]))
    for slices, number in numbered:
        place = np.minimum(np.searchsorted(joined.number, number), len(joined) - 1)
        slices.uint("life", joined.life[place], joined.number[place] == number)
    # The life has a mark at its begin, too: which of both is first depends on what was recorded.
    if len(drawn):
        at, known = _find(drawn.number, joined.number)
        at = at[known]
        ids = [life_flow(identity, life) for life in joined.life[known].tolist()]
        drawn.mark(at, drawn.start[at], np.array(ids, np.uint64), names.id(TO_LIFE))


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
            requests.sint(argument.name, crossing.stages[row, at], known)


def _found(slices: Slices, arrows: Arrows) -> tuple[I64, U64]:
    """Return the arrows of each slice's number: (index of the slice, id of the arrow), (m,)."""
    order = np.argsort(arrows.number, kind="stable")
    number = arrows.number[order]
    first = np.searchsorted(number, slices.number, side="left")
    count = np.searchsorted(number, slices.number, side="right") - first
    row = np.repeat(np.arange(len(slices)), count)
    return row, arrows.id[order[spread(first, count)]]
