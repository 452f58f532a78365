# SPDX-License-Identifier: Apache-2.0
"""The tables of chosen sites: pairs of events, hits of followed objects.

Units are those of `tables`: times are ns of CLOCK_MONOTONIC, NEVER if not recorded.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I32, I64, U8, U16, U32, U64, Table


@dataclass
class Pairs(Table):
    """One row per pair of events that ended in the window, by the time of its end.

    What `pair`, the keys and `by` mean is in the header (`payloads.PairFacts`);
    `converters.sites.names` shows them as text.
    """

    number: I64
    """Index of the record among the log's events."""
    pair: U16
    """Which declared pair: index in the header's sites.pairs."""
    key0: U64
    """First field of the key."""
    key1: U64
    """Second field of the key; 0 without one."""
    by: U64
    """Field of --by; 0 without one."""
    began: I64
    """Time of the first event."""
    ended: I64
    """Time of the second event; never before `began`."""
    cpu: U16
    """CPU of the second event."""
    tid: U32
    """Thread that was running then."""
    task: I32
    """Row of that thread in `Lifecycles.tasks`; -1 unknown."""
    comm: NDArray[np.bytes_]
    """Its name then, S16."""

    @property
    def latency(self) -> I64:
        """ns from the first event to the second, (n,)."""
        return self.ended - self.began


@dataclass
class Hits(Table):
    """One row per hit in the window, by time: a followed object passes a site."""

    number: I64
    """Index of the record among the log's events."""
    time: I64
    """When it passed."""
    site: U16
    """Index in the header's sites.follow.sites."""
    role: U8
    """records.Role: entry, return, tracepoint."""
    flags: U8
    """records.HIT_BORN, HIT_ENDED, HIT_CUT."""
    life: U32
    """Number of the object's life, from 1 on."""
    object: U64
    """Address."""
    detail: U64
    """What the type's declaration shows of it (sites.follow.detail)."""
    value: U64
    """What a function returned (role RETURN); else 0."""
    cpu: U16
    """CPU on which it passed."""
    tid: U32
    """Thread that was running."""
    task: I32
    """Row of that thread in `Lifecycles.tasks`; -1 unknown."""
    comm: NDArray[np.bytes_]
    """Its name then, S16."""
    stack: I32
    """Id of the kernel stack (kind site of the notes); negative: none."""


@dataclass
class JoinedLives(Table):
    """One row per followed life that is the life of a request or bio which ended in the window."""

    life: U32
    """`Hits.life`."""
    number: I64
    """`Requests.number`, or `Bios.number` where bios are followed (sites.follow.type)."""


@dataclass
class SiteTables:
    """The chosen sites of one window; what is not recorded has no rows."""

    pairs: Pairs
    hits: Hits
    joined: JoinedLives | None = None
    """Which lives those of the window's requests, or bios, are; None: the log follows neither."""
