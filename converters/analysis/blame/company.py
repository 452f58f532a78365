# SPDX-License-Identifier: Apache-2.0
"""Bios and the requests that were with their device meanwhile, in batches of which all is known.

A bio is handed on once every request that its device may have had beside it has ended, or lasts
longer than LONG_NS. So what stands beside a bio does not depend on how the log is cut into windows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame import share_loops
from biotrail.converters.analysis.blame.parties import Parties
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.distributions.samples import samples_of
from biotrail.converters.calls.keys import rows_among, rows_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values, looked_up
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    OP_MASK,
    U32,
    Bios,
    Bool,
    Lifecycles,
    PageKind,
    RequestKind,
    Requests,
    Table,
)
from biotrail.converters.events.tasks import by_threads
from biotrail.converters.lifecycles.purposes import JOURNAL_THREADS
from biotrail.recorder.schema.syscalls import numbers

MOST_COMMITS = 500_000
"""Commits of which it is known who waited; later ones stay the journal's own."""
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class AwaitedCommits:
    """A commit's bios are dealt out to the parties of its waiters, in proportion to their waits."""

    tid: I64
    """Of a commit, by thread and end: its journal's thread, begin and end (ns); (commits,) each."""
    begin: I64
    end: I64
    until: NDArray[np.float64]
    """Of a waiter, (waiters,), by commit: row of the commit, and the share of its waits up to and
    with this party's, in (0, 1]."""
    victim: I64
    """Code of the party, by victims' dimension; NEVER: not known."""
    culprit: I64

    def name(self, numbers: I64, tid: I64, queue: I64, rows: Bool, codes: tuple[I64, I64]) -> None:
        """Give the journals' bios (rows) the parties that waited for their commits, in place.

        A bio's number decides, which is the same however a log is cut; multiples of the golden
        ratio spread evenly.
        """
        spread = numbers.view(np.uint64) * np.uint64(_GOLDEN)
        place = (spread >> np.uint64(32)).astype(np.float64) / (1 << 32)
        bios = np.flatnonzero(rows)
        at = commits_of(self.tid, self.begin, self.end, tid[bios], queue[bios])
        bios, at = bios[at != NEVER], at[at != NEVER]
        row = np.searchsorted(self.until, at + place[bios], side="right")
        row = np.minimum(row, len(self.until) - 1)
        for code, party in zip(codes, (self.victim, self.culprit), strict=True):
            given = party[row]
            code[bios[given != NEVER]] = given[given != NEVER]


def commits_of(thread: I64, begin: I64, end: I64, tid: I64, queue: I64) -> I64:
    """Return the row of each journal's bio's commit: its thread's first that ends after its Q.

    NEVER: that had not begun by then, or there is none. Commits are sorted by thread and end.
    """
    row = np.full(len(tid), NEVER)
    for one in np.unique(tid).tolist():
        first, last = np.searchsorted(thread, [one, one + 1])
        bios = np.flatnonzero(tid == one)
        at = first + np.searchsorted(end[first:last], queue[bios])
        bios, at = bios[at < last], at[at < last]
        row[bios] = np.where(begin[at] <= queue[bios], at, NEVER)
    return row


