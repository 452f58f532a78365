# SPDX-License-Identifier: Apache-2.0
"""The array steps that the model repeats, each with the cases at its edges."""

import numpy as np

from biotrail.converters.events import array_steps as steps
from biotrail.converters.events.tables import I64


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


def test_an_index_of_minus_one_gives_the_default() -> None:
    # GIVEN a column and indices, of which one is -1
    column = np.array([7, 8], dtype=np.uint32)
    # WHEN they are taken / THEN the default stands there, in the column's dtype
    taken = steps.take_or(column, ints(1, -1, 0), 0)
    assert taken.tolist() == [8, 0, 7]
    assert taken.dtype == np.uint32
    # AND an empty column has nothing but the default
    assert steps.take_or(column[:0], ints(-1, -1), 5).tolist() == [5, 5]
    # AND so it is for flags, and for indices of 32 bits
    flags, few = np.array([True, True]), np.array([-1, 1], dtype=np.int32)
    assert steps.take_or(flags, few, False).tolist() == [False, True]


def test_the_first_known_value_counts() -> None:
    # GIVEN three sources / WHEN joined / THEN each element is from the first that knows it
    assert steps.first_known(ints(-1, 4, -1), ints(2, 3, -1), ints(1, 1, -1)).tolist() == [2, 4, -1]


def test_rows_before_others() -> None:
    # GIVEN ascending rows / WHEN asked for the latest before some / THEN the row itself is not
    assert steps.latest_before(ints(2, 5), ints(2, 3, 9)).tolist() == [-1, 2, 5]
    assert steps.latest_before(ints(), ints(2)).tolist() == [-1]
    # AND the latest marked row up to a row may be the row itself
    assert steps.latest_marked(np.array([False, True, False, True])).tolist() == [-1, 1, 1, 3]


def test_runs_and_the_value_before() -> None:
    # GIVEN two runs of equal keys
    first = steps.is_first_of_run(ints(3, 3, 4))
    # WHEN compared with the row before / THEN a run begins with 0
    assert first.tolist() == [True, False, True]
    assert steps.value_before(np.array([1, 2, 3], np.uint8), first).tolist() == [0, 1, 0]
    assert steps.is_first_of_run(ints()).tolist() == []


def test_operations_are_the_low_bits() -> None:
    # GIVEN opf with flags above the operation
    opf = np.array([0x101, 0x201, 3], dtype=np.uint32)
    # WHEN compared / THEN flags do not count, and a kernel without an operation has none
    assert steps.same_operation(opf, opf[::-1]).tolist() == [False, True, False]
    assert steps.is_operation(opf, 1).tolist() == [True, True, False]
    assert not steps.is_operation(opf, -1).any()


def test_ranges() -> None:
    # GIVEN ranges that touch, overlap, or are empty / THEN touching is no overlap
    assert steps.ranges_overlap(0, 8, 7, 9)
    assert not steps.ranges_overlap(0, 8, 8, 9)
    assert not steps.ranges_overlap(8, 8, 8, 9)
    sectors = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert steps.has_no_sector(sectors).tolist() == [False, True]
