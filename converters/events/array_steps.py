# SPDX-License-Identifier: Apache-2.0
"""Array steps that several modules repeat. An index of -1 points at nothing."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I32, I64

Value = TypeVar("Value", bound=np.generic)


def take_or(column: NDArray[Value], index: I64 | I32, default: int) -> NDArray[Value]:
    """Return column[index] (n,), with `default` where the index is -1 or the column is empty."""
    if not len(column):
        return np.full(len(index), default, dtype=column.dtype)
    fallback = column.dtype.type(default)
    return np.where(index >= 0, column[np.maximum(index, 0)], fallback)


def spread(first: I64, count: I64) -> I64:
    """Return the rows first[i] to first[i] + count[i] - 1 of each i, one range behind the other."""
    inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    rows: I64 = np.repeat(first, count) + inside
    return rows
