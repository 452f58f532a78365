# SPDX-License-Identifier: Apache-2.0
"""Counters over time: levels, and rates in bins.

Few changes of a level are a sample each. A bin with more changes is thinned to a sample at its
start with the highest level in it, so that short peaks show, and one at its end with the level it
came to. A sample that repeats the value before is left out.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, Bool

LEVEL_BIN = 1_000_000
"""ns: length of a level's bins, unless the level has its own."""
RATE_BIN = 10_000_000
"""ns: length of a rate's bins."""
_SHORT_BINS = (100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000)
"""ns: bins for the throughput of a short trace, the first that is few enough for it."""
_ENOUGH_BINS = 50
"""Most bins of a short trace; a trace of more than so many RATE_BINs has RATE_BIN."""
READ_OPS, WRITE_OPS = frozenset({"read"}), frozenset({"write", "zone_append"})
"""Operations whose completed bytes are a device's read and write throughput."""

QUANTILES = (0.5, 0.99)
"""Of the latencies in a bin, by nearest rank: of 10 I/Os, the 99th percentile is the longest."""
_LATENCY_BITS = 40
"""Of a latency beside a bin's number in 63: 18 minutes; longer ones count as that."""
_LONGEST = (1 << _LATENCY_BITS) - 1

Samples = tuple[I64, NDArray[np.float64]]
"""Times (ns) and values, shape (n,) each."""


_NO_TIMES: I64 = np.zeros(0, dtype=np.int64)
_NO_SAMPLES: Samples = (_NO_TIMES, np.zeros(0))


def _joined(*parts: Samples) -> Samples:
    times, values = zip(*parts, strict=True)
    return np.concatenate(times), np.concatenate(values)


