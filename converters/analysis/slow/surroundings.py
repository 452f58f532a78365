# SPDX-License-Identifier: Apache-2.0
"""What else a device had to do while one of its I/Os waited: before it, beside it, past it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.choosing.choosing import operations
from biotrail.converters.analysis.slow.before import Before, Neighbour
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

FOREVER = np.iinfo(np.int64).max
MOST_TASKS = 8
MOST_FLUSHES = 64
UNKNOWN_TASK = "(unknown)"


@dataclass
class Share:
    """How many I/Os, and how many bytes."""

    ios: int = 0
    bytes: int = 0


@dataclass
class Group:
    """I/Os (bios) that have something in common; by operation, and by the task that sent them."""

    ios: int = 0
    bytes: int = 0
    operations: dict[str, Share] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    """I/Os by thread name, at most MOST_TASKS of them; the rest under "others"."""


@dataclass
class Moment:
    """The device at one time, without the I/O itself."""

    waiting: Group = field(default_factory=Group)
    """Queued, not yet with the driver."""
    in_device: Group = field(default_factory=Group)
    """With the driver (D to C)."""
    requests_allocated: int = 0
    """Requests in use, whether waiting or with the driver."""
    requests_in_device: int = 0
    """Requests with the driver, flushes and the driver's own included."""


@dataclass
class Flush:
    """A flush request that was with the device; ns since the I/O was queued."""

    issue_ns: int
    complete_ns: int | None
    """None: its completion is not in the log."""


@dataclass
class Surroundings:
    """What the I/O met on its device."""

    when_queued: Moment = field(default_factory=Moment)
    when_issued: Moment | None = None
    """None: it was not issued (a flush, a bio-based device), or nobody saw it."""
    ahead: Group = field(default_factory=Group)
    """Waiting when it was queued, and issued before it."""
    overtook_it: Group = field(default_factory=Group)
    """Queued after it, and issued before it."""
    it_overtook: Group = field(default_factory=Group)
    """Queued before it, and issued after it."""
    completed_meanwhile: Group = field(default_factory=Group)
    """Completed while it was in the device (while it was under way, where it was not issued)."""
    of_these_issued_later: Group = field(default_factory=Group)
    """Issued after it (queued after it, likewise), and completed before it."""
    flushes: list[Flush] = field(default_factory=list)
    """Flushes of the device's cache while it was under way, by time."""
    flushes_left_out: int = 0
    """Beyond MOST_FLUSHES."""
    before: list[Neighbour] = field(default_factory=list)
    """I/Os that went to the device before it and were not complete when it was queued."""
    before_left_out: int = 0
    """Others of these, with less time beside it; without bios of its own requests."""


@dataclass
class _Target:
    io: IO
    queue: int
    issue: int
    """NEVER: not issued."""
    end: int
    found: Surroundings
    before: Before


class Neighbourhood:
    """Gathers the surroundings of some I/Os in a pass over the windows. Memory: by their number."""

    def __init__(
        self, context: Context, ios: Iterable[IO], mates: Mapping[int, frozenset[int]] | None = None
    ) -> None:
        """ios: those that were queued in the log; others get no surroundings.

        mates: of an I/O's number the numbers of bios in its requests, which `before` leaves out.
        """
        self._context = context
        self._targets = [
            _target(io, (mates or {}).get(io.number, frozenset()))
            for io in ios
            if io.queue_ns is not None
        ]
        self.last_ns = max((t.end for t in self._targets), default=NEVER)
        """Windows that begin after this have nothing to add."""
        self._over = not self._targets

    def of(self, io: IO) -> Surroundings | None:
        """What was found for one of the I/Os."""
        return next((t.found for t in self._targets if t.io.number == io.number), None)

    def add(self, window: Lifecycles) -> bool:
        """Takes in the next window; whether that was the last one that matters."""
        if self._over:
            return True
        self._over = window.end > self.last_ns
        bios, requests = [window.bios], [window.requests]
        if self._over:
            # The rest is still to come, and all that matters of it is known by now.
            bios.append(window.open_bios)
            requests.append(window.open_requests)
        for table in bios:
            self._bios(table, window)
        for held in requests:
            self._requests(held)
        return self._over

    def _bios(self, table: Bios, window: Lifecycles) -> None:
        codes, names = operations(self._context, table.opf, table.bytes)
        for dev in {t.io.dev for t in self._targets}:
            rows = np.flatnonzero(table.dev == np.uint32(dev))
            ours = table.take(rows)
            others = _Others(ours, _ends(ours), codes[rows], names, window.tasks)
            for target in (t for t in self._targets if t.io.dev == dev):
                others.tell(target)
        self._forget_the_rest()

    def _forget_the_rest(self) -> None:
        for target in self._targets:
            for group in _groups(target.found):
                if len(group.tasks) > 4 * MOST_TASKS:
                    _shorten(group, 2 * MOST_TASKS)

    def _requests(self, table: Requests) -> None:
        going_on = (table.complete == NEVER) & (table.certainty == Certainty.INCOMPLETE)
        end = np.where(going_on & (table.absorbed_by == NEVER), FOREVER, table.complete)
        first, last = int(table.start.min(initial=FOREVER)), int(end.max(initial=NEVER))
        for target in self._targets:
            if last < target.queue or first > target.end:
                continue
            here = table.dev == np.uint32(target.io.dev)
            for moment, at in _moments(target):
                alive = here & (table.start != NEVER) & (table.start < at) & (end > at)
                moment.requests_allocated += int(alive.sum())
                issued = here & (table.issue != NEVER) & (table.issue < at) & (end > at)
                moment.requests_in_device += int(issued.sum())
            flush = here & (table.kind == RequestKind.FLUSH) & (table.issue != NEVER)
            flush &= (table.issue < target.end) & (end > target.queue)
            _add_flushes(target, table.take(flush))

    def finish(self) -> None:
        """Brings what was found into its final form."""
        for target in self._targets:
            target.found.flushes.sort(key=lambda flush: flush.issue_ns)
            target.found.before = target.before.neighbours()
            target.found.before_left_out = target.before.left_out
            for group in _groups(target.found):
                _shorten(group, MOST_TASKS)


