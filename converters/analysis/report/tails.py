# SPDX-License-Identifier: Apache-2.0
"""The slow I/Os of each device and operation as a group: how many, how long, in which stages.

Slow is TIMES the median latency, which is known only after the log was read. So I/Os are added up
by powers of two of their latency (octaves), and the octaves from TIMES the median on are the group.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions import sum_loops as loops
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.analysis.distributions.samples import Samples, operations_of
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import FAR, I64, NEVER, STAGE_NAMES, Bios, Lifecycles, Stage
from biotrail.converters.lifecycles.operations import transferred

OCTAVES = 64
MOST_PLACES = 1024
"""Pairs of device and operation that are looked at; later pairs have no tail."""
TIMES = 10
"""Multiple of the median latency from which on an I/O is slow."""
NOT_KNOWN = -1


@dataclass
class Tail:
    """I/Os of one device and operation that took at least TIMES their median."""

    device: str
    operation: str
    median_ns: int
    from_ns: int
    """Least latency of a slow I/O: the least power of two that is TIMES the median or more."""
    count: int
    of: int
    ns: int
    of_ns: int
    stages: dict[str, int]
    """Stage → ns that the slow I/Os spent in it, the longest stage first."""
    beside: float
    """Mean, over slow I/Os, of the bytes of other operations in flight on the device at their Q."""
    beside_others: float
    """The same mean over the I/Os that were not slow."""


@dataclass
class Tails:
    by_place: dict[int, tuple[I64, I64]] = field(default_factory=dict)
    """Place (as in Samples.place) → sums by octave of latency, (OCTAVES, 4), of `loops.sum_octaves`
    (count, ns, number and bytes of those with bytes beside known); by octave and stage, of ns."""
    _open: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Numbers of the bios that go on, ascending."""
    _beside_open: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """(n,): bytes beside each of them at its Q, or NOT_KNOWN."""

    def add(self, window: Lifecycles, bios: Samples, context: Context) -> None:
        beside = self._beside(window, context)
        names, _, of = distinct_values(bios.place)
        for place in names.tolist():
            if place in self.by_place or len(self.by_place) < MOST_PLACES:
                self.by_place.setdefault(
                    place,
                    (np.zeros((OCTAVES, 4), np.int64), np.zeros((OCTAVES, len(Stage)), np.int64)),
                )
        known = np.array([place in self.by_place for place in names.tolist()], np.bool_)
        sums = np.zeros((len(names), OCTAVES, 4), np.int64)
        stages = np.zeros((len(names) * OCTAVES, len(Stage)), np.int64)
        octaves = np.empty(len(bios), np.int64)
        place = of if known.all() else np.where(known[of], of, -1)
        bits = np.maximum(bios.latency, 1).astype(np.float64).view(np.int64)
        loops.sum_octaves(place, bios.latency, bits, beside, sums, octaves)
        stage = np.ascontiguousarray(bios.stage)
        loops.sum_stages(octaves, bios.stage_owner, stage, bios.stage_ns, stages)
        by_octave = stages.reshape(len(names), OCTAVES, len(Stage))
        for row in np.flatnonzero(known).tolist():
            whole, by_stage = self.by_place[int(names[row])]
            whole += sums[row]
            by_stage += by_octave[row]

    def _beside(self, window: Lifecycles, context: Context) -> I64:
        """Return the bytes of other operations in flight on its device at each ended bio's Q.

        They are summed in the window of the Q, so that the result does not depend on how windows
        cut the log, except for bios whose completion was lost: these count as in flight until the
        window that gives them up.
        """
        both = Bios.concatenate([window.bios, window.open_bios])
        found = np.full(len(both), NOT_KNOWN, dtype=np.int64)
        row, known = rows_of(self._open, both.number)
        found[known] = self._beside_open[row[known]]
        asked = np.flatnonzero((both.queue >= window.begin) & (both.queue < window.end))
        over = np.arange(len(both)) < len(window.bios)
        ended = np.where(over | (both.complete != NEVER), both.complete, FAR)
        place = both.dev.astype(np.int64) << OP_BITS | operations_of(both, context)
        size = transferred(context, both.opf, both.bytes)
        names, _, of = distinct_values(place)
        devices, _, device = distinct_values(names >> OP_BITS)
        flown = np.zeros(len(both), np.int64)
        if len(devices) < len(names):  # else no device has several operations
            until = np.where(ended != NEVER, ended, FAR)
            queued = np.flatnonzero(both.queue != NEVER)
            queued = queued[np.argsort(both.queue[queued], kind="stable")]
            order = queued[np.argsort(until[queued])]
            loops.beside(
                both.queue,
                of,
                np.where(ended != NEVER, size, 0),
                queued,
                order,
                until[order],
                device,
                np.zeros(len(names), np.int64),
                np.zeros(len(devices), np.int64),
                flown,
            )
        found[asked] = flown[asked]
        order = np.argsort(window.open_bios.number)
        self._open = window.open_bios.number[order]
        self._beside_open = found[~over][order]
        return found[over]

    def tails(self, bios: dict[int, Group], context: Context) -> list[Tail]:
        """The greatest sum of latencies first. bios: by place, from which the medians are taken."""
        found = []
        for place, (sums, by_stage) in sorted(self.by_place.items()):
            latency = bios[place].latency if place in bios else Distribution()
            [median] = latency.percentiles((0.5,))
            first = min(max(TIMES * median - 1, 0).bit_length(), OCTAVES)
            fast, slow = sums[:first].sum(axis=0).tolist(), sums[first:].sum(axis=0).tolist()
            if not latency.count or not slow[0]:
                continue
            stages = by_stage[first:].sum(axis=0)
            named = {STAGE_NAMES[Stage(n)]: int(ns) for n, ns in enumerate(stages.tolist()) if ns}
            tail = Tail(
                device=context.device_name(place >> OP_BITS),
                operation=context.op_name(place),
                median_ns=median,
                from_ns=1 << first,
                count=slow[0],
                of=slow[0] + fast[0],
                ns=slow[1],
                of_ns=slow[1] + fast[1],
                stages=dict(sorted(named.items(), key=lambda item: -item[1])),
                beside=slow[3] / slow[2] if slow[2] else 0.0,
                beside_others=fast[3] / fast[2] if fast[2] else 0.0,
            )
            found.append(tail)
        return sorted(found, key=lambda tail: -tail.ns)
