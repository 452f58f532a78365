# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `lanes`, for Cython: the lowest lane that is free for each slice."""

import cython


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


def lowest_of_many(
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    tree: cython.longlong[::1],
    chosen: cython.longlong[::1],
) -> cython.bint:
    """Fill `chosen` as `lowest` does, by a tree of ends; return False if there are too few lanes.

    tree: 2n values, n a power of two: those from n on are each lane's end, and value i is the lower
    one of 2i and 2i + 1. Lanes that were never used have the lowest int64. It is changed.
    """
    i: cython.longlong
    node: cython.longlong
    low: cython.longlong
    leaves: cython.longlong = tree.shape[0] // 2
    for i in range(start.shape[0]):
        if tree[1] >= start[i]:
            return False
        node = 1
        while node < leaves:
            node *= 2
            if tree[node] >= start[i]:
                node += 1
        chosen[i] = node - leaves
        tree[node] = end[i]
        while node > 1:
            node //= 2
            low = tree[2 * node] if tree[2 * node] < tree[2 * node + 1] else tree[2 * node + 1]
            if tree[node] == low:
                break
            tree[node] = low
    return True
