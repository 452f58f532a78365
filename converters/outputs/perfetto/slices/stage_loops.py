# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `times`, for Cython: stages to the slices that they are of."""

import cython


def rows_of(
    number: cython.const[cython.longlong][::1],
    owner: cython.const[cython.longlong][::1],
    rows: cython.longlong[::1],
) -> cython.longlong:
    """Fill `rows` with the row in `number` of each owner, or -1; return how many have one.

    -1: `number` or `owner` do not ascend, and `rows` is not to be used.
    """
    i: cython.longlong = 0
    j: cython.longlong
    n: cython.longlong = number.shape[0]
    found: cython.longlong = 0
    for j in range(1, n):
        if number[j] <= number[j - 1]:
            return -1
    for j in range(owner.shape[0]):
        if j and owner[j] < owner[j - 1]:
            return -1
        while i < n and number[i] < owner[j]:
            i += 1
        if i < n and number[i] == owner[j]:
            rows[j] = i
            found += 1
        else:
            rows[j] = -1
    return found


def widen(
    rows: cython.const[cython.longlong][::1],
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    first: cython.longlong[::1],
    last: cython.longlong[::1],
) -> cython.void:
    """Lower `first` and raise `last` of each stage's row to its start and end (ns)."""
    j: cython.longlong
    row: cython.longlong
    for j in range(rows.shape[0]):
        row = rows[j]
        if start[j] < first[row]:
            first[row] = start[j]
        if end[j] > last[row]:
            last[row] = end[j]


def lay(
    rows: cython.const[cython.longlong][::1],
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    stage: cython.const[cython.ushort][::1],
    begin: cython.const[cython.longlong][::1],
    stop: cython.const[cython.longlong][::1],
    count: cython.longlong[::1],
    names: cython.ushort[::1],
    starts: cython.longlong[::1],
    ends: cython.longlong[::1],
) -> cython.longlong:
    """Clip stages to their slices, keep those that last, and return how many these are.

    rows: per stage, ascending: its slice, or -1: it has none. start, end (ns), stage: per stage.
    begin, stop: per slice, ns. count: per slice, 0; gets the number of its stages. names, starts,
    ends: get what `stage`, `start` and `end` are of the stages that are kept.
    """
    j: cython.longlong
    row: cython.longlong
    kept: cython.longlong = 0
    one: cython.longlong
    other: cython.longlong
    for j in range(rows.shape[0]):
        row = rows[j]
        if row < 0:
            continue
        one = start[j] if start[j] > begin[row] else begin[row]
        other = end[j] if end[j] > one else one
        if other > stop[row]:
            other = stop[row]
        if other > one:
            count[row] += 1
            names[kept] = stage[j]
            starts[kept] = one
            ends[kept] = other
            kept += 1
    return kept


def place_marks(
    row: cython.const[cython.longlong][::1],
    first: cython.const[cython.longlong][::1],
    count: cython.const[cython.longlong][::1],
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    at: cython.longlong[::1],
    place: cython.longlong[::1],
) -> cython.void:
    """Fill `place` with the stage before which each mark comes; move a mark to its stage's begin.

    row: per mark, its slice. first, count: per slice, its stages, of which start and end (ns) are
    in order of start. at: per mark, ns; changed where it is within a stage.
    """
    i: cython.longlong
    low: cython.longlong
    high: cython.longlong
    middle: cython.longlong
    begin: cython.longlong
    for i in range(row.shape[0]):
        begin = low = first[row[i]]
        high = low + count[row[i]]
        while low < high:
            middle = (low + high) // 2
            if start[middle] <= at[i]:
                low = middle + 1
            else:
                high = middle
        if low > begin and end[low - 1] > at[i]:
            at[i] = start[low - 1]
        while low > begin and start[low - 1] == at[i]:
            low -= 1
        place[i] = low
