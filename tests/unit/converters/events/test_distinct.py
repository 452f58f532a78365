# SPDX-License-Identifier: Apache-2.0
"""Distinct values and rows, and rows found by number: by loops compiled and not."""

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.calls import keys
from biotrail.converters.events import distinct
from tests.support.both_ways import uncompiled

UNCOMPILED = uncompiled("converters/events/distinct_loops.py")
WAYS = [distinct.loops, UNCOMPILED]
VALUES = st.lists(st.integers(0, 12) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=40)


@pytest.mark.parametrize("loops", WAYS, ids=["as installed", "uncompiled"])
@given(numbers=VALUES, wanted=VALUES)
def test_numbers_are_found_where_they_are(
    loops: ModuleType, numbers: list[int], wanted: list[int]
) -> None:
    # GIVEN ascending numbers, some of them twice
    numbers = sorted(numbers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "loops", loops)
        # WHEN some are looked for
        rows, known = keys.rows_of(np.array(numbers, np.int64), np.array(wanted, np.int64))
    # THEN each is found at its first place, or said not to be there
    assert known.tolist() == [one in numbers for one in wanted]
    assert rows.tolist() == [numbers.index(one) if one in numbers else 0 for one in wanted]


@pytest.mark.parametrize("loops", WAYS, ids=["as installed", "uncompiled"])
@given(rows=st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3), st.integers(-(1 << 63), 0))))
def test_rows_are_numbered_by_occurrence(
    loops: ModuleType, rows: list[tuple[int, int, int]]
) -> None:
    # GIVEN rows of three columns
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(distinct, "loops", loops)
        # WHEN they are told apart
        found, of = distinct.distinct(*columns)
    # THEN each is there once, in the order of first occurrence
    assert found == list(dict.fromkeys(rows))
    assert [found[at] for at in of.tolist()] == rows


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9))), st.data())
def test_pairs_are_found(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    # GIVEN pairs by their second number, of which several may be alike
    pairs.sort(key=lambda pair: pair[1])
    wanted = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9))))
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    # WHEN pairs are looked for
    rows = keys.rows_of_pairs(one, other, *np.array(wanted, np.int64).reshape(-1, 2).T)
    # THEN a row of each is found, or that there is none
    for pair, row in zip(wanted, rows.tolist(), strict=True):
        assert pairs[row] == pair if row >= 0 else pair not in pairs
