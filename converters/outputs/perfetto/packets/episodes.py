# SPDX-License-Identifier: Apache-2.0
"""Choose the slowest so that not all of them are of one burst."""

import numpy as np

from biotrail.converters.events.tables import I64, Bool

MOST, OF_BURST = 20, 3
"""Slices on the tracks of the slowest, and how many of these overlap, at most: a burst makes all
that is in it slow, and twenty of one burst say no more than three."""


def episodes(
    start: I64, end: I64, number: I64, most: int = MOST, lesser: Bool | None = None
) -> I64:
    """Return the indices of the slowest, at most `most`, the slowest first.

    start, end: ns (n,). number: of equally slow ones the least is first. Left out is what overlaps
    OF_BURST or more slower ones that are among them; and what is `lesser` (n,) if it overlaps
    another such one.
    """
    order = np.lexsort((number, start - end))
    begins, ends = start[order], end[order]
    beside = np.zeros(len(order), dtype=np.int64)
    less = np.zeros(len(order), dtype=np.bool_) if lesser is None else lesser[order]
    found: list[int] = []
    at = 0
    while len(found) < most:
        rest = np.flatnonzero(beside[at:] < OF_BURST)
        if not len(rest):
            break
        at += int(rest[0])
        found.append(at)
        overlapping = (begins <= ends[at]) & (ends >= begins[at])
        beside += overlapping
        if less[at]:
            beside[overlapping & less] = OF_BURST
        at += 1
    return order[found]
