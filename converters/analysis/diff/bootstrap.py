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

from biotrail.converters.analysis.distributions.sketch import Distribution, bucket_begin
from biotrail.converters.events.tables import I64

LEAST_BLOCKS = 30
"""Blocks in a draw at least; a recording with fewer slots gets no intervals."""

F64 = NDArray[np.float64]


def student_t(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution for a probability and degrees of freedom.

    By the Cornish-Fisher expansion of the normal quantile: within 0.1 % from 10 degrees on.
    """
    z = NormalDist().inv_cdf(probability)
    n = float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def tail_of(confidence: float, blocks: int) -> float:
    """Return the share of the draws outside the expanded interval on each side.

    confidence: of the interval, 0 to 1. blocks: at least 2.
    """
    t = student_t((1 + confidence) / 2, blocks - 1)
    return NormalDist().cdf(-t * (blocks / (blocks - 1)) ** 0.5)


def draws(slots: int, length: int, count: int, seed: Sequence[int]) -> F64:
    """Return how often each slot is in each draw: float64, shape (count, slots).

    A draw consists of blocks of `length` neighbouring slots at random places, where the first slot
    follows the last one. It has as many slots as the recording, or up to length - 1 more. The same
    seed gives the same draws.
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
        """Return `count` draws of a recording's slots; None: fewer than LEAST_BLOCKS slots."""
        if slots < LEAST_BLOCKS:
            return None
        length = slots // LEAST_BLOCKS
        return cls(draws(slots, length, count, seed), -(-slots // length))

    def sums(self, values: I64 | F64) -> F64:
        """Return each draw's sum of the values (slots,): float64, shape (draws,)."""
        return np.asarray(self.weights @ np.asarray(values, dtype=np.float64))

    def percentiles(self, by_slot: dict[int, Distribution], shares: Sequence[float]) -> F64:
        """Return the percentiles of each draw: float64, shape (len(shares), draws).

        by_slot: slot → values; at least one slot with values. NaN: a draw has no values.
        """
        rows, counts, middles = _matrix(by_slot, self.weights.shape[1])
        drawn = np.cumsum(self.weights[:, rows] @ counts, axis=1)
        total = drawn[:, -1]
        found = np.full((len(shares), len(total)), np.nan)
        some = total > 0
        for place, share in enumerate(shares):
            rank = np.maximum(np.ceil(share * total - 1e-9), 1)
            at = (drawn < rank[:, None]).sum(axis=1)
            found[place, some] = middles[np.minimum(at, len(middles) - 1)][some]
        return found


def _matrix(by_slot: dict[int, Distribution], slots: int) -> tuple[I64, F64, F64]:
    """Return (rows, counts, middles) of the slots with values as a matrix.

    rows: (r,), these slots, ascending. counts: (r, b) float64, values of each slot in each of the b
    buckets that occur. middles: (b,), middle of each bucket, ascending. slots: number of slots;
    later ones are left out.
    """
    rows = np.array(sorted(s for s, d in by_slot.items() if d.count and s < slots), dtype=np.int64)
    found = [by_slot[row].rows() for row in rows.tolist()]
    names = np.unique(np.concatenate([bucket for bucket, _ in found]))
    counts = np.zeros((len(rows), len(names)))
    for row, (bucket, count) in enumerate(found):
        counts[row, np.searchsorted(names, bucket)] = count
    ends = [(bucket_begin(b), bucket_begin(b + 1)) for b in names.tolist()]
    return rows, counts, np.array([(b + e - 1) // 2 for b, e in ends], dtype=np.float64)


def interval(values: F64, confidence: float, blocks: int) -> tuple[float, float] | None:
    """Return the confidence interval (low, high) of a figure: quantiles of its values in the draws.

    values: (draws,), at least one; values that are not finite are ignored. None: more than a
    twentieth of them is not finite. confidence: 0 to 1. blocks: independent blocks in a draw, at
    least 2; the fewer, the wider the interval.
    """
    known = values[np.isfinite(values)]
    if len(known) < 0.95 * len(values):
        return None
    tail = tail_of(confidence, blocks)
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)
