# SPDX-License-Identifier: Apache-2.0
"""Interval trees over sectors: what is pending where on one device."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from intervaltree import Interval, IntervalTree

Item = TypeVar("Item", bound=Hashable)


class PendingRanges(Generic[Item]):
    """Items by the half-open range `[sector, end)` that they occupy on one device.

    Ranges are in 512-byte sectors. An item stands at most once; empty ranges never match
    and are not kept.
    """

    def __init__(self) -> None:
        self._tree = IntervalTree()
        self._ranges: dict[Item, Interval] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, item: Item, sector: int, end: int) -> None:
        """Puts an item at a range; moves it when it is there already."""
        self.remove(item)
        if end > sector:
            interval = Interval(sector, end, item)
            self._ranges[item] = interval
            self._tree.add(interval)

    def remove(self, item: Item) -> None:
        """Takes an item away, if it is there."""
        interval = self._ranges.pop(item, None)
        if interval is not None:
            self._tree.remove(interval)

    def covering(self, sector: int, end: int) -> list[Item]:
        """Items whose range holds all of `[sector, end)`."""
        return [i.data for i in self._tree.at(sector) if i.end >= end]

    def touching(self, sector: int, end: int) -> list[Item]:
        """Items whose range shares a sector with `[sector, end)`."""
        return [i.data for i in self._tree.overlap(sector, end)]
