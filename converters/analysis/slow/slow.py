# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os of a log, each with all that is known of it. Memory: by how many are kept.

One pass finds them and takes their events: the window in which an I/O is given out holds all
of them, and all that shares a request with it or is above or below it. What else the device
had to do at that time is a second pass: `surroundings`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.tries import tries
from biotrail.converters.analysis.slow.io_details import (
    IO,
    NO_SECTOR,
    RequestFacts,
    io_at,
    requests_of,
    row_of,
    under_way,
)
from biotrail.converters.analysis.slow.surroundings import Surroundings
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, NEVER, Bios, Bool, Lifecycles
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.histories import Histories, histories
from biotrail.converters.lifecycles.lifecycles import Result
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import BY_KIND, NO_TAG, Kind

MOST_EVENTS = 1000
"""Events kept of one I/O: a discard of a whole disk has thousands of pieces."""
MOST_MATES = 64
MOST_CHILDREN = 64
_WITH_TASK = frozenset({Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A})
_WITH_TAG = frozenset({Kind.START, Kind.I, Kind.R, Kind.RQ_MERGE, Kind.D})


@dataclass
class Step:
    """One event of an I/O."""

    offset_ns: int
    """Since it was queued."""
    letter: str
    name: str
    cpu: int
    tid: int | None
    comm: str | None
    request: int | None
    """Number of the request that it is about; None: the bio, or a piece of it."""
    device: str
    sector: int | None
    bytes: int
    tag: int | None
    bios: int | None
    """D: how many bios the request holds."""
    status: str | None
    """C, E, c: how it ended."""


@dataclass
class SlowIO:
    """One slow I/O, whole."""

    io: IO
    begin_ns: int
    """CLOCK_MONOTONIC: when it was queued; where that was not seen, its first event."""
    events: list[Step]
    events_left_out: int
    requests: list[RequestFacts]
    mates: list[IO]
    """Other bios of its requests, in the order in which they were queued."""
    mates_left_out: int
    parents: list[IO]
    """The bio above it, the one above that, and so on."""
    children: list[IO]
    """Bios on lower devices that do its work, theirs too, by time."""
    children_left_out: int
    surroundings: Surroundings | None = None

    @property
    def longest_pause(self) -> tuple[Step, Step] | None:
        """The two neighbouring events that are furthest apart; None: fewer than two, or not all."""
        if len(self.events) < 2 or self.events_left_out:
            return None
        pairs = zip(self.events, self.events[1:], strict=False)
        return max(pairs, key=lambda pair: pair[1].offset_ns - pair[0].offset_ns)

    @property
    def below(self) -> tuple[int, int] | None:
        """ns from its issue to the first lower I/O's queueing, and from there to the last's end.

        From its queueing, where it has no issue. None: there are none, or not all is known.
        """
        ends = [c.queue_ns + c.waited_ns for c in self.children if c.queue_ns is not None]
        known = all(c.latency_ns is not None for c in self.children) and self.io.latency_ns
        if not known or not ends or len(ends) < len(self.children) or self.children_left_out:
            return None
        first = min(c.queue_ns for c in self.children if c.queue_ns is not None)
        before = first - self.begin_ns - (self.io.issue_ns or 0)
        return (before, max(ends) - first) if before >= 0 else None


@dataclass(frozen=True)
class Wanted:
    """top: how many at most. over: ns, at least that slow. failed: only those with an error."""

    top: int = 20
    over: int = 0
    failed: bool = False


@dataclass
class Counts:
    """Of all that was looked at; plain numbers."""

    ios: int = 0
    """I/Os of the chosen devices and operations; those that do the work of others do not count."""
    matching: int = 0
    """Of these, how many are as slow as wanted (or failed)."""
    under_way: int = 0
    """Not complete when the log ended."""
    without_latency: int = 0
    """Their queueing or their completion is not in the log: nobody knows how long they took."""
    tries: int = 0
    """NOWAIT tries that failed at once (tries.py); they are not among the others."""