@dataclass
class Waiters:
    by: tuple[Parties, Parties]
    _commits: list[I64] = field(default_factory=list)
    _waited: list[I64] = field(default_factory=list)
    """By window, (n, 3): commit (`_key`), row of the thread, ns."""
    _known: int = 0

    def add(self, window: Lifecycles) -> None:
        if window.path is None or self._known >= MOST_COMMITS:
            return
        commits = window.path.commits
        begun = np.where(commits.started != NEVER, commits.started, commits.locking)
        key = _key(commits.dev, commits.transaction)
        row = [commits.tid.astype(np.int64), begun, commits.end, key]
        self._commits.append(np.stack(row, axis=1))
        waits = window.path.waits
        rows = np.flatnonzero(waits.commit != NEVER)
        key, ns = _key(waits.commit_dev[rows], waits.commit[rows]), waits.woken - waits.out
        found = _added_up(np.stack([key, waits.task[rows].astype(np.int64), ns[rows]], axis=1))
        self._waited.append(found)
        self._known += int(np.count_nonzero(np.diff(found[:, 0], prepend=0)))

    def close(self) -> AwaitedCommits:
        every = np.concatenate([np.zeros((0, 4), np.int64), *self._commits])
        every = every[every[:, 1] != NEVER]
        every = every[np.lexsort((every[:, 2], every[:, 0]))]
        waited = _added_up(np.concatenate([np.zeros((0, 3), np.int64), *self._waited]))
        codes = np.full((len(waited), 2), NEVER)
        for side, by in enumerate(self.by):
            if by.of_writers:  # NEVER: the thread did no I/O
                codes[:, side] = looked_up(by.code_of_task, waited[:, 1], NEVER)
        good = (waited[:, 2] > 0) & (codes != NEVER).any(axis=1)
        waited = np.stack([waited[:, 0], codes[:, 0], codes[:, 1], waited[:, 2]], axis=1)[good]
        waited = _added_up(waited)
        # The last one stands for commits that nobody waited for.
        waited = np.concatenate([waited, [[NEVER, NEVER, NEVER, 1]]])
        key, ns = waited[:-1, 0], np.cumsum(waited[:, 3])
        first, stop = (np.searchsorted(key, every[:, 3], side=side) for side in ("left", "right"))
        nobody = first == stop
        first[nobody], stop[nobody] = len(key), len(key) + 1
        count = stop - first
        commit = np.repeat(np.arange(len(every)), count)
        ends = np.cumsum(count)
        at = np.arange(len(commit)) + np.repeat(first - (ends - count), count)
        before = (ns - waited[:, 3])[first]
        whole = ns[stop - 1] - before
        until = commit + (ns[at] - before[commit]) / whole[commit]
        return AwaitedCommits(
            every[:, 0].copy(),
            every[:, 1].copy(),
            every[:, 2].copy(),
            until,
            waited[at, 1],
            waited[at, 2],
        )


def _key(dev: U32, transaction: U32 | I64) -> I64:
    return dev.astype(np.int64) << 32 | transaction.astype(np.int64)


def _added_up(rows: I64) -> I64:
    """Return rows whose last column is the sum of all with the same others, by these columns."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort(rows[:, -2::-1].T)]
    new = np.concatenate([[True], (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1)])
    begin = np.flatnonzero(new)
    found = rows[begin]
    found[:, -1] = np.add.reduceat(rows[:, -1], begin)
    return found


LONG_NS = 1_000_000_000
"""A request whose I/O lasts longer beside others is known to the second pass alone."""
_SETTLED_NS = 100_000_000
"""What ended so long before a window's end is in that window or an earlier one."""
MOST_KEPT = 2_000_000
"""Requests that are kept for bios still in flight; older ones are forgotten."""
MOST_LONG = 100_000
MOST_CLASSES = 4096
"""Classes of I/O that are told apart; all others are one."""
_SUBMITTING = frozenset({"io_submit", "io_uring_enter"})
PREFLUSH, FUA = 1, 2
_FLAG_BITS, _SIZE_BITS = 2, 6


@dataclass
class Ios(Table):
    """Bios of lowest devices whose Q and C are known: what may be victims. Times are ns."""

    number: I64
    dev: I64
    victim: I64
    """Code of the party, by the dimension of victims; culprit: by that of culprits."""
    culprit: I64
    kind: I64
    queue: I64
    issue: I64
    """D; Q where the I/O has no issue of its own."""
    complete: I64
    flushes: Bool
    """Whether flushes are a part of the I/O itself."""
    chosen: Bool
    tid: I64
    """Thread that queued it, or for which a limit held it."""
    entry: I64
    """Entry of the call that queued it; NEVER."""
    journal: Bool
    submitted: Bool
    """Whether another call reaps it: aio, io_uring."""


@dataclass
class Served(Table):
    """Requests that were with a device; a bio of a device without requests is one itself."""

    number: I64
    dev: I64
    victim: I64
    """Codes of its first bio's party; NEVER: not known."""
    culprit: I64
    kind: I64
    issue: I64
    end: I64
    flush: Bool
    over: I64
    """When all of its family had ended."""


@dataclass
class Pieces(Table):
    bio: I64
    request: I64


@dataclass
class Batch:
    """Bios, the requests beside them, and which of these are their own."""

    ios: Ios
    served: Served
    pieces: Pieces
    until: int


@dataclass
class Counts:
    ios: int = 0
    """Bios of lowest devices that are asked for."""
    upper: int = 0
    """Bios of upper devices: the bios below stand for them."""
    unknown: int = 0
    """Bios whose time is not known: without Q or C, or in doubt. Tries (NOWAIT) are none."""
    without_end: int = 0
    """Requests whose completion is not known, and which therefore stand beside nothing."""
    forgotten: int = 0
    """Bios that waited so long that requests from their beginning are no longer known."""


