# SPDX-License-Identifier: Apache-2.0
"""Distributions in bounded memory: exact count, sum and extremes; percentiles within 1/256.

Values are counted in log-linear buckets, as HdrHistogram and DDSketch (with linear
interpolation) do: 128 buckets to each power of two. So a percentile is at most 1/256
(0.39 %) of its value off, whatever the values are; below 256 it is exact. The same values
give the same counts in any order, and counts of parts add up to those of the whole.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from biotrail.converters.events.tables import I64

SUB_BITS = 7
PER_OCTAVE = 1 << SUB_BITS
RELATIVE_ERROR = 1 / (2 * PER_OCTAVE)
"""A percentile lies within this share of the value at its rank."""

_SHIFT = 52 - SUB_BITS
_ZERO = 1023 * PER_OCTAVE - 1
"""Of a float64's upper bits, what makes 1 the first bucket after that of 0."""
_U16 = 1 << 16


def buckets_of(values: I64) -> I64:
    """The bucket of each value (at least 0), int64: 0 for 0, 1 for 1, then growing."""
    bits = np.maximum(values, 0).astype(np.float64).view(np.int64) >> _SHIFT
    return np.asarray(np.maximum(bits - _ZERO, 0))


def bucket_begin(bucket: int) -> int:
    """The least value of a bucket; that of the next one is where it ends."""
    if bucket <= 0:
        return 0
    octave, part = divmod(bucket - 1, PER_OCTAVE)
    # Rounded up: only whole numbers are counted.
    return -((-(PER_OCTAVE + part) << octave) >> SUB_BITS)


def by_group(codes: I64) -> tuple[I64, I64]:
    """(order, first): rows sorted by code, and where in them each code's rows begin.

    codes: int64, at least 0.
    """
    small = len(codes) and int(codes.max()) < _U16
    keys = codes.astype(np.uint16) if small else codes  # 16 bits: numpy sorts by radix
    order = np.argsort(keys, kind="stable")
    ordered = codes[order]
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    first = np.concatenate([np.zeros(min(len(codes), 1), np.int64), edges])
    return order, first


