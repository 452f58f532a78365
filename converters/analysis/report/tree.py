# SPDX-License-Identifier: Apache-2.0
"""A report as plain data, from which text, JSON, CSV and pages are made. Units: ns and bytes."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.keys import Name
from biotrail.converters.analysis.distributions.sketch import RELATIVE_ERROR
from biotrail.converters.analysis.figures import DOUBTFUL, HIDDEN, Shown, StageTimes, Summary
from biotrail.converters.analysis.report.tails import Tail

if TYPE_CHECKING:
    from biotrail.converters.analysis.blame.tree import Blamed

FORMAT = 2
"""Format number of the JSON and CSV. Later versions may add keys without changing the number."""


@dataclass
class PairGroup:
    text: str
    value: int
    time: Summary


@dataclass
class PairKey:
    text: str
    """The key's fields and values, such as "vec=TIMER, @cpu=1"."""
    values: list[int]
    count: int
    sum_ns: int
    max_ns: int


@dataclass
class PairInterval:
    name: str
    time: Summary


@dataclass
class PairReport:
    name: str
    begin: str
    """Tracepoint, as system:name; `end` likewise."""
    end: str
    keys: list[str]
    by: str
    """"": pairs are not told apart further, and `groups` is empty."""
    time: Summary
    groups: list[PairGroup]
    groups_left_out: int
    """Pairs of values of --by beyond MOST_GROUPS: in `time` alone."""
    slowest_keys: list[PairKey]
    """Those with the most time first; SHOWN_KEYS at most."""
    keys_known: int
    """Keys that were counted."""
    keys_left_out: int
    """Pairs of keys beyond MOST_KEYS: in `time` alone."""
    unpaired: dict[str, int]
    """Counts of events that became no pair, by their names in the log's END."""


@dataclass
class SubmissionReport:
    """Requests of io_uring or iocbs of aio of one operation that queued bios."""

    operation: str
    count: int
    modes: dict[str, int]
    """inline, worker, sqpoll, kernel: who queued the first bio → number of submissions."""
    completed: int
    failed: int
    errors: dict[str, int]
    bios: int
    bytes: int
    time: Summary
    steps: Annotated[list[StageTimes], Shown(rename={"stage": "step"})]
    """Steps of calls.STEPS that have a time; shares are of the sum of `time`."""


@dataclass(frozen=True)
class Party:
    """Whose I/O it is, on which device."""

    device: str
    operation: str
    process: str | None
    """None: not known, as of pages that were dirtied before the recording."""
    pid: int | None
    title: str | None


@dataclass
class OthersInFlight:
    """I/O of one party while calls of a process waited."""

    party: Party
    mean: float
    """How many were in flight on average, while one wait went on."""
    bytes: int
    """Of those that ended during these waits; of discards none."""


@dataclass
class Who:
    process: str
    pid: int
    title: str | None
    ns: int


@dataclass
class CallerWait:
    reason: str
    ns: int
    own_io_ns: int
    """Of these, with a bio in flight that the call itself had queued."""
    limit: str | None
    """Path of the cgroup whose limit it was; None: no limit, or the path is not known."""
    waker: Who | None
    """Whose thread let go of what was waited for, mostly; None: not known, or it is no lock."""


@dataclass
class OperationFigures:
    operation: str
    ios: int
    bytes: int
    """Their length; of operations that move no data, that of their ranges."""
    latency: Summary


