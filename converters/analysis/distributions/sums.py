# SPDX-License-Identifier: Apache-2.0
"""Columns of a window added up by group."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions import sum_loops as loops
from biotrail.converters.events.tables import I64


def sum_by(place: I64, values: NDArray[Any], count: int) -> I64:
    """Return the sum of the values (bool or integers) of each place, 0 to count - 1: (count,)."""
    if count == 1:
        whole = np.count_nonzero(values) if values.dtype == np.bool_ else values.sum(dtype=np.int64)
        return np.array([whole], np.int64)
    if values.dtype == np.bool_:
        return np.bincount(place[values], minlength=count)
    sums = np.zeros(count, np.int64)
    loops.sum_of(place, values.astype(np.int64, copy=False), sums)
    return sums
