# SPDX-License-Identifier: Apache-2.0
"""What an I/O of each class takes without company, of each stretch of time and of the log."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.blame.company import Batch, others_work
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import FAR, I64, Bool

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


@dataclass
class Steps:
    """Equal stretches of time from the first one, which double rather than being too many."""

    width: int
    most: int | None
    first: int = FAR
    """ns of the first of all times that the steps were extended to."""
    last: int = 0

    def reach(self, times: I64) -> int:
        """Extend the steps to all times (ns); return by how many doublings they grew."""
        self.first = min(self.first, int(times.min()))
        self.last = max(self.last, int(times.max()))
        grown = 0
        while self.most and self.last // self.width - self.first // self.width >= self.most:
            self.width *= 2
            grown += 1
        return grown


_NO_TIMES: I64 = np.zeros((2, 2, _BUCKETS), np.int64)
"""Times of a class and stretch: (count and sum, 2 parts, buckets)."""
_NO_TIMES.setflags(write=False)


class Learner:
    """Gathers times of I/Os. most: stretches of time; None: any number, for `forget` to bound."""

    def __init__(self, most: int | None = MOST_STRETCHES) -> None:
        self.stretches = Steps(STRETCH_NS, most)
        self._alone = defaultdict[tuple[int, int], I64](_NO_TIMES.copy)
        """(class, stretch) → times of its I/Os without company."""
        self._past = defaultdict[int, I64](_NO_TIMES.copy)
        self.every = defaultdict[int, I64](_NO_TIMES.copy)
        """Class → times of all its I/Os; in part DEVICE: since the completion before."""

    def add(self, batch: Batch, runs: Bool | None = None) -> None:
        """runs: I/Os of which bases may be made."""
        ios, served = batch.ios, batch.served
        nobody = np.zeros(len(served), np.int64)
        for rows, queue_work, device_work in others_work(
            batch, np.arange(len(ios)), nobody, nobody + 1, 1
        ):
            columns = ios.kind, ios.queue, ios.issue, ios.complete
            kind, queue, issue, complete = (column[rows] for column in columns)
            ends = np.sort(served.end[served.dev == ios.dev[rows[0]]], kind="stable")
            at = np.searchsorted(ends, complete) - 1
            last = np.zeros_like(complete)
            if len(ends):
                last = np.where(at >= 0, ends[np.maximum(at, 0)], 0)
            # From the completion before on the device, or its issue.
            gap = complete - np.clip(last, issue, complete)
            grown = self.stretches.reach(queue)
            if grown:
                old, self._alone = self._alone, defaultdict(_NO_TIMES.copy)
                for (one, former), found in old.items():
                    self._alone[one, former >> grown] += found
            stretch = kind << 40 | queue // self.stretches.width
            kinds, _, place_of_kind = distinct_values(kind)
            for part, work, times, since in (
                (QUEUE, queue_work, issue - queue, issue - queue),
                (DEVICE, device_work, complete - issue, gap),
            ):
                alone = work[:, 0] == 0
                if runs is not None:
                    alone &= runs[rows]
                pairs, _, place = distinct_values(stretch[alone])
                keys = [(pair >> 40, pair & (1 << 40) - 1) for pair in pairs.tolist()]
                _count([self._alone[key] for key in keys], place, times[alone], part)
                _count([self.every[one] for one in kinds.tolist()], place_of_kind, since, part)

    def forget(self, before: int) -> None:
        """Keep the stretches before this one apart no more: they count as a part of all time."""
        for kind, step in [one for one in self._alone if one[1] < before]:
            self._past[kind] += self._alone.pop((kind, step))

    def update(self, bases: "Bases", kinds: Iterable[int]) -> None:
        """Set the bases of these classes to those of all that was added; no others change."""
        whole = {kind: self._past.get(kind, 0) + _NO_TIMES for kind in kinds}
        stretches = {key: found for key, found in self._alone.items() if key[0] in whole}
        for (kind, _), found in stretches.items():
            whole[kind] += found
        for kind, mine in whole.items():
            count, total = self.every[kind]
            # The fallback of QUEUE is a time that a hundredth of the I/Os is below.
            seen = np.cumsum(count[QUEUE])
            low = int(np.searchsorted(seen, max(int(seen[-1]) // 100, 1)))
            least = int(total[QUEUE, low]) // max(int(count[QUEUE, low]), 1)
            bases.limit[kind] = _limit(mine[0, QUEUE]), _limit(mine[0, DEVICE])
            bases.of_log[kind] = (
                _mean(mine, QUEUE, bases.limit[kind][QUEUE])
                or (least, 0),
                _mean(mine, DEVICE, bases.limit[kind][DEVICE])
                or (int(total[DEVICE].sum() // max(count[DEVICE].sum(), 1)), 0),
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

    def of(self, kind: I64, queue: I64) -> tuple[I64, I64]:
        """Return (bases (2, n), what that of DEVICE comes from (n,): its place in BASES)."""
        pairs, _, place = distinct_values(kind << 40 | queue // self.stretches.width)
        found, sources = np.zeros((2, len(pairs)), np.int64), np.zeros(len(pairs), np.int64)
        for row, pair in enumerate(pairs.tolist()):
            one, step = pair >> 40, pair & (1 << 40) - 1
            for part in (QUEUE, DEVICE):
                of_log = self.of_log[one][part]
                here = self.of_stretch.get((one, step, part))
                found[part, row] = (here or of_log)[0]
                sources[row] = 0 if here else 1 if of_log[1] else 2
        return found.take(place, 1), sources[place]

    def counts(self, kind: I64, times: I64, alone: Bool) -> Bool:
        """Mark what counts for bases, (2, n): alone in the part, and not beyond its limit."""
        kinds, _, place = distinct_values(kind)
        limits = np.array([self.limit[one] for one in kinds.tolist()], np.int64).reshape(-1, 2)
        return np.asarray(alone & (_buckets(times) <= limits[place].T), np.bool_)


def _count(into: list[I64], place: I64, times: I64, part: int) -> None:
    shape = (len(into), _BUCKETS)
    at = place * _BUCKETS + _buckets(times)
    counts = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape)
    sums = np.bincount(at, times, minlength=shape[0] * shape[1]).reshape(shape)
    for row, one in enumerate(into):
        one[0, part] += counts[row]
        one[1, part] += np.rint(sums[row]).astype(np.int64)


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


def _mean(times: I64, part: int, limit: int) -> tuple[int, int] | None:
    """Return (mean, number) of the times up to a bucket; None: they are too few."""
    number, total = (int(ns) for ns in times[:, part, : limit + 1].sum(axis=1))
    return (total // number, number) if number >= LEAST_ALONE else None
