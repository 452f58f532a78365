# SPDX-License-Identifier: Apache-2.0
"""The log's clocks as Perfetto wants them: BOOTTIME and REALTIME beside our MONOTONIC."""

from dataclasses import dataclass
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import ClockSnapshot

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
"""perfetto.protos.BuiltinClock."""
_SUSPENDED = 1_000_000
_EVERY = 1_000_000_000


@dataclass
class ClockBook:
    """Readings taken so far.

    BOOTTIME minus MONOTONIC changes only while the machine sleeps. Readings of the two are
    some 100 ns apart, so the first one's offset stands until a reading differs by more than
    1 ms: otherwise slices that span a snapshot would grow or shrink.
    """

    offset: int | None = None
    """BOOTTIME - MONOTONIC, ns; None before the first reading."""
    offset_changes: int = 0
    _last: int | None = None
    _taken: int = 0

    @property
    def primary(self) -> bool:
        """Whether MONOTONIC must be the trace's clock, as nothing leads to BOOTTIME."""
        return self.offset is None

    def at(self, monotonic: int) -> list[tuple[int, int]]:
        """(clock, its time) pairs for one moment of MONOTONIC (ns)."""
        pairs = [(MONOTONIC, monotonic)]
        if self.offset is not None:
            pairs.append((BOOTTIME, monotonic + self.offset))
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
        slept = self.offset is not None and offset > self.offset + _SUSPENDED
        if self._last is not None and monotonic < self._last + (0 if slept else _EVERY):
            return None
        if self.offset is None or slept:
            self.offset_changes += slept
            self.offset = offset
        self._last = monotonic
        snapshot = ClockSnapshot()
        for clock, time in self.at(monotonic):
            snapshot.clocks.add(clock_id=clock, timestamp=time)
        snapshot.clocks.add(clock_id=REALTIME, timestamp=int(reading["realtime"]))
        return snapshot
