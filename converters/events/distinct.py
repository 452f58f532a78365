# SPDX-License-Identifier: Apache-2.0
"""Distinct rows of several columns, numbered in the order in which they occur."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64

Row = tuple[int, ...]
"""A value per column."""


def distinct(*columns: NDArray[np.integer]) -> tuple[list[Row], I64]:
    """Return (rows, of): the distinct rows, and for each row (n,) the index of its own in `rows`.

    columns: one or more of integers, (n,) each. rows: in the order of first occurrence, so that
    limits on how many are kept do not depend on how a log is cut into windows.
    """
    order = np.lexsort(columns[::-1])  # stable: equal rows stay in their order
    new = np.zeros(len(order), dtype=np.bool_)
    new[:1] = True
    for column in columns:
        sorted_column = column[order]
        new[1:] |= sorted_column[1:] != sorted_column[:-1]
    first = order[new]
    by_occurrence = np.argsort(first)
    place = np.empty(len(first), dtype=np.int64)
    place[by_occurrence] = np.arange(len(first))
    of = np.empty(len(order), dtype=np.int64)
    of[order] = place[np.cumsum(new) - 1]
    rows = first[by_occurrence]
    return list(zip(*(column[rows].tolist() for column in columns), strict=True)), of
