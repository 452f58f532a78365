# SPDX-License-Identifier: Apache-2.0
"""Distributions beside what numpy finds exactly."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.distributions.sketch import (
    RELATIVE_ERROR,
    Distribution,
    add_grouped,
    bucket_begin,
    buckets_of,
)
from biotrail.converters.analysis.figures import SHARES

MANY = settings(max_examples=150, deadline=None)
value = st.one_of(
    st.integers(0, 300),
    st.integers(0, 10**7),
    st.integers(0, 1 << 52),
    st.sampled_from([0, 1, 127, 128, 255, 256, 511, 512, (1 << 40) - 1, 1 << 40]),
)
values = st.lists(value, min_size=1, max_size=400)


def counted(numbers: list[int]) -> Distribution:
    made = Distribution()
    made.add(np.array(numbers, dtype=np.int64))
    return made


def exact(numbers: list[int], share: float) -> int:
    """The smallest value that at least this share of all do not pass."""
    ranks = np.sort(np.array(numbers, dtype=np.int64))
    return int(ranks[max(math.ceil(share * len(ranks) - 1e-9), 1) - 1])


def state(of: Distribution) -> tuple[object, ...]:
    return of.count, of.sum, of.min, of.max, of.buckets()


@MANY
@given(values)
def test_percentiles_are_within_the_error_that_is_told(numbers: list[int]) -> None:
    # GIVEN any values WHEN they are counted
    made = counted(numbers)
    shares = [0.0, *SHARES, 1.0]
    # THEN each percentile is as near to the exact one as promised
    for share, found in zip(shares, made.percentiles(shares), strict=True):
        true = exact(numbers, share)
        assert abs(found - true) <= true * RELATIVE_ERROR, (share, found, true)
    # AND from below, at most twice as far
    for share, found in zip(shares, made.percentiles(shares, low=True), strict=True):
        true = exact(numbers, share)
        assert true * (1 - 2 * RELATIVE_ERROR) <= found <= true
    # AND the rest is exact
    assert (made.count, made.sum) == (len(numbers), sum(numbers))
    assert (made.min, made.max) == (min(numbers), max(numbers))
    assert made.mean == sum(numbers) / len(numbers)


@MANY
@given(st.lists(values, min_size=1, max_size=5), st.randoms())
def test_parts_add_up_in_any_order(parts: list[list[int]], random: object) -> None:
    # GIVEN values in parts, and all of them in another order
    whole = [number for part in parts for number in part]
    random.shuffle(whole)  # type: ignore[attr-defined]
    # WHEN the parts are counted one by one, and merged
    merged = Distribution()
    for part in parts:
        merged.merge(counted(part))
    one_by_one = Distribution()
    for part in parts:
        one_by_one.add(np.array(part, dtype=np.int64))
    # THEN both are what counting all at once gives
    assert state(merged) == state(one_by_one) == state(counted(whole))


@MANY
@given(st.lists(st.tuples(st.integers(0, 4), value), max_size=300))
def test_groups_are_counted_as_if_each_were_alone(rows: list[tuple[int, int]]) -> None:
    # GIVEN values of five groups WHEN all are counted at once
    into = [Distribution() for _ in range(5)]
    codes = np.array([code for code, _ in rows], dtype=np.int64)
    add_grouped(codes, np.array([v for _, v in rows], dtype=np.int64), into)
    # THEN each has its own
    for code, made in enumerate(into):
        assert state(made) == state(counted([v for c, v in rows if c == code]))


@MANY
@given(values)
def test_powers_of_two_are_exact(numbers: list[int]) -> None:
    # GIVEN any values WHEN they are shown by powers of two
    rows = counted(numbers).log2()
    # THEN each row holds what is in it, and all rows hold all
    for begin, end, count in rows:
        assert sum(begin <= number < end for number in numbers) == count > 0
    assert sum(count for *_, count in rows) == len(numbers)


@given(st.integers(0, (1 << 53) - 1))
def test_each_value_lies_in_its_bucket(number: int) -> None:
    bucket = int(buckets_of(np.array([number]))[0])
    assert bucket_begin(bucket) <= number < bucket_begin(bucket + 1)


@pytest.mark.parametrize("shape", ["lognormal", "two modes", "heavy tail"])
def test_a_million_latencies_stay_small_and_near(shape: str) -> None:
    # GIVEN a million latencies as devices have them
    rng = np.random.default_rng(7)
    usual = np.exp(rng.normal(11, 0.8, 1_000_000))
    if shape == "two modes":
        usual[::50] *= 300
    if shape == "heavy tail":
        usual = 20_000 * (1 + rng.pareto(1.1, 1_000_000))
    numbers = np.minimum(usual, 2**45).astype(np.int64)
    # WHEN they are counted, window after window
    made = Distribution()
    for part in np.array_split(numbers, 20):
        made.add(part)
    # THEN the percentiles are near
    for share, found in zip(SHARES, made.percentiles(SHARES), strict=True):
        true = int(np.quantile(numbers, share, method="inverted_cdf"))
        assert abs(found - true) <= true * RELATIVE_ERROR
    # AND there are at most so many buckets, however many values came
    assert len(made.buckets()) <= 45 * 128


def test_nothing_is_zeros_and_less_than_nothing_is_nothing() -> None:
    made = Distribution()
    made.add(np.zeros(0, dtype=np.int64))
    assert (made.mean, made.percentiles(SHARES), made.buckets()) == (0.0, [0] * 4, [])
    made.add(np.array([-5, 5]))
    assert (made.min, made.max, made.sum) == (0, 5, 5)
