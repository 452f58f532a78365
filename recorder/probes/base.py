# SPDX-License-Identifier: Apache-2.0
"""What every backend's probes have in common: opening and closing, and what one need not have."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Self

from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.probes.backend import Capabilities
from biotrail.recorder.probes.kernel.run_stats import RunStats
from biotrail.recorder.probes.maps.cgroup_maps import CgroupMaps, CgroupPath
from biotrail.recorder.probes.maps.file_maps import NO_FILES
from biotrail.recorder.probes.maps.path_maps import NO_PATH, PathRuns
from biotrail.recorder.probes.maps.stack_maps import FreshStacks
from biotrail.recorder.probes.rings.waker import Waker
from biotrail.recorder.schema.payloads import End


class BaseProbes(ABC):
    """Base of all probes; with the methods of a subclass it fits backend.Probes.

    A context manager: entering opens, leaving closes. What only a backend with the capability can
    do has a method here that finds nothing, for a backend without it.
    """

    capabilities: ClassVar[Capabilities]
    """What the backend can do; each backend declares its own."""

    def __init__(self) -> None:
        self._run_stats = RunStats()
        self._cgroups: CgroupMaps | None = None
        """Set by open(), where the backend knows cgroups."""
        self.waker: Waker | None = None
        """What has the programs wake the recorder; None: not open, or they never do."""
        self.files = NO_FILES
        self.path = NO_PATH
        """Which file facts are recorded, and which parts of the path; set by open()."""

    @abstractmethod
    def open(self) -> None:
        """Load programs and maps. Raises ProbeError."""

    @abstractmethod
    def close(self) -> None:
        """Detach and unload everything. Closing again has no effect."""

    def __enter__(self) -> Self:
        """Open, and return this object."""
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; an exception passes."""
        self.close()

    def count_runs(self, on: bool) -> None:
        """Switch the kernel's counting of program runs and time; ignored without CAP_SYS_ADMIN."""
        self._run_stats.switch(on)

    def path_runs(self) -> PathRuns:
        """Return no runs: for a backend that does not record the path."""
        return PathRuns()

    def stop_timing(self) -> None:  # noqa: B027 - a backend need not have it
        """Do nothing: for a backend that does not time system calls."""

    def triggered(self) -> list[Hit]:
        """Return no hits: for a backend without triggers."""
        return []

    def fresh_stacks(self) -> FreshStacks:
        """Return no stacks: for a backend without call stacks."""
        return FreshStacks({}, {}, {})

    def runs(self) -> int | None:
        """Return None: a program writes an event's record in each run."""
        return None

    def end_facts(self) -> End:
        """Return no entries."""
        return {}

    def short_of_memory(self) -> str:
        """Return no message: for a backend all of whose rings are among its sizes."""
        return ""

    def own_file(self, file: OwnFile) -> None:  # noqa: B027 - a backend need not have it
        """Do nothing: for a backend that does not recognize the recorder's own files."""

    def cgroup_descriptor(self) -> int | None:
        """Return a descriptor that is readable when there are new cgroups; None: never."""
        return None if self._cgroups is None else self._cgroups.descriptor

    def new_cgroups(self) -> list[CgroupPath]:
        """Return cgroups that were made, or charged for the first time, since the last call."""
        return [] if self._cgroups is None else self._cgroups.new_cgroups()

    def list_cgroup(self, number: int, *, wanted: bool) -> None:
        """Record the cgroup with this id, and those below it, from now on; or no longer."""
        if self._cgroups is not None:
            self._cgroups.list_cgroup(number, wanted=wanted)
