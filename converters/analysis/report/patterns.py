# SPDX-License-Identifier: Apache-2.0
"""Where one I/O begins after the one before it: sequential share, seeks, time between."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.tables import I64, U64

SECTOR_SHIFT = 9


@dataclass
class Pattern:
    """One device's I/O with data, in the order of time."""

    sequential: int = 0
    """Began at the sector where the one before it ended."""
    forward: int = 0
    """Began after that."""
    backward: int = 0
    """Began before that."""
    seek: Distribution = field(default_factory=Distribution)
    """Bytes between the end of one and the beginning of the next, whichever way; 0 too."""
    gap: Distribution = field(default_factory=Distribution)
    """ns from one beginning to the next."""
    _end: int = -1
    _at: int = -1

    @property
    def sequential_share(self) -> float:
        """Of all that had one before."""
        return self.sequential / self.seek.count if self.seek.count else 0.0

    def update(self, at: I64, sector: U64, size: I64) -> None:
        """More I/O. at: ns, ascending; sector: of 512 bytes; size: bytes."""
        some = size > 0
        if not some.any():
            return
        at, first = at[some], sector[some].astype(np.int64)
        end = first + (size[some] >> SECTOR_SHIFT)
        before = np.concatenate([[self._end], end[:-1]])
        since = np.concatenate([[self._at], at[:-1]])
        begin = 0 if self._at >= 0 else 1
        distance = (first - before)[begin:]
        self.sequential += int((distance == 0).sum())
        self.forward += int((distance > 0).sum())
        self.backward += int((distance < 0).sum())
        self.seek.add(np.abs(distance) << SECTOR_SHIFT)
        self.gap.add((at - since)[begin:])
        self._end, self._at = int(end[-1]), int(at[-1])
