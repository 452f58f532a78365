# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals of a recording's figures, by drawing blocks of its time again.

Latencies of I/Os that are near in time depend on each other, so single I/Os must not be drawn:
blocks of neighbouring slots are (a circular block bootstrap; Politis and Romano 1992). The
interval is the expanded percentile interval (Hesterberg 2015), which makes up for the blocks
being few: plain percentile intervals of 30 draws are some 5 % too narrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions.sketch import Distribution, bucket_begin
from biotrail.converters.events.tables import I64

LEAST_BLOCKS = 30
"""With fewer, no interval is given."""

F64 = NDArray[np.float64]


def student_t(probability: float, freedom: int) -> float:
    """Quantile of Student's t: the normal one's Cornish-Fisher expansion, 0.1 % off from 10 on."""
    z = NormalDist().inv_cdf(probability)
    n = float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def tail_of(confidence: float, blocks: int) -> float:
    """Share of the draws on each side of the interval."""
    t = student_t((1 + confidence) / 2, blocks - 1)
    return NormalDist().cdf(-t * (blocks / (blocks - 1)) ** 0.5)


def draws(slots: int, length: int, count: int, seed: Sequence[int]) -> F64:
    """How often each slot is in each draw: float64, shape (count, slots).

    A draw is made of blocks of `length` neighbouring slots (the last is followed by the
    first); it is as long as the recording, or up to a block longer.
    """
    rng = np.random.default_rng(list(seed))
    blocks = -(-slots // length)
    first = rng.integers(0, slots, size=(count, blocks))
    starts = np.zeros((count, slots))
    np.add.at(starts, (np.arange(count)[:, None], first), 1.0)
    return np.asarray(sum(np.roll(starts, shift, axis=1) for shift in range(length)))


@dataclass
class Resampling:
    """One recording's draws."""

    weights: F64
    """(draws, slots)."""
    blocks: int
    """Independent blocks in a draw."""

    @classmethod
    def of(cls, slots: int, count: int, seed: Sequence[int]) -> "Resampling | None":
        """None: too few slots for an interval."""
        if slots < LEAST_BLOCKS:
            return None
        length = slots // LEAST_BLOCKS
        return cls(draws(slots, length, count, seed), -(-slots // length))

    def sums(self, values: I64 | F64) -> F64:
        """Sum over each draw of what each slot has; shape (draws,)."""
        return np.asarray(self.weights @ np.asarray(values, dtype=np.float64))

    def percentiles(self, by_slot: dict[int, Distribution], shares: Sequence[float]) -> F64:
        """The percentiles of each draw; shape (len(shares), draws). NaN: nothing drawn."""
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
    """(slots that have any, their counts by bucket, the buckets' middles)."""
    rows = np.array(sorted(s for s, d in by_slot.items() if d.count and s < slots), dtype=np.int64)
    found = [by_slot[row].rows() for row in rows.tolist()]
    names = np.unique(np.concatenate([bucket for bucket, _ in found]))
    counts = np.zeros((len(rows), len(names)))
    for row, (bucket, count) in enumerate(found):
        counts[row, np.searchsorted(names, bucket)] = count
    ends = [(bucket_begin(b), bucket_begin(b + 1)) for b in names.tolist()]
    return rows, counts, np.array([(b + e - 1) // 2 for b, e in ends], dtype=np.float64)


def interval(values: F64, confidence: float, blocks: int) -> tuple[float, float] | None:
    """(low, high) of draws; None where a draw in twenty has no value."""
    known = values[np.isfinite(values)]
    if len(known) < 0.95 * len(values):
        return None
    tail = tail_of(confidence, blocks)
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)
