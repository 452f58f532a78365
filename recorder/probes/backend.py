# SPDX-License-Identifier: Apache-2.0
"""What a session and its backend agree on: what to record, what a backend can do, what is called.

A backend is a kind of `Probes`: CoreProbes (core.py), BccProbes (bcc/probes.py). Every backend has
all the methods; open() refuses what it cannot record.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.left_out import LeftOut, read_left_out
from biotrail.recorder.filters.triggers import Hit, Triggers
from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.file_ways import NO_FILES, Files
from biotrail.recorder.probes.kernel.bpf_calls import ProgInfo
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.probes.maps.cgroup_maps import CgroupMaps, CgroupPath
from biotrail.recorder.probes.maps.path_maps import NO_PATH, PathChoice, PathMaps, PathRuns
from biotrail.recorder.probes.maps.stack_maps import StackMap, Stacks
from biotrail.recorder.probes.rings.ring import Rings, RingSizes
from biotrail.recorder.probes.rings.waker import Waker
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import BackendFacts, End, KernelEnums

BACKENDS = ("auto", "core", "bcc")
NOT_OPEN = "the probes are not open: call open() first"


@dataclass
class ProbeConfig:
    """What to record.

    events: an event set, a key of programs.EVENT_SETS. devices: (dev_t of the disk, dev_t of the
    partition or 0); empty for every device. ring_bytes: size of each CPU's main ring; None: chosen
    by RingSizes. files: also record which file a bio belongs to.
    """

    events: str = "lifecycle"
    devices: list[tuple[int, int]] = field(default_factory=list)
    ring_bytes: int | None = None
    filters: Filters = field(default_factory=Filters)
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

    name: the program's; "" where none was loaded, with the reason. run_count, run_ns: running
    totals, 0 unless the kernel counts runs. recursion_misses: events for which the kernel did not
    run the program because it was already running on that CPU. part: part of the path
    (schema.records.PATH_PARTS) that a program serves, whose letter is that of the part's records;
    "" for the block layer's own.
    """

    name: str
    letter: str
    tracepoint: str
    attached: bool
    reason: str = ""
    run_count: int = 0
    run_ns: int = 0
    recursion_misses: int = 0
    part: str = ""

    def counted(self, *programs: ProgInfo) -> Self:
        return replace(
            self,
            run_count=sum(int(one.run_cnt) for one in programs),
            run_ns=sum(int(one.run_time_ns) for one in programs),
            recursion_misses=sum(int(one.recursion_misses) for one in programs),
        )


