# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals of a recording's figures, by resampling blocks of its time.

Latencies of I/Os that are near in time depend on each other, so that resampling single I/Os would
give intervals that are too narrow. Blocks of neighbouring slots are drawn instead (circular block
bootstrap; Politis and Romano 1992). The interval is the expanded percentile interval (Hesterberg
2015), which corrects for the small number of blocks: a plain percentile interval of 30 blocks is
some 5 % too narrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.diff.student import student_t
from biotrail.converters.analysis.distributions.sketch import Distribution, bucket_begin
from biotrail.converters.events.tables import I64

LEAST_BLOCKS = 30
"""Blocks in a draw at least; a recording with fewer slots gets no intervals."""

F64 = NDArray[np.float64]


def tail_of(confidence: float, blocks: int) -> float:
    """Return the share of the draws to leave out on each side of the confidence interval, 0 to 0.5.

    A plain percentile interval leaves out (1 - confidence) / 2. The expanded one (Hesterberg 2015)
    leaves out less, the fewer blocks the less. confidence: 0 to 1. blocks: independent blocks of
    time in a draw, at least 2.
    """
    t = student_t((1 + confidence) / 2, blocks - 1)
    return NormalDist().cdf(-t * (blocks / (blocks - 1)) ** 0.5)


def draws(slots: int, length: int, count: int, seed: Sequence[int]) -> F64:
    """Return how often each slot of time is in each draw: float64, shape (count, slots).

    slots: equal stretches of time that the recording consists of, at least 1. A draw consists of
    ceil(slots / length) blocks, each of `length` neighbouring slots from a random slot on, where
    the first slot follows the last one; blocks can overlap or be the same. So it has as many slots
    as the recording, or up to length - 1 more. count: number of draws. The same seed gives the same
    draws.
    """
    rng = np.random.default_rng(list(seed))
    blocks = -(-slots // length)
    first = rng.integers(0, slots, size=(count, blocks))
    starts = np.zeros((count, slots))
    np.add.at(starts, (np.arange(count)[:, None], first), 1.0)
    return np.asarray(sum(np.roll(starts, shift, axis=1) for shift in range(length)))


@dataclass
class Resampling:
    """The draws of one recording."""

    weights: F64
    """(draws, slots): how often each slot is in each draw."""
    blocks: int
    """Independent blocks in a draw."""

    @classmethod
    def of(cls, slots: int, count: int, seed: Sequence[int]) -> "Resampling | None":
        """Return `count` draws of a recording's slots; None: fewer than LEAST_BLOCKS, or none."""
        if slots < LEAST_BLOCKS or not count:
            return None
        length = slots // LEAST_BLOCKS
        return cls(draws(slots, length, count, seed), -(-slots // length))

    def sums(self, values: I64 | F64) -> F64:
        """Return each draw's sum of the values (slots,): float64, shape (draws,)."""
        return np.asarray(self.weights @ np.asarray(values, dtype=np.float64))

    def percentiles(self, by_slot: dict[int, Distribution], shares: Sequence[float]) -> F64:
        """Return the percentiles of the values in each draw: float64, shape (len(shares), draws).

        by_slot: slot (column of `weights`; others are ignored) → values of the I/O in it; at least
        one of these slots has values. A slot that is in a draw k times adds each of its values k
        times. shares: 0.99 for p99, one row of the result each. A percentile is the middle of the
        bucket of the value at rank ceil(share * count), 1 at least. NaN: the draw has no value.
        """
        slots, counts, middles = _matrix(by_slot, self.weights.shape[1])
        drawn = np.cumsum(self.weights[:, slots] @ counts, axis=1)
        total = drawn[:, -1]
        result = np.full((len(shares), len(total)), np.nan)
        filled = total > 0
        for place, share in enumerate(shares):
            rank = np.maximum(np.ceil(share * total - 1e-9), 1)
            bucket = (drawn < rank[:, None]).sum(axis=1)
            result[place, filled] = middles[np.minimum(bucket, len(middles) - 1)][filled]
        return result


def _matrix(by_slot: dict[int, Distribution], slots: int) -> tuple[I64, F64, F64]:
    """Return (rows, counts, middles): the values of the slots as a matrix of bucket counts.

    by_slot: slot → values. slots: number of slots; others from this number on are left out. At
    least one slot has values. rows: int64 (r,), the slots that have values, ascending. counts:
    float64 (r, b), values of each such slot in each of the b buckets that occur. middles: float64
    (b,), the middle of each bucket, ascending.
    """
    rows = np.array(sorted(s for s, d in by_slot.items() if d.count and s < slots), dtype=np.int64)
    histograms = [by_slot[row].rows() for row in rows.tolist()]
    buckets = np.unique(np.concatenate([bucket for bucket, _ in histograms]))
    counts = np.zeros((len(rows), len(buckets)))
    for row, (bucket, count) in enumerate(histograms):
        counts[row, np.searchsorted(buckets, bucket)] = count
    ends = [(bucket_begin(b), bucket_begin(b + 1)) for b in buckets.tolist()]
    return rows, counts, np.array([(b + e - 1) // 2 for b, e in ends], dtype=np.float64)


def interval(values: F64, confidence: float, blocks: int) -> tuple[float, float] | None:
    """Return the confidence interval (low, high) of a figure from its values in the draws, or None.

    Low and high are quantiles of the finite values, as far out as `tail_of` says. values: float64
    (draws,), at least one; not finite where a draw has no value. confidence: 0 to 1. blocks:
    independent blocks of time in a draw, at least 2; the fewer, the wider the interval. None: more
    than a twentieth of the values is not finite.
    """
    known = values[np.isfinite(values)]
    if len(known) < 0.95 * len(values):
        return None
    tail = tail_of(confidence, blocks)
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)
