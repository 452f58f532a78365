# SPDX-License-Identifier: Apache-2.0
"""Histograms with log2 or linear buckets, and heat maps: a histogram per column of time.

Memory is bounded by the number of buckets and columns.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U32

MOST_BUCKETS = 1024
"""Linear buckets: the last bucket has no upper bound and takes all larger values."""
MOST_COLUMNS = 512
Count = TypeVar("Count", np.int64, np.uint32)
FIRST_COLUMN_NS = 1_000_000
"""Width of a heat map's column at first, ns."""


@dataclass(frozen=True)
class Scale:
    """Buckets of a histogram: log2 as in bcc (0 to 1, 2 to 3, 4 to 7, …) or linear."""

    step: int = 0
    """Width of linear buckets in the values' unit; 0: log2 buckets."""

    def slots(self, values: I64) -> I64:
        """Return the bucket of each value: int64 (n,), from 0.

        values: int64 (n,), 0 or more, in the histogram's unit. Linear: value // step, at most the
        last bucket. Log2: the index of the value's highest bit, 0 for the values 0 and 1.
        """
        if self.step:
            return np.minimum(values // self.step, MOST_BUCKETS - 1)
        # frexp is exact up to 2^53: more than a year in ns.
        slots: I64 = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, 0).astype(np.int64)
        return slots

    def bounds(self, slot: int) -> tuple[int, int | None]:
        """Return (first, last) value of a bucket; last is None for the last linear bucket."""
        if self.step:
            first = slot * self.step
            return first, None if slot == MOST_BUCKETS - 1 else first + self.step - 1
        return (1 << slot if slot else 0), (2 << slot) - 1


def _grown(counts: NDArray[Count], size: int) -> NDArray[Count]:
    """Return the counts with at least `size` buckets (rows of the first axis); new ones are 0.

    Returns `counts` itself if it has so many, else a longer copy.
    """
    more = size - counts.shape[0]
    if more <= 0:
        return counts
    return np.concatenate([counts, np.zeros((more, *counts.shape[1:]), dtype=counts.dtype)])


@dataclass
class Histogram:
    """Number of values in each bucket."""

    scale: Scale
    counts: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Number of values by bucket, up to the last bucket that has any."""
    total: int = 0
    """Sum of the values."""
    maximum: int = 0
    """Largest value; 0 without values."""

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    def add(self, values: I64) -> None:
        """Count values in their buckets: int64 (n,), 0 or more, in the histogram's unit.

        Lengthens `counts` up to the bucket of the largest value, and updates `total` and `maximum`.
        """
        if not len(values):
            return
        more = np.bincount(self.scale.slots(values))
        self.counts = _grown(self.counts, len(more))
        self.counts[: len(more)] += more
        self.total += int(values.sum())
        self.maximum = max(self.maximum, int(values.max()))


@dataclass
class Columns:
    """At most MOST_COLUMNS columns of time of one width, which doubles as the log goes on."""

    origin: int
    """ns where column 0 begins."""
    width: int = FIRST_COLUMN_NS
    """ns of a column."""
    used: int = 0
    """Columns up to the last one that has a time."""

    def of(self, times: I64) -> tuple[I64, int]:
        """Return (columns, merged): each time's column, and how many former columns make one.

        times: ns (n,), at least one; times before `origin` are in column 0. columns: int64 (n,). If
        a time is past the last of MOST_COLUMNS columns, `width` is doubled until it is not; merged
        is then the factor, a power of two that can exceed MOST_COLUMNS, and the caller has to merge
        its own columns accordingly. 1: `width` is unchanged. Sets `used`.
        """
        last = int(times.max()) - self.origin
        merged = 1
        while last // (self.width * merged) >= MOST_COLUMNS:
            merged *= 2
        self.width *= merged
        columns = np.maximum((times - self.origin) // self.width, 0)
        self.used = max(-(-self.used // merged), int(columns.max()) + 1)
        return columns, merged


@dataclass
class HeatMap:
    """Number of values in each bucket, by column of time."""

    scale: Scale
    counts: U32 = field(default_factory=lambda: np.zeros((0, MOST_COLUMNS), dtype=np.uint32))
    """(buckets, MOST_COLUMNS): number of values."""

    def add(self, values: I64, columns: I64) -> None:
        """Count values (n,) of 0 or more in their columns (n,); at least one value."""
        slots = self.scale.slots(values)
        self.counts = _grown(self.counts, int(slots.max()) + 1)
        np.add.at(self.counts, (slots, columns), 1)

    def merge(self, columns: int) -> None:
        """Merge each `columns` neighbouring columns into one; a power of two."""
        size = self.counts.shape[0]
        merged = self.counts.reshape(size, MOST_COLUMNS // columns, columns).sum(axis=2)
        self.counts = np.zeros_like(self.counts)
        self.counts[:, : merged.shape[1]] = merged
