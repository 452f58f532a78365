# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os of each device and operation as a group: how many, how long, in which stages.

What counts as slow is known when the log was read: times the median. So I/O is added up by
powers of two of its latency, and those from a power of two on are the group.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.keys import OP_BITS, operation
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.report.beside import NOT_KNOWN, Beside
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, STAGE_NAMES, Lifecycles, Stage

OCTAVES = 64
MOST_PLACES = 1024
"""Devices with an operation that are looked at; later ones have no tail."""
TIMES = 10
"""How many times the median is slow."""


@dataclass
class Tail:
    """I/Os of one device and operation that took at least TIMES their median."""

    device: str
    operation: str
    median_ns: int
    from_ns: int
    """The least power of two that is TIMES the median or more."""
    count: int
    """I/Os that took from_ns or more."""
    of: int
    """I/Os with a latency."""
    ns: int
    """Their time."""
    of_ns: int
    """All I/Os' time."""
    stages: dict[str, int]
    """ns of the slow I/Os' stages, by name; the longest first."""
    beside: float
    """Bytes of other operations in flight on the device when a slow I/O was queued, their mean."""
    beside_others: float
    """The same of the I/Os that were not slow."""


@dataclass
class _Octaves:
    """One place's I/O by octave of latency; int64."""

    count: I64 = field(default_factory=lambda: np.zeros(OCTAVES, dtype=np.int64))
    ns: I64 = field(default_factory=lambda: np.zeros(OCTAVES, dtype=np.int64))
    stages: I64 = field(default_factory=lambda: np.zeros((OCTAVES, len(Stage)), dtype=np.int64))
    queued: I64 = field(default_factory=lambda: np.zeros(OCTAVES, dtype=np.int64))
    """I/Os of which `beside` is known."""
    beside: I64 = field(default_factory=lambda: np.zeros(OCTAVES, dtype=np.int64))


@dataclass
class Tails:
    """All devices and operations, window after window."""

    by_place: dict[int, _Octaves] = field(default_factory=dict)
    """By Samples.place."""
    _beside: Beside = field(default_factory=Beside)

    def add(self, window: Lifecycles, bios: Samples, context: Context) -> None:
        """Add a window's bios to their places. bios: the window's as samples."""
        beside = self._beside.add(window, context)
        octave = _octaves(bios.latency)
        for place in np.unique(bios.place).tolist():
            if place not in self.by_place and len(self.by_place) >= MOST_PLACES:
                continue
            found = self.by_place.setdefault(place, _Octaves())
            mine = (bios.place == place) & (bios.latency >= 0)
            np.add.at(found.count, octave[mine], 1)
            np.add.at(found.ns, octave[mine], bios.latency[mine])
            told = mine & (beside != NOT_KNOWN)
            np.add.at(found.queued, octave[told], 1)
            np.add.at(found.beside, octave[told], beside[told])
            rows = np.flatnonzero(mine[bios.stage_owner])
            cells = octave[bios.stage_owner[rows]], bios.stage[rows].astype(np.int64)
            np.add.at(found.stages, cells, bios.stage_ns[rows])

    def tails(self, bios: dict[int, Group], context: Context) -> list[Tail]:
        """Return the tail of each place that has one, the most time first.

        bios: all bios by Samples.place, for their medians.
        """
        found = [
            _tail(place, octaves, bios[place].latency, context)
            for place, octaves in sorted(self.by_place.items())
            if place in bios and bios[place].latency.count
        ]
        return sorted((tail for tail in found if tail.count), key=lambda tail: -tail.ns)


def _octaves(latency: I64) -> I64:
    """Return the power of two of each latency: n for 2**n <= ns < 2**(n + 1); 0 for 0 and -1."""
    _, exponent = np.frexp(np.maximum(latency, 1).astype(np.float64))
    return np.asarray(exponent - 1, dtype=np.int64)


def _mean(sums: I64, counts: I64) -> float:
    return float(sums.sum() / counts.sum()) if counts.any() else 0.0


def _tail(place: int, octaves: _Octaves, latency: Distribution, context: Context) -> Tail:
    [median] = latency.percentiles((0.5,))
    first = min(max(TIMES * median - 1, 0).bit_length(), OCTAVES)
    stages = octaves.stages[first:].sum(axis=0)
    named = {STAGE_NAMES[Stage(n)]: int(ns) for n, ns in enumerate(stages.tolist()) if ns}
    return Tail(
        device=context.device_name(place >> OP_BITS),
        operation=operation(context, place),
        median_ns=median,
        from_ns=1 << first,
        count=int(octaves.count[first:].sum()),
        of=int(octaves.count.sum()),
        ns=int(octaves.ns[first:].sum()),
        of_ns=int(octaves.ns.sum()),
        stages=dict(sorted(named.items(), key=lambda item: -item[1])),
        beside=_mean(octaves.beside[first:], octaves.queued[first:]),
        beside_others=_mean(octaves.beside[:first], octaves.queued[:first]),
    )
