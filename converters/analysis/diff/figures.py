# SPDX-License-Identifier: Apache-2.0
"""Figures of one recording with their draws, and the comparison of two such figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.diff.runs import student_t
from biotrail.converters.analysis.diff.tree import Figure
from biotrail.converters.analysis.distributions.sketch import (
    PER_OCTAVE,
    RELATIVE_ERROR,
    Distribution,
    bucket_begin,
)
from biotrail.converters.analysis.figures import SHARES
from biotrail.converters.events.tables import I64

# Confidence intervals of a recording's figures, by resampling blocks of its time.
#
# Latencies of I/Os that are near in time depend on each other, so that resampling single I/Os would
# give intervals that are too narrow. Blocks of neighbouring slots are drawn instead (circular block
# bootstrap; Politis and Romano 1992). The interval is the expanded percentile interval (Hesterberg
# 2015), which corrects for the small number of blocks: a plain percentile interval of 30 blocks is
# some 5 % too narrow.

LEAST_BLOCKS = 30
"""Blocks in a draw at least; a recording with fewer slots gets no intervals."""

F64 = NDArray[np.float64]


@dataclass
class Resampling:
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
        blocks = -(-slots // length)
        # Blocks of `length` neighbouring slots from a random slot on; the first follows the last.
        first = np.random.default_rng(list(seed)).integers(0, slots, size=(count, blocks))
        starts = np.zeros((count, slots))
        np.add.at(starts, (np.arange(count)[:, None], first), 1.0)
        weights = np.asarray(sum(np.roll(starts, shift, axis=1) for shift in range(length)))
        return cls(weights, blocks)

    def sums(self, values: I64 | F64) -> F64:
        return np.asarray(self.weights @ np.asarray(values, dtype=np.float64))

    def percentiles(self, by_slot: dict[int, Distribution], shares: Sequence[float]) -> F64:
        """Of the values in each draw: (shares, draws); NaN: the draw has no value."""
        filled_slots = sorted(slot for slot, of in by_slot.items() if of.count)
        slots = np.array([s for s in filled_slots if s < self.weights.shape[1]], dtype=np.int64)
        histograms = [by_slot[slot].rows() for slot in slots.tolist()]
        buckets = np.unique(np.concatenate([bucket for bucket, _ in histograms]))
        counts = np.zeros((len(slots), len(buckets)))
        for row, (bucket, count) in enumerate(histograms):
            counts[row, np.searchsorted(buckets, bucket)] = count
        ends = [(bucket_begin(b), bucket_begin(b + 1)) for b in buckets.tolist()]
        middles = np.array([(begin + end - 1) // 2 for begin, end in ends], dtype=np.float64)
        drawn = np.cumsum(self.weights[:, slots] @ counts, axis=1)
        total = drawn[:, -1]
        result = np.full((len(shares), len(total)), np.nan)
        filled = total > 0
        for place, share in enumerate(shares):
            rank = np.maximum(np.ceil(share * total - 1e-9), 1)
            bucket = (drawn < rank[:, None]).sum(axis=1)
            result[place, filled] = middles[np.minimum(bucket, len(middles) - 1)][filled]
        return result


def interval(values: F64, confidence: float, blocks: int) -> tuple[float, float] | None:
    """None: more than a twentieth of the values in the draws is not finite."""
    known = values[np.isfinite(values)]
    if len(known) < 0.95 * len(values):
        return None
    t = student_t((1 + confidence) / 2, blocks - 1)
    tail = NormalDist().cdf(-t * (blocks / (blocks - 1)) ** 0.5)
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)


LEAST_SLOTS = 10
"""Slots with I/O that a figure needs for an interval."""
LEAST_BEYOND = 10
"""Values above a percentile that the percentile needs for an interval."""
PERCENTILES = ("p50", "p90", "p99", "p99_9")
"""Names of the percentiles of SHARES."""

TOO_SHORT = "the recording is too short"
TOO_FEW = "too few I/Os"
NOT_IN_A, NOT_IN_B = "not in A", "not in B"


@dataclass
class Estimate:
    value: float | None
    """None: the recording has no such I/O."""
    draws: F64 | None = None
    """(draws,): the value in each draw, NaN if it has none; None: no interval can be given."""
    blocks: int = 0
    """Independent blocks that the draws are made of."""
    error: float = 0.0
    """Largest error of the value itself, in its unit (of percentiles: by their buckets)."""
    why: str | None = None
    """Why there are no draws: TOO_SHORT or TOO_FEW; None if there are, or if there is no value."""


Estimates = dict[tuple[str | None, str, str], Estimate]
"""(stage, name, unit), as the fields of Figure → estimate."""
NOTHING = Estimate(None)
"""Estimate of a figure without a value."""


def ratio(upper: I64, lower: I64, drawn: Resampling | None) -> Estimate:
    """Return the estimate of sum(upper) / sum(lower); NOTHING if sum(lower) is 0."""
    whole = int(lower.sum())
    if not whole:
        return NOTHING
    value = int(upper.sum()) / whole
    if drawn is None:
        return Estimate(value, why=TOO_SHORT)
    used = int((lower > 0).sum())
    if used < LEAST_SLOTS:
        return Estimate(value, why=TOO_FEW)
    below = drawn.sums(lower)
    ratios = drawn.sums(upper) / np.where(below > 0, below, np.nan)
    return Estimate(value, ratios, min(drawn.blocks, used))


def times(
    by_slot: Mapping[int, Distribution], slots: int, drawn: Resampling | None
) -> dict[str, Estimate]:
    """Of mean and PERCENTILES; those with fewer than LEAST_BEYOND values beyond have no draws."""
    filled = {slot: values for slot, values in by_slot.items() if values.count}
    if not filled:
        return dict.fromkeys(("mean", *PERCENTILES), NOTHING)
    sums, counts = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    whole = Distribution()
    for slot, values in filled.items():
        sums[slot], counts[slot] = values.sum, values.count
        whole.merge(values)
    mean = ratio(sums, counts, drawn)
    found = {"mean": mean}
    percentiles = zip(PERCENTILES, SHARES, map(float, whole.percentiles(SHARES)), strict=True)
    if drawn is None or mean.draws is None:
        return found | {name: Estimate(value, why=mean.why) for name, _, value in percentiles}
    draws = drawn.percentiles(filled, SHARES)
    for (name, share, value), of_draws in zip(percentiles, draws, strict=True):
        if whole.count * (1 - share) < LEAST_BEYOND:
            found[name] = Estimate(value, why=TOO_FEW)
            continue
        error = value * RELATIVE_ERROR if value > 2 * PER_OCTAVE else 0.0
        found[name] = Estimate(value, of_draws, mean.blocks, error)
    return found


def compare(
    what: tuple[str, str | None, str, str], a: Estimate, b: Estimate, confidence: float
) -> Figure:
    """Return a figure, (of, stage, name, unit), of both; intervals are widened by both errors."""
    figure = Figure(*what, a=a.value, b=b.value)
    if a.value is None or b.value is None:
        figure.why = NOT_IN_A if a.value is None else NOT_IN_B
        return figure
    figure.difference = b.value - a.value
    if a.value:
        figure.relative = figure.difference / a.value
    if a.draws is None or b.draws is None:
        figure.why = a.why or b.why
        return figure
    blocks, error = min(a.blocks, b.blocks), a.error + b.error
    span = interval(b.draws - a.draws, confidence, blocks)
    if span is None:
        figure.why = TOO_FEW
        return figure
    figure.difference_low, figure.difference_high = span[0] - error, span[1] + error
    figure.differs = figure.difference_low > 0 or figure.difference_high < 0
    if a.value:
        ratios = b.draws / np.where(a.draws > 0, a.draws, np.nan) - 1
        span = interval(ratios, confidence, blocks)
        if span is not None:
            low, high = max(span[0] - error / a.value, -1.0), span[1] + error / a.value
            figure.relative_low, figure.relative_high = low, high
            figure.differs = bool(figure.differs and (low > 0 or high < 0))
    return figure
