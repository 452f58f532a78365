# SPDX-License-Identifier: Apache-2.0
"""Queue depth of a device: bios or requests in flight, over time and when another one begins."""

import itertools
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions import sum_loops as loops
from biotrail.converters.analysis.distributions.flow import Changes
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.tables import I64


@dataclass
class Span:
    """The depth of one device in a stretch of time."""

    time_ns: int = 0
    """Length of the stretch."""
    depth_ns: int = 0
    """Integral of the depth over time: I/Os times ns."""
    busy_ns: int = 0
    """Time with a depth above 0."""
    most: int = 0
    """Largest depth."""

    @property
    def mean(self) -> float:
        """Mean depth, weighted by time; 0.0 for an empty stretch."""
        return self.depth_ns / self.time_ns if self.time_ns else 0.0

    def add(self, time_ns: int, depth_ns: int, busy_ns: int, most: int) -> None:
        """Extend the stretch by another one with these figures."""
        self.time_ns += time_ns
        self.depth_ns += depth_ns
        self.busy_ns += busy_ns
        self.most = max(self.most, most)


@dataclass
class Depth:
    """Depth of one device, from beginnings and ends of its I/Os, window after window.

    I/O of which the end is not known counts as long as it is known to be in flight; `high` counts
    it as long as it may be.
    """

    origin: int
    """ns where interval 0 begins."""
    interval: int = 0
    """Length of an interval, ns; 0: only `whole` is kept, no `spans`."""
    whole: Span = field(default_factory=Span)
    """The depth in all windows so far."""
    spans: dict[int, Span] = field(default_factory=dict)
    """Interval, counted from the origin → the depth in that interval."""
    met: Distribution = field(default_factory=Distribution)
    """For each I/O that began: how many others were in flight then."""
    unended: int = 0
    """I/Os of which the end is not known."""
    high: "Depth | None" = None
    """The depth if each of these was in flight until its address was used again, or to the log's
    end; None: there are none."""
    _level: int = 0
    """I/Os in flight after the last update."""

    def add(self, changes: Changes) -> None:
        """Add a stretch of time, which begins where the last one ended."""
        begin, end, up = changes.begin, changes.end, changes.up
        if len(changes.fade) and self.high is None:
            self.high = deepcopy(self)
        if self.high is not None:
            down = np.sort(np.concatenate([changes.down, changes.gone]))
            self.high.update(begin, end, up, down)
        down = changes.down
        if len(changes.fade):
            self.unended += len(changes.fade)
            down = np.sort(np.concatenate([down, changes.fade]))
        self.update(begin, end, up, down)

    def update(self, begin: int, end: int, up: I64, down: I64) -> None:
        """Add the time from `begin` to `end` (ns), with the I/Os that began and ended in it.

        up, down: ns of beginnings and ends, ascending; what is before `begin` counts there. An I/O
        that ends when another begins is not in flight any more. Depths below 0 (an end whose
        beginning is not known) count as 0, but are kept as they are.
        """
        edges = self._edges(begin, end)
        latest = max(int(up[-1]) if len(up) else begin, int(down[-1]) if len(down) else begin)
        if self.interval and latest >= end:
            self._update_sorted(begin, end, up, down)
            return
        edges = edges[edges > max(begin, self.origin)]
        sums = np.zeros((len(edges) + 1, 4), np.int64)
        sums[:, 3] = -1
        met = np.empty(len(up), np.int64)
        up, down = np.ascontiguousarray(up), np.ascontiguousarray(down)
        self._level = loops.depth(begin, end, self._level, up, down, edges, sums, met)
        self.met.add(met)
        time_ns, depth_ns, busy_ns = sums[:, :3].sum(axis=0).tolist()
        self.whole.add(time_ns, depth_ns, busy_ns, int(sums[:, 3].max()))
        if self.interval:
            first = max(begin - self.origin, 0) // self.interval
            for place, row in enumerate(sums.tolist(), first):
                self.spans.setdefault(place, Span()).add(*row)

    def _update_sorted(self, begin: int, end: int, up: I64, down: I64) -> None:
        """Do as `update`, by sorting all times."""
        edges = self._edges(begin, end)
        at = np.concatenate([[begin], down, up, edges])
        step = np.concatenate(
            [[0], np.full(len(down), -1), np.ones(len(up)), np.zeros(len(edges))]
        ).astype(np.int64)
        # The sort is stable: an I/O that ends when another one begins is not in flight any more.
        order = np.argsort(at, kind="stable")
        at, step = np.maximum(at[order], begin), step[order]
        level = self._level + np.cumsum(step)
        self.met.add(level[step > 0] - 1)
        self._level = int(level[-1])
        level = np.maximum(level, 0)
        lasts = np.diff(at, append=max(end, int(at[-1])))
        self.whole.add(*_sums(level, lasts))
        if self.interval:
            self._add_spans(at, level, lasts)

    def merge(self, other: "Depth") -> None:
        """Add another device's figures, but spans of intervals.

        So `whole.mean` is the mean depth of one device, and `whole.most` the largest of any.
        """
        if other.high is not None and self.high is None:
            self.high = deepcopy(self)
        if self.high is not None:
            self.high.merge(other.high or other)
        self.unended += other.unended
        whole = other.whole
        self.whole.add(whole.time_ns, whole.depth_ns, whole.busy_ns, whole.most)
        self.met.merge(other.met)

    def widen(self) -> None:
        """Double `interval`: merge the spans of intervals 2i and 2i + 1 into that of interval i."""
        if self.high is not None:
            self.high.widen()
        self.interval *= 2
        spans, self.spans = self.spans, {}
        for place, span in spans.items():
            whole = self.spans.setdefault(place // 2, Span())
            whole.add(span.time_ns, span.depth_ns, span.busy_ns, span.most)

    def _edges(self, begin: int, end: int) -> I64:
        """Return where intervals begin from `begin` on and before `end`: ns, int64 (k,), ascending.

        Empty without intervals. As steps of 0 these cut the time, so that every stretch of constant
        depth lies in one interval.
        """
        if not self.interval:
            return np.zeros(0, dtype=np.int64)
        first = -(-(begin - self.origin) // self.interval)
        return np.arange(self.origin + first * self.interval, end, self.interval)

    def _add_spans(self, at: I64, level: I64, lasts: I64) -> None:
        place = np.maximum(at - self.origin, 0) // self.interval
        first = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
        bounds = [*first.tolist(), len(at)]
        for begin, end in itertools.pairwise(bounds):
            span = self.spans.setdefault(int(place[begin]), Span())
            span.add(*_sums(level[begin:end], lasts[begin:end]))


def _sums(level: I64, lasts: I64) -> tuple[int, int, int, int]:
    return (
        int(lasts.sum()),
        int((level * lasts).sum()),
        int(lasts[level > 0].sum()),
        int(level.max()),
    )