@dataclass
class GroupReport:
    name: Annotated[Name, Shown(flat=True)]
    ios: int
    bytes: int
    done_bytes: int
    ios_per_s: Annotated[float, Shown(digits=".3f")]
    bytes_per_s: Annotated[float, Shown(digits=".3f")]
    counters: Annotated[dict[str, int], Shown(flat=True)]
    """The other counters: name as in samples.COUNTERS → sum."""
    errors: dict[str, int]
    size: Annotated[Summary, Shown(unit="bytes", histogram=True)]
    """bytes of data, with a histogram."""
    ranges: Annotated[Summary, Shown(unit="bytes", histogram=True)]
    """Likewise of ranges that were discarded, zeroed or erased, which are not in `size`."""
    latency: Annotated[Summary, Shown(histogram=True)]
    """ns from Q (of requests: from allocation) to completion, without those in doubt; likewise."""
    with_doubtful: Annotated[
        Summary | None, Shown("latency.with_doubtful", only=DOUBTFUL, optional=True)
    ]
    """The same with those in doubt (counter `doubtful`) in; None where none is."""
    stages: list[StageTimes]
    group: Annotated[Group, HIDDEN] = field(repr=False)
    """The group that the figures are of, for histograms and comparisons; empty in intervals."""
    time_share: Annotated[float | None, Shown(optional=True)] = None
    """Share of its list's latencies, added up, 0 to 1; None where it is in no list."""
    operations: Annotated[list[OperationFigures], Shown("by_operation", optional=True)] = field(
        default_factory=list
    )
    """Of each operation, most time first; empty of requests, devices and intervals."""


@dataclass
class DepthReport:
    """Bios or requests in flight on a device; without a known end, as long as it is known."""

    mean: float
    max: int
    active_ns: int
    idle_ns: int
    at_start: Annotated[Summary, Shown(unit="")]
    """For each bio (request) that began: number of others in flight then, with a histogram."""
    unended: int = 0
    high: Annotated["DepthReport | None", Shown(without=("unended", "high"))] = None
    """The same if these were in flight as long as they may have been; None: there are none."""


@dataclass
class PatternReport:
    """Where each I/O with data began, relative to the end of the previous one on the device."""

    sequential: int
    forward: int
    """I/Os that began after that sector."""
    backward: int
    sequential_share: float
    """`sequential` by the sum of the three, 0 to 1; 0.0 if there are none."""
    seek: Annotated[Summary, Shown(unit="bytes", histogram=True)]
    """Distance in bytes, forward or backward, with a histogram."""
    gap: Summary


@dataclass
class FlushReport:
    """Flush requests of a device; the counts are as in devices.Flush."""

    requests: int
    waits: int
    unmatched: int
    bios_per_request: float
    """Matched waits by flush requests."""
    shared: dict[int, int]
    """Number of bios that waited for one flush request → number of such requests."""
    time: Summary
    doubtful: int


@dataclass
class CompletionReport:
    way: str
    """A name of path.WAYS."""
    requests: int
    undivided: int
    """Those whose time has no steps: issued again, after the interrupt known, or in doubt."""
    steps: Annotated[list[StageTimes], Shown(rename={"stage": "step"})]


@dataclass
class DriverReport:
    driver: str
    """A name of path.STEPS."""
    requests: int
    undivided: int
    """Those whose time has no steps: issued again, a step not recorded, or in doubt."""
    errors: int
    """SCSI: dispatches that failed."""
    timeouts: int
    """SCSI: commands that timed out."""
    setup: Summary | None
    """ns from the setup of the command to D, before the steps; None for other drivers than NVMe."""
    steps: Annotated[list[StageTimes], Shown(rename={"stage": "step"})]


@dataclass(kw_only=True)
class CallReport:
    """System calls of one name, as far as they were timed."""

    name: Annotated[Name, Shown(flat=True)] = field(default_factory=dict)
    """Name of the group of --by that the calls are of; empty: they are all calls of that name."""
    call: str
    io: bool
    """Whether the calls queued bios or waited for I/O; the others are here for taking long."""
    count: int
    failed: int
    errors: dict[str, int]
    bytes: int
    """Sum of the results of calls that read, write or copy; 0 for others."""
    bios: int
    time: Summary
    parts: Annotated[list[StageTimes], Shown(rename={"stage": "part"})]
    """Parts of the time with a name of call_figures.CALL_PARTS; their shares add up to 1."""


