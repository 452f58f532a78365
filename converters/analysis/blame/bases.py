# SPDX-License-Identifier: Apache-2.0
"""What an I/O of each class takes without company, of each stretch of time and of the log."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Mergeable
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, Bool

STRETCH_NS = 10_000_000_000
"""Least length of a stretch; it doubles while the log has more than MOST_STRETCHES."""
MOST_STRETCHES = 64
BLOCK_NS = STRETCH_NS >> 8
"""Least length of a block of the bootstrap, which doubles likewise. Blocks divide stretches."""
MOST_BLOCKS = 64
ENOUGH = 30
"""I/Os without company from which a stretch has a base of its own, and a class counterfactuals."""
LEAST_ALONE = 3
"""I/Os without company from which a class has a base at all."""
CALM = 10
"""An I/O without company that takes more than so many times the median is no base."""
QUEUE, DEVICE = 0, 1
_OCTAVE = 3
"""log2 of the buckets to each power of two of ns."""
_BUCKETS = 64 << _OCTAVE


class Steps:
    """Equal stretches of time from the first one, which double rather than being too many."""

    def __init__(self, width: int, most: int | None) -> None:
        self.width = width
        self._most = most
        self._first: int | None = None
        self._last = 0

    def reach(self, times: I64) -> int:
        """Extend the steps to all times (ns); return by how many doublings they grew."""
        low, high = int(times.min()), int(times.max())
        self._first = low if self._first is None else min(self._first, low)
        self._last = max(self._last, high)
        grown = 0
        while self._most and self._last // self.width - self._first // self.width >= self._most:
            self.width *= 2
            grown += 1
        return grown

    def of(self, times: I64) -> I64:
        return times // self.width

    def place(self, times: I64) -> I64:
        """Return the place of each time's step from the first one: less than `most`."""
        return times // self.width - (self._first or 0) // self.width

    def begin(self, places: I64) -> I64:
        """Return when the steps at these places begin (ns)."""
        return (places + (self._first or 0) // self.width) * self.width


@dataclass
class _Alone(Mergeable):
    """Times of the I/Os of a class and stretch: count and sum by bucket, (2 parts, buckets)."""

    count: I64 = field(default_factory=lambda: np.zeros((2, _BUCKETS), np.int64))
    total: I64 = field(default_factory=lambda: np.zeros((2, _BUCKETS), np.int64))


class Learner:
    """Gathers the times of I/Os.

    most: stretches of time; None: any number, of which `forget` bounds those kept apart.
    """

    def __init__(self, most: int | None = MOST_STRETCHES) -> None:
        self.stretches = Steps(STRETCH_NS, most)
        self._alone: dict[tuple[int, int], _Alone] = {}
        self._past: dict[int, _Alone] = {}
        self._every: dict[int, _Alone] = {}
        """Class → times of all its I/Os; in part DEVICE: since the completion before."""

    def add(self, kind: I64, queue: I64, times: I64, alone: Bool, gap: I64) -> None:
        """times, alone: (2, n). gap: ns from the completion before on its device, or its issue."""
        if not len(kind):
            return
        grown = self.stretches.reach(queue)
        if grown:
            old, self._alone = self._alone, {}
            for (one, former), found in old.items():
                self._alone.setdefault((one, former >> grown), _Alone()).merge(found)
        step = self.stretches.of(queue)
        for part in (QUEUE, DEVICE):
            rows = np.flatnonzero(alone[part])
            pairs, _, place = distinct_values(kind[rows] << 40 | step[rows])
            keys = [(pair >> 40, pair & (1 << 40) - 1) for pair in pairs.tolist()]
            into = [self._alone.setdefault(key, _Alone()) for key in keys]
            _count(into, place, times[part][rows], part)
            kinds, _, place = distinct_values(kind)
            every = [self._every.setdefault(one, _Alone()) for one in kinds.tolist()]
            _count(every, place, times[QUEUE] if part == QUEUE else gap, part)

    def forget(self, before: int) -> None:
        """Keep the stretches before this one apart no more: they count as a part of all time."""
        for kind, step in [one for one in self._alone if one[1] < before]:
            self._past.setdefault(kind, _Alone()).merge(self._alone.pop((kind, step)))

    def close(self) -> "Bases":
        bases = Bases(self.stretches)
        self.update(bases, self._every)
        return bases

    def update(self, bases: "Bases", kinds: Iterable[int]) -> None:
        """Set the bases of these classes to those of all that was added; no others change."""
        whole: dict[int, _Alone] = {}
        for kind in kinds:
            whole[kind] = _Alone()
            whole[kind].merge(self._past.get(kind, whole[kind]))
        stretches = {key: found for key, found in self._alone.items() if key[0] in whole}
        for (kind, _), found in stretches.items():
            whole[kind].merge(found)
        for kind, mine in whole.items():
            every = self._every[kind]
            # The fallback of QUEUE is a time that a hundredth of the I/Os is below.
            seen = np.cumsum(every.count[QUEUE])
            low = int(np.searchsorted(seen, max(int(seen[-1]) // 100, 1)))
            least = int(every.total[QUEUE, low]) // max(int(every.count[QUEUE, low]), 1)
            bases.limit[kind] = _limit(mine.count[QUEUE]), _limit(mine.count[DEVICE])
            bases.of_log[kind] = (
                _mean(mine, QUEUE, bases.limit[kind][QUEUE])
                or (least, 0),
                _mean(mine, DEVICE, bases.limit[kind][DEVICE])
                or (int(every.total[DEVICE].sum() // max(every.count[DEVICE].sum(), 1)), 0),
            )  # fmt: skip
        for (kind, step), found in stretches.items():
            for part in (QUEUE, DEVICE):
                mean = _mean(found, part, bases.limit[kind][part])
                if mean is not None and mean[1] >= ENOUGH:
                    bases.of_stretch[kind, step, part] = mean


@dataclass
class Bases:
    """Bases by class: (ns, I/Os without company that it rests on; 0: on the fallback)."""

    stretches: Steps
    of_log: dict[int, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    """Class → bases of QUEUE and DEVICE."""
    of_stretch: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    """(class, stretch, part) → base, where the stretch has ENOUGH I/Os without company."""
    limit: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Class → greatest bucket of QUEUE and DEVICE that counts for bases."""

    def of(self, kind: I64, queue: I64) -> I64:
        found = np.zeros((2, len(kind)), np.int64)
        if not len(kind):
            return found
        pairs, _, place = distinct_values(kind << 40 | self.stretches.of(queue))
        for part in (QUEUE, DEVICE):
            values = []
            for pair in pairs.tolist():
                one, step = pair >> 40, pair & (1 << 40) - 1
                values.append(self.of_stretch.get((one, step, part), self.of_log[one][part])[0])
            found[part] = np.array(values, np.int64)[place]
        return found

    def sources(self, kind: I64, queue: I64) -> Counter[str]:
        """Count from what the bases of I/Os in the device come."""
        pairs, _, place = distinct_values(kind << 40 | self.stretches.of(queue))
        counts = np.bincount(place, minlength=len(pairs)).tolist()
        found = Counter[str]()
        for pair, count in zip(pairs.tolist(), counts, strict=True):
            one, step = pair >> 40, pair & (1 << 40) - 1
            here = (one, step, DEVICE) in self.of_stretch
            source = "log" if self.of_log[one][DEVICE][1] else "substitute"
            found["stretch" if here else source] += count
        return found

    def counts(self, kind: I64, times: I64, alone: Bool) -> Bool:
        """Mark what counts for bases, (2, n): alone in the part, and not beyond its limit."""
        kinds, _, place = distinct_values(kind)
        limits = np.array([self.limit[one] for one in kinds.tolist()], np.int64).reshape(-1, 2)
        return np.asarray(alone & (_buckets(times) <= limits[place].T), np.bool_)


def _count(into: list[_Alone], place: I64, times: I64, part: int) -> None:
    if not len(times):
        return
    at = place * _BUCKETS + _buckets(times)
    shape = (len(into), _BUCKETS)
    counts = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape)
    sums = np.bincount(at, times, minlength=shape[0] * shape[1]).reshape(shape)
    for row, one in enumerate(into):
        one.count[part] += counts[row]
        one.total[part] += np.rint(sums[row]).astype(np.int64)


def _buckets(times: I64) -> I64:
    bits = np.maximum(times, 1).astype(np.float64).view(np.int64)
    return np.asarray((bits >> 52 - _OCTAVE) - (1023 << _OCTAVE), np.int64)


def _limit(count: I64) -> int:
    """Return the greatest bucket within CALM times the median of counts by bucket."""
    seen = np.cumsum(count)
    if not seen[-1]:
        return _BUCKETS
    middle = int(np.searchsorted(seen, (seen[-1] + 1) // 2))
    return middle + int(np.log2(CALM) * (1 << _OCTAVE))


def _mean(found: _Alone, part: int, limit: int) -> tuple[int, int] | None:
    """Return (mean, number) of the times up to a bucket; None: they are too few."""
    number = int(found.count[part, : limit + 1].sum())
    if number < LEAST_ALONE:
        return None
    return int(found.total[part, : limit + 1].sum()) // number, number
