# SPDX-License-Identifier: Apache-2.0
"""Queue depth of a device: bios or requests in flight, over time and when another one begins.

How long an I/O was in flight is known when it is over: where its completion was not recorded, only
then. So beginnings and ends are reported, each once, up to the beginning of the oldest I/O that is
still open, and the result does not depend on how windows cut the log. `in_window` is for live
views, which cannot wait.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biotrail.converters.analysis.distributions import sum_loops as loops
from biotrail.converters.analysis.distributions.samples import operations_of
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
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
)
from biotrail.converters.lifecycles.windows import last_seen, sure_complete

MOST_DEVICES = 256
"""Devices whose depths are kept where memory is bounded."""
MOST_HELD = 1 << 20
"""I/Os that are held back at most for one that is still open; then it is taken to go on."""


@dataclass
class Span:
    time_ns: int = 0
    depth_ns: int = 0
    """Integral of the depth over time: I/Os times ns."""
    busy_ns: int = 0
    most: int = 0

    @property
    def mean(self) -> float:
        return self.depth_ns / self.time_ns if self.time_ns else 0.0

    def add(self, time_ns: int, depth_ns: int, busy_ns: int, most: int) -> None:
        self.time_ns += time_ns
        self.depth_ns += depth_ns
        self.busy_ns += busy_ns
        self.most = max(self.most, most)


@dataclass
class Depth:
    """Depth of one device; I/O whose end is not known counts as long as it is known in flight."""

    origin: int
    interval: int = 0
    """Length of an interval, ns; 0: only `whole` is kept, no `spans`."""
    whole: Span = field(default_factory=Span)
    spans: dict[int, Span] = field(default_factory=dict)
    met: Distribution = field(default_factory=Distribution)
    """For each I/O that began: how many others were in flight then."""
    unended: int = 0
    """I/Os of which the end is not known."""
    high: "Depth | None" = None
    """The depth if each of these was in flight until its address was used again, or to the log's
    end; None: there are none."""
    _level: int = 0
    """I/Os in flight after the last update."""

    def add(self, steps: "Steps", dev: int, op: int | None = None) -> None:
        """Add a stretch of time, which begins where the last one ended: of a device, or of op."""
        parts = []
        for part in (steps.start, steps.stop, steps.fade, steps.gone):
            chosen = part.dev == dev
            if op is not None:
                chosen &= part.op == op
            parts.append(part.at if chosen.all() else part.at[chosen])
        up, down, fade, gone = parts
        if len(fade) and self.high is None:
            self.high = deepcopy(self)
        if self.high is not None:
            ended = np.sort(np.concatenate([down, gone]))
            self.high.update(steps.begin, steps.end, up, ended)
        if len(fade):
            self.unended += len(fade)
            down = np.sort(np.concatenate([down, fade]))
        self.update(steps.begin, steps.end, up, down)

    def update(self, begin: int, end: int, up: I64, down: I64) -> None:
        """up, down: ns of beginnings and ends, ascending; what is before `begin` counts there.

        What is after `end`, as times of damaged records can be, counts at the end. An I/O that
        ends when another begins is not in flight any more. Depths below 0 (an end whose beginning
        is not known) count as 0, but are kept as they are.
        """
        edges = np.zeros(0, np.int64)  # where intervals begin, after `begin`
        up, down = (np.ascontiguousarray(np.minimum(at, end)) for at in (up, down))
        if self.interval:
            latest = max([begin, *up[-1:].tolist(), *down[-1:].tolist()])
            first = max(begin - self.origin, 0) // self.interval + 1
            first_ns = self.origin + first * self.interval
            edges = np.arange(first_ns, max(end, latest + 1), self.interval)
        sums = np.zeros((len(edges) + 1, 4), np.int64)
        sums[:, 3] = -1
        met = np.empty(len(up), np.int64)
        self._level = loops.depth(begin, end, self._level, up, down, edges, sums, met)
        self.met.add(met)
        time_ns, depth_ns, busy_ns = sums[:, :3].sum(axis=0).tolist()
        self.whole.add(time_ns, depth_ns, busy_ns, int(sums[:, 3].max()))
        if self.interval:
            for place, row in enumerate(sums.tolist(), first - 1):
                self.spans.setdefault(place, Span()).add(*row)

    def merge(self, other: "Depth") -> None:
        """Add another device's figures, but spans: `whole.mean` is then of one device."""
        if other.high is not None and self.high is None:
            self.high = deepcopy(self)
        if self.high is not None:
            self.high.merge(other.high or other)
        self.unended += other.unended
        whole = other.whole
        self.whole.add(whole.time_ns, whole.depth_ns, whole.busy_ns, whole.most)
        self.met.merge(other.met)

    def widen(self) -> None:
        """Double `interval`."""
        if self.high is not None:
            self.high.widen()
        self.interval *= 2
        spans, self.spans = self.spans, {}
        for place, span in spans.items():
            whole = self.spans.setdefault(place // 2, Span())
            whole.add(span.time_ns, span.depth_ns, span.busy_ns, span.most)


@dataclass
class Moments(Table):
    at: I64
    """ns."""
    dev: U32
    op: I64
    """Number of the operation, as in Samples.place; 0 where Flow got no context."""


@dataclass
class Seen(Table):
    """Bios in the order of Q, or requests in that of their first D, (n,): those in the log."""

    at: I64
    dev: U32
    sector: U64
    bytes: I64


@dataclass
class Steps:
    """Beginnings and ends of bios (or requests) in a stretch of time."""

    begin: int
    """ns: where the stretch begins. A moment before it was not known in time, and counts there."""
    end: int
    start: Moments
    stop: Moments
    fade: Moments
    """Last events of I/Os whose completion was not recorded: from here on it is not known whether
    they are in flight."""
    gone: Moments
    """When each of these had ended, as its address was used again; absent where that is open."""
    seen: Seen

    def devices(self) -> list[int]:
        parts = (self.start, self.stop, self.fade, self.gone, self.seen)
        devs: list[int] = names_of(np.concatenate([names_of(p.dev) for p in parts])).tolist()
        return devs


@dataclass
class _Rows(Table):
    """Bios or requests with the times between which they were in flight, (n,) each."""

    number: I64
    dev: U32
    op: I64
    sector: U64
    bytes: I64
    start: I64
    """ns; NEVER if not known, or if a request was not issued."""
    stop: I64
    """ns: the completion; NEVER: not in the log."""
    fade: I64
    """ns: the last event of I/O whose end is not known; NEVER: it is, or it is in flight still."""
    gone: I64
    """ns: when I/O with a `fade` had ended; NEVER: not known."""
    seen: Bool
    """Whether `start` is the time of a Q (of requests: first D) in the log."""


def _rows(table: Bios | Requests, context: Context | None) -> _Rows:
    """Return bios from Q to C, or requests from the first D to C, without those never begun.

    A bio without a Q in the log counts from the beginning of the cut if it was in flight then, else
    from its first event on. A completion that may be another I/O's (`doubtful`) is taken for the
    time by which it had ended: whichever of the two it was of, as many were in flight at most.
    """
    if isinstance(table, Bios):
        start = np.where(table.queue == NEVER, table.cut, table.queue)
        for column in (table.getrq, table.merge, table.insert, table.issue, table.complete):
            start = np.where(start == NEVER, column, start)
        seen = table.queue != NEVER
    else:
        start = table.issue
        seen = (start != NEVER) & (start != table.cut)
    unended = (table.gone != NEVER) | table.doubtful
    heard = np.maximum(last_seen(table, completed=False), start)
    gone = np.where(table.doubtful, table.complete, table.gone)
    op = np.zeros(len(table), np.int64) if context is None else operations_of(table, context)
    return _Rows(
        number=table.number,
        dev=table.dev,
        op=op,
        sector=table.sector,
        bytes=table.bytes.astype(np.int64),
        start=start,
        stop=sure_complete(table),
        fade=np.where(unended, heard, NEVER),
        gone=np.where(unended & (gone != FAR), np.maximum(gone, heard), NEVER),
        seen=seen,
    ).take(start != NEVER)


def _moments(rows: _Rows) -> tuple[Moments | Seen, ...]:
    found: list[Moments | Seen] = []
    for times in (rows.start, rows.stop, rows.fade, rows.gone):
        known = times != NEVER
        found.append(Moments(times[known], rows.dev[known], rows.op[known]))
    seen = rows.seen
    columns = rows.start[seen], rows.dev[seen], rows.sector[seen], rows.bytes[seen]
    return *found, Seen(*columns)


@dataclass
class Flow:
    _held: list[tuple[Moments | Seen, ...]] = field(default_factory=list)
    _until: int = NEVER
    _begun: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    _ended: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Numbers of open I/Os whose beginning (and completion, though they were open for records
    that may follow) was reported, as too much was held back for them."""

    def steps(
        self,
        window: Lifecycles,
        over: Bios | Requests,
        open_: Bios | Requests,
        context: Context | None = None,
    ) -> Steps:
        """Return what lies before the beginning of the oldest open I/O; hold back the rest."""
        begin = window.begin if self._until == NEVER else self._until
        rows = _rows(over, context)
        going_on = _rows(open_, context)
        if len(self._begun):
            rows, going_on = (t.take(~np.isin(t.number, self._ended)) for t in (rows, going_on))
            reported = np.isin(rows.number, self._begun)
            rows.start[reported], rows.seen[reported] = NEVER, False
            going_on = going_on.take(~np.isin(going_on.number, self._begun))
            self._begun, self._ended = (
                np.intersect1d(numbers, open_.number) for numbers in (self._begun, self._ended)
            )
        self._held.append(_moments(rows))
        until = window.end
        if sum(len(part[0]) for part in self._held) <= MOST_HELD:
            until = min(until, int(going_on.start.min(initial=FAR)))
        else:
            begun = going_on.take(going_on.start < until)
            self._begun = np.union1d(self._begun, begun.number)
            self._ended = np.union1d(self._ended, begun.number[begun.stop != NEVER])
            self._held.append(_moments(begun))
        final = window.begin == window.end and not len(open_)
        self._until = until = max(until, begin)
        ready, held = list[Any](), list[Any]()
        for tables in zip(*self._held, strict=True):
            kind: Any = type(tables[0]).concatenate(list(tables))
            due = kind.at < (FAR if final else until)
            order = np.flatnonzero(due)[np.argsort(kind.at[due], kind="stable")]
            ready.append(kind.take(order))
            held.append(kind.take(~due))
        self._held = [tuple(held)]
        return Steps(begin, until, *ready)


def both_idle(origin: int, steps: tuple[Steps, Steps], interval: int = 0) -> tuple[Depth, Depth]:
    """Return depths of bios and requests that were 0 from `origin` (ns) to where steps begin."""
    both = Depth(origin, interval), Depth(origin, interval)
    nothing = np.zeros(0, dtype=np.int64)
    for depth, one in zip(both, steps, strict=True):
        if one.begin > origin:
            depth.update(origin, one.begin, nothing, nothing)
    return both


def follow(
    depths: dict[int, tuple[Depth, Depth]],
    steps: tuple[Steps, Steps],
    origin: int,
    interval: int = 0,
    most: int = MOST_DEVICES,
) -> None:
    """Add steps of bios and of requests to the depths by dev_t, of `most` devices."""
    for dev in dict.fromkeys([*steps[0].devices(), *steps[1].devices()]):
        if dev not in depths and len(depths) < most:
            depths[dev] = both_idle(origin, steps, interval)
    for dev, both in depths.items():
        for depth, one in zip(both, steps, strict=True):
            depth.add(one, dev)


def in_window(window: Lifecycles, over: Bios | Requests, open_: Bios | Requests) -> Steps:
    """Return the beginnings and ends of a window's bios (requests), cut off at its edges.

    An I/O whose completion was not recorded counts as in flight until that is known.
    """
    ended, going_on = _rows(over, None), _rows(open_, None)
    rows = _Rows.concatenate([ended, going_on])
    closed = np.arange(len(rows)) < len(ended)
    stop = np.where(closed & (rows.stop == NEVER), np.maximum(rows.fade, rows.start), rows.stop)
    stop = np.where(stop == NEVER, window.end, np.minimum(stop, window.end))
    here = (stop > window.begin) & (rows.start < window.end)
    rows, stop = rows.take(here), stop[here]
    rows.start[:], rows.stop[:] = np.maximum(rows.start, window.begin), stop
    rows.fade[:] = rows.gone[:] = NEVER
    parts: list[Any] = [kind.take(np.argsort(kind.at, kind="stable")) for kind in _moments(rows)]
    return Steps(window.begin, window.end, *parts)
