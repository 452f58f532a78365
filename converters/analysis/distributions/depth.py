# SPDX-License-Identifier: Apache-2.0
"""How many bios or requests are in flight on a device, over time and at each beginning."""

import itertools
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.tables import I64


@dataclass
class Span:
    """A stretch of time on one device. Times are ns."""

    time_ns: int = 0
    depth_ns: int = 0
    """Sum of depth times time."""
    busy_ns: int = 0
    """Time with a depth above 0."""
    most: int = 0

    @property
    def mean(self) -> float:
        """Depth, weighted by time."""
        return self.depth_ns / self.time_ns if self.time_ns else 0.0

    def add(self, time_ns: int, depth_ns: int, busy_ns: int, most: int) -> None:
        """More of it."""
        self.time_ns += time_ns
        self.depth_ns += depth_ns
        self.busy_ns += busy_ns
        self.most = max(self.most, most)


@dataclass
class Depth:
    """Depth of one device: steps up and down, window after window.

    interval: ns; 0: the whole only. origin: ns where the first interval begins.
    """

    origin: int
    interval: int = 0
    whole: Span = field(default_factory=Span)
    spans: dict[int, Span] = field(default_factory=dict)
    """By interval, counted from the origin."""
    met: Distribution = field(default_factory=Distribution)
    """How many were in flight when another began; that one is not counted."""
    _level: int = 0

    def update(self, begin: int, end: int, up: I64, down: I64) -> None:
        """Steps between begin and end (ns), each in order of time."""
        edges = self._edges(begin, end)
        at = np.concatenate([[begin], down, up, edges])
        step = np.concatenate(
            [[0], np.full(len(down), -1), np.ones(len(up)), np.zeros(len(edges))]
        ).astype(np.int64)
        # What ends as another begins is not in flight any more.
        order = np.argsort(at, kind="stable")
        at, step = at[order], step[order]
        level = self._level + np.cumsum(step)
        self.met.add(level[step > 0] - 1)
        self._level = int(level[-1])
        level = np.maximum(level, 0)
        lasts = np.diff(at, append=max(end, int(at[-1])))
        self.whole.add(*_sums(level, lasts))
        if self.interval:
            self._add_spans(at, level, lasts)

    def widen(self) -> None:
        """Two intervals become one."""
        self.interval *= 2
        spans, self.spans = self.spans, {}
        for place, span in spans.items():
            whole = self.spans.setdefault(place // 2, Span())
            whole.add(span.time_ns, span.depth_ns, span.busy_ns, span.most)

    def _edges(self, begin: int, end: int) -> I64:
        """Where intervals begin, so that no stretch is in two of them."""
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
