# SPDX-License-Identifier: Apache-2.0
"""Interval trees over the sectors of one device: which item covers or overlaps a range."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from intervaltree import Interval, IntervalTree

Item = TypeVar("Item", bound=Hashable)


class PendingRanges(Generic[Item]):
    """Items, each with a half-open range `[sector, end)` of 512-byte sectors, on one device.

    An item has one range at a time. Items with an empty range are not kept, so no query returns
    one.
    """

    def __init__(self) -> None:
        self._tree = IntervalTree()
        self._ranges: dict[Item, Interval] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, item: Item, sector: int, end: int) -> None:
        """Add an item with the range [sector, end), or give an item of the set this range instead.

        An item with an empty range is removed.
        """
        self.remove(item)
        if end > sector:
            interval = Interval(sector, end, item)
            self._ranges[item] = interval
            self._tree.add(interval)

    def remove(self, item: Item) -> None:
        """Remove an item, if it is in the set."""
        interval = self._ranges.pop(item, None)
        if interval is not None:
            self._tree.remove(interval)

    def covering(self, sector: int, end: int) -> list[Item]:
        """Return the items whose range contains all of `[sector, end)`, in no order."""
        return [i.data for i in self._tree.at(sector) if i.end >= end]

    def touching(self, sector: int, end: int) -> list[Item]:
        """Return the items whose range shares a sector with `[sector, end)`, in no order."""
        return [i.data for i in self._tree.overlap(sector, end)]
