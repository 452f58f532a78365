# SPDX-License-Identifier: Apache-2.0
"""Membership tests of bytes; which joined rows have to be sorted."""

from collections.abc import Sequence

import numpy as np

from biotrail.converters.events.tables import I64, U8, Bool


def is_in(values: U8, *members: int) -> Bool:
    """Return whether each value is one of `members` (0 to 255), by a table of 256 entries."""
    table = np.zeros(256, dtype=np.bool_)
    table[list(members)] = True
    return table[values]


def disordered(times: Sequence[I64]) -> list[tuple[int, int]]:
    """Return the stretches [first, last) of joined rows that have to be sorted, ascending.

    times: ns, of each part, none empty, each sorted. All rows outside of a stretch are in order
    with each other and with it: parts overlap at their borders only, as the chunks of a log do.
    """
    lasts = np.maximum.accumulate([t[-1] for t in times])
    firsts = np.minimum.accumulate([t[0] for t in reversed(times)])[::-1]
    stretches: list[tuple[int, int]] = []
    base = 0
    for number, time in enumerate(times):
        early = int(np.searchsorted(time, lasts[number - 1])) if number else 0
        late = len(time)
        if number + 1 < len(times):
            late = int(np.searchsorted(time, firsts[number + 1], side="right"))
        dirty = [(0, early), (late, len(time))] if early < late else [(0, len(time))]
        for first, last in dirty:
            if first == last:
                continue
            if stretches and stretches[-1][1] == base + first:
                stretches[-1] = (stretches[-1][0], base + last)
            else:
                stretches.append((base + first, base + last))
        base += len(time)
    return stretches
