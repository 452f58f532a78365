# SPDX-License-Identifier: Apache-2.0
"""What a window passes to the next one about kept generations whose address was reused.

A window keeps the events of generations that have not ended, and not those of later generations at
the same address. Without this record the next window would take an ended generation for one in
flight.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.association.identity.generations import Generations
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool


def _nothing() -> I64:
    """Return an empty int64 array."""
    return np.zeros(0, dtype=np.int64)


@dataclass
class Known:
    """Kept generations whose address was reused, by event numbers (`Events.number`).

    birth: (k,) number of each generation's first event, ascending.
    again: (k,) number of the first event of the next generation at the same address.
    """

    birth: I64 = field(default_factory=_nothing)
    again: I64 = field(default_factory=_nothing)

    def tell(self, events: Events, generations: Generations) -> None:
        """Set `generations.again`, where it is -1, from what earlier windows recorded."""
        if not len(self.birth) or not len(generations):
            return
        birth = events.number[generations.birth]
        at = np.minimum(np.searchsorted(self.birth, birth), len(self.birth) - 1)
        reused = (self.birth[at] == birth) & (generations.again < 0)
        generations.again[reused] = self.again[at[reused]]

    @classmethod
    def of(cls, events: Events, generations: Generations, kept: Bool) -> "Known":
        """Return the record of those generations in the mask `kept` whose address was reused."""
        rows = np.flatnonzero(kept & generations.superseded)
        if not len(rows):
            return cls()
        birth = events.number[generations.birth[rows]]
        order = np.argsort(birth, kind="stable")
        return cls(birth[order], generations.again[rows][order])


@dataclass
class Lives:
    """Kept generations whose address was reused: those of bios, and those of requests."""

    bios: Known = field(default_factory=Known)
    requests: Known = field(default_factory=Known)
