# SPDX-License-Identifier: Apache-2.0
"""What a window passes to the next one about kept generations whose address was reused.

A generation is one use of a bio's or request's address. A window keeps the events of generations
that have not ended, and not those of later generations at the same address. Without this record the
next window would take an ended generation for one in flight.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from biotrail.converters.association.identity.generations import Generations
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool


def _nothing() -> I64:
    """Return an empty int64 array."""
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class ReusedGenerations:
    """Kept generations whose address was reused, by event numbers (`Events.number`).

    birth: (k,) number of each generation's first event, ascending.
    again: (k,) number of the first event of the next generation at the same address.
    """

    birth: I64 = field(default_factory=_nothing)
    again: I64 = field(default_factory=_nothing)

    def superseding(self, events: Events, generations: Generations) -> Generations:
        """Return the generations with `again` from this record, whose reuse is the earlier one.

        Generations are recognised by the number of their first event. events: the window that the
        generations' rows are indices of. The generations themselves are returned if nothing is
        recorded or there are none.
        """
        if not len(self.birth) or not len(generations):
            return generations
        birth = events.number[generations.birth]
        place = np.minimum(np.searchsorted(self.birth, birth), len(self.birth) - 1)
        reused = self.birth[place] == birth
        return replace(generations, again=np.where(reused, self.again[place], generations.again))

    @classmethod
    def among(cls, events: Events, generations: Generations, kept: Bool) -> "ReusedGenerations":
        """Return the record of those generations in the mask `kept` (m,) that were superseded.

        events: the window that the generations' rows are indices of.
        """
        rows = np.flatnonzero(kept & generations.superseded)
        if not len(rows):
            return cls()
        birth = events.number[generations.birth[rows]]
        order = np.argsort(birth, kind="stable")
        return cls(birth[order], generations.again[rows][order])


@dataclass(frozen=True)
class ReusedAddresses:
    """Kept generations whose address was reused: those of bios, and those of requests."""

    bios: ReusedGenerations = field(default_factory=ReusedGenerations)
    requests: ReusedGenerations = field(default_factory=ReusedGenerations)