@dataclass
class Caller:
    call: CallReport
    """`name` is the process's; io is true."""
    waits: list[CallerWait]
    """The longest first; empty without the part fs."""
    ran: list[Who]
    """Processes that had the CPU while these threads were ready to run, where it is known."""
    beside: list[OthersInFlight]
    """I/O in flight while calls of this process waited, the most first, its own too."""
    carried: dict[Party, int] = field(default_factory=dict)
    """Others' data, bytes, that threads which commit journals wrote on these devices."""


@dataclass
class Throttled:
    cgroup: str
    ns: int
    """Summed over CPUs."""
    pids: set[int] = field(default_factory=set)


@dataclass
class WaitReport:
    """Waits of the calls of one name for one reason, as far as they were recorded.

    Of timed calls, or (names of their own) of calls that were not, of page faults, kernel threads.
    """

    call: str
    reason: str
    share: float
    """Share of the time of the calls of this name that did I/O, 0 to 1."""
    own_io_ns: int
    """ns of these waits with a bio in flight that the call itself had queued."""
    no_file_ns: int | None
    """ns of page faults for files that are not known; None: no faults, or a log without files."""
    time: Annotated[Summary, Shown(flat=True)]
    """ns of each wait, from leaving the CPU to the wake-up."""


@dataclass
class HeldReport:
    """Bios of one device and operation that one cgroup's limit (blk-throttle) held before Q."""

    cgroup: str | None
    """Whose limit it is, the bios' own or one above theirs; None: not known."""
    device: str
    dev: int
    operation: str
    bios: int
    several: int
    """Bios above whose cgroup others have limits, too, any of which may have held them."""
    bps: int | None
    """The limit, bytes/s, when the last of them was queued; None: none, or not known."""
    iops: int | None
    """The limit, bios a second, likewise."""
    process: str | None
    """Of the thread that submitted most of them, or waited; None: not known of any."""
    pid: int | None
    time: Summary
    """ns that each was held, of those for which it is known."""


@dataclass
class HangingReport:
    """I/O that one device had when the log ended, and of which it had long completed none."""

    device: str
    operations: list[str]
    """Of what the driver has; where it has none of all."""
    bios: int
    requests: int
    """Of these, with the driver."""
    bytes: int
    """Of the requests, without any of the bios; of discards and the like their ranges."""
    since_queue_ns: int
    """From the first Q of these to the log's end."""
    since_issue_ns: int | None
    """From the first issue of these, likewise; None: the driver had none."""
    completes_none_ns: int
    """From that Q, or the device's last completion if that was later, to the log's end."""
    who: Who | None
    tid: int
    call: str | None
    """In which that thread queued it; None: in none, or not recorded."""


@dataclass
class CommitReport:
    device: str
    dev: int
    commits: int
    waits: int
    time: Summary
    """ns from jbd2_start_commit to jbd2_end_commit, where the start was recorded."""
    phases: Annotated[list[StageTimes], Shown(rename={"stage": "phase"})]
    """As in waits.PHASES; their shares add up to 1."""


@dataclass
class OperationReport:
    """Bios and requests of one device and operation, or of several together."""

    bios: Annotated[GroupReport, Shown(flat=True)]
    requests: Annotated[GroupReport, Shown(without=("name",))]
    queue: Annotated[DepthReport | None, Shown("depth.queue", optional=True)] = None
    """Bios from Q to C. None for totals and sums over devices, and where no beginning is known."""
    issued: Annotated[DepthReport | None, Shown("depth.issued", optional=True)] = None
    """Requests from D to C; None as `queue`."""

    @property
    def operation(self) -> str:
        """The operation's name; not of a total."""
        return str(self.bios.name["operation"])


