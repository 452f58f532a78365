# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loop of `lanes`, for Cython: the lowest lane that is free for each slice.

Compiled by Cython where a compiler was there at installation; the same file runs uncompiled, for
tests. `lanes` does the same by heaps where this is not compiled.
"""

import cython

COMPILED = cython.compiled
"""Whether this runs compiled."""


def lowest(
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    ends: cython.longlong[::1],
    lanes: cython.longlong,
    most: cython.longlong,
    chosen: cython.longlong[::1],
) -> cython.longlong:
    """Fill `chosen` with the lowest lane that is free at each start; return the number of lanes.

    -1: there are more than `most` lanes, so many that to look through them takes too long.

    start, end: ns, of slices in the order of `start`. ends: until when (ns) each lane is occupied,
    for `lanes` lanes, with room for one more for each slice; changed. A lane is free if its end is
    before the start.
    """
    i: cython.longlong
    lane: cython.longlong
    begins: cython.longlong
    for i in range(start.shape[0]):
        begins = start[i]
        lane = 0
        while lane < lanes and ends[lane] >= begins:
            lane += 1
        if lane == lanes:
            lanes += 1
            if lanes > most:
                return -1
        ends[lane] = end[i]
        chosen[i] = lane
    return lanes
