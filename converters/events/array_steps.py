# SPDX-License-Identifier: Apache-2.0
"""Array steps that the model repeats: by index or a default, the row before, first of its run.

An index array holds -1 where there is nothing to point at. Ranges are half open, [begin, end).
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I32, I64, OP_MASK, U32, U64, Bool
from biotrail.recorder.schema.records import NO_SECTOR

Value = TypeVar("Value", bound=np.generic)


def take_or(column: NDArray[Value], index: I64 | I32, default: int) -> NDArray[Value]:
    """Return column[index] (n,), with `default` where the index is -1; the dtype is the column's.

    All are `default` where the column is empty.
    """
    if not len(column):
        return np.full(len(index), default, dtype=column.dtype)
    fallback = column.dtype.type(default)
    return np.where(index >= 0, column[np.maximum(index, 0)], fallback)


def first_known(*choices: I64) -> I64:
    """Return, per element, the first of the arrays' values that is not -1, or -1."""
    result = choices[0]
    for choice in choices[1:]:
        result = np.where(result >= 0, result, choice)
    return result


def latest_before(rows: I64, before: I64) -> I64:
    """Return, per element of `before`, the greatest of the ascending `rows` below it, or -1."""
    place = np.searchsorted(rows, before) - 1
    return take_or(rows, place, -1)


def latest_marked(mask: Bool) -> I64:
    """Return, per row (n,), the index of the last row up to it that the mask has, or -1."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))


def is_first_of_run(keys: NDArray[Any]) -> Bool:
    """Return, per row (n,), whether its key differs from that of the row before; the first does."""
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    return first


def value_before(values: NDArray[Value], first: Bool) -> NDArray[Value]:
    """Return, per row (n,), the value of the row before; 0 in rows that are `first` of their run.

    Row 0 must be in the mask `first`.
    """
    return np.where(first, values.dtype.type(0), np.roll(values, 1))


def same_operation(opf: U32, other: U32) -> Bool:
    """Return, per pair of bi_opf or cmd_flags, whether both have the same REQ_OP (low 8 bits)."""
    return np.asarray((opf ^ other) & np.uint32(OP_MASK) == 0, dtype=np.bool_)


def is_operation(opf: U32, number: int) -> Bool:
    """Return, per bi_opf or cmd_flags, whether its REQ_OP is `number`; -1: no such operation."""
    return np.asarray(opf & np.uint32(OP_MASK) == np.uint32(number & OP_MASK), dtype=np.bool_)


def ranges_overlap(begin: Any, end: Any, other_begin: Any, other_end: Any) -> Any:
    """Return whether ranges share a sector: one bool for ints, a mask (n,) for arrays of sectors.

    A range without sectors overlaps one that it lies inside of, not one whose border it is on.
    """
    return (begin < other_end) & (other_begin < end)


def spread(first: I64, count: I64) -> I64:
    """Return the rows first[i] to first[i] + count[i] - 1 of each i, one range behind the other."""
    inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    rows: I64 = np.repeat(first, count) + inside
    return rows


def has_no_sector(sector: U64) -> Bool:
    """Return, per first sector of a request, whether it stands for a request without sectors."""
    return np.asarray(sector == NO_SECTOR, dtype=np.bool_)
