# SPDX-License-Identifier: Apache-2.0
"""Which of several ftrace buffers an event is taken from, where more than one recorded it."""

from collections import Counter
from collections.abc import Collection

import numpy as np

from biotrail.converters.inputs.translate import TracepointRows

_MOST_NAMED = 8


class Owners:
    """The buffer that gives a device's events of a tracepoint: the first in which there are any.

    Two buffers that record the same I/O have each event twice, with times that differ a little, so
    that copies cannot be told from other I/O one by one.
    """

    def __init__(self, buffers: Collection[str] | None = None) -> None:
        """buffers: names of the buffers that are read, "" for the top one; None: not known yet."""
        self._several = buffers is None or len(buffers) > 1
        self._owner: dict[tuple[str, int], str] = {}
        self._left_out: Counter[tuple[str, str]] = Counter()

    def kept(self, rows: TracepointRows, buffer: str) -> TracepointRows:
        """Return the rows of a buffer without those that another buffer gives; counts these."""
        if not self._several or not len(rows):
            return rows
        column = rows.columns.get("dev")
        device = np.zeros(len(rows), np.int64) if column is None else column.astype(np.int64)
        if (device == device[0]).all() and self._owner.get((rows.event, int(device[0]))) == buffer:
            return rows
        numbers, of = np.unique(device, return_inverse=True)
        owners = [self._owner.setdefault((rows.event, n), buffer) for n in numbers.tolist()]
        foreign = np.array([owner != buffer for owner in owners])[of]
        if not foreign.any():
            return rows
        for index in np.flatnonzero(np.bincount(of[foreign], minlength=len(owners))).tolist():
            self._left_out[buffer, owners[index]] += int(np.count_nonzero(of == index))
        return rows.without(foreign)

    def remarks(self, name: str) -> list[str]:
        return [
            f"{name}: {count} events of buffer {buffer or 'top'!r} left out: buffer "
            f"{owner or 'top'!r} has the same events of the same devices"
            for (buffer, owner), count in self._left_out.most_common(_MOST_NAMED)
        ]