@dataclass
class Level:
    """A count that changes by steps of +1 and -1, such as bios in flight."""

    origin: int
    """ns: time of the first sample, so that the counter shows even if nothing changes."""
    bin: int = LEVEL_BIN
    """Length of a bin, ns."""
    few: int = 0
    """Most moments of change in a bin that are a sample each; a bin with more is thinned."""
    last: float | None = None
    """Value of the last sample; None: no sample yet."""
    _level: int = 0
    """The level after the steps that are samples already."""
    times: I64 = field(default_factory=_NO_TIMES.copy)
    """Times (ns, sorted) of the steps that are not samples yet."""
    _steps: I64 = field(default_factory=_NO_TIMES.copy)
    """Per time: +1 or -1."""
    _rest: Samples = _NO_SAMPLES
    """The sample, if any, that is due at the start of a bin unless that is thinned, too."""

    def update(self, up: I64, down: I64, until: int) -> Samples:
        """Take in new steps, and return the samples of all bins that ended by `until`.

        up, down: times (ns) of steps +1 and -1, in any order. until: ns, never less than before;
        all steps before it are known now. Those in its bin are held back. Samples are sorted, one
        per time, none repeats the level before. A bin with at most `few` times of change gives a
        sample for each; a bin with more its highest level at its start and its final level at its
        end, unless the next has more, too. The first sample ever is a 0 at `origin`, unless the
        level changes there.
        """
        # Sorted by time, and at one time steps of +1 before those of -1.
        rises = self._steps > 0
        times = np.concatenate([self.times[rises], up, self.times[~rises], down])
        order = np.argsort(times, kind="stable")
        risen = np.count_nonzero(rises) + len(up)
        self.times, self._steps = times[order], np.where(order < risen, 1, -1)
        before = until // self.bin
        samples = self._pop(before)
        if (self._rest[0] < before * self.bin).all():
            samples, self._rest = _joined(self._rest, samples), _NO_SAMPLES
        return self._without_repeats(samples, begun=before * self.bin > self.origin)

    def finish(self, end: int) -> Samples:
        """Return the samples that were held back; none is after `end`, the trace's (ns)."""
        samples = self._pop(int(self.times.max(initial=end)) // self.bin + 1)
        samples = _joined(samples, self._rest)
        return self._without_repeats((np.minimum(samples[0], end), samples[1]), begun=True)

    def _pop(self, before: int) -> Samples:
        """Remove the steps in bins (time // `bin`) below `before`; return their samples, unordered.

        The rest of a thinned bin is left out where the next bin is thinned too; that of the last
        one is put in `_rest`.
        """
        ready = int(np.searchsorted(self.times, before * self.bin))
        if not ready:
            return _NO_SAMPLES
        times, steps = self.times[:ready], self._steps[:ready]
        self.times, self._steps = self.times[ready:], self._steps[ready:]
        after = self._level + np.cumsum(steps)
        numbers = times // self.bin
        first = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        bins = numbers[first]
        level_before = np.concatenate([[self._level], after])[first]
        self._level = int(after[-1])
        peak = np.maximum(np.maximum.reduceat(after, first), level_before)
        rest = after[np.append(first[1:], ready) - 1].astype(float)
        moments = np.flatnonzero(np.diff(times, append=times[-1] + 1))
        many = np.diff(np.searchsorted(moments, np.append(first, ready))) > self.few
        exact = moments[~many[np.searchsorted(bins, times[moments] // self.bin)]]
        exactly = times[exact], after[exact].astype(float)
        thinned, rest = bins[many], rest[many]
        early, self._rest = self._rest, _NO_SAMPLES
        if not len(thinned):
            return _joined(early, exactly)
        if (early[0] == thinned[0] * self.bin).any():
            early = _NO_SAMPLES
        self._rest = (thinned[-1:] + 1) * self.bin, rest[-1:]
        ends = np.flatnonzero(np.diff(thinned) > 1)
        stops = (thinned[ends] + 1) * self.bin, rest[ends]
        return _joined(early, stops, (thinned * self.bin, peak[many].astype(float)), exactly)

    def _without_repeats(self, samples: Samples, begun: bool) -> Samples:
        """Return samples sorted, the last one per time, without repeats of the level before.

        samples: in order where times are equal; times before `origin` are moved to it. begun:
        whether a bin has ended: before, a step at the origin itself may still come.
        """
        at, value = samples
        at = np.maximum(at, self.origin)
        order = np.argsort(at, kind="stable")
        at, value = at[order], value[order]
        if self.last is None and begun and (not len(at) or at[0] > self.origin):
            at, value = np.append(self.origin, at), np.append(0.0, value)
        final = np.diff(at, append=at[-1:] + 1) > 0
        found, self.last = _changes((at[final], value[final]), self.last)
        return found


def _changes(samples: Samples, last: float | None) -> tuple[Samples, float | None]:
    """Return the samples that differ from the one before (`last`; None: none), and the last."""
    at, value = samples
    if not len(value):
        return samples, last
    new = value != np.concatenate([[np.nan if last is None else last], value[:-1]])
    return (at[new], value[new]), float(value[-1])


@dataclass
class _Steps:
    """Turns values of bins that need not adjoin into samples, with a zero where a gap begins."""

    origin: int
    """ns: time of the first sample."""
    last: float | None = None
    """Value of the last sample; None: no sample yet."""
    _rest: int | None = None
    """End of the last bin (ns), where a sample of zero is due unless the next bin begins there."""

    def samples(
        self, begin: I64, stops: I64, value: NDArray[np.float64], until: int = -1
    ) -> Samples:
        """Return the bins' samples, with a zero after each bin that the next one does not adjoin.

        begin, stops, value: per bin, sorted, its begin and end (ns) and its value. The zero after
        the last bin is held back, unless that one ended before `until` (ns). The first sample ever
        is at `origin`. None repeats the value before.
        """
        since = self.origin if self._rest is None else self._rest
        gap = np.append(since, stops[:-1])[: len(begin)]
        idle = gap < begin
        at = np.concatenate([gap[idle], begin])
        found = np.concatenate([np.zeros(int(idle.sum())), value])
        order = np.argsort(at, kind="stable")
        at, found = at[order], found[order]
        if self.last is None and not len(at):
            at, found = np.array([self.origin]), np.zeros(1)
        if len(begin):
            self._rest = int(stops[-1])
        if self._rest is not None and self._rest < until:
            at, found = np.append(at, self._rest), np.append(found, 0.0)
        samples, self.last = _changes((at, found), self.last)
        return samples


@dataclass
class Rate:
    """Bytes per second, in bins of RATE_BIN."""

    origin: int
    """ns: a multiple of RATE_BIN; nothing is before it."""
    _times: I64 = field(default_factory=_NO_TIMES.copy)
    _bytes: I64 = field(default_factory=_NO_TIMES.copy)

    def __post_init__(self) -> None:
        self._steps = _Steps(self.origin)

    def update(self, times: I64, moved: I64, until: int) -> Samples:
        """Take in completions, and return the rate (bytes/s) of each bin that ended by `until`.

        times (ns), moved (bytes): in any order; until: ns; all completions before it are known.
        Those in its bin are held back. A sample is at the start of each bin with bytes, a zero
        where a bin without follows, none repeats the value before. The first ever is at `origin`.
        """
        times = np.concatenate([self._times, times])
        moved = np.concatenate([self._bytes, moved])
        edge = until - until % RATE_BIN
        ready = times < edge
        self._times, self._bytes = times[~ready], moved[~ready]
        if edge <= self.origin:  # bytes at the origin itself may still come
            return _NO_SAMPLES
        bins, where = np.unique(times[ready] // RATE_BIN, return_inverse=True)
        total = np.bincount(where, weights=moved[ready], minlength=len(bins))
        begin = bins * RATE_BIN
        return self._steps.samples(begin, begin + RATE_BIN, total * 1e9 / RATE_BIN, edge)


@dataclass
class Binned:
    """Figures of bins within a trace, which begin with it, and of which the last ends with it.

    They are bytes per second or, of latencies (ns), QUANTILES. Bins have 10 ms in a trace of half a
    second or more, and less in a shorter one, whose samples are held back until its length is
    known.
    """

    origin: int
    """Begin of the trace, ns."""
    latency: bool = False
    """Whether amounts are latencies, ns; else bytes."""
    _bin: int = 0
    """Length of a bin, ns; 0: not known yet."""
    _times: I64 = field(default_factory=_NO_TIMES.copy)
    """Times (ns) of the completions that are not samples yet, or of the bins that these were added
    up in."""
    _amounts: I64 = field(default_factory=_NO_TIMES.copy)

    def __post_init__(self) -> None:
        figures = len(QUANTILES) if self.latency else 1
        self._steps = [_Steps(self.origin) for _ in range(figures)]

    def update(self, times: I64, amounts: I64, until: int) -> list[Samples]:
        """Take in completions, and return per figure the samples of each bin that ended by `until`.

        times (ns), amounts: in any order; until: ns; all completions before it are known. A sample
        is at the start of each bin with completions, a zero where a bin without follows. The first
        ever is at `origin`. None repeats the value before.
        """
        self._times = np.concatenate([self._times, times])
        self._amounts = np.concatenate([self._amounts, amounts])
        if not self._bin and until - self.origin < _ENOUGH_BINS * RATE_BIN:
            if not self.latency:  # bounds the memory: the finest bins add up to any other
                finest = _SHORT_BINS[0]
                bins, where = np.unique((self._times - self.origin) // finest, return_inverse=True)
                total = np.bincount(where, weights=self._amounts, minlength=len(bins))
                self._times, self._amounts = self.origin + bins * finest, total.astype(np.int64)
            return [_NO_SAMPLES] * len(self._steps)
        self._bin = RATE_BIN
        # The newest whole bin is held back: the trace's last bin takes in the fraction after it.
        before = self.origin + ((until - self.origin) // self._bin - 1) * self._bin
        return self._pop(self._times < before, until)

    def finish(self, end: int) -> list[Samples]:
        """Return the samples held back, per figure. end: the trace's, ns.

        A trace shorter than 0.5 s gets its length of bins now: the shortest of `_SHORT_BINS` of
        which 50 span it. Their number is rounded; the last one ends at `end`. A zero follows the
        last bin with completions, unless that ends there.
        """
        length = max(end - self.origin, 1)
        self._bin = self._bin or next(
            (size for size in _SHORT_BINS if size * _ENOUGH_BINS >= length), RATE_BIN
        )
        count = max((length + self._bin // 2) // self._bin, 1)
        return self._pop(np.ones(len(self._times), dtype=np.bool_), end, count, end)

    def _pop(self, ready: Bool, end: int, count: int = 1 << 62, until: int = -1) -> list[Samples]:
        """Remove the completions in `ready` from those that are held; return their samples.

        count: of bins in the trace, of which the last ends at `end` (ns) and takes in later
        completions, the first earlier ones; without it the trace goes on. until: as for
        `_Steps.samples`.
        """
        place = np.clip((self._times[ready] - self.origin) // self._bin, 0, count - 1)
        amounts = self._amounts[ready]
        self._times, self._amounts = self._times[~ready], self._amounts[~ready]
        bins = np.unique(place)
        begin = self.origin + bins * self._bin
        stops = np.where(bins == count - 1, np.maximum(end, begin + 1), begin + self._bin)
        if self.latency and len(bins):  # sorted by bin, then by latency
            first = int(bins[0])
            capped = np.minimum(amounts, _LONGEST)
            ordered = np.sort((place - first) << _LATENCY_BITS | capped)
            edges = np.searchsorted(ordered, (bins - first) << _LATENCY_BITS)
            number = np.diff(edges, append=len(ordered))
            ranks = [np.ceil(quantile * number).astype(np.int64) - 1 for quantile in QUANTILES]
            figures = [
                (ordered[edges + np.maximum(rank, 0)] & _LONGEST).astype(np.float64)
                for rank in ranks
            ]
        elif self.latency:
            figures = [np.zeros(0)] * len(QUANTILES)
        else:
            moved = np.bincount(np.searchsorted(bins, place), weights=amounts, minlength=len(bins))
            figures = [moved / ((stops - begin) / 1e9)]
        found = zip(self._steps, figures, strict=True)
        return [steps.samples(begin, stops, values, until) for steps, values in found]