@dataclass
class Slowest:
    """Finds the slowest I/Os; `watch` is for `Trace.lifecycles(on_window=...)`."""

    trace: Trace
    choice: Choice
    wanted: Wanted
    whole_families: bool = True
    """Whether I/Os that do the work of others are told with these alone."""
    counts: Counts = field(default_factory=Counts)
    found: list[SlowIO] = field(default_factory=list)
    """The slowest first."""
    devices: set[int] = field(default_factory=set)
    """Where there were I/Os."""
    _end: int = NEVER
    """When the log ends, ns; known in the last window, and only there is anything under way."""

    def watch(self, result: Result, window: Lifecycles) -> None:
        """Takes in one window."""
        bios = window.bios
        self._end = self._log_end()
        self.devices.update(np.unique(bios.dev).tolist())
        chosen = self.choice.mask(bios, window.tasks)
        if self.whole_families:
            chosen &= bios.parent == NEVER
        tried = chosen & tries(self._context, bios)
        self.counts.tries += int(tried.sum())
        chosen &= ~tried
        waited, known = _waits(bios, self._end)
        self._count(bios, chosen, known)
        wanted = chosen & (bios.status != 0 if self.wanted.failed else known)
        wanted &= waited >= self.wanted.over
        self.counts.matching += int(wanted.sum())
        rows = self._slowest(np.flatnonzero(wanted), waited, bios.number)
        if len(rows):
            self._take(result, window, rows)

    @property
    def _context(self) -> Context:
        return self.trace.context

    def _log_end(self) -> int:
        """ns: the last reading of the log's clock so far, or its last event."""
        readings = [int(reading["monotonic"]) for reading in self._context.clocks]
        return max([self.trace.account.last_ns, *readings])

    def _count(self, bios: Bios, chosen: Bool, known: Bool) -> None:
        self.counts.ios += int(chosen.sum())
        self.counts.under_way += int((chosen & under_way(bios)).sum())
        self.counts.without_latency += int((chosen & ~known).sum())

    def _slowest(self, rows: I64, waited: I64, number: I64) -> I64:
        """Of the rows, those that are among the slowest so far."""
        if len(self.found) == self.wanted.top:
            rows = rows[waited[rows] >= self.found[-1].io.waited_ns]
        order = np.lexsort((number[rows], -waited[rows]))
        return rows[order[: self.wanted.top]]

    def _take(self, result: Result, window: Lifecycles, rows: I64) -> None:
        steps = histories(result, window.bios.number[rows])
        self.found += [self._whole(result, window, steps, row) for row in rows.tolist()]
        self.found.sort(key=lambda slow: (-slow.io.waited_ns, slow.io.number))
        del self.found[self.wanted.top :]

    def _whole(self, result: Result, window: Lifecycles, steps: Histories, row: int) -> SlowIO:
        io = io_at(self._context, window, row, self._end)
        first, stop = np.searchsorted(steps.bio, [io.number, io.number + 1]).tolist()
        ours = steps.take(np.arange(first, stop))
        events = result.association.events
        origin = io.queue_ns
        if origin is None:
            origin = int(events.ts[ours.event[0]]) if len(ours) else 0
        numbers = np.unique(ours.request[ours.request != NEVER]).tolist()
        mates = _others_of(window, numbers, io.number)
        children = _children(window, io.number)
        shown = _bounded(ours)
        told = _steps(self.trace.tasks, window, self._context, events, shown)
        for step in told:
            step.offset_ns -= origin
        return SlowIO(
            io=io,
            begin_ns=origin,
            events=told,
            events_left_out=len(ours) - len(shown),
            requests=requests_of(self._context, window.requests, numbers, origin),
            mates=self._ios(window, mates[:MOST_MATES]),
            mates_left_out=max(len(mates) - MOST_MATES, 0),
            parents=self._ios(window, _parents(window, row)),
            children=self._ios(window, children[:MOST_CHILDREN]),
            children_left_out=max(len(children) - MOST_CHILDREN, 0),
        )

    def _ios(self, window: Lifecycles, rows: list[int]) -> list[IO]:
        return [io_at(self._context, window, row, self._end) for row in rows]


def _bounded(ours: Histories) -> Histories:
    """The first and the last events of what has too many."""
    if len(ours) <= MOST_EVENTS:
        return ours
    half = MOST_EVENTS // 2
    return ours.take(np.r_[0:half, len(ours) - half : len(ours)])


def _waits(bios: Bios, end: int) -> tuple[I64, Bool]:
    """How long each took, or had waited at `end` (ns), and whether that is known."""
    going_on = under_way(bios)
    known = (bios.queue != NEVER) & ((bios.complete != NEVER) | going_on)
    until = np.where(going_on, end, bios.complete)
    return np.where(known, until - bios.queue, 0), known


def _others_of(window: Lifecycles, requests: list[int], bio: int) -> list[int]:
    """Rows of the other bios of these requests, in the order of their numbers."""
    edges = window.edges
    mates = np.unique(edges.bio[np.isin(edges.request, requests) & (edges.bio != bio)])
    return [row for n in mates.tolist() if (row := row_of(window.bios.number, n)) >= 0]


def _parents(window: Lifecycles, row: int) -> list[int]:
    bios = window.bios
    found: list[int] = []
    while (upper := int(bios.parent[row])) != NEVER and len(found) < 64:
        row = row_of(bios.number, upper)
        if row < 0:
            break
        found.append(row)
    return found


def _children(window: Lifecycles, bio: int) -> list[int]:
    """Rows of the bios below, at every depth, in the order of their numbers."""
    bios = window.bios
    found: list[int] = []
    level = np.array([bio])
    while len(level):
        rows = np.flatnonzero(np.isin(bios.parent, level))
        rows = rows[~np.isin(rows, found)]
        found += rows.tolist()
        level = bios.number[rows]
    return sorted(found)


def _steps(
    tasks: TaskNames, window: Lifecycles, context: Context, events: Events, shown: Histories
) -> list[Step]:
    """The events of one I/O; offsets are those of the log, for the caller to shift."""
    found = [
        _step(context, events, event, request)
        for event, request in zip(shown.event.tolist(), shown.request.tolist(), strict=True)
    ]
    tid = np.array([step.tid or 0 for step in found], dtype=np.uint32)
    rows = tasks.rows(tid, events.ts[shown.event])
    for step, row in zip(found, rows.tolist(), strict=True):
        step.comm = str(window.tasks.comm[row]) if step.tid and row >= 0 else None
    return found


def _step(context: Context, events: Events, event: int, request: int) -> Step:
    kind = Kind(int(events.kind[event]))
    record = BY_KIND[kind]
    fields = events.fields(kind, np.array([event]))
    values: dict[str, Any] = {name: fields[name].tolist()[0] for name in fields.dtype.names or ()}
    tag = values["tag"] if kind in _WITH_TAG else NO_TAG
    sector = values.get("sector", NO_SECTOR)
    return Step(
        offset_ns=int(events.ts[event]),
        letter=record.letter,
        name=record.name,
        cpu=int(events.cpu[event]),
        tid=(int(values["tid"]) or None) if kind in _WITH_TASK else None,
        comm=None,
        request=None if request == NEVER else request,
        device=context.device_name(int(values["dev"])),
        sector=None if sector == NO_SECTOR else sector,
        bytes=int(values.get("bytes", 0)),
        tag=None if tag == NO_TAG else int(tag),
        bios=int(values["nr_bios"]) if kind == Kind.D else None,
        status=context.status_name(int(values["status"])) if "status" in values else None,
    )
