# SPDX-License-Identifier: Apache-2.0
"""The array steps that modules repeat, each with the cases at its edges."""

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


def test_operations_are_the_low_bits() -> None:
    # GIVEN opf with flags above the operation
    opf = np.array([0x101, 0x201, 3], dtype=np.uint32)
    # WHEN compared / THEN flags do not count
    assert steps.same_operation(opf, opf[::-1]).tolist() == [False, True, False]


def test_a_request_without_sectors_says_so() -> None:
    # GIVEN first sectors, of which one stands for none / THEN it is known
    sectors = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert steps.has_no_sector(sectors).tolist() == [False, True]