@dataclass
class DeviceReport:
    device: str
    dev: str
    kind: str
    stacked_on: list[str]
    total: OperationReport
    operations: list[OperationReport]
    events: dict[str, int]
    """Name as in report.EVENT_NAMES → number of such events in the log (merges, splits, …)."""
    queue: Annotated[DepthReport, Shown("depth.queue")]
    issued: Annotated[DepthReport, Shown("depth.issued")]
    q2q: Annotated[PatternReport, Shown("pattern.q2q")]
    d2d: Annotated[PatternReport, Shown("pattern.d2d")]
    flushes: FlushReport | None
    completions: list[CompletionReport] = field(default_factory=list)
    """Ways in which requests were completed; empty where interrupts were not recorded."""
    drivers: list[DriverReport] = field(default_factory=list)
    """Steps of the device's driver; empty where they were not recorded."""


@dataclass
class StackedReport:
    device: str
    below: str
    operation: str
    """Operation of the parents."""
    children: int
    doubtful: int
    """Children of which a completion, or the parent's, is in doubt: left out of its times."""
    to_child: Summary
    """ns from the parent's Q to the child's Q."""
    child: Summary
    """ns from the child's Q to the child's C."""
    from_child: Summary
    """ns from the child's C to the parent's C."""


@dataclass
class IntervalDepth:
    """Queue depths of one device in one interval: of bios (queue) and requests (issued)."""

    device: str
    queue_mean: float
    queue_max: int
    issued_mean: float
    issued_max: int
    active_ns: int
    """Time with at least one bio in flight."""
    high: Annotated["IntervalDepth | None", Shown(without=("device", "high"))] = None
    """As `DepthReport.high`."""


@dataclass
class IntervalReport:
    begin_ns: int
    end_ns: int
    groups: list[GroupReport]
    depths: list[IntervalDepth]
    pairs: list[PairInterval] = field(default_factory=list)
    """Pairs of events, those that occurred; empty in a log without."""


@dataclass
class LossReport:
    lost_records: dict[str, int]
    """Letter of the record's kind ("?" if the kind is not known) → number of records lost."""
    loss_windows: int
    loss_ns: int
    damaged_windows: int
    interrupted: bool
    """Whether the log has no end: the recorder was killed, or the rest of the log is missing."""
    completions_not_seen: int
    late_events: int
    """Events that came too late for their window."""
    unreadable_bytes: int
    unknown_records: int
    problems: list[str]
    remarks: list[str]
    """Sentences about other things to know of the log."""


@dataclass
class Percentiles:
    method: str = "log-linear buckets"
    buckets_per_octave: int = round(1 / (2 * RELATIVE_ERROR))
    relative_error: Annotated[float, Shown(digits="")] = RELATIVE_ERROR
    """Largest error of a percentile, as a share of its value."""
    without: Annotated[int, Shown("bios_without")] = 0
    """Bios that are not in the percentiles of Q2C, because Q or C is not in the log."""


@dataclass
class ReadyTime:
    """Time of a stage of one device's bios in which their threads had no CPU, at least."""

    device: str
    operation: str
    stage: str
    ns: int


@dataclass
class PurposeTime:
    device: str
    purpose: str
    """A name of purposes.PURPOSE_NAMES, `discard`, or "no data"."""
    ios: int
    ns: int
    """Sum of their times from Q to C, without those in doubt."""


