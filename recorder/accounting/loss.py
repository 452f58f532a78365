# SPDX-License-Identifier: Apache-2.0
"""Turns the programs' running totals of lost events into loss windows: one per sample and counter.

A window says how many records of which kind were lost on which CPU and level, between two samples.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.probes.rings.ring import LEVELS
from biotrail.recorder.schema.records import BY_KIND, BY_LETTER, Kind

NOT_ONE_CPU = -1
"""`cpu` of a window for skipped events, whose counter is the whole machine's."""

Window = dict[str, int]
"""{"start", "end" (ns of CLOCK_MONOTONIC), "cpu", "level", "kind", "count"}."""


class Losses:
    """Sums of what was lost."""

    def __init__(self) -> None:
        self.by_kind: dict[int, int] = {}
        """Records lost because their ring was full or all levels were in use, by kind."""
        self.too_deep = 0
        """How many of `by_kind` were lost because all levels were in use."""
        self.skipped: dict[str, int] = {}
        """Events whose program the kernel did not run because it was already running, by letter.

        "?": a kind without a letter.
        """

    @property
    def total(self) -> int:
        return sum(self.by_kind.values()) + sum(self.skipped.values())

    def add(self, windows: Sequence[Window]) -> None:
        for window in windows:
            kind, count = window["kind"], window["count"]
            if window["cpu"] == NOT_ONE_CPU:
                record = BY_KIND.get(Kind(kind)) if kind in set(Kind) else None
                letter = record.letter if record else "?"
                self.skipped[letter] = self.skipped.get(letter, 0) + count
            else:
                self.by_kind[kind] = self.by_kind.get(kind, 0) + count
                self.too_deep += count if window["level"] >= LEVELS else 0


class LossCounters(Losses):
    """The counters' last samples, and sums of what was lost. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, start_ns: int) -> None:
        super().__init__()
        self._ring_ns = start_ns
        self._program_ns = start_ns
        self._ring: NDArray[np.uint64] | None = None
        self._sampled: tuple[NDArray[np.uint64] | None, ...] = None, None
        self._programs: dict[str, int] = {}

    def sample_rings(
        self, lost: NDArray[np.uint64], too_deep: NDArray[np.uint64], now_ns: int
    ) -> list[Window]:
        """Return windows for the records lost since the last sample, and add them to the sums.

        `lost`: running totals of records lost to full rings, (cpus, levels, 256) by kind.
        `too_deep`: of events lost to too deep nesting, (cpus, 256) by kind; their windows have as
        level the number of levels. Arrays of the last sample that cannot have been written since
        (`Rings.lost`) give no windows.
        """
        before, since = self._ring, self._ring_ns
        self._ring_ns = now_ns
        last, self._sampled = self._sampled, (lost, too_deep)
        pairs = zip(self._sampled, last, strict=True)
        if all(now is then and not now.flags.writeable for now, then in pairs):
            return []
        totals = np.concatenate([lost, too_deep[:, np.newaxis, :]], axis=1)
        self._ring = totals
        grown = totals if before is None else totals - before
        windows = [
            _window(since, now_ns, cpu, level, kind, int(grown[cpu, level, kind]))
            for cpu, level, kind in np.argwhere(grown).tolist()
        ]
        self.add(windows)
        return windows

    def sample_programs(self, misses: dict[str, int], now_ns: int) -> list[Window]:
        """Return windows for events skipped since the last sample, and add them to `skipped`.

        `misses`: running totals by letter; a letter without a record has kind 0.
        """
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
