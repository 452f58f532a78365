# SPDX-License-Identifier: Apache-2.0
"""Stacked devices: where the time of a bio went between its device and the one below."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.context import OP_MASK
from biotrail.converters.events.tables import I64, NEVER, Lifecycles


@dataclass
class Below:
    """Bios of one upper device and operation, with those they became on one lower device."""

    children: int = 0
    to_child: Distribution = field(default_factory=Distribution)
    """ns from the parent's Q to the child's."""
    child: Distribution = field(default_factory=Distribution)
    """ns from the child's Q to its C."""
    from_child: Distribution = field(default_factory=Distribution)
    """ns from the child's C to the parent's."""


class Stacked:
    """All pairs of devices, window after window."""

    def __init__(self) -> None:
        self.by_pair: dict[tuple[int, int, int], Below] = {}
        """By (upper device, lower device, operation's number)."""
        self.unmatched = 0
        """Children whose parent did not end in the same window."""

    def add(self, window: Lifecycles) -> None:
        """The next window: parents end with the children that they waited for."""
        bios = window.bios
        child = np.flatnonzero(bios.parent != NEVER)
        if not len(child):
            return
        parent = np.minimum(np.searchsorted(bios.number, bios.parent[child]), len(bios) - 1)
        found = bios.number[parent] == bios.parent[child]
        self.unmatched += int((~found).sum())
        child, parent = child[found], parent[found]
        keys = np.stack(
            [bios.dev[parent], bios.dev[child], bios.opf[parent] & OP_MASK], axis=1
        ).astype(np.int64)
        names, place = np.unique(keys, axis=0, return_inverse=True)
        for row, (upper, lower, op) in enumerate(names.tolist()):
            ours = place.reshape(-1) == row
            below = self.by_pair.setdefault((upper, lower, op), Below())
            below.children += int(ours.sum())
            _add(below.to_child, bios.queue[parent[ours]], bios.queue[child[ours]])
            _add(below.child, bios.queue[child[ours]], bios.complete[child[ours]])
            _add(below.from_child, bios.complete[child[ours]], bios.complete[parent[ours]])


def _add(into: Distribution, begin: I64, end: I64) -> None:
    known = (begin != NEVER) & (end != NEVER) & (end >= begin)
    into.add((end - begin)[known])