class Distribution:
    """How often which value was seen. Values are whole numbers of at least 0."""

    __slots__ = ("_base", "_counts", "count", "max", "min", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0
        self._base = 0
        self._counts = np.zeros(0, dtype=np.int64)

    @classmethod
    def of_counts(cls, total: int, least: int, most: int, base: int, counts: I64) -> "Distribution":
        """What was counted elsewhere. counts: int64, of the buckets from `base` on."""
        found = cls()
        found._take(int(counts.sum()), total, least, most, base, counts)
        return found

    @property
    def mean(self) -> float:
        """0 when nothing was seen."""
        return self.sum / self.count if self.count else 0.0

    def add(self, values: I64) -> None:
        """Counts values; negative ones as 0."""
        if not len(values):
            return
        values = np.maximum(values, 0)
        bucket = buckets_of(values)
        base = int(bucket.min())
        counts = np.bincount(bucket - base)
        self._take(
            len(values), int(values.sum()), int(values.min()), int(values.max()), base, counts
        )

    def merge(self, other: "Distribution") -> None:
        """Counts all that the other one has counted."""
        if other.count:
            self._take(other.count, other.sum, other.min, other.max, other._base, other._counts)

    def _take(self, count: int, total: int, least: int, most: int, base: int, counts: I64) -> None:
        self.min = min(self.min, least) if self.count else least
        self.max = max(self.max, most)
        self.count += count
        self.sum += total
        self._cover(base, base + len(counts))
        at = base - self._base
        self._counts[at : at + len(counts)] += counts

    def _cover(self, begin: int, end: int) -> None:
        """Makes room for the buckets from begin to end."""
        if not len(self._counts):
            self._base, self._counts = begin, np.zeros(end - begin, dtype=np.int64)
            return
        low, high = min(begin, self._base), max(end, self._base + len(self._counts))
        if high - low > len(self._counts):
            wider = np.zeros(high - low, dtype=np.int64)
            at = self._base - low
            wider[at : at + len(self._counts)] = self._counts
            self._base, self._counts = low, wider

    def percentiles(self, shares: Sequence[float], *, low: bool = False) -> list[int]:
        """The value at each share (0.99: p99) of the ranks; 0s when nothing was seen.

        The rank of a share is the smallest that at least so many values do not pass. A value
        stands in the middle of its bucket; low: where the bucket begins, for round numbers
        such as sizes (then it is at most twice the error too low).
        """
        if not self.count:
            return [0] * len(shares)
        ranks = np.maximum(np.ceil(np.asarray(shares) * self.count - 1e-9), 1)
        at = np.searchsorted(np.cumsum(self._counts), ranks)
        found = [self._value(self._base + int(i), low) for i in at]
        return [min(max(value, self.min), self.max) for value in found]

    @staticmethod
    def _value(bucket: int, low: bool) -> int:
        if low:
            return bucket_begin(bucket)
        return (bucket_begin(bucket) + bucket_begin(bucket + 1) - 1) // 2

    def buckets(self) -> list[tuple[int, int, int]]:
        """(begin, end, count) of each bucket that has counts; end is not in it."""
        rows = np.flatnonzero(self._counts)
        return [
            (
                bucket_begin(self._base + row),
                bucket_begin(self._base + row + 1),
                int(self._counts[row]),
            )
            for row in rows.tolist()
        ]

    def rows(self) -> tuple[I64, I64]:
        """(buckets that have counts, their counts); see bucket_begin."""
        rows = np.flatnonzero(self._counts)
        return rows + self._base, self._counts[rows]

    def log2(self) -> list[tuple[int, int, int]]:
        """(begin, end, count) by powers of two, exact: 0, 1, 2 to 3, 4 to 7, and on."""
        sums: dict[int, int] = {}
        rows = np.flatnonzero(self._counts)
        for row in rows.tolist():
            bucket = self._base + row
            octave = -1 if bucket == 0 else (bucket - 1) >> SUB_BITS
            sums[octave] = sums.get(octave, 0) + int(self._counts[row])
        return [
            (1 << octave if octave >= 0 else 0, 1 << (octave + 1), count)
            for octave, count in sums.items()
        ]

    def coarse(self, bits: int) -> tuple[int, list[int]]:
        """(first row with counts, counts of the rows from it to the last one).

        There are 2^bits rows to each power of two, the first of them row 1; row 0 is 0.
        """
        seen = np.flatnonzero(self._counts)
        bucket = seen + self._base
        rows = np.where(bucket > 0, 1 + ((bucket - 1) >> (SUB_BITS - bits)), 0)
        if not len(rows):
            return 0, []
        first, last = int(rows[0]), int(rows[-1])
        sums = np.zeros(last - first + 1, dtype=np.int64)
        np.add.at(sums, rows - first, self._counts[seen])
        return first, sums.tolist()


Targets = Mapping[int, Distribution] | Sequence[Distribution]


def add_grouped(codes: I64, values: I64, into: Targets) -> None:
    """Counts each value in the distribution that its code (int64, shape as values) names."""
    if not len(values):
        return
    order, first = by_group(codes)
    values = np.maximum(values[order], 0)
    bucket = buckets_of(values)
    ends = np.append(first[1:], len(values))
    sums = np.add.reduceat(values, first)
    least, most = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    names = codes[order[first]]
    low = buckets_of(least)
    rows: Iterable[tuple[int, ...]] = zip(
        names.tolist(),
        first.tolist(),
        ends.tolist(),
        sums.tolist(),
        least.tolist(),
        most.tolist(),
        low.tolist(),
        strict=True,
    )
    for name, begin, end, total, lowest, highest, base in rows:
        counts = np.bincount(bucket[begin:end] - base)
        into[name]._take(end - begin, total, lowest, highest, base, counts)
