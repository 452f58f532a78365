# SPDX-License-Identifier: Apache-2.0
"""Counters over time: levels with at most one sample a millisecond, rates in bins of 10 ms.

A level's sample stands at the start of its millisecond and is the highest level in it, so
that short peaks show; when the level then stays, the next millisecond has a sample with
where it stayed. A sample that repeats the one before is left out.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from converters.model.tables import I64

LEVEL_BIN = 1_000_000
"""ns."""
RATE_BIN = 10_000_000
"""ns."""
READ_OPS, WRITE_OPS = frozenset({"read"}), frozenset({"write", "zone_append"})
"""Operations whose bytes are a device's throughput."""
_LOSS_BINS = 1 << 16

Samples = tuple[I64, NDArray[np.float64]]
"""Times (ns) and values, shape (n,) each."""


def _none() -> I64:
    return np.zeros(0, dtype=np.int64)


@dataclass
class _Series:
    """Peaks and rests of bins become samples; what a later window can change is held back."""

    bin: int
    origin: int
    """ns: a first sample of zero stands here, so that the counter shows in any case."""
    last: float | None = None
    """The last sample's value."""
    _rest: tuple[int, float] | None = None
    """Bin from which on the level rests at a value, unless something happens in that bin."""

    def samples(
        self, bins: I64, peak: NDArray[np.float64], rest: NDArray[np.float64], before: int
    ) -> Samples:
        """Samples of ended bins. bins: in order, distinct, all below `before`."""
        at, value = bins, peak
        if self._rest is not None:
            bins = np.concatenate([[self._rest[0] - 1], bins])
            rest = np.concatenate([[self._rest[1]], rest])
        next_bin = np.append(bins[1:], before)
        settles = next_bin > bins + 1
        at = np.concatenate([at, bins[settles] + 1])
        value = np.concatenate([value, rest[settles]])
        order = np.argsort(at, kind="stable")
        at, value = at[order], value[order]
        self._rest = None
        if len(bins) and not settles[-1]:
            self._rest = (int(bins[-1]) + 1, float(rest[-1]))
        at *= self.bin
        # Before its first bin has ended, nobody knows whether it begins with zero.
        begun = before * self.bin > self.origin
        if self.last is None and begun and (not len(at) or at[0] > self.origin):
            at, value = np.append(self.origin, at), np.append(0.0, value)
        previous = np.concatenate([[np.nan if self.last is None else self.last], value[:-1]])
        new = value != previous
        self.last = float(value[-1]) if len(value) else self.last
        return at[new], value[new]


@dataclass
class Level:
    """How many are in a state, from steps of +1 and -1 at any time."""

    origin: int
    _level: int = 0
    _times: I64 = field(default_factory=_none)
    _steps: I64 = field(default_factory=_none)

    def __post_init__(self) -> None:
        self._series = _Series(LEVEL_BIN, self.origin)

    def update(self, up: I64, down: I64, until: int, expected: int | None = None) -> Samples:
        """Samples that can be told now.

        up, down: times (ns) of steps, any order; until: all steps before it are known;
        expected: the level then, which corrects for steps that were never seen.
        """
        times = np.concatenate([self._times, up, down])
        steps = np.concatenate([self._steps, np.ones_like(up), -np.ones_like(down)])
        level = self._level + int(steps.sum())
        if expected is not None and level != expected:
            times = np.append(times, until - 1)
            steps = np.append(steps, expected - level)
        order = np.lexsort((-steps, times))
        times, steps = times[order], steps[order]
        whole = until // LEVEL_BIN
        ready = int(np.searchsorted(times, whole * LEVEL_BIN))
        self._times, self._steps = times[ready:], steps[ready:]
        times, steps = times[:ready], steps[:ready]
        after = self._level + np.cumsum(steps)
        bins, first = np.unique(times // LEVEL_BIN, return_index=True)
        if not len(bins):
            return self._series.samples(_none(), np.zeros(0), np.zeros(0), whole)
        before = np.concatenate([[self._level], after])[first]
        peak = np.maximum(np.maximum.reduceat(after, first), before)
        rest = after[np.append(first[1:], ready) - 1]
        self._level = int(after[-1])
        return self._series.samples(bins, peak.astype(float), rest.astype(float), whole)


@dataclass
class Rate:
    """Megabytes (10^6 bytes) per second."""

    origin: int
    _times: I64 = field(default_factory=_none)
    _bytes: I64 = field(default_factory=_none)

    def __post_init__(self) -> None:
        self._series = _Series(RATE_BIN, self.origin)

    def update(self, times: I64, moved: I64, until: int) -> Samples:
        """Samples of the bins that ended. times (ns), moved (bytes): any order."""
        times = np.concatenate([self._times, times])
        moved = np.concatenate([self._bytes, moved])
        whole = until // RATE_BIN
        ready = times < whole * RATE_BIN
        self._times, self._bytes = times[~ready], moved[~ready]
        bins, where = np.unique(times[ready] // RATE_BIN, return_inverse=True)
        total = np.bincount(where, weights=moved[ready], minlength=len(bins))
        value = total / 1e6 / (RATE_BIN / 1e9)
        return self._series.samples(bins, value, np.zeros(len(bins)), whole)


@dataclass
class LossTotal:
    """How many records were lost by when: a running total over windows that come unordered.

    Memory is bounded: when there are too many bins, they become twice as wide.
    """

    _bin: int = LEVEL_BIN
    _lost: dict[int, int] = field(default_factory=dict)

    def add(self, end: I64, count: I64) -> None:
        """Windows' ends (ns) and how many records each lost; -1, unknown, adds nothing."""
        for at, lost in zip(end.tolist(), count.tolist(), strict=True):
            if lost > 0:
                key = at // self._bin
                self._lost[key] = self._lost.get(key, 0) + lost
        while len(self._lost) > _LOSS_BINS:
            self._bin *= 2
            wider: dict[int, int] = {}
            for key, lost in self._lost.items():
                wider[key // 2] = wider.get(key // 2, 0) + lost
            self._lost = wider

    def samples(self, at: int) -> Samples:
        """The whole counter: zero at `at` (ns), then each step."""
        keys = np.array(sorted(self._lost), dtype=np.int64)
        steps = np.array([self._lost[k] for k in keys.tolist()], dtype=np.int64)
        # A bin's end, as nothing says when in its window a record was lost.
        times = np.concatenate([[at], np.maximum((keys + 1) * self._bin, at)])
        return times, np.concatenate([[0.0], np.cumsum(steps).astype(float)])
