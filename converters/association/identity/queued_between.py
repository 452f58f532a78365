# SPDX-License-Identifier: Apache-2.0
"""Whether a bio was queued between two events: no request that began before can have it."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool
from biotrail.recorder.schema.records import Kind


def queued_between(events: Events, after: I64, until: I64) -> Bool:
    """Return, per pair of events, whether the bio of `until` was queued after event `after`.

    after, until: (m,) event indices. Queued means a Q, A, X or G of the bio's address between the
    two.
    """
    if not len(until):
        return np.zeros(0, dtype=np.bool_)
    wanted = np.unique(events.bio[until])
    queued = events.rows(Kind.Q, Kind.A, Kind.X, Kind.G)
    queued = queued[np.isin(events.bio[queued], wanted[wanted != 0])]
    if not len(queued):
        return np.zeros(len(until), dtype=np.bool_)
    # One sortable integer for each (pointer, event) pair, so that one searchsorted finds the last
    # queue event of that pointer before `until`.
    width = len(events) + 1
    keys = np.sort(np.searchsorted(wanted, events.bio[queued]) * width + queued)
    base = np.searchsorted(wanted, events.bio[until]) * width
    latest = np.searchsorted(keys, base + until) - 1
    return np.asarray((latest >= 0) & (keys[np.maximum(latest, 0)] > base + after), dtype=np.bool_)
