# SPDX-License-Identifier: Apache-2.0
"""Records that say more of a Q: of the same bio, at the same time, behind it."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64
from biotrail.recorder.schema.records import Kind

_NEAR = 2
"""How far behind one mostly stands."""


def queued_of(events: Events, rows: I64) -> I64:
    """Row of the Q that each of the records belongs to; -1: it is not in the log.

    `events` hold all of their times, so that no pair is torn.
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
    """Also where records of other CPUs, or names, stand between."""
    known = events.rows(Kind.Q)
    keys = zip(events.ts[known].tolist(), events.raw[known, 1].tolist(), strict=True)
    place = dict(zip(keys, known.tolist(), strict=True))
    for at in np.flatnonzero(found < 0).tolist():
        row = int(rows[at])
        found[at] = place.get((int(events.ts[row]), int(events.raw[row, 1])), -1)