@dataclass(kw_only=True)
class Report:
    """The whole report. Times are CLOCK_MONOTONIC of the recording host."""

    format: int = FORMAT
    log_id: Annotated[str, Shown("log.id")]
    host: Annotated[str, Shown("log.host")]
    kernel: Annotated[str, Shown("log.kernel")]
    begin: Annotated[str | None, Shown("time.begin")]
    """Wall-clock time of `begin_ns`, ISO 8601 in UTC; None as for figures.begin_text."""
    begin_ns: Annotated[int, Shown("time.begin_ns")]
    end_ns: Annotated[int, Shown("time.end_ns")]
    span_ns: Annotated[int, Shown("time.span_ns")]
    """Length of the recorded time, which rates, shares and depths are of."""
    time_of: Annotated[str, Shown("time.of")] = "recording"
    """"events": the recording does not say; from the first event to the last."""
    percentiles: Percentiles
    total: OperationReport
    """I/O of all devices. What stacked devices queued for it counts in `devices` alone."""
    lower_bios: Annotated[int, Shown("lower.bios")] = 0
    """Bios that `total` leaves out, as stacked devices queued them for others."""
    lower_bytes: Annotated[int, Shown("lower.bytes")] = 0
    devices: list[DeviceReport]
    stacked: list[StackedReport] = field(default_factory=list)
    stacked_unmatched: int = 0
    """Child bios that are not in `stacked`: their parent did not end in the same window."""
    processes: list[GroupReport]
    cgroups: list[GroupReport] = field(default_factory=list)
    cpus: list[GroupReport] = field(default_factory=list)
    files: list[GroupReport] = field(default_factory=list)
    by: str | None = None
    groups: list[GroupReport] = field(default_factory=list)
    interval_ns: int = 0
    intervals: list[IntervalReport] = field(default_factory=list)
    intervals_left_out: int = 0
    """I/Os and pairs that came after their interval was closed (Series.left_out)."""
    certainty: dict[str, int] = field(default_factory=dict)
    loss: LossReport
    held: list[HeldReport] = field(default_factory=list)
    calls: list[CallReport] = field(default_factory=list)
    """Timed system calls by name: those with I/O first, then by time."""
    call_groups: list[CallReport] = field(default_factory=list)
    """The same by group of --by (of calls.OF_CALLS) and name, groups with most time first."""
    waits: list[WaitReport] = field(default_factory=list)
    """What calls waited for, by name and reason, the longest first; empty without the part fs."""
    waits_dropped: int = 0
    """Recorded waits that are not in `waits`, as their calls went on for too long."""
    commits: list[CommitReport] = field(default_factory=list)
    """Journals' commits by device; empty where none were recorded."""
    calls_until_ns: int | None = None
    """When the recorder ceased to time calls, by `--call-budget`; None: it did not."""
    submissions: list[SubmissionReport] = field(default_factory=list)
    """io_uring and aio by operation, the most first; empty where none were recorded."""
    submissions_unknown: int = 0
    """Bios queued inside io_uring_enter or io_submit whose request is not known."""
    pairs: list[PairReport] = field(default_factory=list)
    blamed: Annotated["Blamed | None", Shown("blame")] = None

    # For sentences and text alone:
    operations: Annotated[list[OperationReport], HIDDEN] = field(default_factory=list, repr=False)
    tails: Annotated[list[Tail], HIDDEN] = field(default_factory=list, repr=False)
    """The slow I/Os of each device and operation, those with most time in total first."""
    purposes: Annotated[list[PurposeTime], HIDDEN] = field(default_factory=list, repr=False)
    ready: Annotated[list[ReadyTime], HIDDEN] = field(default_factory=list, repr=False)
    """What of stages is waiting for a CPU, most first; empty without the path."""
    steal_ns: Annotated[int, HIDDEN] = field(default=0, repr=False)
    """For how long the hypervisor ran others than this machine's CPUs (part wait of the path)."""
    throttled: Annotated[list[Throttled], HIDDEN] = field(default_factory=list, repr=False)
    """Cgroups whose CPU quota held threads, likewise; the longest first."""
    hanging: Annotated[list[HangingReport], HIDDEN] = field(default_factory=list, repr=False)
    """Devices that hung when the log ended, those with the oldest I/O first."""
    callers: Annotated[list[Caller], HIDDEN] = field(default_factory=list, repr=False)
    """The processes' calls that waited most, the first most; not all."""
    path_parts: Annotated[tuple[str, ...], HIDDEN] = field(default=(), repr=False)
    """Parts of the path that were recorded (`record --path`)."""
