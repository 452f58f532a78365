# SPDX-License-Identifier: Apache-2.0
"""Figures of a running recording as plain data. Times are ns of CLOCK_MONOTONIC, sizes bytes."""

from dataclasses import dataclass, field
from typing import Annotated

from biotrail.converters.analysis.blame.tree import Waited
from biotrail.converters.analysis.figures import HIDDEN, Shown
from biotrail.converters.analysis.report.tree import (
    CallReport,
    GroupReport,
    OperationReport,
    Report,
)

FORMAT = 2
"""Format number of the JSON. Later versions may add keys without changing the number."""


@dataclass
class Depths:
    """Number in flight on a device during a stretch: bios from Q to C, or requests from D to C."""

    now: int
    """Number at the stretch's end."""
    mean: float
    max: int
    active_ns: int
    time_ns: int
    """Length of the stretch's windows; 0 if none came."""


@dataclass
class DeviceNow:
    """Depths of a device that has had I/O in flight since `top` began."""

    device: str
    queue: Depths
    issued: Depths


@dataclass
class Slow:
    device: str
    operation: str
    process: str | None
    pid: int | None
    sector: int
    bytes: int
    end_ns: int
    latency_ns: int
    stage: str | None
    """The longest stage; None without stages."""
    stage_ns: int
    title: str | None = None
    """What the process calls itself, or which script it runs; None: neither, or not known."""


@dataclass
class SlowCall:
    call: str
    process: str | None
    """Name of the calling thread."""
    pid: int | None
    tid: int
    end_ns: int
    """Time of the return."""
    duration_ns: int
    part: str
    """The longest part of that time, as in call_figures.CALL_PARTS."""
    part_ns: int
    bios: int
    """Bios that it queued; 65535: that many or more."""
    error: str | None
    title: str | None = None
    """What its process calls itself, or which script it runs; None: neither, or not known."""


@dataclass
class Blame:
    """Who waited for whom, of the I/Os that settled in a stretch of time."""

    by: str
    victims: list[Waited]
    based: Annotated[dict[str, int], Shown("bases")]
    left_out: dict[str, int]
    """What is not in it, or stands beside nothing: number by name, of blame.online.LEFT_OUT."""
    everybody: Annotated[bool, Shown("everybody_recorded")]
    """Whether the recording has no filter by I/O: what one leaves out is blamed on nobody."""


@dataclass
class Stretch:
    begin_ns: int
    end_ns: int
    total: OperationReport
    operations: list[OperationReport]
    """One per device and operation, most I/O first."""
    processes: list[GroupReport]
    calls: list[CallReport] = field(default_factory=list)
    """System calls by name, those with I/O first, then by time; empty unless they are timed."""
    blame: Blame | None = None


@dataclass(kw_only=True)
class Snapshot:
    format: int = FORMAT
    number: int
    last: bool
    """Whether the recording has ended with this snapshot."""
    devices: list[DeviceNow]
    now: Stretch
    """The stretch since the previous snapshot."""
    minute: Stretch
    """The last minute, with the stretch `now`."""
    slowest: list[Slow]
    lost_records: int
    """Records that the recorder has lost since it began."""
    skipped_ns: int
    """Time that was skipped because the log was written faster than it could be read."""
    slowest_calls: list[SlowCall] = field(default_factory=list)
    """The slowest system calls of the last minute, the slowest first."""
    calls_until_ns: int | None = None
    report: Annotated[Report | None, HIDDEN] = field(default=None, repr=False)
    """The stretch `now` as a report, for its first sentences; None: it has no I/O."""
