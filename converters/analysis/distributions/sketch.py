# SPDX-License-Identifier: Apache-2.0
"""Distributions in bounded memory: exact count, sum and extremes; percentiles within 1/256.

Values are counted in log-linear buckets, as in HdrHistogram and DDSketch (with linear
interpolation): 128 buckets to each power of two. So the error of a percentile is at most 1/256
(0.39 %) of the percentile's value, and 0 below 256. The same values give the same counts in any
order, and the counts of parts add up to the counts of the whole.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions import sum_loops as loops
from biotrail.converters.events.tables import I64

SUB_BITS = 7
PER_OCTAVE = 1 << SUB_BITS
RELATIVE_ERROR = 1 / (2 * PER_OCTAVE)
"""Largest error of a percentile, as a share of the exact value at the percentile's rank."""

_SHIFT = 52 - SUB_BITS
"""Low bits of a float64's mantissa that do not choose the bucket."""
_ZERO = 1023 * PER_OCTAVE - 1
"""Subtracted from a float64's upper bits so that the value 1 is in bucket 1 (1023: the bias of
the exponent)."""
_U16 = 1 << 16
_MOST_CELLS = 1 << 16
"""Counts of all groups together that a compiled pass may have, whatever the number of values."""
_NONE = np.iinfo(np.int64).max


def buckets_of(values: I64) -> I64:
    """Bucket 0: values of 0 and less; 1 begins at 1. Those below 128 are narrower than 1."""
    bits = np.maximum(values, 0).astype(np.float64).view(np.int64) >> _SHIFT
    return np.asarray(np.maximum(bits - _ZERO, 0))


def bucket_begin(bucket: int) -> int:
    """Return the least whole number in a bucket, or in the next one that can have any."""
    if bucket <= 0:
        return 0
    octave, part = divmod(bucket - 1, PER_OCTAVE)
    # Rounded up, because only whole numbers are counted.
    return -((-(PER_OCTAVE + part) << octave) >> SUB_BITS)


