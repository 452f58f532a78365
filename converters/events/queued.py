# SPDX-License-Identifier: Apache-2.0
"""Records that say more of a Q, of its file, call, waiter and so on, joined to it."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import EventRows
from biotrail.recorder.schema.records import Kind

_NEAR = 4
"""Rows after its Q in which such a record mostly is."""


def queued_of(events: Events, rows: EventRows) -> EventRows:
    """Return per record the row of its Q in `events`, -1: that Q is not among them; int64 (n,).

    rows: rows in `events` of STACK, FILE, HELD, BEHALF, BACKING, CALL, DIRTIED or SUBMISSION
    records. Its Q has the record's bio pointer and time. `events` must hold all events of each
    time, so that a Q and its records are together.
    """
    raw, queue_row = events.raw, np.full(len(rows), -1, dtype=np.int64)
    for distance in range(1, _NEAR + 1):
        unmatched = np.flatnonzero(queue_row < 0)
        row = rows[unmatched]
        before = np.maximum(row - distance, 0)
        near = (row >= distance) & (events.kind[before] == Kind.Q)
        near &= raw[before, 1] == raw[row, 1]
        near &= events.ts[before] == events.ts[row]
        queue_row[unmatched[near]] = before[near]
    if (queue_row < 0).any():
        _search(events, rows, queue_row)
    return queue_row


def _search(events: Events, rows: EventRows, queue_row: EventRows) -> None:
    """Replace each -1 in `queue_row` by the row of the Q with the record's time and bio, if any.

    For records that do not follow their Q closely, as other CPUs' records come between. rows: rows
    of the records in `events`. queue_row: per row of `rows`, changed in place; of several such Q
    the last one.
    """
    queues = events.rows(Kind.Q)
    keys = zip(events.ts[queues].tolist(), events.raw[queues, 1].tolist(), strict=True)
    row_of = dict(zip(keys, queues.tolist(), strict=True))
    for place in np.flatnonzero(queue_row < 0).tolist():
        row = int(rows[place])
        queue_row[place] = row_of.get((int(events.ts[row]), int(events.raw[row, 1])), -1)
