# SPDX-License-Identifier: Apache-2.0
"""What every backend's probes give from their mapped rings."""

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import LeftOut, read_left_out
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.ring import Rings
from biotrail.recorder.probes.run_stats import RunStats
from biotrail.recorder.schema.errors import ProbeError


class MappedProbes:
    """Probes whose programs write into rings that are mapped here. A backend opens them."""

    def __init__(self) -> None:
        self._rings: Rings | None = None
        self._run_stats = RunStats()

    def _mapped(self) -> Rings:
        if self._rings is None:
            raise ProbeError("the probes are not open: call open() first")
        return self._rings

    def drain(self) -> list[Segment]:
        """Bulk copy of all committed records, one Segment per ring that has any."""
        return self._mapped().drain()

    def lost(self) -> NDArray[np.uint64]:
        """Records lost to full rings: shape (cpus, levels, 256) by kind, running totals."""
        return self._mapped().lost()

    def too_deep(self) -> NDArray[np.uint64]:
        """Events lost to too deep nesting: shape (cpus, 256) by kind, running totals."""
        return self._mapped().too_deep()

    def left_out(self) -> LeftOut:
        """What the filters left out so far, running totals."""
        return read_left_out(*self._mapped().left_out())

    def fill(self) -> float:
        """The fullest ring's share in use, 0 to 1."""
        return self._mapped().fill()

    def count_runs(self, on: bool) -> None:
        """Have the kernel count the programs' runs and time, where it permits that."""
        self._run_stats.switch(on)
