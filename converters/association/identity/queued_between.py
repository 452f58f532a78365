# SPDX-License-Identifier: Apache-2.0
"""Whether a bio was queued between two events: no request that began before can have it."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool
from biotrail.recorder.schema.records import Kind


def queued_between(events: Events, after: I64, until: I64) -> Bool:
    """Return, per pair of events (k,), whether the bio of `until` was queued between the two.

    after, until: (k,) indices into `events`. Queued means a Q, A, X or G, later than `after` and
    earlier than `until`, of the address that `until` names as its bio; False where it names none.
    """
    if not len(until):
        return np.zeros(0, dtype=np.bool_)
    pointers = np.unique(events.bio[until])
    queued = events.rows(Kind.Q, Kind.A, Kind.X, Kind.G)
    queued = queued[np.isin(events.bio[queued], pointers[pointers != 0])]
    if not len(queued):
        return np.zeros(len(until), dtype=np.bool_)
    # One sortable integer for each (pointer, event) pair, so that one searchsorted finds the last
    # queue event of that pointer before `until`.
    width = len(events) + 1
    keys = np.sort(np.searchsorted(pointers, events.bio[queued]) * width + queued)
    base = np.searchsorted(pointers, events.bio[until]) * width
    latest = np.searchsorted(keys, base + until) - 1
    return np.asarray((latest >= 0) & (keys[np.maximum(latest, 0)] > base + after), dtype=np.bool_)
