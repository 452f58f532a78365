# SPDX-License-Identifier: Apache-2.0
"""Which events of a window are of plain I/O, that was settled before the association."""

from typing import NamedTuple

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import Bool, EventRows


class PlainEvents(NamedTuple):
    """Events of a window whose I/O was settled before the association."""

    events: Events
    """The window's, sorted by time; all but those at `rest` are plain."""
    rest: EventRows
    """Ascending."""
    counts: dict[tuple[int, int], int]
    """Number of plain events by (dev_t, kind)."""

    @property
    def mask(self) -> Bool:
        """Per event, whether it is plain."""
        plain = np.ones(len(self.events), np.bool_)
        plain[self.rest] = False
        return plain
