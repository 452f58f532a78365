# SPDX-License-Identifier: Apache-2.0
"""Hold waits back until their calls have returned, which may be in a later window."""

import numpy as np

from biotrail.converters.calls.keys import Keys
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import I64

MOST_PENDING = 1 << 18
"""Waits that are kept at most until their call returns; the oldest are dropped first."""


class PendingWaits:
    """Waits of a log that were not given to their call yet, in the order in which they ended."""

    def __init__(self) -> None:
        """Start without waits."""
        self._waits: Waits | None = None

    def add(self, waits: Waits) -> None:
        """Add the waits of the next window."""
        known = [] if self._waits is None else [self._waits]
        self._waits = Waits.concatenate([*known, waits])

    def take(self, calls: Calls) -> tuple[I64, Waits | None]:
        """Remove and return the waits of these calls, and before them each wait's row in `calls`.

        A wait is a call's if thread and entry time are the same. Sorted by (row, begin of the
        wait). Of the others, which stay, the newest 262,144 are kept. None: no wait was ever added.
        """
        if self._waits is None:
            return np.zeros(0, dtype=np.int64), None
        waits = self._waits
        keys = Keys.among((calls.tid, calls.entry), (waits.tid, waits.entry))
        row_of = np.full(len(keys.tid), -1, dtype=np.int64)
        row_of[keys.of[0]] = np.arange(len(calls))
        row = row_of[keys.of[1]]
        self._waits = waits.take(np.flatnonzero(row < 0)[-MOST_PENDING:])
        ours = np.flatnonzero(row >= 0)
        ours = ours[np.lexsort((waits.out[ours], row[ours]))]
        return row[ours], waits.take(ours)
