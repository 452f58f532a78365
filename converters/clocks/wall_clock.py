# SPDX-License-Identifier: Apache-2.0
"""A log's clocks as a whole: how its wall clock went, and where the machine slept.

Linux steers MONOTONIC, BOOTTIME and REALTIME alike, so REALTIME - BOOTTIME stays as it is
until somebody sets the clock. A line is laid through the readings all the same: what was
recorded elsewhere, or in a virtual machine, may drift. A step is told from a drift by its rate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from biotrail.converters.inputs.log import LogSource, Source
from biotrail.converters.inputs.series import SeriesSource

SAMPLES = 32
"""Readings that are looked at before steps are searched for."""
FASTEST = 500e-6
"""The kernel slews a clock by 500 ppm at most: what is faster is a step."""
SLEPT = 1_000_000
"""ns: BOOTTIME - MONOTONIC of readings differ by less where the machine did not sleep."""


@dataclass(frozen=True, order=True)
class Reading:
    """One reading of the clocks: ns, as in the log's format."""

    monotonic: int
    boottime: int
    realtime: int
    uncertainty: int = 0

    @property
    def wall(self) -> int:
        """REALTIME - BOOTTIME; off by twice the uncertainty at most."""
        return self.realtime - self.boottime

    @property
    def slept(self) -> int:
        """BOOTTIME - MONOTONIC."""
        return self.boottime - self.monotonic

    @classmethod
    def of(cls, clocks: Mapping[str, Any] | None) -> "list[Reading]":
        """The reading in a log's `clocks`, if all of it is there."""
        found = clocks or {}
        if not {"monotonic", "boottime", "realtime"} <= found.keys():
            return []
        return [
            cls(
                int(found["monotonic"]),
                int(found["boottime"]),
                int(found["realtime"]),
                int(found.get("uncertainty", 0)),
            )
        ]


def readings(source: Source, most: int = SAMPLES) -> list[Reading]:
    """Readings from all over a log, in order of time; more where its clocks were set or it slept.

    Chunks of a file are looked up by its index; of a pipe, only the header's is there.
    """
    files = source.sources if isinstance(source, SeriesSource) else [source]
    found = [r for file in files for r in _of_file(file, max(most // len(files), 2))]
    return sorted(set(found))


def _of_file(source: Source, most: int) -> list[Reading]:
    ends = (source.header, source.end or {})
    known = {reading for end in ends for reading in Reading.of(end.get("clocks"))}
    if isinstance(source, LogSource):
        times = sorted({last for _, last in source.reader.chunk_spans or []})
        step = max(len(times) // most, 1)
        _search(source, times, {*range(0, len(times), step), len(times) - 1}, known)
    return sorted(known)


def _search(source: LogSource, times: list[int], chosen: set[int], known: set[Reading]) -> None:
    """Adds readings of the chunks that end at the chosen times, and at those around each step."""
    found: dict[int, list[Reading]] = {}
    looking = {index for index in chosen if index >= 0}
    while looking:
        for index in looking:
            chunk = next(source.reader.chunks(times[index], times[index]), None)
            found[index] = Reading.of(chunk.clock) if chunk is not None else []
        looking = {
            (a + b) // 2
            for a, b in pairwise(sorted(found))
            if b > a + 1 and any(stepped(x, y) or slept(x, y) for x in found[a] for y in found[b])
        }
    known.update(reading for some in found.values() for reading in some)


def stepped(before: Reading, after: Reading) -> bool:
    """Whether the wall clock was set between two readings."""
    allowed = doubt(before, after) + FASTEST * (after.boottime - before.boottime)
    return abs(after.wall - before.wall) > allowed


def slept(before: Reading, after: Reading) -> bool:
    """Whether the machine slept between two readings."""
    return after.slept - before.slept > SLEPT


def doubt(one: Reading, other: Reading) -> int:
    """By how much the difference of their `wall` may be off, ns."""
    return 2 * (one.uncertainty + other.uncertainty)


@dataclass(frozen=True)
class Step:
    """The wall clock was set by `size` ns between the readings at `after` and `before`."""

    after: int
    """BOOTTIME, ns."""
    before: int
    size: int


@dataclass
class WallClock:
    """REALTIME as a line over BOOTTIME: wall(b) = b + offset + rate * (b - origin).

    Where the clock was set, the line is that of the time after the last step, which is
    when it was right if somebody set it right; the time before is continued from it.
    """

    origin: int
    """BOOTTIME, ns."""
    offset: int
    rate: float = 0.0
    """0 where the readings show no drift beyond what they are uncertain by."""
    width: int = 0
    """ns: what the line is uncertain by because the readings at its ends are."""
    strayed: int = 0
    """ns: how far readings stray from it beyond what they are uncertain by themselves."""
    steps: list[Step] = field(default_factory=list)
    span: tuple[int, int] = (0, 0)
    """Its ends: BOOTTIME, ns."""
    rate_doubt: float = 0.0
    """Of the rate, also where none can be told: what is beyond the ends is off by that per ns."""

    @classmethod
    def through(cls, taken: Iterable[Reading]) -> "WallClock":
        """The line through readings, at least one."""
        known = sorted(taken, key=lambda r: r.boottime)
        steps = [
            Step(a.boottime, b.boottime, b.wall - a.wall)
            for a, b in pairwise(known)
            if stepped(a, b)
        ]
        near = [r for r in known if not steps or r.boottime >= steps[-1].before]
        rate = _rate(near[0], near[-1])
        best = near[-1] if rate else min(near, key=lambda r: r.uncertainty)
        line = cls(best.boottime, best.wall, rate, steps=steps)
        first, last = known[0], known[-1]
        line.span = (first.boottime, last.boottime)
        line.rate_doubt = doubt(first, last) / max(last.boottime - first.boottime, 1)
        line.width = max(abs(line.off(r)) + 2 * r.uncertainty for r in (first, last))
        line.hold(known)
        return line

    def off(self, reading: Reading) -> int:
        """How far a reading is off the line, ns; what the clock was set by since is allowed for."""
        since = sum(s.size for s in self.steps if s.before > reading.boottime)
        return reading.realtime + since - self.wall(reading.boottime)

    def hold(self, taken: Iterable[Reading]) -> None:
        """Hold the line against readings: `strayed` grows."""
        strays = (abs(self.off(reading)) - 2 * reading.uncertainty for reading in taken)
        self.strayed = max(self.strayed, *strays, 0)

    def wall(self, boottime: int) -> int:
        """REALTIME, ns."""
        return boottime + self.offset + round((boottime - self.origin) * self.rate)

    def boottime(self, wall: int) -> int:
        """The inverse of `wall`, ns."""
        since = wall - self.offset - self.origin
        return self.origin + since - round(since * self.rate / (1 + self.rate))

    def doubt_at(self, boottime: int) -> int:
        """Uncertainty of `wall` at a time, ns: more beyond the ends."""
        first, last = self.span
        beyond = max(first - boottime, boottime - last, 0)
        return self.width + self.strayed + round(beyond * self.rate_doubt)


def _rate(first: Reading, last: Reading) -> float:
    """ns per ns; 0 where no drift can be told from the readings' own uncertainty."""
    moved, passed = last.wall - first.wall, last.boottime - first.boottime
    if abs(moved) <= doubt(first, last) or abs(moved) > FASTEST * passed:
        return 0.0
    return moved / passed
