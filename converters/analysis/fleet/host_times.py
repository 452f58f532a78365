# SPDX-License-Identifier: Apache-2.0
"""Latencies of one recording by slot of time, for the intervals of a host's figures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biotrail.converters.analysis.diff.bootstrap import F64, Resampling
from biotrail.converters.analysis.diff.figures import PERCENTILES, Estimate, times
from biotrail.converters.analysis.distributions.blocks import Slots
from biotrail.converters.analysis.distributions.keys import operation
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Stage

DRAWS = 400
"""Draws of each host. `diff` takes 1000 of two recordings; these are kept for every host."""
FIGURES = ("mean", "p50", "p90", "p99")
"""Figures that hosts are compared by."""
_ALL = ("mean", *PERCENTILES)

BySlot = dict[int, Distribution]
Named = tuple[str, str]
"""Operation, and "Q2C" or "D2C"."""


@dataclass
class HostTimes:
    """Times of the bios of one recording, by slot of time."""

    width: int
    """ns of a slot."""
    slots: int
    values: dict[Named, BySlot]
    """Operation and stage → slot → ns: Q2C, the whole time, and D2C, that of driver and device."""

    @classmethod
    def of(cls, slots: Slots, end: int, context: Context) -> "HostTimes":
        """Return the times of a recording's slots; end: ns of the recording's last event.

        Devices are added up. `slots` is not changed, and nothing of it is shared.
        """
        values: dict[Named, BySlot] = {}
        for place in slots.places():
            name = operation(context, place)
            for slot, group in slots.bios(place).items():
                for stage, found in (("Q2C", group.latency), ("D2C", group.stages.get(Stage.D2C))):
                    if found is not None and found.count:
                        by_slot = values.setdefault((name, stage), {})
                        by_slot.setdefault(slot, Distribution()).merge(found)
        return cls(slots.width, len(slots.times(end)), values)

    def widened(self, width: int) -> "HostTimes":
        """Return the same in slots of `width` ns, a multiple of this width by a power of two."""
        factor = width // self.width
        values: dict[Named, BySlot] = {}
        for name, by_slot in self.values.items():
            wider = values.setdefault(name, {})
            for slot, found in by_slot.items():
                wider.setdefault(slot // factor, Distribution()).merge(found)
        return HostTimes(width, -(-self.slots // factor), values)


def joined(parts: Sequence[HostTimes]) -> HostTimes:
    """Return several recordings of one host as one: the slots of one behind those of another.

    All slots get the width of the widest. parts: at least one; not changed.
    """
    width = max(part.width for part in parts)
    values: dict[Named, BySlot] = {}
    offset = 0
    for part in (one.widened(width) for one in parts):
        for name, by_slot in part.values.items():
            moved = {slot + offset: found for slot, found in by_slot.items()}
            values.setdefault(name, {}).update(moved)
        offset += part.slots
    return HostTimes(width, offset, values)


def estimates(host: HostTimes, seed: Sequence[int]) -> dict[tuple[str, str, str], Estimate]:
    """Return (operation, stage, figure) → estimate with its draws, of the names in FIGURES.

    seed: of the draws; the same seed gives the same draws. Draws are float32, to take less memory.
    """
    drawn = Resampling.of(host.slots, DRAWS, seed)
    found = {}
    for (name, stage), by_slot in sorted(host.values.items()):
        for figure, one in zip(_ALL, times(by_slot, host.slots, drawn), strict=True):
            if figure in FIGURES and one.value is not None:
                one.draws = _narrow(one.draws)
                found[name, stage, figure] = one
    return found


def _narrow(draws: F64 | None) -> F64 | None:
    """Return draws as float32, typed as float64: numpy computes with both alike."""
    return None if draws is None else draws.astype(np.float32)
