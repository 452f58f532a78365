# SPDX-License-Identifier: Apache-2.0
"""Plain I/O of a window, that was settled before the association: its events, its addresses."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import KINDS
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import I64, U64, Bool, EventRows, Table


class PlainEvents(NamedTuple):
    """Events of a window whose I/O was settled before the association."""

    events: Events
    """The window's, sorted by time; all but those at `rest`, `beside` and `held` are settled."""
    rest: EventRows
    """Ascending."""
    counts: dict[tuple[int, int], int]
    """Number of plain events by (dev_t, kind)."""
    beside: EventRows = np.zeros(0, np.int64)
    """Records of the path (`path.KINDS`), ascending: they name no bio or request of their own."""
    held: EventRows = np.zeros(0, np.int64)
    """Events of plain I/O that the next window gets again, ascending."""

    @property
    def mask(self) -> Bool:
        """Per event, whether it is of I/O that was settled."""
        plain = np.ones(len(self.events), np.bool_)
        plain[self.rest] = False
        plain[self.beside] = False
        plain[self.held] = False
        return plain


@dataclass
class Owners(Table):
    """Requests or bios (and pieces of bios) by their addresses, from first to last event."""

    object: U64
    first: I64
    """ns; `last` likewise."""
    last: I64
    number: I64
    """`Requests.number`, or `Bios.number` of the whole bio."""


def path_apart(events: Events, rest: EventRows) -> tuple[EventRows, EventRows]:
    """Return (rows of `rest` for the model, rows of `rest` with records of the path)."""
    beside = is_in(events.kind, *KINDS)[rest]
    return rest[~beside], rest[beside]
