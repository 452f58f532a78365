# SPDX-License-Identifier: Apache-2.0
"""Where each I/O begins relative to the previous one's end: sequential share, seeks, gaps."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.tables import I64, U64

SECTOR_SHIFT = 9


@dataclass
class Pattern:
    """Distances between successive I/Os with data of one device, in time order."""

    sequential: int = 0
    """I/Os that began at the sector where the previous one ended."""
    forward: int = 0
    """I/Os that began after that sector."""
    backward: int = 0
    """I/Os that began before that sector."""
    seek: Distribution = field(default_factory=Distribution)
    """Bytes from the previous I/O's end to the beginning, in either direction; 0: sequential."""
    gap: Distribution = field(default_factory=Distribution)
    """ns from one beginning to the next."""
    _end: int = -1
    """Sector where the last I/O ended."""
    _at: int = -1
    """ns when the last I/O began; -1 before the first one."""

    @property
    def sequential_share(self) -> float:
        """Share of sequential I/Os among all but the first, 0 to 1; 0.0 without any."""
        return self.sequential / self.seek.count if self.seek.count else 0.0

    def merge(self, other: "Pattern") -> None:
        """Add the counts and distances of another device, which is not changed.

        Each device's I/Os are compared with its own alone.
        """
        self.sequential += other.sequential
        self.forward += other.forward
        self.backward += other.backward
        self.seek.merge(other.seek)
        self.gap.merge(other.gap)

    def update(self, at: I64, sector: U64, size: I64) -> None:
        """Add I/Os of the device that follow those added before; I/Os of 0 bytes are ignored.

        at: ns (n,) at which each began, ascending. sector: its first 512-byte sector (n,). size:
        bytes (n,). Each is compared with the one before it, the first with the last one of the call
        before; the very first I/O only begins the comparison. Each comparison adds 1 to
        `sequential`, `forward` or `backward`, the distance to `seek` and the time between the
        beginnings to `gap`.
        """
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
