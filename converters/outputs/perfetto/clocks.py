# SPDX-License-Identifier: Apache-2.0
"""The log's clocks as Perfetto wants them: BOOTTIME and REALTIME beside our MONOTONIC.

Perfetto keeps apart what snapshots of different sets of clocks say. Each of ours has a clock
of its own sequence, so that those of another trace, appended with `cat`, are no contradiction.
"""

from dataclasses import dataclass
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import ClockSnapshot

from biotrail.converters.clocks.wall_clock import SLEPT

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
"""perfetto.protos.BuiltinClock."""
SLICE_CLOCK, OWN_CLOCK = 64, 65
"""Clocks of a sequence, ns: of a lane or counter, incremental; of the converter's own sequence."""
_EVERY = 1_000_000_000


@dataclass
class ClockBook:
    """Readings taken so far.

    BOOTTIME minus MONOTONIC changes only while the machine sleeps. Readings of the two are
    some 100 ns apart, so the first one's offset stands until a reading differs by more than
    1 ms: otherwise slices that span a snapshot would grow or shrink.
    """

    aligned: bool = False
    """Times are BOOTTIME of the trace already, and the log's readings of no use."""
    offset: int | None = None
    """BOOTTIME - MONOTONIC, ns; None before the first reading."""
    offset_changes: int = 0
    _last: int | None = None
    _taken: int = 0

    @property
    def primary(self) -> bool:
        """Whether MONOTONIC must be the trace's clock, as nothing leads to BOOTTIME."""
        return self.offset is None and not self.aligned

    def at(self, monotonic: int) -> list[tuple[int, int]]:
        """(clock, its time) pairs for one moment of the log (ns)."""
        if self.aligned:
            return [(BOOTTIME, monotonic)]
        pairs = [(MONOTONIC, monotonic)]
        if self.offset is not None:
            # Not below 0, whatever a damaged reading says.
            pairs.append((BOOTTIME, max(monotonic + self.offset, 0)))
        return pairs

    def take(self, readings: list[dict[str, Any]]) -> list[ClockSnapshot]:
        """Snapshots for the readings that are new in the list, at most one a second."""
        snapshots = []
        new, self._taken = readings[self._taken :], len(readings)
        for reading in new:
            snapshot = self._snapshot(reading)
            if snapshot is not None:
                snapshots.append(snapshot)
        return snapshots

    def _snapshot(self, reading: dict[str, Any]) -> ClockSnapshot | None:
        monotonic = int(reading["monotonic"])
        offset = int(reading["boottime"]) - monotonic
        slept = self.offset is not None and offset > self.offset + SLEPT
        if self._last is not None and monotonic < self._last + (0 if slept else _EVERY):
            return None
        if self.offset is None or slept:
            self.offset_changes += slept
            self.offset = offset
        self._last = monotonic
        snapshot = self.begun(monotonic)
        snapshot.clocks.add(clock_id=REALTIME, timestamp=int(reading["realtime"]))
        return snapshot

    def begun(self, at: int) -> ClockSnapshot:
        """The snapshot of a moment, without the wall clock; all there is without readings."""
        snapshot = ClockSnapshot(primary_trace_clock=MONOTONIC if self.primary else None)
        snapshot.clocks.add(clock_id=OWN_CLOCK, timestamp=at)
        for clock, time in self.at(at):
            snapshot.clocks.add(clock_id=clock, timestamp=time)
        return snapshot
