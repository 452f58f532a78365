# SPDX-License-Identifier: Apache-2.0
"""What a session and its backend agree on: what to record, what a backend can do, what is called.

A backend is a class that fits `Probes`: CoreProbes (core.py), BccProbes (bcc/probes.py). What only
one of them can do is declared in its `capabilities`; every backend has all the methods.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.left_out import LeftOut
from biotrail.recorder.filters.triggers import Hit, Triggers
from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.maps.cgroup_maps import CgroupPath
from biotrail.recorder.probes.maps.file_maps import Files
from biotrail.recorder.probes.maps.path_maps import PathChoice, PathRuns
from biotrail.recorder.probes.maps.stack_maps import FreshStacks, Stacks
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.probes.rings.waker import Waker
from biotrail.recorder.schema.payloads import BackendFacts, End, KernelEnums


@dataclass
class ProbeConfig:
    """What to record.

    events: an event set, a key of programs.EVENT_SETS. devices: (dev_t of the disk, dev_t of
    the partition or 0); empty for every device. ring_bytes: size of each CPU's main ring; None:
    chosen by RingSizes. files: also record which file a bio belongs to.
    """

    events: str = "lifecycle"
    devices: list[tuple[int, int]] = field(default_factory=list)
    ring_bytes: int | None = None
    filters: Filters = field(default_factory=Filters)
    preemptible: bool | None = None
    """Whether to load the programs that disable preemption; None: where the kernel needs it."""
    triggers: Triggers = field(default_factory=Triggers)
    stacks: Stacks = Stacks.NONE
    files: bool = False
    path: frozenset[str] = frozenset()
    """Parts of the path beside the block layer to record (schema.records.PATH_PARTS)."""
    call_over_ns: int = 1_000_000
    """Timed calls that took longer are recorded even without I/O."""


@dataclass(frozen=True)
class ProgramInfo:
    """One tracepoint and its program's counters.

    name: the program's; "" where none was loaded, with the reason. reason: "" otherwise.
    run_count, run_ns: running totals, 0 unless the kernel counts runs (kernel.bpf_stats_enabled or
    BPF_ENABLE_STATS). recursion_misses: events for which the kernel did not run the program
    because it was already running on that CPU, a running total. part: part of the path
    (schema.records.PATH_PARTS) that a program serves which the block layer's events do not need; ""
    for the block layer's own programs. The letter of such a program is that of the part's records.
    """

    name: str
    letter: str
    tracepoint: str
    attached: bool
    reason: str
    run_count: int
    run_ns: int
    recursion_misses: int
    part: str = ""


class Capabilities(NamedTuple):
    """What a backend can do on every kernel that it works on; declared by its class."""

    backend: str
    """The backend's name, as in choice.BACKENDS and in the log's header."""
    stacks: bool = False
    """It records call stacks at Q: `fresh_stacks` returns them."""
    files: bool = False
    """It records which file a bio's pages belong to, as far as `files` says once it is open."""
    triggers: bool = False
    """It evaluates triggers: `triggered` returns those that fired."""
    path: bool = False
    """It records the path beside the block layer, as far as `path` says once it is open."""
    site_stacks: bool = False
    """It records kernel stacks of followed objects: `fresh_stacks` returns them."""
    own_files: bool = False
    """It recognizes write-back of the recorder's own files, which `own_file` names."""


class Probes(Protocol):
    """The methods of a backend that a session calls; see recorder/probes/core.py."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do; known before open()."""

    @property
    def sizes(self) -> RingSizes | None:
        """Sizes of each CPU's rings; None before open()."""

    @property
    def files(self) -> Files:
        """Which file facts are recorded, once open; NO_FILES if none were asked for."""

    @property
    def path(self) -> PathChoice:
        """Which parts of the path are recorded, once open; none if none were asked for."""

    def path_runs(self) -> PathRuns:
        """Return how often the programs of the path ran since open; 0 without a path."""

    def stop_timing(self) -> None:
        """Time no calls and waits any more; calls that run now stay unrecorded."""

    def open(self) -> None:
        """Load programs and maps. Raises ProbeError."""

    def attach(self) -> None:
        """Start recording into the rings. Raises ProbeError."""

    def detach(self) -> None:
        """Stop recording; the rings and counters stay readable."""

    def close(self) -> None:
        """Unload programs and unmap rings. Closing again has no effect."""

    def drain(self) -> list[Segment]:
        """Copy out all committed records and free their space in the rings."""

    def fill(self) -> float:
        """Return the used share of the fullest ring, 0 to 1."""

    @property
    def waker(self) -> Waker | None:
        """What has the programs wake the recorder, once open; None: they never do."""

    def lost(self) -> NDArray[np.uint64]:
        """Return running totals (cpus, levels, 256) of records lost to full rings, by kind."""

    def too_deep(self) -> NDArray[np.uint64]:
        """Return running totals (cpus, 256) of events lost to too deep nesting, by kind."""

    def left_out(self) -> LeftOut:
        """Return running totals of the bios and events that the filters left out."""

    def kernel_enums(self) -> KernelEnums:
        """Return the header's `op_enum` and `flag_bits`: numbers by name."""

    def backend_facts(self) -> BackendFacts:
        """Return the log header's entries about the backend, once open; "backend" is its name."""

    def programs(self) -> list[ProgramInfo]:
        """Return every tracepoint's program, with its counters and whether it is attached."""

    def count_runs(self, on: bool) -> None:
        """Switch the kernel's counting of program runs and time, where permitted."""

    def triggered(self) -> list[Hit]:
        """Return the triggers that fired since the last call, by time; [] without triggers."""

    def fresh_stacks(self) -> FreshStacks:
        """Return the call stacks that are new since the last call; none without stacks."""

    def runs(self) -> int | None:
        """Return about how often programs ran since open; None: about once for each event."""

    def end_facts(self) -> End:
        """Return entries of the log's END frame that only this backend has."""

    def short_of_memory(self) -> str:
        """Return a message if a ring is smaller than wanted for want of memory; "" if none is.

        Of rings whose sizes are not among `sizes`.
        """

    def own_file(self, file: OwnFile) -> None:
        """Mark I/O of this file as the recorder's own from now on. Any thread may call.

        Does nothing in a backend that does not have `own_files`.
        """

    def cgroup_descriptor(self) -> int | None:
        """Return a descriptor that is readable when there are new cgroups; None: never.

        To be called once open.
        """

    def new_cgroups(self) -> list[CgroupPath]:
        """Return cgroups that were made, or charged for the first time, since the last call.

        Any thread may call, one at a time.
        """

    def list_cgroup(self, number: int, *, wanted: bool) -> None:
        """Record a cgroup, by id, and those below it, from now on; or no longer.

        Where the filters are by cgroups' names. Any thread may call. Raises RefusedError: there are
        too many.
        """
