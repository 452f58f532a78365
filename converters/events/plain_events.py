# SPDX-License-Identifier: Apache-2.0
"""What a window had settled before association: events that are over; whose an address was."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U64, Bool, EventRows, Table


class PlainEvents(NamedTuple):
    """Events of a window whose I/O was settled before the association."""

    events: Events
    """The window's, sorted by time; all but those at `rest` are settled."""
    rest: EventRows
    """Ascending."""
    counts: dict[tuple[int, int], int]
    """Number of settled events by (dev_t, kind)."""

    @property
    def mask(self) -> Bool:
        """Per event, whether it is of I/O that was settled."""
        plain = np.ones(len(self.events), np.bool_)
        plain[self.rest] = False
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
