# SPDX-License-Identifier: Apache-2.0
"""For how long of given times a process had I/O in flight that it submitted to be reaped later."""

import numpy as np

from biotrail.converters.events.tables import I64

MOST_KEPT = 1 << 16
"""Spans that are kept of each process at most; the oldest are dropped first."""


class InFlight:
    """When processes had such I/O in flight, window after window: spans that do not overlap."""

    def __init__(self) -> None:
        """Start without I/O."""
        none = np.zeros(0, dtype=np.int64)
        self._spans: dict[int, tuple[I64, I64]] = {}
        """Process id → (start, end) of its spans so far, ns, ascending and apart."""
        self._none = none, none

    def add(self, process: I64, start: I64, end: I64) -> None:
        """Add I/O that ended. process: ids, (n,); start, end: ns, (n,)."""
        for one in np.unique(process).tolist():
            mine = process == one
            starts, ends = self._with(one, start[mine], end[mine])
            self._spans[one] = starts[-MOST_KEPT:], ends[-MOST_KEPT:]

    def within(self, asked: tuple[I64, I64, I64], process: I64, start: I64, end: I64) -> I64:
        """Return for how many ns of each time asked for its process had I/O in flight: (m,).

        asked: (process, from, to), (m,) each. process, start, end: (n,), I/O beside what was added,
        such as what is still in flight; it is not kept. 0 for a process without I/O, and where a
        time ends before it begins.
        """
        found = np.zeros(len(asked[0]), dtype=np.int64)
        for one in np.unique(asked[0]).tolist():
            mine = process == one
            spans = self._with(one, start[mine], end[mine])
            rows = np.flatnonzero(asked[0] == one)
            found[rows] = covered(spans, asked[2][rows]) - covered(spans, asked[1][rows])
        return np.maximum(found, 0)

    def _with(self, process: int, start: I64, end: I64) -> tuple[I64, I64]:
        """Return the spans of a process with others added: (start, end), ascending and apart."""
        known = self._spans.get(process, self._none)
        return merged(np.concatenate([known[0], start]), np.concatenate([known[1], end]))


def merged(start: I64, end: I64) -> tuple[I64, I64]:
    """Return (start, end) of the times that these spans cover: (k,), ascending and apart.

    start, end: (n,), ns, in any order. A span that ends before it begins covers nothing.
    """
    kept = end > start
    start, end = start[kept], end[kept]
    order = np.argsort(start, kind="stable")
    start, latest = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), dtype=np.bool_)
    first[1:] = start[1:] > latest[:-1]
    last = np.roll(first, -1)  # a span is the last of its time if the next one is a first
    return start[first], latest[last]


def covered(spans: tuple[I64, I64], time: I64) -> I64:
    """Return how many ns of `spans` are before each time: (m,).

    spans: (start, end), ascending and apart.
    """
    start, end = spans
    if not len(start):
        return np.zeros(len(time), dtype=np.int64)
    row = np.searchsorted(start, time, side="right")
    before = np.concatenate([[0], np.cumsum(end[:-1] - start[:-1])])
    at = np.maximum(row - 1, 0)
    within = np.minimum(time, end[at]) - start[at]
    return np.where(row > 0, before[at] + within, 0)
