# SPDX-License-Identifier: Apache-2.0
"""Interval trees over the sectors of one device: which item covers or overlaps a range."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class PendingRanges(Generic[Item]):
    """Items, each with a half-open range `[sector, end)` of 512-byte sectors, on one device.

    An item has one range at a time. Items with an empty range are not kept, so no query returns
    one.
    """

    def __init__(self) -> None:
        from intervaltree import IntervalTree  # here because most logs need no interval tree

        self._tree = IntervalTree()
        self._ranges: dict[Item, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, item: Item, sector: int, end: int) -> None:
        """Add an item with the range [sector, end), or give an item of the set this range instead.

        An item with an empty range is removed.
        """
        self.remove(item)
        if end > sector:
            self._ranges[item] = (sector, end)
            self._tree.addi(sector, end, item)

    def remove(self, item: Item) -> None:
        """Remove an item, if it is in the set."""
        given = self._ranges.pop(item, None)
        if given is not None:
            self._tree.removei(*given, item)

    def covering(self, sector: int, end: int) -> list[Item]:
        """Return the items whose range contains all of `[sector, end)`, in no order."""
        return [i.data for i in self._tree.at(sector) if i.end >= end]

    def touching(self, sector: int, end: int) -> list[Item]:
        """Return the items whose range shares a sector with `[sector, end)`, in no order."""
        return [i.data for i in self._tree.overlap(sector, end)]
