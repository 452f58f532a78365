# SPDX-License-Identifier: Apache-2.0
"""One window of a log: its tables, and what can be asked of the events behind them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import (
    I64,
    U64,
    Bios,
    Edges,
    Requests,
    Stages,
    Table,
)

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import PathTables
    from biotrail.converters.events.site_tables import SiteTables
    from biotrail.converters.lifecycles.account import Account


_NONE: I64 = np.zeros(0, np.int64)
FIRST_UNRECORDED = 1 << 62
"""Numbers from here on are of bios whose beginning is not in the log."""


@dataclass
class Histories(Table):
    """One row per (bio, event), sorted by bio, then by time."""

    bio: I64
    """`Bios.number` of the chosen bio."""
    request: I64
    """`Requests.number` of the event's request; NEVER: the event is of the bio alone."""
    event: I64
    """Index of the event in the events that come with the table."""


@dataclass
class Owners(Table):
    """Requests or bios (and pieces of bios) by their addresses, from first to last event."""

    object: U64
    first: I64
    """ns; `last` likewise."""
    last: I64
    number: I64
    """`Requests.number`, or `Bios.number` of the whole bio."""


@dataclass(kw_only=True)
class Result(ABC):
    """The tables of one window, sorted by `number`, but edges in any order.

    `open_bios` and `open_requests` are the rows of what goes on in the next window, `bios` and
    `requests` all others.
    """

    bios: Bios
    requests: Requests
    edges: Edges
    open_bios: Bios
    open_requests: Requests
    bio_stages: Stages
    """Stages of `bios`, in the order of its rows."""
    request_stages: Stages
    """Stages of `requests`, in the order of its rows."""
    path: "PathTables | None" = None
    """As `Lifecycles.path`."""
    sites: "SiteTables | None" = None
    """As `Lifecycles.sites`; set by the pipeline."""

    @property
    def has_own(self) -> bool:
        """Whether any bio, in flight or not, is the recording's own."""
        return bool(self.bios.own.any() or self.open_bios.own.any())

    @abstractmethod
    def count_events(self, account: "Account", begin: int, own_io: bool) -> None:
        """Add the window's events from `begin` (ns) on to the account.

        own_io: whether those of the recording's own I/O count as all others.
        """

    def own_numbers(self) -> tuple[I64, I64]:
        """Return numbers of events: of own I/O alone, and those of which that is still open."""
        return _NONE, _NONE

    def owners(self, kind: str) -> Owners:
        """Return the requests (bios and pieces of bios, by `kind`) that ended, by address."""
        return Owners(_NONE.astype(np.uint64), _NONE, _NONE, _NONE)

    def open_since(self, kind: str) -> int:
        """Return when the first request (bio) that goes on began, ns; a late time without any."""
        return int(np.iinfo(np.int64).max)

    def histories(self, bios: I64) -> tuple[Histories, Events]:
        """Return all events of the given bios, of their pieces and of their requests.

        With the events that `Histories.event` indexes. bios: values of `Bios.number`; those that
        did not end in the window have no rows. An event that names both bio and request is listed
        once, with the request.
        """
        return Histories(_NONE, _NONE, _NONE), Events.empty()
