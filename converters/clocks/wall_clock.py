# SPDX-License-Identifier: Apache-2.0
"""A log's wall clock as a function of CLOCK_BOOTTIME, with steps, drift and suspends.

Linux adjusts the rates of MONOTONIC, BOOTTIME and REALTIME alike, so REALTIME - BOOTTIME is
constant until the clock is set. Logs of other systems or virtual machines may drift all the same,
so a line is drawn through the readings. A change faster than FASTEST is a step, else a drift.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from biotrail.converters.inputs.log import LogSource, Source
from biotrail.converters.inputs.series import SeriesSource

SAMPLES = 32
"""Readings taken from a log before steps between them are searched for."""
FASTEST = 500e-6
"""Largest drift (ns per ns): the kernel slews a clock by 500 ppm at most."""
SLEPT = 1_000_000
"""ns: between readings without a suspend, BOOTTIME - MONOTONIC differs by no more than this."""


@dataclass(frozen=True, order=True)
class Reading:
    """One reading of the clocks, ns; `uncertainty` as in docs/log-format.md."""

    monotonic: int
    boottime: int
    realtime: int
    uncertainty: int = 0

    @property
    def wall(self) -> int:
        """REALTIME - BOOTTIME (ns), to within twice `uncertainty`."""
        return self.realtime - self.boottime

    @property
    def slept(self) -> int:
        """BOOTTIME - MONOTONIC (ns): for how long the machine was suspended since boot."""
        return self.boottime - self.monotonic

    @classmethod
    def from_clocks(cls, clocks: Mapping[str, Any] | None) -> "list[Reading]":
        """Return the reading in a log's `clocks` (name → ns), as a list of one; [] without."""
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


def readings(source: Source) -> list[Reading]:
    """Return about SAMPLES distinct clock readings spread over a log, in time order.

    More where the clock was set or the machine was suspended, to find that time, and if a series
    has many files, as each gives two or more. They are of the header and the end frame and, of log
    files (no pipes), of chunks found by the index. Empty if there are none.
    """
    files = source.sources if isinstance(source, SeriesSource) else [source]
    share = max(SAMPLES // len(files), 2)
    known: set[Reading] = set()
    for file in files:
        for facts in (file.header, file.end or {}):
            known.update(Reading.from_clocks(facts.get("clocks")))
        if isinstance(file, LogSource):
            times = sorted({last for _, last in file.chunk_spans or []})
            step = max(len(times) // share, 1)
            _search(file, times, {*range(0, len(times), step), len(times) - 1}, known)
    return sorted(known)


def _search(source: LogSource, times: list[int], chosen: set[int], known: set[Reading]) -> None:
    """Add to `known` the readings of some chunks, and of the chunks around each step or suspend.

    times: last times (ns) of all chunks, sorted. chosen: indices into `times`; -1 is ignored.
    Between two readings with a step or suspend, the chunk in the middle is read, until both are of
    neighbours. A chunk that cannot be read, or whose reading is not complete, gives none.
    """
    found: dict[int, list[Reading]] = {}
    looking = {index for index in chosen if index >= 0}
    while looking:
        for index in looking:
            chunk = next(source.chunks(times[index], times[index]), None)
            found[index] = Reading.from_clocks(chunk.clock) if chunk is not None else []
        looking = {
            (a + b) // 2
            for a, b in pairwise(sorted(found))
            if b > a + 1
            and any(stepped(x, y) or y.slept - x.slept > SLEPT for x in found[a] for y in found[b])
        }
    known.update(reading for some in found.values() for reading in some)


def stepped(before: Reading, after: Reading) -> bool:
    allowed = difference_error(before, after) + FASTEST * (after.boottime - before.boottime)
    return abs(after.wall - before.wall) > allowed


def difference_error(one: Reading, other: Reading) -> int:
    """Return the largest error (ns) of the difference of the readings' `wall`."""
    return 2 * (one.uncertainty + other.uncertainty)


@dataclass(frozen=True)
class Step:
    """A change of the wall clock by `size` ns, after one reading and before the next."""

    after: int
    """BOOTTIME (ns) of the last reading before the change: it came after this time."""
    before: int
    """BOOTTIME (ns) of the first reading after the change: it came before this time."""
    size: int
    """ns; positive: the clock was set forward."""


@dataclass
class WallClock:
    """REALTIME as a line over BOOTTIME: wall(b) = b + offset + rate * (b - origin).

    If the clock was set, the line fits the readings after the last step, assuming that the clock
    was set right, and is extended to earlier times.
    """

    origin: int
    """BOOTTIME (ns) at which REALTIME - BOOTTIME is `offset`."""
    offset: int
    """ns."""
    rate: float = 0.0
    """Drift, ns per ns; 0 if the readings show none beyond their uncertainty."""
    width: int = 0
    """Uncertainty of the line (ns) due to that of the readings at its ends."""
    strayed: int = 0
    """Largest deviation (ns) of a reading from the line beyond the reading's own uncertainty."""
    steps: list[Step] = field(default_factory=list)
    span: tuple[int, int] = (0, 0)
    """BOOTTIME (ns) of the first and the last reading."""
    rate_uncertainty: float = 0.0
    """Uncertainty of `rate`, also if that is 0: the error added per ns beyond `span`."""

    @classmethod
    def fit(cls, taken: Iterable[Reading]) -> "WallClock":
        """Return REALTIME as a line over BOOTTIME, by one or more clock readings in any order.

        Drawn by those after the last step, through first and last; without a drift between these
        (`_rate`) it is level, at the one of them of least uncertainty. All fields are set: `span`,
        `width`, `strayed` and `rate_uncertainty` by the readings before the step as well.
        """
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
        line.rate_uncertainty = difference_error(first, last) / max(
            last.boottime - first.boottime, 1
        )
        line.width = max(abs(line.deviation(r)) + 2 * r.uncertainty for r in (first, last))
        line.compare(known)
        return line

    def deviation(self, reading: Reading) -> int:
        """Return a reading's REALTIME minus the line's (ns), corrected for steps since then."""
        since = sum(s.size for s in self.steps if s.before > reading.boottime)
        return reading.realtime + since - self.wall(reading.boottime)

    def compare(self, taken: Iterable[Reading]) -> None:
        strays = (abs(self.deviation(reading)) - 2 * reading.uncertainty for reading in taken)
        self.strayed = max(self.strayed, *strays, 0)

    def wall(self, boottime: int) -> int:
        return boottime + self.offset + round((boottime - self.origin) * self.rate)

    def boottime(self, wall: int) -> int:
        """Return BOOTTIME (ns) at a REALTIME (ns): the inverse of `wall`."""
        since = wall - self.offset - self.origin
        return self.origin + since - round(since * self.rate / (1 + self.rate))

    def uncertainty_at(self, boottime: int) -> int:
        """Return the uncertainty (ns) of `wall` at a BOOTTIME (ns); it grows outside `span`."""
        first, last = self.span
        beyond = max(first - boottime, boottime - last, 0)
        return self.width + self.strayed + round(beyond * self.rate_uncertainty)


def _rate(first: Reading, last: Reading) -> float:
    """Return the drift between two readings, ns per ns; 0: within their uncertainty, or a step."""
    moved, passed = last.wall - first.wall, last.boottime - first.boottime
    if abs(moved) <= difference_error(first, last) or abs(moved) > FASTEST * passed:
        return 0.0
    return moved / passed
