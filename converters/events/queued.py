# SPDX-License-Identifier: Apache-2.0
"""STACK and FILE records joined to their Q: same bio, same time, written right after it."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64
from biotrail.recorder.schema.records import Kind

_NEAR = 4
"""Rows after its Q in which such a record mostly is."""


def queued_of(events: Events, rows: I64) -> I64:
    """Return per record at `rows` the row of its Q in `events`, int64; -1: not in the log.

    `events` must hold all events of each time, so that a Q and its records are together.
    """
    raw, found = events.raw, np.full(len(rows), -1, dtype=np.int64)
    for distance in range(1, _NEAR + 1):
        open_rows = np.flatnonzero(found < 0)
        at = rows[open_rows]
        before = at - distance
        near = (before >= 0) & (events.kind[before] == Kind.Q) & (raw[before, 1] == raw[at, 1])
        near &= events.ts[before] == events.ts[at]
        found[open_rows[near]] = before[near]
    if (found < 0).any():
        _search(events, rows, found)
    return found


def _search(events: Events, rows: I64, found: I64) -> None:
    """Fill in -1 entries of `found` by (time, bio), wherever the Q is.

    Needed where other CPUs' records, or names, come between.
    """
    queue_rows = events.rows(Kind.Q)
    keys = zip(events.ts[queue_rows].tolist(), events.raw[queue_rows, 1].tolist(), strict=True)
    row_of = dict(zip(keys, queue_rows.tolist(), strict=True))
    for at in np.flatnonzero(found < 0).tolist():
        row = int(rows[at])
        found[at] = row_of.get((int(events.ts[row]), int(events.raw[row, 1])), -1)
