# SPDX-License-Identifier: Apache-2.0
"""Figures of one recording with their draws, and the comparison of two such figures."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from biotrail.converters.analysis.diff.bootstrap import F64, Resampling, interval
from biotrail.converters.analysis.diff.tree import Figure
from biotrail.converters.analysis.distributions.sketch import (
    PER_OCTAVE,
    RELATIVE_ERROR,
    Distribution,
)
from biotrail.converters.analysis.figures import SHARES
from biotrail.converters.events.tables import I64

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
    """A figure of one recording, with its value in each draw."""

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


NOTHING = Estimate(None)
"""Estimate of a figure without a value."""


def ratio(upper: I64, lower: I64, drawn: Resampling | None) -> Estimate:
    """Return the estimate of sum(upper) / sum(lower), with the ratio in each draw.

    upper, lower: of each slot of the recording, (slots,). drawn: the recording's draws; None: it is
    too short for any. NOTHING if sum(lower) is 0. Without draws, and with the reason in `why`:
    TOO_SHORT if there are none; TOO_FEW if fewer than LEAST_SLOTS slots have a `lower` above 0. A
    draw whose sum of `lower` is 0 has NaN.
    """
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
) -> list[Estimate]:
    """Return estimates of the mean and of each of PERCENTILES of all slots' values, in this order.

    by_slot: slot → values of the I/O in it. slots: number of slots. drawn: the recording's draws;
    None: it is too short for any. All are NOTHING if no slot has values. All are without draws,
    with the reason in `why`, if `drawn` is
    None (TOO_SHORT) or fewer than LEAST_SLOTS slots have values (TOO_FEW); else a percentile is
    (TOO_FEW) if number of values * (1 - share) is below LEAST_BEYOND. `error` of a percentile with
    draws: RELATIVE_ERROR (1/256) of its value, 0 up to 256.
    """
    filled = {slot: values for slot, values in by_slot.items() if values.count}
    if not filled:
        return [NOTHING] * (1 + len(SHARES))
    sums, counts = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    whole = Distribution()
    for slot, values in filled.items():
        sums[slot], counts[slot] = values.sum, values.count
        whole.merge(values)
    percentiles = [float(v) for v in whole.percentiles(SHARES)]
    mean = ratio(sums, counts, drawn)
    if drawn is None or mean.draws is None:
        return [mean, *(Estimate(value, why=mean.why) for value in percentiles)]
    draws = drawn.percentiles(filled, SHARES)
    estimates = [mean]
    for place, (value, share) in enumerate(zip(percentiles, SHARES, strict=True)):
        if whole.count * (1 - share) < LEAST_BEYOND:
            estimates.append(Estimate(value, why=TOO_FEW))
            continue
        error = value * RELATIVE_ERROR if value > 2 * PER_OCTAVE else 0.0
        estimates.append(Estimate(value, draws[place], mean.blocks, error))
    return estimates


def compare(
    what: tuple[str, str | None, str, str], a: Estimate, b: Estimate, confidence: float
) -> Figure:
    """Return a figure of both recordings, with its difference and confidence intervals.

    what: (of, stage, name, unit), as the fields of Figure. a, b: estimates of A and B. confidence:
    0 to 1. `difference` is B's value less A's; its interval is widened by both errors. `relative`
    (to A's value) and its interval stay None if A's value is 0. `differs` says whether the
    intervals that there are, each of them, exclude 0. Without an interval of the difference it is
    None, and `why` says why: one side has no value (then `difference` is None, too), one has no
    draws, or in too many draws one has no value.
    """
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
        _compare_ratio(figure, a.value, b.draws, a.draws, blocks, error, confidence)
    return figure


def _compare_ratio(
    figure: Figure,
    value: float,
    upper: F64,
    lower: F64,
    blocks: int,
    error: float,
    confidence: float,
) -> None:
    """Set the interval of `figure.relative`; set `differs` to False if that interval includes 0.

    value: A's, not 0. upper, lower: the figure in the draws of B and of A, float64 (draws,).
    blocks: independent blocks in a draw. error: largest error of the difference, by which the
    interval is widened. The lower bound is -1 at least. Nothing is set if there is no interval: in
    more than a twentieth of the draws the ratio is not finite or A is 0.
    """
    span = interval(upper / np.where(lower > 0, lower, np.nan) - 1, confidence, blocks)
    if span is None:
        return
    figure.relative_low = max(span[0] - error / value, -1.0)
    figure.relative_high = span[1] + error / value
    outside = figure.relative_low > 0 or figure.relative_high < 0
    figure.differs = bool(figure.differs and outside)
