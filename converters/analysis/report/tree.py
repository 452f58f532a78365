# SPDX-License-Identifier: Apache-2.0
"""A report as plain data: what text, JSON, CSV and pages are made of. ns and bytes."""

from dataclasses import dataclass, field

from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.keys import Name
from biotrail.converters.analysis.distributions.sketch import RELATIVE_ERROR, Distribution
from biotrail.converters.analysis.report.tails import Tail

FORMAT = 1
"""Of the JSON and CSV: a reader of this number can read what later versions add to it."""

SHARES = (0.5, 0.9, 0.99, 0.999)
"""p50, p90, p99, p99.9."""

Buckets = list[tuple[int, int, int]]
"""(begin, end, count): end is not in it."""


@dataclass
class Summary:
    """A distribution's figures. All but the percentiles are exact."""

    count: int
    sum: int
    mean: float
    min: int
    p50: int
    p90: int
    p99: int
    p99_9: int
    max: int

    @classmethod
    def of(cls, values: Distribution, *, low: bool = False) -> "Summary":
        """Zeros when nothing was counted. low: as in Distribution.percentiles."""
        p50, p90, p99, p99_9 = values.percentiles(SHARES, low=low)
        return cls(
            values.count, values.sum, values.mean, values.min, p50, p90, p99, p99_9, values.max
        )


@dataclass
class StageTimes:
    """One stage of a group."""

    stage: str
    share: float
    """Of the time of all the group's stages."""
    time: Summary
    """ns."""


@dataclass
class GroupReport:
    """Bios or requests that have something in common."""

    name: Name
    counters: dict[str, int]
    """As samples.COUNTERS."""
    ios_per_s: float
    bytes_per_s: float
    errors: dict[str, int]
    """How many failed, by status name."""
    size: Summary
    """bytes."""
    sizes: Buckets
    """By powers of two."""
    latency: Summary
    """ns from Q (a request's start) to the end."""
    latencies: Buckets
    """By powers of two."""
    stages: list[StageTimes]
    group: Group = field(repr=False)
    """What it was made of, for histograms and comparisons; empty in intervals."""


@dataclass
class DepthReport:
    """How many were in flight."""

    mean: float
    """Weighted by time."""
    max: int
    busy_ns: int
    """Time with any in flight."""
    idle_ns: int
    at_start: Summary
    """How many were in flight when another began."""
    at_starts: Buckets


@dataclass
class PatternReport:
    """Where I/O with data began after the one before it."""

    sequential: int
    forward: int
    backward: int
    sequential_share: float
    seek: Summary
    """bytes, without the sign."""
    seeks: Buckets
    gap: Summary
    """ns from one to the next."""


@dataclass
class FlushReport:
    """Flush requests."""

    requests: int
    waits: int
    unmatched: int
    bios_per_request: float
    shared: dict[int, int]
    """Flush requests by how many bios waited for each."""
    time: Summary
    """ns from D to C."""


@dataclass
class OperationReport:
    """One device and operation."""

    bios: GroupReport
    requests: GroupReport
    queue: DepthReport | None = None
    """Its bios from Q to C; None of several devices together, and where none is known."""
    issued: DepthReport | None = None
    """Its requests from D to C."""


@dataclass
class DeviceReport:
    """One device."""

    device: str
    dev: str
    """major:minor."""
    kind: str
    stacked_on: list[str]
    total: OperationReport
    operations: list[OperationReport]
    events: dict[str, int]
    """Merges, splits and the like, as the kernel told them: all events of the log."""
    queue: DepthReport
    """Bios from Q to C."""
    issued: DepthReport
    """Requests from D to C."""
    q2q: PatternReport
    d2d: PatternReport
    flushes: FlushReport | None
    """None where there are none."""


@dataclass
class StackedReport:
    """Bios of an upper device and what they became on a lower one."""

    device: str
    below: str
    operation: str
    children: int
    to_child: Summary
    child: Summary
    from_child: Summary


@dataclass
class IntervalDepth:
    """A device in one interval."""

    device: str
    mean_queue: float
    max_queue: int
    mean_issued: float
    max_issued: int
    busy_ns: int


@dataclass
class IntervalReport:
    """One interval of time."""

    begin_ns: int
    end_ns: int
    groups: list[GroupReport]
    depths: list[IntervalDepth]


@dataclass
class LossReport:
    """What is missing from the log."""

    lost_records: dict[str, int]
    """By the record's letter; "?" where the kind is not known."""
    loss_windows: int
    loss_ns: int
    """Sum of the windows' lengths."""
    damaged_windows: int
    interrupted: bool
    completions_not_seen: int
    late_events: int
    unreadable_bytes: int
    unknown_records: int
    problems: list[str]
    remarks: list[str]


@dataclass
class Percentiles:
    """How percentiles were made."""

    method: str = "log-linear buckets"
    buckets_per_octave: int = round(1 / (2 * RELATIVE_ERROR))
    relative_error: float = RELATIVE_ERROR
    """A percentile is at most this share of its value off."""
    without: int = 0
    """Bios that are in no percentile of Q2C, because their beginning or end is not known."""


@dataclass
class Report:
    """All of it. Times are CLOCK_MONOTONIC of the recording host."""

    log_id: str
    host: str
    kernel: str
    begin_ns: int
    end_ns: int
    begin: str | None
    """ISO 8601, UTC; None where the log's clocks do not tell."""
    total: OperationReport
    devices: list[DeviceReport]
    stacked: list[StackedReport]
    stacked_unmatched: int
    processes: list[GroupReport]
    cgroups: list[GroupReport]
    cpus: list[GroupReport]
    files: list[GroupReport]
    """Empty where the log does not tell files."""
    by: str | None
    groups: list[GroupReport]
    """Of --by; empty without."""
    interval_ns: int
    """0: none."""
    intervals: list[IntervalReport]
    intervals_left_out: int
    certainty: dict[str, int]
    """Bios by certainty."""
    loss: LossReport
    percentiles: Percentiles
    tails: list[Tail] = field(default_factory=list)
    """The slow I/Os of each device and operation, most time first."""

    @property
    def span_ns(self) -> int:
        """How long the log is."""
        return self.end_ns - self.begin_ns
