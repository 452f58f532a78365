# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `distinct`, for Cython: values numbered by a table of addresses, or found."""

import cython


def number(
    values: cython.const[cython.longlong][::1],
    slots: cython.int[::1],
    names: cython.longlong[::1],
    rows: cython.longlong[::1],
    of: cython.longlong[::1],
) -> cython.longlong:
    """Number values in the order of their first occurrence; return how many differ, or -1.

    -1: more than `names` has room for. slots: (power of two,) zeros, more than `names`; gets 1 more
    than a value's number. names: gets each value once; rows: where it occurs first. of: (n,), gets
    the number of each value.
    """
    total: cython.longlong = values.shape[0]
    mask: cython.longlong = slots.shape[0] - 1
    room: cython.longlong = names.shape[0]
    count: cython.longlong = 0
    found: cython.longlong = -1
    row: cython.longlong
    at: cython.longlong
    value: cython.longlong
    before: cython.longlong = 0
    for row in range(total):
        value = values[row]
        if found < 0 or value != before:
            at = (value ^ (value >> 9) ^ (value >> 20) ^ (value >> 37)) & mask
            while slots[at] != 0 and names[slots[at] - 1] != value:
                at = (at + 1) & mask
            if slots[at] == 0:
                if count == room:
                    return -1
                names[count] = value
                rows[count] = row
                count += 1
                slots[at] = count
            found = slots[at] - 1
            before = value
        of[row] = found
    return count


def renumber(of: cython.longlong[::1], numbers: cython.const[cython.longlong][::1]) -> cython.void:
    """Replace each number by its entry in `numbers`."""
    row: cython.longlong
    for row in range(of.shape[0]):
        of[row] = numbers[of[row]]


def find(
    numbers: cython.const[cython.longlong][::1],
    wanted: cython.const[cython.longlong][::1],
    rows: cython.longlong[::1],
    known: cython.uchar[::1],
) -> cython.void:
    """Find wanted values, (n,), among ascending numbers: rows, and whether they are there.

    rows, known: (n,), zeros. Each search begins where the one before ended: values that are wanted
    one after the other are mostly near each other.
    """
    total: cython.longlong = numbers.shape[0]
    i: cython.longlong
    value: cython.longlong
    step: cython.longlong
    middle: cython.longlong
    low: cython.longlong
    high: cython.longlong = 0
    for i in range(wanted.shape[0]):
        value = wanted[i]
        step = 1
        low = high - 1
        # Now widen the span until all up to `low` is less, and nothing from `high` on.
        if high < total and numbers[high] < value:
            while high < total and numbers[high] < value:
                low = high
                high += step
                step *= 2
            high = min(high, total)
        else:
            while low >= 0 and numbers[low] >= value:
                high = low
                low -= step
                step *= 2
            low = max(low, -1)
        while high - low > 1:
            middle = (low + high) // 2
            if numbers[middle] < value:
                low = middle
            else:
                high = middle
        if high < total and numbers[high] == value:
            rows[i] = high
            known[i] = 1