def everybody_recorded(context: Context) -> bool:
    """Whether the recording had no filter by I/O, so that each request has its party."""
    filters = context.header.get("filters", {})
    return not any(value for key, value in filters.items() if key != "devices")


class Company:
    """Makes batches of windows in order. long, commits: of an earlier pass; None: first."""

    def __init__(
        self,
        context: Context,
        choice: Choice,
        by: tuple[str, str],
        long: Served | None = None,
        commits: AwaitedCommits | None = None,
        most: int = MOST_CLASSES,
    ) -> None:
        self.context, self._choice = context, choice
        victims = Parties(by[0], context)
        self.by = (victims, victims if by[0] == by[1] else Parties(by[1], context))
        self.classes: dict[int, int] = {}
        """Device, operation, size and flushes of a class, packed → its number."""
        self._most = most
        self._preflush = np.uint32(context.flag_mask("PREFLUSH"))
        self._fua = np.uint32(context.flag_mask("FUA"))
        self._flush = context.op_number("flush")
        self.counts = Counts()
        self.needed = FAR
        """ns from which requests are needed for anything but bios."""
        self.long: list[Served] = []
        self.devices: set[int] = set()
        self._given, self._commits = long, commits
        self._submitting = numbers(_SUBMITTING, context.machine)
        self._ios: list[Ios] = []
        self._served: list[Served] = [] if long is None else [long]
        self._pieces: list[Pieces] = []
        self.floor = NEVER
        """Requests that ended before this time (ns) may have been forgotten; NEVER: none was."""
        self._named = NEVER
        """ns up to which flush requests have their parties."""

    def add(self, window: Lifecycles | None) -> Batch | None:
        """Return the bios of which all is known now, if any; window None: after the last one.

        What no later bio can need is forgotten.
        """
        until = queued = FAR
        if window is None:
            self.needed = FAR
        else:
            self._take(window)
            began = window.open_bios.queue
            queued = int(began[began != NEVER].min(initial=FAR))
            until = window.end - LONG_NS - _SETTLED_NS
        ios, served = Ios.concatenate(self._ios), Served.concatenate(self._served)
        pieces = Pieces.concatenate(self._pieces)
        now = ios.complete <= until
        fresh = served.over - served.issue > LONG_NS
        if self._given is not None:
            # What was given comes again among the window's.
            fresh[: len(self._given)] = False
        if fresh.any():
            if self._given is None and sum(map(len, self.long)) < MOST_LONG:
                self.long.append(served.take(fresh))
            served = served.take(~fresh)
        ready, later = ios.take(now), ios.take(~now)
        if not len(ready):
            self._ios, self._served, self._pieces = [ios], [served], [pieces]
            return None
        # Give each flush request of the time the party of the bio that waited for it: the one that
        # goes on first after it, as an empty flush ends, a write with PREFLUSH is issued. Others
        # that share it go on at the same time.
        rows = np.flatnonzero(served.flush & (served.end <= until) & (served.end > self._named))
        asks = np.flatnonzero(ios.flushes)
        for dev in distinct_values(served.dev[rows])[0].tolist():
            mine, bio = rows[served.dev[rows] == dev], asks[ios.dev[asks] == dev]
            if not len(bio):
                continue
            goes_on = np.where(ios.issue[bio] > ios.queue[bio], ios.issue[bio], ios.complete[bio])
            order = np.argsort(goes_on, kind="stable")
            place = np.searchsorted(goes_on[order], served.end[mine])
            first = bio[order[np.minimum(place, len(bio) - 1)]]
            good = (place < len(bio)) & (ios.queue[first] <= served.end[mine])
            good &= goes_on[order][np.minimum(place, len(bio) - 1)] - served.end[mine] <= LONG_NS
            served.victim[mine[good]] = ios.victim[first[good]]
            served.culprit[mine[good]] = ios.culprit[first[good]]
        self._named = until
        batch = Batch(ready, served, pieces, until)
        self._ios = [later]
        low = int(later.queue.min(initial=min(until, queued, self.needed)))
        kept = served.end > low
        if self._given is not None:
            kept[: len(self._given)] = True
        rest = np.flatnonzero(kept)
        if len(rest) > MOST_KEPT:
            oldest = np.partition(served.end[rest], -MOST_KEPT)[-MOST_KEPT]
            self.floor = max(self.floor, int(oldest))
            rest = rest[served.end[rest] >= oldest]
        self._served = [served.take(rest)]
        left = rows_of(np.sort(later.number, kind="stable"), pieces.bio)[1]
        self._pieces = [pieces.take(left)]
        return batch

    def _classes_of(self, table: Bios | Requests) -> tuple[I64, Bool]:
        """Return (number of each row's class, whether flushes are a part of it).

        A class is a device, an operation, a size rounded up to a power of 2, and flushes. An empty
        write with PREFLUSH is a flush. Of requests flags do not count: the requests for the flushes
        are others.
        """
        op = (table.opf & OP_MASK).astype(np.int64)
        pre, fua = (table.opf & self._preflush) != 0, (table.opf & self._fua) != 0
        empty = (table.bytes == 0) & pre
        op = np.where(empty & (self._flush >= 0), self._flush, op)
        flags = np.where(empty, 0, pre * PREFLUSH + fua * FUA)
        if isinstance(table, Requests):
            flags[:] = 0
        # The number of bits of n - 1 is log2 of n rounded up.
        size = np.frexp(np.maximum(table.bytes, 1) - 1.0)[1].astype(np.int64)
        key = (table.dev.astype(np.int64) << 8 | op) << _SIZE_BITS | size
        names, _, place = distinct_values(key << _FLAG_BITS | flags)
        known = []
        for name in names.tolist():
            if len(self.classes) < self._most:
                known.append(self.classes.setdefault(name, len(self.classes)))
            else:
                known.append(self.classes.get(name, self._most - 1))
        return np.array(known, np.int64)[place], (op == self._flush) | (flags != 0)

    def _take(self, window: Lifecycles) -> None:
        own_is_left_out = window.own is not None
        window = window.with_own()
        bios = window.bios
        self.devices.update(distinct_values(bios.dev)[0].tolist())
        samples = samples_of(bios, window.bio_stages, self.context)
        by_victim, by_culprit = self.by
        victim = by_victim.codes(window, samples)
        culprit = victim if by_culprit is by_victim else by_culprit.codes(window, samples)
        journal = by_threads(JOURNAL_THREADS, bios.task, window.tasks)
        if self._commits is not None and journal.any():
            own = journal & (bios.page != PageKind.FILE)
            if culprit is victim:
                culprit = victim.copy()
            tid = bios.tid.astype(np.int64)
            self._commits.name(bios.number, tid, bios.queue, own, (victim, culprit))
        # What lower devices do for a bio is of whoever queued that, not of a worker (loop, dm).
        top, has_top = rows_of(bios.number, bios.family)
        top = np.where(has_top, top, np.arange(len(bios)))
        victim = victim[top] if by_victim.of_writers else victim
        culprit = culprit[top] if by_culprit.of_writers else culprit
        kind, flushes = self._classes_of(bios)
        parents = np.concatenate([bios.parent, window.open_bios.parent])
        parents = np.sort(parents[parents != NEVER], kind="stable")
        leaf = ~rows_of(parents, bios.number)[1]
        # The recording's own I/O, where it is left out, is no victim, but may be a culprit.
        chosen = self._choice.mask(bios, window.tasks)
        if not self._choice.all:
            chosen |= chosen[top]
        if own_is_left_out:
            chosen &= ~bios.own
        known = (samples.latency != NEVER) & leaf
        tried = samples.counters.get("tries", np.zeros(len(bios), np.bool_))
        self.counts.ios += int((leaf & chosen & ~tried).sum())
        self.counts.upper += int((~leaf & chosen).sum())
        self.counts.unknown += int((leaf & chosen & ~known & ~tried).sum())
        unserved = leaf & (bios.request == NEVER) & (bios.fragments == 0) & ~flushes & ~tried
        issue = np.where((bios.issue == NEVER) | (bios.issue < bios.queue), bios.queue, bios.issue)
        op_flush = flushes & (bios.bytes == 0)
        issue = np.where(op_flush | (issue > bios.complete), bios.queue, issue)
        # The call that queued it: its entry, its thread, and whether another call reaps it.
        entry, tid = np.full(len(bios), NEVER), bios.tid.astype(np.int64)
        submitted = np.zeros(len(bios), np.bool_)
        if window.path is not None and self._commits is not None:  # the first pass has no calls
            row, there = rows_of(window.path.bios.number, bios.number)
            entry[there] = window.path.bios.entry[row[there]]
            submitted[there] = np.isin(window.path.bios.call[row[there]], list(self._submitting))
            held = window.path.held
            row, there = rows_of(held.number, bios.number)
            there &= held.entry[row] != NEVER if len(held) else False
            entry[there], tid[there] = held.entry[row[there]], held.tid[row[there]]
        ios = Ios(
            bios.number, bios.dev.astype(np.int64), victim, culprit, kind, bios.queue, issue,
            np.maximum(bios.complete, bios.queue), flushes, chosen, tid[top], entry[top],
            journal[top], submitted[top],
        )  # fmt: skip
        self._ios.append(ios.take(known))
        self._served.append(self._requests(window, victim, culprit))
        self._pieces.append(Pieces(window.edges.bio, window.edges.request))
        alone = ios.take(known & unserved)
        self._served.append(
            Served(
                alone.number, alone.dev, alone.victim, alone.culprit, alone.kind, alone.queue,
                alone.complete, np.zeros(len(alone), np.bool_), alone.complete,
            )
        )  # fmt: skip
        self._pieces.append(Pieces(alone.number, alone.number))

    def _requests(self, window: Lifecycles, victim: I64, culprit: I64) -> Served:
        bios, requests = window.bios, window.requests
        issued = requests.issue != NEVER
        ended = issued & (requests.complete != NEVER) & (requests.complete >= requests.issue)
        self.counts.without_end += int((issued & ~ended).sum())
        rows = np.flatnonzero(ended)
        kind, _ = self._classes_of(requests)
        party, over = np.full((2, len(rows)), NEVER), requests.complete[rows]
        top, known = rows_of(bios.number, requests.family[rows])
        top = top[known]
        party[0, known], party[1, known] = victim[top], culprit[top]
        over[known] = np.maximum(over[known], bios.complete[top])
        return Served(
            requests.number[rows],
            requests.dev[rows].astype(np.int64),
            party[0],
            party[1],
            kind[rows],
            requests.issue[rows],
            requests.complete[rows],
            requests.kind[rows] == RequestKind.FLUSH,
            over,
        )


