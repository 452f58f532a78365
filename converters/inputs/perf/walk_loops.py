# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loop of `records`, for Cython: perf's records found by their sizes."""

import cython

_HEADER_BYTES = cython.declare(cython.longlong, 8)


def find(
    data: cython.const[cython.uchar][::1],
    big: cython.bint,
    limits: cython.const[cython.longlong][::1],
    followed: cython.const[cython.longlong][::1],
    found: cython.longlong[:, ::1],
) -> tuple[cython.longlong, cython.longlong, cython.bint, cython.bint]:
    """Fill `found` (3, n) with offset, type and size of each record; n is enough for all.

    Returns (how many, end, bad, followed), the last three as `records.Walk` has them. big: byte
    order. limits: types from the first to the second may have any size, others a multiple of 8; the
    third is the greatest size of a record of the types `followed`, at which to stop.
    """
    last: cython.longlong = data.shape[0] - _HEADER_BYTES
    at: cython.longlong = 0
    count: cython.longlong = 0
    kind: cython.longlong
    size: cython.longlong
    i: cython.longlong
    while at <= last:
        if big:
            kind = data[at]
            kind = kind << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
            size = data[at + 6] << 8 | data[at + 7]
        else:
            kind = data[at + 3]
            kind = kind << 24 | data[at + 2] << 16 | data[at + 1] << 8 | data[at]
            size = data[at + 6] | data[at + 7] << 8
        if size < _HEADER_BYTES or (size & 7 != 0 and (kind < limits[0] or kind > limits[1])):
            return count, at, True, False
        if at + size > last + _HEADER_BYTES:
            return count, at, False, False
        for i in range(followed.shape[0]):
            if kind == followed[i] and size <= limits[2]:
                return count, at, False, True
        found[0, count] = at
        found[1, count] = kind
        found[2, count] = size
        count += 1
        at += size
    return count, at, False, False
