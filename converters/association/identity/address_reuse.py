# SPDX-License-Identifier: Apache-2.0
"""What windows tell each other of addresses that lived again while an earlier life is kept.

A window keeps the events of what is under way, not those of the lives that came after it:
without this, the next window would take what is over for something in flight.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.association.identity.generations import Generations
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool


def _nothing() -> I64:
    return np.zeros(0, dtype=np.int64)


@dataclass
class Known:
    """Of kept generations: number of the first event (ascending), and of the next life's."""

    birth: I64 = field(default_factory=_nothing)
    again: I64 = field(default_factory=_nothing)

    def tell(self, events: Events, generations: Generations) -> None:
        """Adds what earlier windows saw of these generations."""
        if not len(self.birth) or not len(generations):
            return
        birth = events.number[generations.birth]
        at = np.minimum(np.searchsorted(self.birth, birth), len(self.birth) - 1)
        told = (self.birth[at] == birth) & (generations.again < 0)
        generations.again[told] = self.again[at[told]]

    @classmethod
    def of(cls, events: Events, generations: Generations, kept: Bool) -> "Known":
        """What the next window must be told of the generations in the mask."""
        rows = np.flatnonzero(kept & generations.superseded)
        if not len(rows):
            return cls()
        birth = events.number[generations.birth[rows]]
        order = np.argsort(birth, kind="stable")
        return cls(birth[order], generations.again[rows][order])


@dataclass
class Lives:
    """Of bios and of requests."""

    bios: Known = field(default_factory=Known)
    requests: Known = field(default_factory=Known)
