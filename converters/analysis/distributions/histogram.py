# SPDX-License-Identifier: Apache-2.0
"""Counts of values in buckets, log2 or linear; and the same over time. Memory: by buckets."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U32

MOST_BUCKETS = 1024
"""Linear buckets: what is larger than all of them goes to the last one, which has no end."""
MOST_COLUMNS = 512
Count = TypeVar("Count", np.int64, np.uint32)
FIRST_COLUMN_NS = 1_000_000


@dataclass(frozen=True)
class Scale:
    """How values become buckets. step: width of linear buckets in the value's unit; 0: log2.

    log2 buckets are bcc's: 0 to 1, 2 to 3, 4 to 7, …
    """

    step: int = 0

    def slots(self, values: I64) -> I64:
        """Bucket of each value, which is 0 or more."""
        if self.step:
            return np.minimum(values // self.step, MOST_BUCKETS - 1)
        # frexp is exact up to 2^53: more than a year in ns.
        slots: I64 = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, 0).astype(np.int64)
        return slots

    def bounds(self, slot: int) -> tuple[int, int | None]:
        """First and last value of a bucket; None: it has no end."""
        if self.step:
            first = slot * self.step
            return first, None if slot == MOST_BUCKETS - 1 else first + self.step - 1
        return (1 << slot if slot else 0), (2 << slot) - 1


def _grown(counts: NDArray[Count], size: int) -> NDArray[Count]:
    """With room for `size` buckets along the first axis."""
    more = size - counts.shape[0]
    if more <= 0:
        return counts
    return np.concatenate([counts, np.zeros((more, *counts.shape[1:]), dtype=counts.dtype)])


@dataclass
class Histogram:
    """How many values fell into each bucket."""

    scale: Scale
    counts: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """By bucket."""
    total: int = 0
    maximum: int = 0

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    def add(self, values: I64) -> None:
        """Counts values of 0 or more."""
        if not len(values):
            return
        found = np.bincount(self.scale.slots(values))
        self.counts = _grown(self.counts, len(found))
        self.counts[: len(found)] += found
        self.total += int(values.sum())
        self.maximum = max(self.maximum, int(values.max()))


@dataclass
class Columns:
    """Time in columns of one width, from a log's first moment on; they widen as it grows."""

    origin: int
    """ns."""
    width: int = FIRST_COLUMN_NS
    used: int = 0

    def of(self, times: I64) -> tuple[I64, int]:
        """Column of each time, and how many former columns are one now (a power of two)."""
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
    """How many values fell into each bucket, column of time by column."""

    scale: Scale
    counts: U32 = field(default_factory=lambda: np.zeros((0, MOST_COLUMNS), dtype=np.uint32))
    """By bucket and column."""

    def add(self, values: I64, columns: I64) -> None:
        """Counts values, each in its column."""
        slots = self.scale.slots(values)
        self.counts = _grown(self.counts, int(slots.max()) + 1)
        np.add.at(self.counts, (slots, columns), 1)

    def merge(self, columns: int) -> None:
        """Makes one column of that many."""
        size = self.counts.shape[0]
        merged = self.counts.reshape(size, MOST_COLUMNS // columns, columns).sum(axis=2)
        self.counts = np.zeros_like(self.counts)
        self.counts[:, : merged.shape[1]] = merged
