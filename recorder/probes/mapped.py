# SPDX-License-Identifier: Apache-2.0
"""The part that both backends' probes share: reading their mapped rings."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.left_out import LeftOut, read_left_out
from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Capabilities
from biotrail.recorder.probes.file_maps import NO_FILES
from biotrail.recorder.probes.path_maps import NO_PATH, PathRuns
from biotrail.recorder.probes.ring import Rings
from biotrail.recorder.probes.run_stats import RunStats
from biotrail.recorder.probes.stack_maps import FreshStacks
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import End


class MappedProbes:
    """Base of the backends' probes, whose open() sets `_rings`.

    Methods that read the rings raise ProbeError while the probes are not open. What only a backend
    with the capability can do has a method here that finds nothing, for a backend without it.
    """

    capabilities: ClassVar[Capabilities]
    """What the backend can do; each backend declares its own."""

    def __init__(self) -> None:
        self._rings: Rings | None = None
        self._run_stats = RunStats()
        self.files = NO_FILES
        self.path = NO_PATH
        """Which file facts are recorded; set by open()."""

    def _mapped(self) -> Rings:
        if self._rings is None:
            raise ProbeError("the probes are not open: call open() first")
        return self._rings

    def drain(self) -> list[Segment]:
        """Copy out all committed records and free their space: one Segment per non-empty ring."""
        return self._mapped().drain()

    def lost(self) -> NDArray[np.uint64]:
        """Return counts of records lost to full rings, (cpus, levels, 256) by kind, since open."""
        return self._mapped().lost()

    def too_deep(self) -> NDArray[np.uint64]:
        """Return counts of events lost because all levels were in use, (cpus, 256) by kind."""
        return self._mapped().too_deep()

    def left_out(self) -> LeftOut:
        """Return counts of bios and events that the filters left out, since open."""
        return read_left_out(*self._mapped().left_out())

    def path_runs(self) -> PathRuns:
        """Return no runs: for a backend that does not record the path."""
        return PathRuns()

    def stop_timing(self) -> None:
        """Do nothing: for a backend that does not time system calls."""

    def fill(self) -> float:
        """Return the used share of the fullest ring, 0 to 1."""
        return self._mapped().fill()

    def count_runs(self, on: bool) -> None:
        """Switch the kernel's counting of program runs and time; ignored without CAP_SYS_ADMIN."""
        self._run_stats.switch(on)

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

    def own_file(self, file: OwnFile) -> None:
        """Do nothing: for a backend that does not recognize the recorder's own files."""
