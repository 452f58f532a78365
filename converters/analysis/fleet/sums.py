# SPDX-License-Identifier: Apache-2.0
"""Figures of any number of recordings, added up: what one recording adds, and its merging.

All of it are counts and sums of whole numbers, so the parts can be added up in any order and
always give the same figures.
"""

from collections import Counter
from dataclasses import dataclass, field

from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.groups import MOST_GROUPS, OTHERS, Group
from biotrail.converters.analysis.distributions.keys import OP_BITS, operation
from biotrail.converters.analysis.report.devices.devices import Device
from biotrail.converters.analysis.report.devices.flushes import Flush
from biotrail.converters.analysis.report.devices.patterns import Pattern
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.events.context import Context

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
