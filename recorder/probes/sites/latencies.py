# SPDX-License-Identifier: Apache-2.0
"""Histograms of latencies as the programs count them (bpf/pairs.h): 16 slots to an octave."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.schema.limits import HIST_SLOTS

_EXACT = 32
"""Latencies below this many ns have a slot of their own each."""
_PER_OCTAVE = 16
OCTAVES = (HIST_SLOTS - _EXACT) // _PER_OCTAVE + 5
"""Number of octaves: the last slots are those of [2^(OCTAVES-1), 2^OCTAVES) ns and more."""


def _bounds() -> NDArray[np.int64]:
    """Return the least latency (ns) of each slot, then the end of the last, (HIST_SLOTS + 1,)."""
    low = np.arange(_EXACT, dtype=np.int64)
    octaves = np.arange(5, OCTAVES, dtype=np.int64)
    steps = np.arange(_PER_OCTAVE, dtype=np.int64)
    high = (_PER_OCTAVE + steps) << (octaves - 4)[:, None]
    return np.concatenate([low, high.ravel(), [1 << OCTAVES]])


BOUNDS = _bounds()


@dataclass(frozen=True)
class Latencies:
    """Latencies in ns. slots: counts by slot, (HIST_SLOTS,). max: of all since the beginning."""

    count: int = 0
    sum: int = 0
    max: int = 0
    slots: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(HIST_SLOTS, np.uint64))

    def __add__(self, other: "Latencies") -> "Latencies":
        return Latencies(
            self.count + other.count,
            self.sum + other.sum,
            max(self.max, other.max),
            self.slots + other.slots,
        )

    def since(self, before: "Latencies") -> "Latencies":
        """Return those that came after `before`, an earlier reading.

        The programs keep one maximum: unless it has grown since, that of the new ones is the end of
        the highest slot that they are in.
        """
        slots = self.slots - before.slots
        used = np.flatnonzero(slots)
        top = int(BOUNDS[used[-1] + 1]) - 1 if len(used) else 0
        most = self.max if self.max > before.max else min(top, self.max)
        return Latencies(self.count - before.count, self.sum - before.sum, most, slots)

    @property
    def mean(self) -> float:
        """Mean in ns; 0 of none."""
        return self.sum / self.count if self.count else 0.0

    def percentiles(self, shares: Sequence[float]) -> list[float]:
        """Return latencies in ns below which these shares (0 to 1) are; zeros of none.

        Within a slot (1/16 of an octave at most) latencies are taken to be spread evenly; none is
        above the maximum.
        """
        total = np.cumsum(self.slots.astype(np.int64))
        if not total[-1]:
            return [0.0] * len(shares)
        ranks = np.asarray(shares) * float(total[-1])
        at = np.searchsorted(total, np.maximum(ranks, 1e-9))
        inside = (ranks - (total[at] - self.slots[at])) / self.slots[at]
        # A slot of one ns holds that latency alone.
        width = np.diff(BOUNDS)[at] - 1
        found = np.minimum(BOUNDS[at] + inside * width, self.max)
        return [float(one) for one in found]

    def octaves(self) -> NDArray[np.int64]:
        """Return counts by powers of two, (OCTAVES,): 0 to 1 ns, 2 to 3, 4 to 7 and so on."""
        starts = np.concatenate([[0], 1 << np.arange(1, OCTAVES)])
        first = np.searchsorted(BOUNDS, starts)
        counts: NDArray[np.int64] = np.add.reduceat(self.slots.astype(np.int64), first)
        return counts
