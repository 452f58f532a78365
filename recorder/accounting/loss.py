# SPDX-License-Identifier: Apache-2.0
"""Running totals of what was lost, turned into windows: what, where, and between which samples."""

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.schema.records import BY_LETTER

NOT_ONE_CPU = -1
"""cpu of a window whose counter is kept for the whole machine."""

Window = dict[str, int]


class LossCounters:
    """Compares counters with their last sample. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, start_ns: int) -> None:
        self._ring_ns = start_ns
        self._program_ns = start_ns
        self._ring: NDArray[np.uint64] | None = None
        self._programs: dict[str, int] = {}
        self.by_kind: dict[int, int] = {}
        """Records that found their ring full, or all levels in use, by kind."""
        self.too_deep = 0
        """How many of them found all levels in use."""
        self.skipped: dict[str, int] = {}
        """Events whose program the kernel did not run because it was already running, by letter."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.by_kind.values()) + sum(self.skipped.values())

    def sample_rings(
        self, lost: NDArray[np.uint64], too_deep: NDArray[np.uint64], now_ns: int
    ) -> list[Window]:
        """Windows for what was lost since the last sample.

        Running totals by record kind: lost to full rings, shape (cpus, levels, 256), and to
        too deep nesting, shape (cpus, 256), which is given the level above the highest.
        """
        totals = np.concatenate([lost, too_deep[:, np.newaxis, :]], axis=1)
        before, since = self._ring, self._ring_ns
        self._ring, self._ring_ns = totals, now_ns
        grown = totals if before is None else totals - before
        windows = []
        for cpu, level, kind in np.argwhere(grown).tolist():
            count = int(grown[cpu, level, kind])
            self.by_kind[kind] = self.by_kind.get(kind, 0) + count
            self.too_deep += count if level == lost.shape[1] else 0
            windows.append(_window(since, now_ns, cpu, level, kind, count))
        return windows

    def sample_programs(self, misses: dict[str, int], now_ns: int) -> list[Window]:
        """Windows for events whose program was skipped; misses: running totals by letter."""
        since, self._program_ns = self._program_ns, now_ns
        windows = []
        for letter, total in misses.items():
            count = total - self._programs.get(letter, 0)
            self._programs[letter] = total
            if count > 0:
                self.skipped[letter] = self.skipped.get(letter, 0) + count
                kind = int(BY_LETTER[letter].kind) if letter in BY_LETTER else 0
                windows.append(_window(since, now_ns, NOT_ONE_CPU, 0, kind, count))
        return windows


def _window(start: int, end: int, cpu: int, level: int, kind: int, count: int) -> Window:
    return {"start": start, "end": end, "cpu": cpu, "level": level, "kind": kind, "count": count}
