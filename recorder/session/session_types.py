# SPDX-License-Identifier: Apache-2.0
"""Types of a recording session: its options, its status and summary."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.left_out import LeftOut
from biotrail.recorder.filters.triggers import Triggers
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.pausing.guard import Pausing
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.recorder.rights.rights import MissingCapability
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.schema.payloads import MissingTracepoint


@dataclass(frozen=True)
class RecordOptions:
    """What to record, and where to."""

    created_by: str
    argv: Sequence[str]
    """biotrail's command line, for the log's header."""
    output: str | None
    """Path of the log; None: standard output."""
    force: bool = False
    devices: Sequence[str] = ()
    """Names, paths, links or mount points of devices; empty: all devices."""
    filters: Filters = field(default_factory=Filters)
    """Filters by anything but the device."""
    events: str = "lifecycle"
    backend: str = "auto"
    """One of probes.backend.BACKENDS."""
    ring_bytes: int | None = None
    """Bytes of each CPU's main ring; None: chosen by RingSizes."""
    duration: float | None = None
    """Seconds to record; None: until a signal or another limit."""
    sync: bool = False
    """See LogWriter."""
    level: int = 1
    """zstd level; 0: no compression."""
    command: Sequence[str] = ()
    """Command whose run is recorded; empty: none."""
    max_events: int | None = None
    """Stop after about so many events; None: no limit."""
    max_bytes: int | None = None
    """Stop at about this size of the log in bytes; None: no limit."""
    rotate: Limit | None = None
    """Begin a new file when the present one reaches this size or age; None: one file."""
    max_files: int | None = None
    """Files of a rotation or dumps to keep, the newest; None: all."""
    keep: Limit | None = None
    """Flight recorder: keep so much of the newest in memory, and write dumps; None: plain log."""
    stacks: Stacks = Stacks.NONE
    """Which call stacks to record at Q."""
    files: bool = False
    """Whether to record which file a bio's pages belong to."""
    command_lines: bool = False
    """Whether the whole command lines of processes are noted, instead of titles."""
    path: frozenset[str] = frozenset()
    """Parts of the path beside the block layer to record (schema.records.PATH_PARTS)."""
    call_over_ns: int = 1_000_000
    """Timed calls that took longer are recorded even without I/O."""
    call_budget: float = 5.0
    """Per cent of a CPU above which calls are no longer timed; 0: no limit."""
    follow: FollowOptions | None = None
    """Requests or bios to follow beside their events; None: none."""
    triggers: Triggers = field(default_factory=Triggers)
    """Events that cause a dump, besides SIGUSR1, SIGUSR2 and the recording's end."""
    after: float = 0.0
    """Seconds to record after a trigger before its dump."""
    every: float = 60.0
    """Least seconds between two triggers that make a dump."""
    pausing: Pausing | None = None
    """The experiment: whom to stop again and again; None: nobody."""
    max_cpu: float | None = None
    """Per cent of one core above which to warn; None: no warning."""
    max_cpu_ends: bool = False
    """End the recording, instead of a warning, when `max_cpu` is exceeded."""
    give_up_rights: bool = False
    """Once attached, drop the process's other capabilities for good."""


@dataclass(frozen=True)
class Status:
    """Progress of a recording."""

    seconds: float
    """Since the recording began."""
    events: int
    """Estimated number of events recorded so far."""
    lost: int
    """Events and records lost so far."""
    log_bytes: int
    """Bytes of chunks written so far."""
    note: str = ""
    """Message for the user; usually ""."""


@dataclass(frozen=True)
class Moment:
    """A point in time of a recording."""

    seconds: float
    """Since the recording began."""
    realtime: int
    """ns since 1970 (CLOCK_REALTIME)."""


@dataclass
class Summary:
    """Result of a recording."""

    reason: str
    """Why the recording stopped, such as "duration" or "interrupted"."""
    seconds: float
    """From the beginning to right before the programs were detached."""
    events: int
    """Number of events in the log; an estimate unless `events_exact`."""
    events_exact: bool
    log_bytes: int
    """Bytes of chunks in the log, compressed."""
    lost: dict[int, int]
    """Records lost because their ring was full or programs nested too deep, by record kind."""
    too_deep: int
    """How many records of `lost` were lost to too deep nesting."""
    skipped: dict[str, int]
    """Events whose program was not run because it was already running, by letter."""
    unwritten_bytes: int
    """Bytes of records that were copied from the rings and could not be written."""
    cpu_seconds: float
    """User and system time of the recorder's process."""
    max_rss_bytes: int
    """The recorder's largest resident set."""
    ns_per_event: float = 0.0
    """Mean time of the programs' runs that the kernel counted; 0: it counted none."""
    path_events: int = 0
    """How many of `events` were not the block layer's but the path's, such as calls."""
    path_seconds: dict[str, float] = field(default_factory=dict)
    """CPU time of the path's own programs by part, as estimated."""
    followed: dict[str, int] = field(default_factory=dict)
    """What became of followed lives and calls, by name; {}: nothing was followed."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """Bios and events that the filters left out."""
    missing: list[MissingTracepoint] = field(default_factory=list)
    """Tracepoints of the event set that could not be recorded: letter, tracepoint, reason."""
    lacking: list[MissingCapability] = field(default_factory=list)
    """What did not work for lack of rights."""
    file_bytes: int = 0
    """Size of the log in bytes; 0 for a rotation or flight recorder."""
    triggers_let_pass: int = 0
    """Triggers, at least, that came too soon after another and made no dump."""
    files: list[str] = field(default_factory=list)
    """Paths of the files written that still exist, oldest first."""
    files_deleted: int = 0
    """How many files of a rotation, or dumps, were deleted as the oldest."""
    files_gone: int = 0
    """How many files of a rotation, or dumps, others deleted, moved away or replaced."""
    unwritten_events: int = 0
    """Estimated number of events in `unwritten_bytes`."""
    written_until: Moment | None = None
    """When the newest records in the log were copied from the rings; None: it has none."""
    command_status: int | None = None
    """Exit status of the command (128 + signal); None: there was no command."""
    error: TraceError | None = None
    """Why the recording had to stop; None: it stopped as asked for."""