class Distribution:
    """Counts of whole numbers of at least 0; count, sum, min and max are exact, 0 without any."""

    __slots__ = ("_base", "_counts", "count", "max", "min", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0
        self._base = 0
        self._counts = np.zeros(0, dtype=np.int64)

    @classmethod
    def of_rows(
        cls, total: int, least: int, most: int, buckets: NDArray[np.integer], counts: I64
    ) -> "Distribution":
        """buckets: ascending, as `rows` returns them; counts: values in each."""
        found = cls()
        if len(buckets):
            base = int(buckets[0])
            dense = np.zeros(int(buckets[-1]) - base + 1, np.int64)
            dense[buckets - base] = counts
            found._take(int(counts.sum()), total, least, most, base, dense)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the buckets that are not empty, for most are."""
        buckets, counts = self.rows()
        figures = self.sum, self.min, self.max
        return _unpickled, (*figures, buckets.astype(np.int32), counts)

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def add(self, values: I64) -> None:
        """Negative values count as 0."""
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
        if other.count:
            self._take(other.count, other.sum, other.min, other.max, other._base, other._counts)

    def _take(self, count: int, total: int, least: int, most: int, base: int, counts: I64) -> None:
        self.min = min(self.min, least) if self.count else least
        self.max = max(self.max, most)
        self.count += count
        self.sum += total
        if not len(self._counts):
            self._base, self._counts = base, counts.astype(np.int64)
            return
        low = min(base, self._base)
        high = max(base + len(counts), self._base + len(self._counts))
        if high - low > len(self._counts):
            wider = np.zeros(high - low, dtype=np.int64)
            at = self._base - low
            wider[at : at + len(self._counts)] = self._counts
            self._base, self._counts = low, wider
        at = base - self._base
        self._counts[at : at + len(counts)] += counts

    def percentiles(self, shares: Sequence[float], *, low: bool = False) -> list[int]:
        """Return the middle of the bucket at rank ceil(share * count), for each share; else zeros.

        low: the bucket's least value instead, for round numbers such as sizes.
        """
        if not self.count:
            return [0] * len(shares)
        ranks = np.maximum(np.ceil(np.asarray(shares) * self.count - 1e-9), 1)
        at = np.searchsorted(np.cumsum(self._counts), ranks)
        found = []
        for bucket in (at + self._base).tolist():
            begin, end = bucket_begin(bucket), bucket_begin(bucket + 1)
            found.append(min(max(begin if low else (begin + end - 1) // 2, self.min), self.max))
        return found

    def buckets(self) -> list[tuple[int, int, int]]:
        """Return (begin, end, count) of each bucket that is not empty; end is excluded."""
        buckets, counts = (part.tolist() for part in self.rows())
        ends = [(bucket_begin(bucket), bucket_begin(bucket + 1)) for bucket in buckets]
        return [(*both, count) for both, count in zip(ends, counts, strict=True)]

    def rows(self) -> tuple[I64, I64]:
        """Return (buckets, counts) of the buckets that are not empty."""
        rows = np.flatnonzero(self._counts)
        return rows + self._base, self._counts[rows]

    def log2(self) -> list[tuple[int, int, int]]:
        """Return (begin, end, count) by powers of two, without empty ones; end is excluded."""
        first, counts = self.coarse(0)
        return [
            (1 << row >> 1, 1 << row, count) for row, count in enumerate(counts, first) if count
        ]

    def coarse(self, bits: int) -> tuple[int, list[int]]:
        """Return the first row that is not empty, and counts from there: 2**bits rows an octave.

        bits: 0 to SUB_BITS. Row 0 is the value 0; row 1 begins at 1. Without values (0, []).
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


def _unpickled(*row: Any) -> Distribution:
    """A plain function is a name in each pickle; the class method would be looked up anew."""
    return Distribution.of_rows(*row)


Targets = Mapping[int, Distribution] | Sequence[Distribution]


def add_grouped(codes: I64, values: I64, into: Targets, *, negative: bool = True) -> None:
    """Count values by code. negative: whether negative values count, as 0."""
    if not len(values):
        return
    codes, values = np.ascontiguousarray(codes), np.ascontiguousarray(values)
    groups, most = int(codes.max()) + 1, int(values.max())
    width = int(buckets_of(np.array([most]))[0]) + 1
    if groups * width > max(_MOST_CELLS, 4 * len(values)):
        if not negative:
            known = values >= 0
            codes, values = codes[known], values[known]
        _add_sorted(codes, values, into)
        return
    figures = np.zeros((groups, 4), np.int64)
    figures[:, 2] = _NONE
    counts = np.zeros((groups, width), np.int64)
    bits = values.astype(np.float64).view(np.int64)
    loops.count_values(codes, values, bits, figures, counts, negative)
    bounds = buckets_of(figures[:, 2:].reshape(-1)).reshape(-1, 2).tolist()
    for code, (count, total, least, greatest) in enumerate(figures.tolist()):
        if count:
            low, high = bounds[code]
            part = counts[code, low : high + 1]
            into[code]._take(count, total, least, greatest, low, part)


def _add_sorted(codes: I64, values: I64, into: Targets) -> None:
    """Do as `add_grouped`, by sorting the values by code."""
    if not len(values):
        return
    small = int(codes.max()) < _U16  # numpy sorts 16-bit integers by radix
    order = np.argsort(codes.astype(np.uint16) if small else codes, kind="stable")
    ordered = codes[order]
    first = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
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


def sum_by(place: I64, values: NDArray[Any], count: int) -> I64:
    """Return the sum of the values (bool or integers) of each place, (count,)."""
    if count == 1:
        whole = np.count_nonzero(values) if values.dtype == np.bool_ else values.sum(dtype=np.int64)
        return np.array([whole], np.int64)
    if values.dtype == np.bool_:
        return np.bincount(place[values], minlength=count)
    sums = np.zeros(count, np.int64)
    loops.sum_of(place, values.astype(np.int64, copy=False), sums)
    return sums


class Mergeable:
    """Base of dataclasses of figures that add up."""

    def merge(self, other: Self) -> None:
        """Add other figures field by field, but private ones; `other` is not changed."""
        for name, value in vars(other).items():
            if not name.startswith("_"):
                setattr(self, name, plus(getattr(self, name), value))


Figures = TypeVar("Figures")
Name = TypeVar("Name", bound=Hashable)


def plus(mine: Figures | None, more: Figures) -> Figures:
    """Return the sum of two figures; `more` is not changed, nor shared, `mine` may be changed.

    What has a `merge` by that; numbers, arrays and lists by +, dicts and Counters value by value,
    sets and truths by |. None adds nothing.
    """
    if hasattr(more, "merge"):
        whole: Any = type(more)() if mine is None else mine
        whole.merge(more)
        return whole  # type: ignore[no-any-return]
    if isinstance(more, dict):
        into: Any = type(more)() if mine is None else mine
        for key, one in more.items():
            into[key] = plus(into.get(key), one)
        return into  # type: ignore[no-any-return]
    if mine is None or more is None:
        return more if mine is None else mine
    found: Any = mine
    return found | more if isinstance(more, set | bool) else found + more  # type: ignore[no-any-return]


class BySlot(dict[Name, dict[int, Figures]], Generic[Name, Figures]):
    """Name → slot of time → figures, of which `plus` makes sums; empty slots are absent."""

    def add(self, name: Name, slot: int, figures: Figures) -> None:
        slots = self.setdefault(name, {})
        slots[slot] = plus(slots.get(slot), figures)

    def add_all(self, other: "BySlot[Name, Figures]", *, offset: int = 0, factor: int = 1) -> None:
        """Add other slots behind the first `offset`, `factor` of them to each."""
        for name, slots in other.items():
            for slot, figures in slots.items():
                self.add(name, slot // factor + offset, figures)

    def widen(self) -> None:
        for name, slots in self.items():
            self[name] = {}
            for slot, figures in slots.items():
                self.add(name, slot >> 1, figures)