def _target(io: IO, mates: frozenset[int]) -> _Target:
    queue = io.queue_ns or 0
    issue = NEVER if io.issue_ns is None else queue + io.issue_ns
    found = Surroundings(when_issued=None if issue == NEVER else Moment())
    end = queue + io.waited_ns
    return _Target(io, queue, issue, end, found, Before(queue, end, mates))


def _add_flushes(target: _Target, flushes: Requests) -> None:
    found = target.found
    for issue, complete in zip(flushes.issue.tolist(), flushes.complete.tolist(), strict=True):
        if len(found.flushes) == MOST_FLUSHES:
            found.flushes_left_out += 1
            continue
        done = None if complete == NEVER else complete - target.queue
        found.flushes.append(Flush(issue - target.queue, done))


def _moments(target: _Target) -> list[tuple[Moment, int]]:
    found = [(target.found.when_queued, target.queue)]
    if target.found.when_issued is not None:
        found.append((target.found.when_issued, target.issue))
    return found


def _groups(found: Surroundings) -> list[Group]:
    moments = [m for m in (found.when_queued, found.when_issued) if m is not None]
    return [
        *(group for m in moments for group in (m.waiting, m.in_device)),
        found.ahead,
        found.overtook_it,
        found.it_overtook,
        found.completed_meanwhile,
        found.of_these_issued_later,
    ]


def _ends(bios: Bios) -> I64:
    """When each was over; FOREVER: not yet. One whose end was lost: when last heard of."""
    heard = np.stack([bios.queue, bios.getrq, bios.merge, bios.insert, bios.issue]).max(axis=0)
    lost = bios.certainty == Certainty.LOST
    end = np.where(bios.complete != NEVER, bios.complete, np.where(lost, heard, FOREVER))
    return np.asarray(end, dtype=np.int64)


@dataclass
class _Others:
    """The bios of one device in one window."""

    bios: Bios
    end: I64
    codes: I64
    names: list[str]
    tasks: Tasks

    def __post_init__(self) -> None:
        self._first = int(self.bios.queue.min(initial=FOREVER))
        self._last = int(self.end.max(initial=NEVER))

    def tell(self, target: _Target) -> None:
        """Adds to the target's surroundings."""
        bios, end, found = self.bios, self.end, target.found
        if self._last < target.queue or self._first > target.end:
            return
        other = (bios.number != target.io.number) & (bios.queue != NEVER)
        issued = bios.issue != NEVER
        earlier, later = other & (bios.queue <= target.queue), other & (bios.queue > target.queue)
        waiting = earlier & (~issued | (bios.issue > target.queue)) & (end > target.queue)
        in_device = other & issued & (bios.issue <= target.queue) & (end > target.queue)
        self._add(found.when_queued.waiting, waiting)
        self._add(found.when_queued.in_device, in_device)
        since, order = target.queue, bios.queue
        if found.when_issued is not None:
            at = since = target.issue
            order = bios.issue
            before = issued & (bios.issue < at)
            self._add(found.ahead, waiting & before)
            self._add(found.overtook_it, later & before)
            self._add(found.it_overtook, waiting & (~issued | (bios.issue > at)))
            still = other & (bios.queue < at) & (~issued | (bios.issue > at)) & (end > at)
            self._add(found.when_issued.waiting, still)
            self._add(found.when_issued.in_device, other & before & (end > at))
            first = other & before & (end > target.queue)
        else:
            # A flush meets what is issued; on a bio-based device nothing ever is.
            began = np.where(issued, bios.issue, bios.queue)
            first = earlier | (issued & other)
            first &= (began < target.end) & (end > target.queue)
        target.before.add(bios, end, first, self.names, self.codes, self.tasks)
        meanwhile = other & (end > since) & (end < target.end)
        self._add(found.completed_meanwhile, meanwhile)
        self._add(found.of_these_issued_later, meanwhile & (order > since))

    def _add(self, group: Group, rows: Bool) -> None:
        if not rows.any():
            return
        at = np.flatnonzero(rows)
        group.ios += len(at)
        group.bytes += int(self.bios.bytes[at].sum(dtype=np.int64))
        for code, number in Counter(self.codes[at].tolist()).items():
            share = group.operations.setdefault(self.names[code], Share())
            share.ios += number
            share.bytes += int(self.bios.bytes[at[self.codes[at] == code]].sum(dtype=np.int64))
        for task, number in Counter(self.bios.task[at].tolist()).items():
            comm = str(self.tasks.comm[task]) if task >= 0 else UNKNOWN_TASK
            group.tasks[comm] = group.tasks.get(comm, 0) + number


OTHERS = "others"


def _shorten(group: Group, most: int) -> None:
    """Keeps the tasks with most I/Os, the rest as one."""
    rest = group.tasks.pop(OTHERS, 0)
    ranked = sorted(group.tasks.items(), key=lambda item: (-item[1], item[0]))
    rest += sum(number for _, number in ranked[most:])
    group.tasks = dict(ranked[:most]) | ({OTHERS: rest} if rest else {})
