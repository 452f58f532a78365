# SPDX-License-Identifier: Apache-2.0
"""A comparison of two recordings as plain data. ns, bytes, and shares of 1."""

from dataclasses import dataclass, field

FORMAT = 1
"""Of the JSON: a reader of this number can read what later versions add to it."""


@dataclass
class Figure:
    """One figure of both recordings. low, high: ends of the confidence intervals."""

    of: str
    """"bios", "requests", or "device"."""
    stage: str | None
    """What a time is of: "Q2C", "Q2G", …; None: no time."""
    name: str
    """ios_per_s, mean, p99, …"""
    unit: str
    """"1/s", "bytes/s", "bytes", "ns", "share", or "" for plain numbers."""
    a: float | None
    b: float | None
    difference: float | None = None
    """b - a."""
    difference_low: float | None = None
    difference_high: float | None = None
    relative: float | None = None
    """(b - a) / a; None where a is 0."""
    relative_low: float | None = None
    relative_high: float | None = None
    changed: bool | None = None
    """None: no interval."""
    why: str | None = None
    """Why there is no interval."""


@dataclass
class OperationDiff:
    """One operation of a device."""

    operation: str
    ios_a: int
    ios_b: int
    figures: list[Figure]


@dataclass
class DeviceDiff:
    """A device of A beside one of B."""

    device_a: str
    device_b: str
    figures: list[Figure]
    """Of the device as a whole: what was in flight."""
    operations: list[OperationDiff]


@dataclass
class SideReport:
    """One of the recordings."""

    log_id: str
    host: str
    kernel: str
    begin: str | None
    span_ns: int
    block_ns: int
    """Length of the blocks that were drawn; 0: too short for intervals."""
    blocks: int
    lost_records: int
    left_out: int
    """Bios and requests of devices and operations past those that are kept."""


@dataclass
class Diff:
    """All of it."""

    confidence: float
    draws: int
    seed: int
    a: SideReport
    b: SideReport
    devices: list[DeviceDiff]
    only_a: list[str] = field(default_factory=list)
    """Devices with I/O that have none to be compared with."""
    only_b: list[str] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        """All figures."""
        found = [f for device in self.devices for f in device.figures]
        return found + [f for d in self.devices for o in d.operations for f in o.figures]

    @property
    def compared(self) -> int:
        """Figures with an interval."""
        return sum(f.changed is not None for f in self.figures())

    @property
    def changed(self) -> int:
        """Of these, with an interval that excludes no difference."""
        return sum(f.changed is True for f in self.figures())

    @property
    def expected_by_chance(self) -> float:
        """Of these, how many would count as changed if nothing had."""
        return self.compared * (1 - self.confidence)
