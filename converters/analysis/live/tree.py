# SPDX-License-Identifier: Apache-2.0
"""A running recording as plain data. ns and bytes, CLOCK_MONOTONIC."""

from dataclasses import dataclass

from biotrail.converters.analysis.report.tree import GroupReport, OperationReport

FORMAT = 1
"""Of the JSON: a reader of this number can read what later versions add to it."""


@dataclass
class Depths:
    """In flight on a device: bios from Q to C, or requests from D to C."""

    now: int
    """At the stretch's end."""
    mean: float
    """Weighted by time."""
    max: int
    busy_ns: int
    time_ns: int


@dataclass
class DeviceNow:
    """A device on which something was in flight since top began."""

    device: str
    queue: Depths
    issued: Depths


@dataclass
class Slow:
    """One slow bio."""

    device: str
    operation: str
    process: str | None
    pid: int | None
    sector: int
    bytes: int
    end_ns: int
    latency_ns: int
    stage: str | None
    """That took the longest."""
    stage_ns: int


@dataclass
class Stretch:
    """Some time, and the bios and requests that the model gave in it."""

    begin_ns: int
    end_ns: int
    total: OperationReport
    operations: list[OperationReport]
    """A device and operation each, most I/O first."""
    processes: list[GroupReport]


@dataclass
class Snapshot:
    """What top shows at once."""

    number: int
    """From 1."""
    last: bool
    """Whether the recording has ended with it."""
    devices: list[DeviceNow]
    now: Stretch
    minute: Stretch
    """The last minute, this stretch included."""
    slowest: list[Slow]
    """Of the last minute."""
    lost_records: int
    """That the recorder lost since it began."""
    skipped_ns: int
    """Time of which the log was skipped, because it came faster than it could be read."""
