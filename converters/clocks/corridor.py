# SPDX-License-Identifier: Apache-2.0
"""The offset between two clocks as a straight line, from bounds on it at many times.

An event that one machine saw before another machine saw its consequence bounds the offset from one
side; an answer bounds it from the other. All lines within all bounds form a convex polygon in the
plane of (offset, rate), so what the bounds leave open is known exactly.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, Bool

MOST_DRIFT = 1000.0
"""ppm: two clocks' rates differ by no more. The kernel slews a clock by 500 ppm at most."""
_MOST_OFFSET = 1e10
"""ns: no bound is further from the median of all."""
_MOST_ROUNDS = 40
_STEPS = 60
"""Of the search for a rate: each leaves two thirds of the range."""

F64 = NDArray[np.float64]
Vertex = tuple[float, float]
"""(offset at the origin in ns, rate in ns per s) of a line."""


@dataclass(frozen=True)
class Line:
    """Another clock's time for a time of the own: time + offset + rate * (time - origin)."""

    origin: int
    """ns of the own clock."""
    offset: int
    """ns that the other clock shows more at the origin."""
    rate: float
    """By what part the other clock is faster (1e-6: 1 ppm)."""
    within: int
    """Bound (ns) of the error between the first and the last bound's time."""

    def times(self, own: I64) -> I64:
        """Return the other clock's times (ns) for times of the own; negative ones (NEVER) stay."""
        moved = own + self.offset + np.rint((own - self.origin) * self.rate).astype(np.int64)
        return np.where(own < 0, own, moved)


@dataclass(frozen=True)
class Fit:
    line: Line
    kept: Bool
    """Per pair of bounds (n,): False: it contradicts the others and was left out."""


def fit(at: I64, low: I64, high: I64) -> Fit | None:
    """Return the line from the middle of all lines within the bounds, or None: there is no bound.

    at: when each pair of bounds holds, ns of the own clock (n,). low, high: least and greatest
    offset then (ns, n), low <= high. Where no line is within all bounds, those that contradict the
    others most are left out, until one is.
    """
    if not len(at):
        return None
    origin = int(at.min()) + (int(at.max()) - int(at.min())) // 2
    base = int(np.median(low))
    seconds = (at - origin) / 1e9
    lows, highs = (low - base).astype(np.float64), (high - base).astype(np.float64)
    kept = (np.abs(lows) < _MOST_OFFSET) & (np.abs(highs) < _MOST_OFFSET)
    for _ in range(_MOST_ROUNDS):
        lines = _lines(seconds[kept], lows[kept], highs[kept])
        if lines:
            # The mean of the lines that are extreme at the first and the last time is itself within
            # all bounds, because these form a convex polygon.
            every = np.array(lines)
            ends = np.array([seconds[kept].min(), seconds[kept].max()])
            values = every[:, :1] + every[:, 1:] * ends
            extreme = np.concatenate([values.argmin(axis=0), values.argmax(axis=0)])
            offset, rate = every[extreme].mean(axis=0)
            within = int(np.ceil(np.abs(values - (offset + rate * ends)).max())) + 2
            return Fit(Line(origin, base + round(offset), float(rate) * 1e-9, within), kept)
        beyond = _beyond(seconds, lows, highs, kept)
        kept = kept & (beyond <= beyond[kept].max() / 2)
    return None


def _lines(at: F64, low: F64, high: F64) -> list[Vertex]:
    """Return the vertices of the polygon of all lines within the bounds; empty: there is none."""
    rate = MOST_DRIFT * 1e3
    polygon = [
        (-_MOST_OFFSET, -rate),
        (_MOST_OFFSET, -rate),
        (_MOST_OFFSET, rate),
        (-_MOST_OFFSET, rate),
    ]
    for time, bound in _hull(at, low):
        polygon = _clip(polygon, time, bound, 1.0)
    for time, bound in _hull(at, -high):
        polygon = _clip(polygon, time, -bound, -1.0)
    return polygon


def _hull(at: F64, bound: F64) -> list[Vertex]:
    """Return the (time, bound) of the upper convex hull, by time: no other one can limit a line."""
    order = np.lexsort((bound, at))
    hull: list[Vertex] = []
    for time, value in zip(at[order].tolist(), bound[order].tolist(), strict=True):
        while hull and hull[-1][0] == time:
            hull.pop()
        while len(hull) > 1:
            (t0, v0), (t1, v1) = hull[-2:]
            if (v1 - v0) * (time - t0) > (value - v0) * (t1 - t0):
                break
            hull.pop()
        hull.append((time, value))
    return hull


def _clip(polygon: list[Vertex], time: float, bound: float, side: float) -> list[Vertex]:
    """Return the part of the polygon above (side 1) or below (-1) a bound."""
    above = [side * (offset + rate * time - bound) for offset, rate in polygon]
    found: list[Vertex] = []
    for at, vertex in enumerate(polygon):
        before, last = above[at - 1], polygon[at - 1]
        if (before < 0) != (above[at] < 0):
            share = before / (before - above[at])
            found.append(
                (last[0] + share * (vertex[0] - last[0]), last[1] + share * (vertex[1] - last[1]))
            )
        if above[at] >= 0:
            found.append(vertex)
    return found


def _beyond(at: F64, low: F64, high: F64, kept: Bool) -> F64:
    """Return by how many ns the line with the least sum of violations violates each bound (n,).

    kept: the bounds that are added up. For a given rate the best offset is the median of all
    bounds; the sum is a convex function of the rate.
    """
    times, lows, highs = at[kept], low[kept], high[kept]

    def offset_for(rate: float) -> float:
        return float(np.median(np.concatenate([lows - rate * times, highs - rate * times])))

    def total(rate: float) -> float:
        value = offset_for(rate) + rate * times
        return float((np.maximum(lows - value, 0) + np.maximum(value - highs, 0)).sum())

    left, right = -MOST_DRIFT * 1e3, MOST_DRIFT * 1e3
    for _ in range(_STEPS):
        first, second = left + (right - left) / 3, right - (right - left) / 3
        left, right = (left, second) if total(first) <= total(second) else (first, right)
    rate = (left + right) / 2
    value = offset_for(rate) + rate * at
    beyond: F64 = np.maximum(np.maximum(low - value, value - high), 0)
    return beyond
