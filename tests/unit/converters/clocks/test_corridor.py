# SPDX-License-Identifier: Apache-2.0
"""The line between two clocks that bounds at many times leave, and how exactly it is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.clocks.corridor import MOST_DRIFT, Line, fit

SECOND = 1_000_000_000


def bounds(
    seed: int, offset: int, rate: float, count: int = 200
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds that hold for a clock that is `offset` ahead at 0 and faster by `rate`."""
    draw = np.random.default_rng(seed)
    at = np.sort(draw.integers(0, 30 * SECOND, count))
    true = offset + np.rint(at * rate).astype(np.int64)
    return at, true - draw.integers(20, 90_000, count), true + draw.integers(20, 90_000, count)


@given(
    seed=st.integers(0, 1 << 16),
    offset=st.integers(-(1 << 55), 1 << 55),
    rate=st.floats(-900e-6, 900e-6),
)
def test_the_true_clock_is_within_the_bound(seed: int, offset: int, rate: float) -> None:
    # GIVEN bounds around a clock's true offset
    at, low, high = bounds(seed, offset, rate)
    # WHEN the line is fitted
    found = fit(at, low, high)
    # THEN all bounds hold for it, and the truth is within what it says
    assert found is not None
    assert found.kept.all()
    line = found.line
    moved = line.times(at) - at
    assert (moved >= low - 2).all()
    assert (moved <= high + 2).all()
    ends = at[[0, -1]]
    true = ends + offset + np.rint(ends * rate).astype(np.int64)
    assert np.abs(line.times(ends) - true).max() <= line.within


def test_bounds_that_contradict_the_others_are_left_out() -> None:
    # GIVEN bounds, of which three are of another clock
    at, low, high = bounds(3, 5 * SECOND, 50e-6)
    wrong = np.array([10, 90, 150])
    low[wrong] += 400_000
    high[wrong] += 400_000
    # WHEN the line is fitted
    found = fit(at, low, high)
    # THEN these are left out, and the line is the others'
    assert found is not None
    assert np.flatnonzero(~found.kept).tolist() == wrong.tolist()
    assert found.line.rate == pytest.approx(50e-6, abs=1e-5)


def test_no_bounds_give_no_line() -> None:
    # GIVEN nothing  WHEN a line is asked for  THEN there is none
    nothing = np.zeros(0, dtype=np.int64)
    assert fit(nothing, nothing, nothing) is None


def test_a_single_bound_leaves_the_drift_open() -> None:
    # GIVEN one pair of bounds
    at, low, high = (np.array([one]) for one in (SECOND, 100, 300))
    # WHEN the line is fitted  THEN at that time it is in the middle
    found = fit(at, low, high)
    assert found is not None
    assert found.line.times(at)[0] - SECOND == 200
    assert 100 <= found.line.within <= 103
    assert abs(found.line.rate) <= MOST_DRIFT * 1e-6


def test_unknown_times_stay_unknown() -> None:
    # GIVEN a line  WHEN a time that was not recorded is converted  THEN it stays so
    line = Line(0, 1000, 0.0, 5)
    assert line.times(np.array([-1, 0, 7])).tolist() == [-1, 1000, 1007]