class Probes(ABC):
    """What a session calls of a backend; what only some backends do finds nothing here."""

    backend: str
    """The backend's name, as in BACKENDS and in the log's header."""
    site_stacks = False
    """Whether kernel stacks of followed objects are recorded."""
    sizes: RingSizes | None = None
    """Sizes of each CPU's rings; None: before open(), or it has no ring for each."""
    files: Files = NO_FILES
    """Which file facts are recorded, once open; NO_FILES if none were asked for."""
    path: PathChoice = NO_PATH
    """Which parts of the path are recorded, once open; none if none were asked for."""
    waker: Waker | None = None
    """What has the programs wake the recorder, once open; None: they never do."""
    enums: KernelEnums
    """The header's `op_enum` and `flag_bits`, numbers by name, once open."""
    counts_skips = False
    """Whether the kernel counts events whose program was already running, once open."""
    _object: BpfObject | None = None
    """The loaded programs and maps, with the core backend."""
    _rings: Rings | None = None
    """Set by open(), where there is a ring for each CPU."""
    _path_maps: PathMaps | None = None
    """Set by open(), with the core backend."""
    _cgroups: CgroupMaps | None = None
    """Set by open(), where the backend knows cgroups."""

    def __init__(self) -> None:
        from biotrail.recorder.probes.kernel.run_stats import RunStats  # not for options alone

        self._run_stats = RunStats()
        self.enums = {}
        self._choices: list[ProgramInfo] = []
        """Each tracepoint's program to load, or why there is none."""
        self._stacks: dict[str, StackMap] = {}
        """By the name that its stacks have in `fresh_stacks`."""
        self._attached_once: set[str] = set()
        """Programs that were attached, also if they are no more."""

    @abstractmethod
    def open(self) -> None:
        """Load programs and maps; nothing is recorded until attach(). Raises ProbeError."""

    @abstractmethod
    def attach(self) -> None:
        """Start recording into the rings. Raises ProbeError."""

    def detach(self) -> None:
        """Stop recording; the rings and counters stay readable."""
        self._opened().detach()

    def close(self) -> None:
        """Unload programs and unmap rings. Closing again has no effect."""
        self._run_stats.switch(False)
        if self._rings is not None:
            self._rings.close()
            self._rings = None
        if self._object is not None:
            if self._cgroups is not None:
                self._cgroups.close()
            self._object.close()
            self._object = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _opened(self) -> BpfObject:
        if self._object is None:
            raise ProbeError(NOT_OPEN)
        return self._object

    def _mapped(self) -> Rings:
        if self._rings is None:
            raise ProbeError(NOT_OPEN)
        return self._rings

    def drain(self) -> list[Segment]:
        """Copy out all committed records and free their space in the rings."""
        return self._mapped().drain()

    def fill(self) -> float:
        """Return the used share of the fullest ring, 0 to 1."""
        return self._mapped().fill()

    def lost(self) -> NDArray[np.uint64]:
        """Return running totals (cpus, levels, 256) of records lost to full rings, by kind."""
        return self._mapped().lost()

    def too_deep(self) -> NDArray[np.uint64]:
        """Return running totals (cpus, 256) of events lost to too deep nesting, by kind."""
        return self._mapped().too_deep()

    def left_out(self) -> LeftOut:
        """Return running totals of the bios and events that the filters left out."""
        return LeftOut() if self._rings is None else read_left_out(*self._rings.left_out())

    def backend_facts(self) -> BackendFacts:
        """Return the log header's entries about the backend, once open; "backend" is its name."""
        return {"backend": self.backend, "counts_skips": self.counts_skips}

    def programs(self) -> list[ProgramInfo]:
        """Return every tracepoint's program, with its counters and whether it is attached."""
        found = []
        for one in self._choices:
            if one.name:
                attached = replace(one, attached=one.name in self._attached_once)
                found.append(attached.counted(self._info(one.name)))
            else:
                found.append(one)
        return found

    def _info(self, program: str) -> ProgInfo:
        return self._opened().info(program)

    def count_runs(self, on: bool) -> None:
        """Switch the kernel's counting of program runs and time; ignored without CAP_SYS_ADMIN."""
        self._run_stats.switch(on)

    def runs(self) -> int | None:
        """Return about how often programs ran since open; None: about once for each event."""
        return None

    def path_runs(self) -> PathRuns:
        """Return how often the programs of the path ran since open; 0 without a path."""
        return PathRuns() if self._path_maps is None else self._path_maps.runs()

    def stop_timing(self) -> None:
        """Time no calls and waits any more; calls that run now stay unrecorded."""
        if self._path_maps is not None:
            self._path_maps.stop_timing()

    def triggered(self) -> list[Hit]:
        """Return the triggers that fired since the last call, by time; [] without triggers."""
        return []

    def fresh_stacks(self) -> dict[str, dict[int, NDArray[Any]]]:
        """Return the call stacks that are new since the last call, innermost frame first.

        By the id in records, below "kernel" (STACK), "wait" (WAIT_STACK), "site" (HIT): return
        addresses, u64 of shape (frames,); "user" (STACK): BUILD_ID_FRAME of shape (frames,).
        """
        open_maps = self._stacks if self._object is not None else {}
        return {name: stacks.fresh() for name, stacks in open_maps.items()}

    def end_facts(self) -> End:
        """Return entries of the log's END frame that only this backend has."""
        return {}

    def short_of_memory(self) -> str:
        """Return a message if a ring or table not in `sizes` is smaller than wanted; else ""."""
        return "" if self._path_maps is None else self._path_maps.short_of_memory()

    def own_file(self, file: OwnFile) -> None:  # noqa: B027 - a backend need not have it
        """Mark I/O of this file as the recorder's own from now on. Any thread may call."""

    def cgroup_descriptor(self) -> int | None:
        """Return a descriptor that is readable when there are new cgroups; None: never."""
        return None if self._cgroups is None else self._cgroups.descriptor

    def new_cgroups(self) -> list[CgroupPath]:
        """Return cgroups that were made, or charged for the first time, since the last call."""
        return [] if self._cgroups is None else self._cgroups.new_cgroups()

    def list_cgroup(self, number: int, wanted: bool) -> None:
        """Record a cgroup, by id, and those below, or no longer. Raises RefusedError: too many."""
        if self._cgroups is not None:
            self._cgroups.list_cgroup(number, wanted)


def make_probes(backend: str, config: ProbeConfig) -> Probes:
    """Return the probes of a backend, not yet open; "auto": core where the kernel has BTF."""
    from biotrail.recorder.probes.capability import BTF_PATH
    from biotrail.recorder.probes.core import CoreProbes

    if backend not in BACKENDS:
        raise ProbeError(f"there is no backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "auto":
        backend = "core" if BTF_PATH.exists() else "bcc"
    if backend == "core":
        return CoreProbes(config)
    from biotrail.recorder.probes.bcc.probes import BccProbes  # takes 30 ms

    return BccProbes(config)
