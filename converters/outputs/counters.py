# SPDX-License-Identifier: Apache-2.0
"""Counters over time: levels, and rates in bins.

Few changes of a level are a sample each. A bin with more changes is thinned to a sample at its
start with the highest level in it, so that short peaks show, and one at its end with the level it
came to. A sample that repeats the value before is left out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64

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

_LATENCY_BITS = 40
"""Of a latency beside a bin's number in 63: 18 minutes; longer ones count as that."""
_LONGEST = (1 << _LATENCY_BITS) - 1

Samples = tuple[I64, NDArray[np.float64]]
"""Times (ns) and values, shape (n,) each."""


def _none() -> I64:
    """Return no times."""
    return np.zeros(0, dtype=np.int64)


def _no_samples() -> Samples:
    """Return empty Samples."""
    return _none(), np.zeros(0)


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
    _times: I64 = field(default_factory=_none)
    """Times (ns, sorted) of the steps that are not samples yet."""
    _steps: I64 = field(default_factory=_none)
    """Per time: +1 or -1."""
    _rest: tuple[int, float] | None = None
    """(bin, level) of a sample that is due at that bin's start, unless that bin is thinned, too."""

    @property
    def held(self) -> int:
        """Number of steps that are not samples yet."""
        return len(self._times)

    def update(self, up: I64, down: I64, until: int) -> Samples:
        """Take in new steps, and return the samples of all bins that ended by `until`.

        up, down: times (ns, int64) of steps +1 and -1, in any order. until: ns; all steps before it
        are known now, and `until` never decreases from call to call. Steps in the bin that `until`
        is in are held back for a later call.

        Returns (times in ns, levels), sorted by time, one per time, without samples that repeat the
        level before; empty where nothing changed. A bin with at most `few` times of change gives a
        sample for each; a bin with more its highest level at its start and its final level at its
        end, unless the next bin has more, too. The first sample ever is a 0 at `origin`, unless the
        level changes there.
        """
        self._add(up, down)
        before = until // self.bin
        samples = self._pop(before)
        if self._rest is not None and self._rest[0] < before:
            samples = _joined(self._pop_rest(), samples)
        return self._without_repeats(samples, begun=before * self.bin > self.origin)

    def finish(self, end: int) -> Samples:
        """Return the samples that were held back: (times in ns, levels), sorted by time.

        Without those that repeat the level before. end: the trace's, ns; samples after it are moved
        to it. No steps may follow.
        """
        samples = self._pop(int(self._times.max(initial=end)) // self.bin + 1)
        if self._rest is not None:
            samples = _joined(samples, self._pop_rest())
        return self._without_repeats((np.minimum(samples[0], end), samples[1]), begun=True)

    def _add(self, up: I64, down: I64) -> None:
        """Merge steps at `up` (+1) and `down` (-1), in ns, into `_times` and `_steps`.

        Both stay sorted by time, at one time steps of +1 before those of -1.
        """
        rises = self._steps > 0
        times = np.concatenate([self._times[rises], up, self._times[~rises], down])
        order = np.argsort(times, kind="stable")
        risen = np.count_nonzero(rises) + len(up)
        self._times, self._steps = times[order], np.where(order < risen, 1, -1)

    def _pop(self, before: int) -> Samples:
        """Remove the steps in bins below `before` from `_times` and `_steps`; return their samples.

        before: number of a bin (time // `bin`). Sets `_level` to the level after these steps. A bin
        with steps at no more than `few` different times gives a sample per time; one with more is
        thinned to a sample of its highest level, also that before it, at its start, and one of its
        final level at its end. The latter is left out where the next bin is thinned too; that of
        the last thinned bin is put in `_rest`. Samples are in no order; empty without steps in
        these bins.
        """
        ready = int(np.searchsorted(self._times, before * self.bin))
        if not ready:
            return _no_samples()
        times, steps = self._times[:ready], self._steps[:ready]
        self._times, self._steps = self._times[ready:], self._steps[ready:]
        after = self._level + np.cumsum(steps)
        numbers = times // self.bin
        first = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        bins = numbers[first]
        level_before = np.concatenate([[self._level], after])[first]
        self._level = int(after[-1])
        peak = np.maximum(np.maximum.reduceat(after, first), level_before)
        rest = after[np.append(first[1:], ready) - 1]
        moments = np.flatnonzero(np.diff(times, append=times[-1] + 1))
        many = np.diff(np.searchsorted(moments, np.append(first, ready))) > self.few
        exact = moments[~many[np.searchsorted(bins, times[moments] // self.bin)]]
        rests = self._rests(bins[many], rest[many].astype(float))
        starts: I64 = bins[many] * self.bin
        thin = _joined(rests, (starts, peak[many].astype(float)))
        return _joined(thin, (times[exact], after[exact].astype(float)))

    def _rests(self, bins: I64, level: NDArray[np.float64]) -> Samples:
        """Return a sample (time in ns) at the end of each thinned bin that no other one follows.

        bins, level: numbers of the bins that are thinned now, sorted, and the level at the end of
        each. A thinned bin is one of which only the highest and final level are kept. The sample of
        the last of `bins` becomes `_rest`; that of an earlier call, in `_rest` until now, is
        returned first, or dropped where `bins` begins with the bin that it is due at. Without
        `bins` only that one is returned, and `_rest` becomes None.
        """
        if not len(bins):
            return self._pop_rest()
        due = self._rest
        if due is not None and due[0] == bins[0]:
            self._rest = None
        early = self._pop_rest()
        ends = np.flatnonzero(np.diff(bins) > 1)
        self._rest = int(bins[-1]) + 1, float(level[-1])
        stops: I64 = (bins[ends] + 1) * self.bin
        return _joined(early, (stops, level[ends]))

    def _pop_rest(self) -> Samples:
        """Return the sample (time in ns, level) that is held back in `_rest`, and clear `_rest`.

        Empty where `_rest` is None.
        """
        rest, self._rest = self._rest, None
        if rest is None:
            return _no_samples()
        return np.array([rest[0] * self.bin], dtype=np.int64), np.array([rest[1]])

    def _without_repeats(self, samples: Samples, begun: bool) -> Samples:
        """Return samples sorted, the last one per time, without repeats of the level before.

        samples: (times in ns, levels), in order where times are equal; times before `origin` are
        moved to `origin`. begun: whether a bin has ended, so that a level of 0 at `origin` is
        known: then that is the first sample ever, unless another is at `origin`. Sets `last` to the
        last level returned; unchanged where none is.
        """
        at, value = samples
        at = np.maximum(at, self.origin)
        order = np.argsort(at, kind="stable")
        at, value = at[order], value[order]
        # Before the first bin has ended, a step at the origin itself may still come.
        if self.last is None and begun and (not len(at) or at[0] > self.origin):
            at, value = np.append(self.origin, at), np.append(0.0, value)
        final = np.diff(at, append=at[-1:] + 1) > 0
        at, value = at[final], value[final]
        previous = np.concatenate([[np.nan if self.last is None else self.last], value[:-1]])
        new = value != previous[: len(value)]
        self.last = float(value[-1]) if len(value) else self.last
        return at[new], value[new]


def _joined(*parts: Samples) -> Samples:
    """Return the samples of all parts, one part behind the other."""
    times, values = zip(*parts, strict=True)
    return np.concatenate(times), np.concatenate(values)


@dataclass
class _Series:
    """Turns peaks and rests of bins into samples; holds back what a later window can change."""

    bin: int
    """Length of a bin, ns."""
    origin: int
    """ns: time of a first sample of zero, so that the counter shows even if nothing changes."""
    last: float | None = None
    """Value of the last sample; None: no sample yet."""
    _rest: tuple[int, float] | None = None
    """(bin, value) of a sample that is due at that bin's start, unless that bin has a peak."""

    def samples(
        self, bins: I64, peak: NDArray[np.float64], rest: NDArray[np.float64], before: int
    ) -> Samples:
        """Return the samples of bins that ended: (times in ns, values), sorted, without repeats.

        bins: numbers of bins (time // `bin`), sorted and distinct, all below `before`, the number
        of the first bin that has not ended. peak: per bin of `bins`, its value, a sample at its
        start. rest: per bin, the value from its end on, a sample there unless the next bin is in
        `bins` too. The last bin's `rest` waits in `_rest` for the next call where bin `before` may
        be such a bin. The first sample ever is a 0 at `origin`, unless one is due there. Sets
        `last` to the last value returned.
        """
        at, value = bins, peak
        if self._rest is not None:
            bins = np.concatenate([[self._rest[0] - 1], bins])
            rest = np.concatenate([[self._rest[1]], rest])
        next_bin = np.append(bins[1:], before)
        settles = next_bin > bins + 1
        at = np.concatenate([at, bins[settles] + 1])
        value = np.concatenate([value, rest[settles]])
        order = np.argsort(at, kind="stable")
        at, value = at[order], value[order]
        self._rest = None
        if len(bins) and not settles[-1]:
            self._rest = (int(bins[-1]) + 1, float(rest[-1]))
        at *= self.bin
        # Before the first bin has ended, a value at the origin itself may still come.
        begun = before * self.bin > self.origin
        if self.last is None and begun and (not len(at) or at[0] > self.origin):
            at, value = np.append(self.origin, at), np.append(0.0, value)
        previous = np.concatenate([[np.nan if self.last is None else self.last], value[:-1]])
        new = value != previous
        self.last = float(value[-1]) if len(value) else self.last
        return at[new], value[new]


@dataclass
class Rate:
    """Megabytes (10^6 bytes) per second, in bins of RATE_BIN."""

    origin: int
    _times: I64 = field(default_factory=_none)
    _bytes: I64 = field(default_factory=_none)

    def __post_init__(self) -> None:
        self._series = _Series(RATE_BIN, self.origin)

    def update(self, times: I64, moved: I64, until: int) -> Samples:
        """Take in completions, and return the rate (MB/s) of each bin that ended by `until`.

        times (ns), moved (bytes): completions, in any order; until: ns; all completions before it
        are known. A bin has RATE_BIN ns. Completions in the bin that `until` is in are held back
        for the next call.

        Returns (times in ns, MB/s): a sample at the start of each bin with bytes, a zero where a
        bin without bytes follows, and none that repeats the value before. The first sample ever is
        a 0 at `origin`, unless a bin with bytes begins there or earlier.
        """
        times = np.concatenate([self._times, times])
        moved = np.concatenate([self._bytes, moved])
        whole = until // RATE_BIN
        ready = times < whole * RATE_BIN
        self._times, self._bytes = times[~ready], moved[~ready]
        bins, where = np.unique(times[ready] // RATE_BIN, return_inverse=True)
        total = np.bincount(where, weights=moved[ready], minlength=len(bins))
        value = total / 1e6 / (RATE_BIN / 1e9)
        return self._series.samples(bins, value, np.zeros(len(bins)), whole)


@dataclass
class _Steps:
    """Turns values of bins that need not adjoin into samples, with a zero where a gap begins."""

    origin: int
    """Begin of the trace, ns."""
    last: float | None = None
    """Value of the last sample; None: no sample yet."""
    _rest: int | None = None
    """End of the last bin (ns), where a sample of zero is due unless the next bin begins there."""

    def samples(self, begin: I64, stops: I64, value: NDArray[np.float64]) -> Samples:
        """Return the bins' samples, with a zero after each bin that the next one does not adjoin.

        begin, stops, value: per bin, sorted, its begin and end (ns) and its value. The zero after
        the last bin is held back. One held back by an earlier call comes first, unless the first
        bin begins there; without bins it stays held back. The first sample ever is at `origin`, a
        zero where no bin begins there. Returns (times in ns, values), without samples that repeat
        the value before.
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
        previous = np.concatenate([[np.nan if self.last is None else self.last], found[:-1]])
        new = found != previous[: len(found)]
        if len(begin):
            self._rest = int(stops[-1])
        self.last = float(found[-1]) if len(found) else self.last
        return at[new], found[new]

    def finish(self, samples: Samples, end: int) -> Samples:
        """Return the last samples with the zero that was held back, if that is before the end."""
        at, value = samples
        if self._rest is not None and self._rest < end and self.last:
            at, value = np.append(at, self._rest), np.append(value, 0.0)
        return at, value


@dataclass
class _Binned(ABC):
    """Figures of bins within a trace: they begin with it, and the last one ends with it.

    Bins have 10 ms in a trace of half a second or more, and less in a shorter one, whose samples
    are held back until its length is known. A subclass says what the figures are.
    """

    FIGURES: ClassVar[int] = 1
    """Figures of a bin."""
    origin: int
    """Begin of the trace, ns."""
    _bin: int = 0
    """Length of a bin, ns; 0: not known yet."""
    _times: I64 = field(default_factory=_none)
    """Times (ns) of the completions that are not samples yet, or of the bins that these were added
    up in."""
    _amounts: I64 = field(default_factory=_none)
    """Their bytes or latencies (ns)."""

    def __post_init__(self) -> None:
        """Begin a series for each figure of a bin."""
        self._series = [_Steps(self.origin) for _ in range(self.FIGURES)]

    def update_all(self, times: I64, amounts: I64, until: int) -> list[Samples]:
        """Take in completions, and return the samples of each bin that ended by `until`.

        times (ns), amounts: completions, in any order; until: ns; all completions before it are
        known. The newest whole bin is held back, as the trace's last bin takes in the fraction
        after it. While less than 0.5 s of the trace are known, nothing is returned, as the length
        of bins follows from the trace's length.

        Returns per figure (times in ns, values): a sample at the start of each bin with
        completions, a zero where a bin without them follows, and none that repeats the value
        before. The first sample ever is at `origin`, a zero where the first bin has no completion.
        """
        self._times = np.concatenate([self._times, times])
        self._amounts = np.concatenate([self._amounts, amounts])
        if not self._bin and until - self.origin < _ENOUGH_BINS * RATE_BIN:
            self._compress()
            return [_no_samples()] * len(self._series)
        self._bin = RATE_BIN
        # The newest whole bin is held back: the trace's last bin takes in the fraction after it.
        before = self.origin + ((until - self.origin) // self._bin - 1) * self._bin
        ready = self._times < before
        return self._pop(ready, until)

    def _compress(self) -> None:  # noqa: B027 - not all figures can be compressed
        """Bound the memory of the completions that are held."""

    def finish_all(self, end: int) -> list[Samples]:
        """Return the samples held back, per figure: (times in ns, values). end: the trace's, ns.

        A trace shorter than 0.5 s gets its length of bins now: the shortest of `_SHORT_BINS` of
        which 50 span it. The number of bins is rounded; the last one ends at `end`, and so is
        shorter or longer. A zero follows the last bin with completions, unless that ends at `end`.
        """
        length = max(end - self.origin, 1)
        self._bin = self._bin or next(
            (size for size in _SHORT_BINS if size * _ENOUGH_BINS >= length), RATE_BIN
        )
        count = max((length + self._bin // 2) // self._bin, 1)
        found = self._pop(np.ones(len(self._times), dtype=np.bool_), end, count)
        every = zip(self._series, found, strict=True)
        return [series.finish(samples, end) for series, samples in every]

    def _pop(self, ready: NDArray[np.bool_], end: int, count: int = 1 << 62) -> list[Samples]:
        """Remove the completions in `ready` from those that are held; return their samples.

        ready: mask over `_times`. count: number of bins in the trace; the last of them ends at
        `end` (ns) and takes in later completions, the first those before `origin`. Without `count`
        the trace goes on, and `end` does not matter.
        """
        place = np.clip((self._times[ready] - self.origin) // self._bin, 0, count - 1)
        amounts = self._amounts[ready]
        self._times, self._amounts = self._times[~ready], self._amounts[~ready]
        bins = np.unique(place)
        begin = self.origin + bins * self._bin
        stops = np.where(bins == count - 1, np.maximum(end, begin + 1), begin + self._bin)
        figures = self._figures(bins, place, amounts, stops - begin)
        return [
            series.samples(begin, stops, values)
            for series, values in zip(self._series, figures, strict=True)
        ]

    @abstractmethod
    def _figures(self, bins: I64, place: I64, amounts: I64, length: I64) -> list[NDArray[Any]]:
        """Return the figures of bins: FIGURES arrays (k,).

        bins, length: number and length (ns) of each bin with completions, (k,), sorted. place,
        amounts: of each completion, the number of its bin and its bytes or latency, in any order.
        """


class Throughput(_Binned):
    """Bytes per second."""

    def update(self, times: I64, moved: I64, until: int) -> Samples:
        """Take in bytes of completions, as `update_all`; return rates, bytes/s."""
        return self.update_all(times, moved, until)[0]

    def finish(self, end: int) -> Samples:
        """Return the samples held back, as `finish_all`."""
        return self.finish_all(end)[0]

    def _compress(self) -> None:
        """Add up the completions that are held by bins of 0.1 ms.

        Replaces `_times` by the starts (ns) of the bins with completions, and the bytes by sums.
        """
        finest = _SHORT_BINS[0]
        places = (self._times - self.origin) // finest
        bins, where = np.unique(places, return_inverse=True)
        total = np.bincount(where, weights=self._amounts, minlength=len(bins))
        self._times, self._amounts = self.origin + bins * finest, total.astype(np.int64)

    def _figures(self, bins: I64, place: I64, amounts: I64, length: I64) -> list[NDArray[Any]]:
        where = np.searchsorted(bins, place)
        return [np.bincount(where, weights=amounts, minlength=len(bins)) / (length / 1e9)]


class Latency(_Binned):
    """Latencies, ns: QUANTILES of those of the I/Os that completed in each bin."""

    QUANTILES: ClassVar[tuple[float, ...]] = (0.5, 0.99)
    FIGURES: ClassVar[int] = len(QUANTILES)

    def _figures(self, bins: I64, place: I64, amounts: I64, length: I64) -> list[NDArray[Any]]:
        """Return each quantile by nearest rank: of 10 I/Os, the 99th percentile is the longest."""
        if not len(bins):
            return [np.zeros(0)] * self.FIGURES
        first = int(bins[0])
        ordered = np.sort((place - first) << _LATENCY_BITS | np.minimum(amounts, _LONGEST))
        begin = np.searchsorted(ordered, (bins - first) << _LATENCY_BITS)
        count = np.diff(begin, append=len(ordered))
        found = []
        for quantile in self.QUANTILES:
            rank = np.ceil(quantile * count).astype(np.int64) - 1
            found.append((ordered[begin + np.maximum(rank, 0)] & _LONGEST).astype(np.float64))
        return found
