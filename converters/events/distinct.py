# SPDX-License-Identifier: Apache-2.0
"""Distinct values of a column, and distinct rows of several columns, numbered."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events import distinct_loops as loops
from biotrail.converters.events.tables import I64

Row = tuple[int, ...]
"""A value per column."""
_MOST_NAMES = 1 << 15
"""Values that the compiled loop tells apart; where more differ, sorting is as fast."""


def distinct(*columns: NDArray[np.integer]) -> tuple[list[Row], I64]:
    """Return (rows, of): the distinct rows, and for each row (n,) the index of its own in `rows`.

    columns: one or more of integers, (n,) each. rows: in the order of first occurrence, so that
    limits on how many are kept do not depend on how a log is cut into windows.
    """
    _, first, of = distinct_values(columns[0])
    for column in columns[1:]:
        names, _, place = distinct_values(column)
        _, first, of = distinct_values(of * len(names) + place)
    by_occurrence = np.argsort(first)
    place = np.empty(len(first), dtype=np.int64)
    place[by_occurrence] = np.arange(len(first))
    of = place[of]
    rows = first[by_occurrence]
    return list(zip(*(column[rows].tolist() for column in columns), strict=True)), of


def distinct_values(values: NDArray[np.integer]) -> tuple[I64, I64, I64]:
    """Return (names, rows, of): as `np.unique` with `return_index` and `return_inverse`.

    values: integers of up to 64 bits, (n,), seen as int64. names: the distinct values, ascending.
    rows: the first row of each. of: (n,), the index in `names` of each row's value.
    """
    wide = np.ascontiguousarray(values).astype(np.int64, copy=False)
    room = min(_MOST_NAMES, len(wide))
    slots = np.zeros(1 << (2 * room + 1).bit_length(), np.int32)
    names, rows = np.empty((2, room), np.int64)
    of = np.empty(len(wide), np.int64)
    count = loops.number(wide, slots, names, rows, of)
    if count >= 0:
        names, rows = names[:count], rows[:count]
        if (names[1:] > names[:-1]).all():
            return names, rows, of
        order = np.argsort(names)
        numbers = np.empty(count, np.int64)
        numbers[order] = np.arange(count)
        loops.renumber(of, numbers)
        return names[order], rows[order], of
    found, first, inverse = np.unique(wide, return_index=True, return_inverse=True)
    return found, first, inverse


def looked_up(of: dict[int, int], codes: I64, other: int) -> I64:
    """Return what `of` has of each code, (n,); `other` where it has none."""
    found, _, place = distinct_values(codes)
    return np.array([of.get(code, other) for code in found.tolist()], np.int64)[place]


def names_of(values: NDArray[np.integer]) -> I64:
    """Return the distinct values, ascending, as int64."""
    if len(values) and (values == values[0]).all():
        return values[:1].astype(np.int64)
    return distinct_values(values)[0]
