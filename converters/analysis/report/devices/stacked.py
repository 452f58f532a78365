# SPDX-License-Identifier: Apache-2.0
"""Stacked devices: how a bio's time divides between its device and the lower device's bios."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.samples import operations_of
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, Lifecycles
from biotrail.converters.lifecycles.windows import sure_complete


@dataclass
class Below:
    """Times of the children that one upper device's operation has on one lower device."""

    children: int = 0
    """Number of children."""
    doubtful: int = 0
    """Children of which their own completion, or the parent's, is in doubt (`Bios.doubtful`)."""
    to_child: Distribution = field(default_factory=Distribution)
    """ns from the parent's Q to the child's Q."""
    child: Distribution = field(default_factory=Distribution)
    """ns from the child's Q to the child's C."""
    from_child: Distribution = field(default_factory=Distribution)
    """ns from the child's C to the parent's C."""


class Stacked:
    """Times of children by pair of devices and operation, window after window."""

    def __init__(self) -> None:
        self.by_pair: dict[tuple[int, int, int], Below] = {}
        """(upper dev_t, lower dev_t, the parent's operation as in Samples.place) → times."""
        self.unmatched = 0
        """Children whose parent did not end in the same window; they are in no pair."""

    def add(self, window: Lifecycles, context: Context) -> None:
        """Add the times of the next window's children: bios that work for a bio of an upper device.

        A child whose parent is in the same window's `bios` (ended, or without further events) is
        added to `by_pair`, under both devices and the parent's operation; any other child only
        counts in `unmatched`. A time that is not known, in doubt, or negative, is not counted, but
        the child is. context: the log's, for operations.
        """
        bios = window.bios
        child_row = np.flatnonzero(bios.parent != NEVER)
        if not len(child_row):
            return
        parent = bios.parent[child_row]
        parent_row = np.minimum(np.searchsorted(bios.number, parent), len(bios) - 1)
        here = bios.number[parent_row] == parent
        self.unmatched += int((~here).sum())
        child_row, parent_row = child_row[here], parent_row[here]
        operation = operations_of(bios, context)[parent_row]
        complete = sure_complete(bios)
        keys = np.stack([bios.dev[parent_row], bios.dev[child_row], operation], axis=1)
        keys = keys.astype(np.int64)
        names, place = np.unique(keys, axis=0, return_inverse=True)
        for row, (upper, lower, op) in enumerate(names.tolist()):
            ours = place.reshape(-1) == row
            child, parent = child_row[ours], parent_row[ours]
            below = self.by_pair.setdefault((upper, lower, op), Below())
            below.children += int(ours.sum())
            below.doubtful += int((bios.doubtful[child] | bios.doubtful[parent]).sum())
            _add(below.to_child, bios.queue[parent], bios.queue[child])
            _add(below.child, bios.queue[child], complete[child])
            _add(below.from_child, complete[child], complete[parent])


def _add(into: Distribution, begin: I64, end: I64) -> None:
    """Count end - begin (ns) of the rows that have both times, unless it is negative."""
    known = (begin != NEVER) & (end != NEVER) & (end >= begin)
    into.add((end - begin)[known])