def others_work(
    batch: Batch, rows: I64, slot: I64, weight: I64, slots: int
) -> Iterator[tuple[I64, I64, I64]]:
    """Yield what stood beside bios: device by device (rows of its bios, queue, device).

    queue, device: (bios, slots) of weight times ns, from Q to D and from D to C. rows: of
    `batch.ios`. slot, weight: by row of `batch.served`.
    """
    ios, served = batch.ios, batch.served
    for dev in distinct_values(ios.dev[rows])[0].tolist():
        mine = rows[ios.dev[rows] == dev]
        first, last = int(ios.queue[mine].min()), int(ios.complete[mine].max())
        there = (served.dev == dev) & (served.end > first) & (served.issue < last)
        theirs = np.flatnonzero(there)
        queue, device = (np.zeros((len(mine), slots), np.int64) for _ in range(2))
        times = np.stack([ios.queue[mine], ios.issue[mine], ios.complete[mine]], axis=1)
        asked = np.argsort(times.reshape(-1), kind="stable")
        flushes = served.flush[theirs]
        for requests in (theirs[~flushes], theirs[flushes]):
            if len(requests) and len(asked):
                issue = np.maximum(served.issue[requests], first) - first
                end = served.end[requests] - first
                share_loops.work_beside(
                    np.argsort(issue, kind="stable"),
                    np.argsort(end, kind="stable"),
                    issue,
                    end,
                    np.ascontiguousarray(slot[requests]),
                    np.ascontiguousarray(weight[requests]),
                    asked,
                    times.reshape(-1) - first,
                    queue,
                    device,
                    np.zeros((slots, 3), np.int64),
                )
            asked = asked[~ios.flushes[mine[asked // 3]]]  # flushes are a part of what flushes
        # A bio's own requests do not stand beside it.
        bio, has_bio = rows_among(ios.number[mine], batch.pieces.bio)
        request, has_request = rows_among(served.number[theirs], batch.pieces.request)
        good = has_bio & has_request
        # Two pieces in one request are one.
        both = np.unique(bio[good] * len(served) + theirs[request[good]])
        place, own = both // len(served), both % len(served)
        data = ~served.flush[own]  # flushes are out already
        place, own = place[data], own[data]
        share_loops.less_own(
            place, slot[own], weight[own], served.issue[own], served.end[own], times, queue, device
        )
        yield mine, queue, device
