# SPDX-License-Identifier: Apache-2.0
"""Array steps that several modules repeat. An index of -1 points at nothing."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I32, I64, OP_MASK, U8, U32, U64, Bool
from biotrail.recorder.schema.records import NO_SECTOR


def is_in(values: U8, *members: int) -> Bool:
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


Value = TypeVar("Value", bound=np.generic)


def take_or(column: NDArray[Value], index: I64 | I32, default: int) -> NDArray[Value]:
    """Return column[index] (n,), with `default` where the index is -1 or the column is empty."""
    if not len(column):
        return np.full(len(index), default, dtype=column.dtype)
    fallback = column.dtype.type(default)
    return np.where(index >= 0, column[np.maximum(index, 0)], fallback)


def same_operation(opf: U32, other: U32) -> Bool:
    """Return, per pair of bi_opf or cmd_flags, whether both have the same REQ_OP (low 8 bits)."""
    return np.asarray((opf ^ other) & np.uint32(OP_MASK) == 0, dtype=np.bool_)


def spread(first: I64, count: I64) -> I64:
    """Return the rows first[i] to first[i] + count[i] - 1 of each i, one range behind the other."""
    inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    rows: I64 = np.repeat(first, count) + inside
    return rows


def has_no_sector(sector: U64) -> Bool:
    """Return, per first sector of a request, whether it stands for none."""
    return np.asarray(sector == NO_SECTOR, dtype=np.bool_)
