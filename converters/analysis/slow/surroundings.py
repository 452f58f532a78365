# SPDX-License-Identifier: Apache-2.0
"""The other I/Os of a device while one of its I/Os waited: ahead, in the device, overtaking."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    RequestKind,
    Requests,
    Tasks,
)
from biotrail.converters.lifecycles.operations import CLEARED, operations
from biotrail.converters.lifecycles.windows import sure_complete

MOST_BEFORE = 16
"""Neighbours kept for each I/O: those with the longest time beside the I/O."""

_LOOKED_AT = 4096
"""Bios of a window that are grouped and sorted; of more, those with the longest time beside the
I/O are chosen first."""


@dataclass
class Neighbour:
    """A bio of the device, or all of one request, by the least number. ns since the I/O's Q."""

    number: int
    operation: str
    ios: int
    bytes: int
    comm: str | None
    queue_ns: int
    """Time of Q; negative: queued before the I/O in question."""
    issue_ns: int | None
    """Time of D; None: not issued (a flush without data, a bio-based device), or not recorded."""
    end_ns: int | None
    """Time of C; None: not in the log, in doubt, or still in flight at the log's end."""
    waited_ns: int | None
    in_device_ns: int | None


@dataclass
class Before:
    queue: int
    end: int
    mates: frozenset[int] = frozenset()
    """Numbers of bios that shared requests with the I/O in question, and so are no neighbours."""
    _kept: list[tuple[int, Neighbour]] = field(default_factory=list)
    """(time beside the I/O in question, neighbour), longest first. The time, ns, is the overlap of
    the neighbour's D (or Q) to C with `queue` to `end`."""
    left_out: int = 0
    """Bios that had less time beside the I/O than those kept."""

    def add(
        self, bios: Bios, end: I64, rows: Bool, operations: list[str], codes: I64, tasks: Tasks
    ) -> None:
        """Add bios of one device; keep the MOST_BEFORE neighbours that were longest beside the I/O.

        A neighbour is a bio, or several with the same D (without D: Q) and end, as bios of one
        request have; those of different calls of this method are never one. end: ns when each
        ended, or the largest int64 while it is in flight. codes: bio i is an
        `operations[codes[i]]`.
        """
        bio_row = np.flatnonzero(rows & ~np.isin(bios.number, sorted(self.mates)))
        if not len(bio_row):
            return
        issue = bios.issue[bio_row]
        began = np.where(issue != NEVER, issue, bios.queue[bio_row])
        beside = np.minimum(end[bio_row], self.end) - np.maximum(began, self.queue)
        if len(bio_row) > _LOOKED_AT:
            least = np.partition(beside, -_LOOKED_AT)[-_LOOKED_AT]
            near = beside >= least  # bios of one request tie, so none of them is split off
            self.left_out += int((~near).sum())
            bio_row, began, beside = bio_row[near], began[near], beside[near]
        pairs = np.stack([began, end[bio_row]])
        _, first, group, ios = np.unique(
            pairs, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        size = np.zeros(len(ios), np.int64)
        np.add.at(size, group.reshape(-1), bios.bytes[bio_row].astype(np.int64))
        complete = sure_complete(bios)
        longest = np.lexsort((bios.number[bio_row[first]], -beside[first]))
        for one in longest[:MOST_BEFORE].tolist():
            row = int(bio_row[first[one]])
            queue, issued, ended = (
                None if time == NEVER else int(time) - self.queue
                for time in (bios.queue[row], bios.issue[row], complete[row])
            )
            task = int(bios.task[row])
            neighbour = Neighbour(
                number=int(bios.number[row]),
                operation=operations[codes[row]],
                ios=int(ios[one]),
                bytes=int(size[one]),
                comm=str(tasks.comm[task]) if task >= 0 else None,
                queue_ns=queue or 0,
                issue_ns=issued,
                end_ns=ended,
                waited_ns=None if issued is None or queue is None else issued - queue,
                in_device_ns=None if issued is None or ended is None else ended - issued,
            )
            self._kept.append((int(beside[first[one]]), neighbour))
        self._kept.sort(key=lambda kept: (-kept[0], kept[1].number))
        self.left_out += int(ios[longest[MOST_BEFORE:]].sum())
        self.left_out += sum(neighbour.ios for _, neighbour in self._kept[MOST_BEFORE:])
        del self._kept[MOST_BEFORE:]

    def neighbours(self) -> list[Neighbour]:
        """By the time of D (without D: of Q)."""
        kept = [neighbour for _, neighbour in self._kept]
        return sorted(
            kept, key=lambda n: (n.queue_ns if n.issue_ns is None else n.issue_ns, n.number)
        )


FOREVER = np.iinfo(np.int64).max
MOST_TASKS = 8
"""Thread names kept in a BioCounts besides OTHERS."""
MOST_FLUSHES = 64
UNKNOWN_TASK = "(unknown)"


@dataclass
class Share:
    ios: int = 0
    bytes: int = 0


@dataclass
class BioCounts:
    ios: int = 0
    bytes: int = 0
    operations: dict[str, Share] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    """Thread name → I/Os, for the MOST_TASKS names with most I/Os; the rest under OTHERS."""


@dataclass
class QueueState:
    waiting: BioCounts = field(default_factory=BioCounts)
    """Bios that were queued but not yet issued to the driver."""
    in_device: BioCounts = field(default_factory=BioCounts)
    """Bios that were issued to the driver and not complete (D to C)."""
    requests_allocated: int = 0
    """Requests allocated and not complete, whether waiting or issued."""
    requests_in_device: int = 0
    """Requests issued and not complete, flushes and passthrough requests included."""


@dataclass
class Flush:
    """A flush request that was with the device. Times are ns since the I/O was queued."""

    issue_ns: int
    complete_ns: int | None
    """None: the completion is not in the log."""


@dataclass
class Surroundings:
    when_queued: QueueState = field(default_factory=QueueState)
    when_issued: QueueState | None = None
    """The device at the I/O's D. None: the I/O was not issued (a flush without data, a bio-based
    device), or its D was not recorded."""
    ahead: BioCounts = field(default_factory=BioCounts)
    """Bios waiting when the I/O was queued, and issued before it."""
    overtook_it: BioCounts = field(default_factory=BioCounts)
    """Bios queued after the I/O, and issued before it."""
    it_overtook: BioCounts = field(default_factory=BioCounts)
    """Bios queued before the I/O and waiting then, and issued after it, or never."""
    completed_meanwhile: BioCounts = field(default_factory=BioCounts)
    """Bios completed while the I/O was in the device; if it was not issued, while it was under
    way."""
    of_these_issued_later: BioCounts = field(default_factory=BioCounts)
    """Bios of `completed_meanwhile` issued after the I/O; if it was not issued, queued after it."""
    flushes: list[Flush] = field(default_factory=list)
    """Flush requests in the device while the I/O was under way, in the order of D."""
    flushes_left_out: int = 0
    """Flushes past the first MOST_FLUSHES."""
    before: list[Neighbour] = field(default_factory=list)
    """Bios issued before the I/O and not complete when it was queued, by the time of D; without
    the bios of the I/O's own requests. If the I/O was not issued, bios queued before its Q or
    issued before its end."""
    before_left_out: int = 0
    """Further such bios, with less time beside the I/O."""


class _Target:
    """An I/O whose surroundings are gathered. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, io: IO, mates: frozenset[int]) -> None:
        self.io = io
        self.queue = io.queue_ns or 0
        self.issue = NEVER if io.issue_ns is None else self.queue + io.issue_ns
        """NEVER: not issued, or D not recorded."""
        self.end = self.queue + io.waited_ns
        self.found = Surroundings(when_issued=None if self.issue == NEVER else QueueState())
        self.before = Before(self.queue, self.end, mates)

    def groups(self) -> list[BioCounts]:
        of = [self.found, self.found.when_queued, self.found.when_issued]
        every = [one for part in of if part is not None for one in vars(part).values()]
        return [one for one in every if isinstance(one, BioCounts)]

    def add_bios(self, bios: Bios, end: I64, codes: I64, names: list[str], tasks: Tasks) -> None:
        """end: ns when each ended, as of _ends. codes, names: bio i is a `names[codes[i]]`."""
        found = self.found

        def add(group: BioCounts, rows: Bool) -> None:
            at = np.flatnonzero(rows)
            group.ios += len(at)
            for code, number in Counter(codes[at].tolist()).items():
                share = group.operations.setdefault(names[code], Share())
                length = int(bios.bytes[at[codes[at] == code]].sum(dtype=np.int64))
                share.ios += number
                share.bytes += length
                group.bytes += 0 if names[code] in CLEARED else length
            for task, number in Counter(bios.task[at].tolist()).items():
                comm = str(tasks.comm[task]) if task >= 0 else UNKNOWN_TASK
                group.tasks[comm] = group.tasks.get(comm, 0) + number

        other = (bios.number != self.io.number) & (bios.queue != NEVER)
        issued = bios.issue != NEVER
        earlier, later = other & (bios.queue <= self.queue), other & (bios.queue > self.queue)
        waiting = earlier & (~issued | (bios.issue > self.queue)) & (end > self.queue)
        in_device = other & issued & (bios.issue <= self.queue) & (end > self.queue)
        add(found.when_queued.waiting, waiting)
        add(found.when_queued.in_device, in_device)
        since, order = self.queue, bios.queue
        if found.when_issued is not None:
            at = since = self.issue
            order = bios.issue
            before = issued & (bios.issue < at)
            add(found.ahead, waiting & before)
            add(found.overtook_it, later & before)
            add(found.it_overtook, waiting & (~issued | (bios.issue > at)))
            still = other & (bios.queue < at) & (~issued | (bios.issue > at)) & (end > at)
            add(found.when_issued.waiting, still)
            add(found.when_issued.in_device, other & before & (end > at))
            first = other & before & (end > self.queue)
        else:
            # A flush without data waits for issued bios; a bio-based device issues none.
            began = np.where(issued, bios.issue, bios.queue)
            first = earlier | (issued & other)
            first &= (began < self.end) & (end > self.queue)
        self.before.add(bios, end, first, names, codes, tasks)
        meanwhile = other & (end > since) & (end < self.end)
        add(found.completed_meanwhile, meanwhile)
        add(found.of_these_issued_later, meanwhile & (order > since))
        for group in self.groups():
            if len(group.tasks) > 4 * MOST_TASKS:
                _shorten(group, 2 * MOST_TASKS)


class Neighbourhood:
    """Gathers surroundings of I/Os: `add` windows until it returns True, then `finish`."""

    def __init__(
        self, context: Context, ios: Iterable[IO], mates: Mapping[int, frozenset[int]] | None = None
    ) -> None:
        """mates: number of an I/O → bios of its requests, which `before` leaves out."""
        self._context = context
        self._targets = [
            _Target(io, (mates or {}).get(io.number, frozenset()))
            for io in ios
            if io.queue_ns is not None
        ]
        self.last_ns = max((t.end for t in self._targets), default=NEVER)
        """ns: the last of the I/Os' ends; later windows add nothing. NEVER without I/Os."""
        self._over = not self._targets

    def add(self, window: Lifecycles) -> bool:
        """Add the log's next window; return True if no later one is needed."""
        if self._over:
            return True
        self._over = window.end > self.last_ns
        # If the I/Os have all ended, what later windows say of the open ones does not matter.
        for table in (window.bios, window.open_bios) if self._over else (window.bios,):
            codes, names = operations(self._context, table.opf, table.bytes)
            for dev in {t.io.dev for t in self._targets}:
                rows = np.flatnonzero(table.dev == np.uint32(dev))
                ours = table.take(rows)
                end = _ends(ours)
                first, last = int(ours.queue.min(initial=FOREVER)), int(end.max(initial=NEVER))
                for target in self._targets:
                    if target.io.dev == dev and target.queue <= last and first <= target.end:
                        target.add_bios(ours, end, codes[rows], names, window.tasks)
        self._requests(window.requests)
        if self._over:
            self._requests(window.open_requests)
        return self._over

    def _requests(self, table: Requests) -> None:
        """Add requests to the surroundings of the I/Os on the same device: moments and flushes.

        At each moment (the I/O's Q, its D) counts the requests that were allocated, and those
        issued, before and not complete; at D the I/O's own request counts as allocated, too. A
        flush request counts if it was issued before the I/O's end and not complete at its Q. A
        request without a completion is in flight for ever if its certainty is INCOMPLETE and it was
        not merged into another request; else, or with one in doubt, it counts nowhere.
        """
        going_on = (table.complete == NEVER) & (table.certainty == Certainty.INCOMPLETE)
        end = np.where(going_on & (table.absorbed_by == NEVER), FOREVER, sure_complete(table))
        first, last = int(table.start.min(initial=FOREVER)), int(end.max(initial=NEVER))
        for target in self._targets:
            if last < target.queue or first > target.end:
                continue
            here = table.dev == np.uint32(target.io.dev)
            found = target.found
            moments = [(found.when_queued, target.queue)]
            if found.when_issued is not None:
                moments.append((found.when_issued, target.issue))
            for moment, at in moments:
                alive = here & (table.start != NEVER) & (table.start < at) & (end > at)
                moment.requests_allocated += int(alive.sum())
                issued = here & (table.issue != NEVER) & (table.issue < at) & (end > at)
                moment.requests_in_device += int(issued.sum())
            flush = here & (table.kind == RequestKind.FLUSH) & (table.issue != NEVER)
            flush &= (table.issue < target.end) & (end > target.queue)
            times = table.issue[flush].tolist(), table.complete[flush].tolist()
            for issue, complete in zip(*times, strict=True):
                if len(found.flushes) == MOST_FLUSHES:
                    found.flushes_left_out += 1
                    continue
                done = None if complete == NEVER else complete - target.queue
                found.flushes.append(Flush(issue - target.queue, done))

    def finish(self) -> dict[int, Surroundings]:
        """Return number of an I/O → its surroundings; without those whose Q is not in the log."""
        for target in self._targets:
            target.found.flushes.sort(key=lambda flush: flush.issue_ns)
            target.found.before = target.before.neighbours()
            target.found.before_left_out = target.before.left_out
            for group in target.groups():
                _shorten(group, MOST_TASKS)
        return {target.io.number: target.found for target in self._targets}


def _ends(bios: Bios) -> I64:
    """Return when each bio ended, ns: its completion.

    Without one, the last known time (Q or a later event, NEVER without any) if its certainty is
    LOST, else FOREVER, because it is still in flight; with one in doubt likewise the last known
    time.
    """
    heard = np.stack([bios.queue, bios.getrq, bios.merge, bios.insert, bios.issue]).max(axis=0)
    over = (bios.certainty == Certainty.LOST) | bios.doubtful
    complete = sure_complete(bios)
    end = np.where(complete != NEVER, complete, np.where(over, heard, FOREVER))
    return np.asarray(end, dtype=np.int64)


OTHERS = "others"


def _shorten(group: BioCounts, most: int) -> None:
    """Keep the `most` thread names with most I/Os; add up the rest as OTHERS."""
    rest = group.tasks.pop(OTHERS, 0)
    ranked = sorted(group.tasks.items(), key=lambda item: (-item[1], item[0]))
    rest += sum(number for _, number in ranked[most:])
    group.tasks = dict(ranked[:most]) | ({OTHERS: rest} if rest else {})
