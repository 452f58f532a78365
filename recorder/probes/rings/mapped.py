# SPDX-License-Identifier: Apache-2.0
"""The part that both backends' probes share: reading their mapped rings."""

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.left_out import LeftOut, read_left_out
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.base import BaseProbes
from biotrail.recorder.probes.rings.ring import Rings
from biotrail.recorder.schema.errors import ProbeError


class MappedProbes(BaseProbes):
    """Base of the backends' probes, whose open() sets `_rings`.

    Methods that read the rings raise ProbeError while the probes are not open.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rings: Rings | None = None

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

    def fill(self) -> float:
        """Return the used share of the fullest ring, 0 to 1."""
        return self._mapped().fill()
