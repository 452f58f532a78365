# SPDX-License-Identifier: Apache-2.0
"""Assign overlapping slices to lanes; a lane is reused once it is free.

A track cannot hold slices that overlap, so each pool (a device's bios, say) has as many lanes as
were ever needed at once. In the order of their starts, each slice takes the lowest lane whose last
slice ended strictly before: the first lanes are the busy ones, and the upper ones show how deep a
burst was.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import FOREVER

_FEW_LANES = 512
"""Up to so many lanes, a look at each is faster than a tree."""
_FEWEST_LEAVES = 1024
"""Of the tree: a power of two."""


def _empty() -> I64:
    return np.zeros(0, dtype=np.int64)


@dataclass
class LanePool:
    """The lanes of one group of slices, kept from window to window."""

    last_end: I64 = field(default_factory=_empty)
    """Per lane (lanes,): end of its last slice, ns; -1: none ended yet; FOREVER: occupied to the
    trace's end."""
    frontier: int = -1
    """The latest end of any slice assigned so far, ns; -1: none ended."""
    _busy_number: I64 = field(default_factory=_empty)
    """Numbers of the slices in flight at the last window's end."""
    _busy_lane: I64 = field(default_factory=_empty)
    """Per slice of `_busy_number`: the lane reserved for it."""

    def __len__(self) -> int:
        return len(self.last_end)

    def assign(self, number: I64, start: I64, end: I64, stays: Bool) -> I64:
        """Return the lane of each slice of one window, from 0: int64 (n,). Updates the pool.

        A slice gets the lane that it reserved, unless its start moved to the end of the lane's last
        slice or before; else the lowest lane whose last slice ended before its start (not at it).
        number: identifies a slice across windows; start, end: ns; rows in the order of (start,
        number). A slice with end FOREVER reserves its lane until it is passed again with its end,
        or until a window does not pass it. stays: it keeps its lane to the trace's end; only with
        end FOREVER, and it must not be passed again.
        """
        lane = np.full(len(number), -1, dtype=np.int64)
        self._carry(number, start, lane)
        taken = lane >= 0
        new = np.flatnonzero(~taken)
        lane[new] = self._lowest(start[new], end[new], lane[taken], end[taken])
        self._close(number, lane, end, stays)
        return lane

    def _carry(self, number: I64, start: I64, lane: I64) -> None:
        """Set `lane` (n,) for the slices that reserved a lane in the window before.

        It stays as it is (-1) for the others.

        number, start: of this window's slices, start in ns. A slice that now starts no later than
        the end of the lane's last slice loses its lane (-1).
        """
        if not len(self._busy_number):
            return
        order = np.argsort(self._busy_number, kind="stable")
        known = self._busy_number[order]
        at = np.minimum(np.searchsorted(known, number), len(known) - 1)
        same = known[at] == number
        held = self._busy_lane[order[at]]
        # If the start became earlier than the end of the lane's last slice, they would overlap.
        keeps = same & (start > self.last_end[held])
        lane[keeps] = held[keeps]

    def _lowest(self, start: I64, end: I64, held: I64, held_end: I64) -> I64:
        """Return for each slice (n,), in the order of `start`, the lowest lane that is free then.

        A lane is free if its last slice ended strictly before. start, end: ns; end FOREVER occupies
        the lane beyond this window. held: lanes that slices of this window occupy already;
        held_end: until when (ns). Changes nothing; numbers beyond the pool's lanes are new ones.
        """
        ends = self.last_end.copy()
        ends[held] = held_end
        if len(ends) and len(start) > 1 and (start[1:] > end[:-1]).all() and start[0] > ends[0]:
            return np.zeros(len(start), dtype=np.int64)  # no slice overlaps the next
        found = np.empty(len(start), np.int64)
        if len(ends) <= _FEW_LANES:
            room = np.concatenate([ends, np.empty(len(start), np.int64)])
            if loops.lowest(start, end, room, len(ends), _FEW_LANES, found) >= 0:
                return found
        leaves = _FEWEST_LEAVES
        while leaves <= len(ends) or not loops.lowest_of_many(
            start, end, _tree(ends, leaves), found
        ):
            leaves *= 2
        return found

    def _close(self, number: I64, lane: I64, end: I64, stays: Bool) -> None:
        """Set `last_end`, `frontier` and the lanes that are reserved, from a window's slices."""
        lanes = int(lane.max(initial=-1)) + 1
        if lanes > len(self.last_end):
            more = np.full(lanes - len(self.last_end), -1, dtype=np.int64)
            self.last_end = np.concatenate([self.last_end, more])
        over = end != FOREVER
        np.maximum.at(self.last_end, lane[over], end[over])
        self.last_end[lane[stays]] = FOREVER
        waits = ~over & ~stays
        self._busy_number, self._busy_lane = number[waits], lane[waits]
        self.frontier = max(self.frontier, int(end[over].max(initial=-1)))


def _tree(ends: I64, leaves: int) -> I64:
    """Return a tree (2 * leaves,) for `loops.lowest_of_many`. leaves: a power of two."""
    tree = np.full(2 * leaves, np.iinfo(np.int64).min, np.int64)
    tree[leaves : leaves + len(ends)] = ends
    level = leaves
    while level > 1:
        pairs = tree[level : 2 * level].reshape(-1, 2)
        pairs.min(axis=1, out=tree[level // 2 : level])
        level //= 2
    return tree
