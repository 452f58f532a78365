# SPDX-License-Identifier: Apache-2.0
"""What goes into a recording session and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters, LeftOut
from biotrail.recorder.filters.triggers import Hit, Triggers
from biotrail.recorder.log import Segment
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.probes.core import ProgramInfo
from biotrail.recorder.probes.ring import RingSizes
from biotrail.recorder.probes.stack_maps import Stacks
from biotrail.recorder.rights.rights import Lack
from biotrail.recorder.schema.errors import TraceError


class Probes(Protocol):
    """What a session needs of a backend; see recorder/probes/core.py."""

    @property
    def sizes(self) -> RingSizes | None:
        """Ring sizes, once open."""

    def open(self) -> None:
        """Load programs and maps."""

    def attach(self) -> None:
        """Start recording into the rings."""

    def detach(self) -> None:
        """Stop recording; the rings and counters stay readable."""

    def close(self) -> None:
        """Give everything back."""

    def drain(self) -> list[Segment]:
        """Take what the rings hold."""

    def fill(self) -> float:
        """Fullest ring, 0 to 1."""

    def lost(self) -> NDArray[np.uint64]:
        """Running totals (cpus, levels, 256) of records lost to full rings, by kind."""

    def too_deep(self) -> NDArray[np.uint64]:
        """Running totals (cpus, 256) of records that nested too deep, by kind."""

    def kernel_enums(self) -> dict[str, dict[str, int]]:
        """`op_enum` and `flag_bits`."""

    def programs(self) -> list[ProgramInfo]:
        """Programs and whether they are attached."""

    def count_runs(self, on: bool) -> None:
        """Have the kernel count the programs' runs and time, where it can."""

    def triggered(self) -> list[Hit]:
        """Triggers that fired since the last call, the first first; asked where there are any."""


@dataclass(frozen=True)
class RecordOptions:
    """What to record, and where to."""

    created_by: str
    argv: Sequence[str]
    """The command line, for the header."""
    output: str | None
    """Path of the log; None: standard output."""
    force: bool = False
    devices: Sequence[str] = ()
    """Names, paths, links or mount points; none: all devices."""
    filters: Filters = field(default_factory=Filters)
    """By anything but the device."""
    events: str = "lifecycle"
    backend: str = "auto"
    """See recorder/probes/choice.py."""
    ring_bytes: int | None = None
    duration: float | None = None
    """Seconds; None: until told."""
    sync: bool = False
    level: int = 1
    """zstd level; 0: no compression."""
    command: Sequence[str] = ()
    max_events: int | None = None
    """Stop when about so many events were recorded."""
    max_bytes: int | None = None
    """Stop when about so many bytes of log were written."""
    rotate: Limit | None = None
    """Begin a new file at this size or age."""
    max_files: int | None = None
    """Keep the newest so many files; None: all."""
    keep: Limit | None = None
    """Write nothing but the newest, and that only when asked."""
    stacks: Stacks = Stacks.NONE
    """Where bios are queued from."""
    files: bool = False
    """Whose pages bios carry."""
    triggers: Triggers = field(default_factory=Triggers)
    """What asks for it, besides SIGUSR1 and the end."""
    after: float = 0.0
    """Seconds to go on for when a trigger fired."""
    every: float = 60.0
    """Seconds between two dumps by triggers, at least."""
    max_cpu: float | None = None
    """Per cent of one core above which to warn."""
    give_up_rights: bool = False
    """Once attached, keep only what recording goes on needing: of this process, for good."""


@dataclass(frozen=True)
class Status:
    """How a recording is doing."""

    seconds: float
    events: int
    """Written so far, about."""
    lost: int
    log_bytes: int
    note: str = ""
    """Something to tell the user, empty most of the time."""


@dataclass(frozen=True)
class Moment:
    """A time of a recording."""

    seconds: float
    """Since the recording began."""
    realtime: int
    """ns since 1970 (CLOCK_REALTIME)."""


@dataclass
class Summary:
    """How a recording went."""

    reason: str
    seconds: float
    events: int
    """In the log; an estimate unless `events_exact`."""
    events_exact: bool
    raw_bytes: int
    """Bytes of records in the log."""
    log_bytes: int
    chunks: int
    lost: dict[int, int]
    """Records that found no room, by record kind."""
    too_deep: int
    """How many of them had no room because programs nested too deep."""
    skipped: dict[str, int]
    """Events whose program was not run because it was running already, by letter."""
    unwritten_bytes: int
    """Bytes of records that were taken and could not be written."""
    cpu_seconds: float
    max_rss_bytes: int
    ns_per_event: float = 0.0
    """Of the programs' runs that the kernel counted; 0: it counted none."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """What the filters left out."""
    missing: list[dict[str, str]] = field(default_factory=list)
    """Tracepoints that could not be recorded."""
    lacking: list[Lack] = field(default_factory=list)
    """What did not work with the rights at hand."""
    file_bytes: int = 0
    """Of the one log, all that is in it; 0 where there are several."""
    triggers_let_pass: int = 0
    """That fired too soon after the one before, and so made no dump; at least."""
    files: list[str] = field(default_factory=list)
    """What was written and is there, oldest first."""
    files_deleted: int = 0
    """By rotation."""
    files_gone: int = 0
    """Files of several that others deleted or moved away."""
    unwritten_events: int = 0
    """In `unwritten_bytes`, about."""
    written_until: Moment | None = None
    """When the newest records of the log were taken; None: it has none."""
    command_status: int | None = None
    error: TraceError | None = None
    """Why it had to stop, when it had to."""
