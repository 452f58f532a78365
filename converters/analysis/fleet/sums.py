# SPDX-License-Identifier: Apache-2.0
"""Figures of any number of recordings, added up: what one recording adds, and its merging.

All of it are counts and sums of whole numbers, so the parts can be added up in any order and
always give the same figures.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.diff.figures import F64, PERCENTILES, Estimate, Resampling, times
from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.groups import MOST_GROUPS, OTHERS, Group
from biotrail.converters.analysis.distributions.keys import OP_BITS, operation
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.distributions.slots import Slots
from biotrail.converters.analysis.report.devices.devices import Device, Pattern
from biotrail.converters.analysis.report.devices.flushes import Flush
from biotrail.converters.analysis.report.report import Reporter
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


REST = ""
"""Key of I/O of all groups (or operations) past the first MOST_GROUPS."""


@dataclass
class Both:
    """Figures of bios, and of the requests that served them."""

    bios: Group = field(default_factory=Group)
    requests: Group = field(default_factory=Group)

    def merge(self, other: "Both") -> None:
        """Add other figures, which are not changed."""
        self.bios.merge(other.bios)
        self.requests.merge(other.requests)


@dataclass
class Sums:
    """Figures of the devices of one group of a fleet."""

    operations: dict[str, Both] = field(default_factory=dict)
    """Operation → bios and requests; REST: I/O whose devices and operations are not known."""
    queue: Depth = field(default_factory=lambda: Depth(0))
    """Bios in flight, Q to C: time of all devices, one after the other."""
    issued: Depth = field(default_factory=lambda: Depth(0))
    """Requests in flight, D to C, likewise."""
    queue_pattern: Pattern = field(default_factory=Pattern)
    """Bios in the order of Q, each device by itself."""
    issue_pattern: Pattern = field(default_factory=Pattern)
    """Requests in the order of D, likewise."""
    flush: Flush = field(default_factory=Flush)
    events: Counter[str] = field(default_factory=Counter)
    """Letter → number of such events in the logs."""
    devices: int = 0
    """Devices with I/O; one that is in several recordings counts in each."""
    recordings: int = 0
    span_ns: int = 0
    """Sum of the recordings' lengths, over which rates are."""
    hosts: set[str] = field(default_factory=set)

    def merge(self, other: "Sums") -> None:
        """Add the figures of other recordings or devices, which are not changed."""
        for name, both in other.operations.items():
            self.operations.setdefault(name, Both()).merge(both)
        self.queue.merge(other.queue)
        self.issued.merge(other.issued)
        self.queue_pattern.merge(other.queue_pattern)
        self.issue_pattern.merge(other.issue_pattern)
        self.flush.merge(other.flush)
        self.events.update(other.events)
        self.devices += other.devices
        self.recordings += other.recordings
        self.span_ns += other.span_ns
        self.hosts |= other.hosts

    def add_device(self, device: Device | None, flush: Flush | None) -> None:
        """Add the depths and patterns of one device, and its flushes; None: it has none."""
        self.devices += 1
        if device is not None:
            self.queue.merge(device.queue)
            self.issued.merge(device.issued)
            self.queue_pattern.merge(device.queue_pattern)
            self.issue_pattern.merge(device.issue_pattern)
        if flush is not None:
            self.flush.merge(flush)


Groups = dict[str, Sums]
"""Name of a group, such as a host's or a model's → figures."""


def merge_groups(into: Groups, more: Groups) -> None:
    """Add groups to `into`. Groups past MOST_GROUPS are added up as REST. `more` is not changed."""
    for name, sums in more.items():
        known = name in into or len(into) < MOST_GROUPS
        into.setdefault(name if known else REST, Sums()).merge(sums)


def device_sums(reporter: Reporter, context: Context, *, once: bool = False) -> dict[int, Sums]:
    """Return dev_t → figures of each device with I/O, of a recording that was read to its end.

    reporter: after `finish`. once: without bios that stacked devices queued for others. The figures
    of OTHERS (devices that were too many to be kept apart) are those of device -1. `recordings`,
    `span_ns`, `hosts` and `events` are not set.
    """
    found: dict[int, Sums] = {}
    bios, requests = reporter.groups
    bios = reporter.submitted if once else bios
    for code in sorted({*bios, *requests}):
        dev = -1 if code == OTHERS else code >> OP_BITS
        name = REST if code == OTHERS else operation(context, code)
        both = Both(bios.get(code, Group()), requests.get(code, Group()))
        found.setdefault(dev, Sums()).operations.setdefault(name, Both()).merge(both)
    for dev in {*found, *reporter.devices} - {-1}:
        sums = found.setdefault(dev, Sums())
        sums.add_device(reporter.devices.get(dev), reporter.flushes.get(dev))
    return found
