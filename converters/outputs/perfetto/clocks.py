# SPDX-License-Identifier: Apache-2.0
"""Write the log's clock readings as snapshots: BOOTTIME and REALTIME beside MONOTONIC.

Perfetto keeps snapshots of different sets of clocks apart. Each of ours has a clock of its own
sequence, so that snapshots of another trace, appended with `cat`, do not contradict it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import ClockSnapshot

from biotrail.converters.clocks.wall_clock import SLEPT
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME, MONOTONIC, REALTIME

OWN_CLOCK = 65
"""Clock of the converter's own sequence, ns; those of lanes and counters: `Identity.clock`."""
_EVERY = 1_000_000_000
"""ns: least distance between two snapshots."""


@dataclass
class ClockBook:
    """Relates the log's MONOTONIC to the trace's clocks, by the readings taken so far.

    BOOTTIME minus MONOTONIC changes only while the machine sleeps. Readings of the two are some 100
    ns apart, so the first one's offset stands until a reading differs by more than 1 ms: otherwise
    slices that span a snapshot would grow or shrink.
    """

    aligned: bool = False
    """Times are the trace's `clock` already; the log's readings are not used."""
    clock: int = BOOTTIME
    """The trace's primary clock, where `aligned`."""
    offset: int | None = None
    """BOOTTIME - MONOTONIC, ns; None before the first reading."""
    offset_changes: int = 0
    """How often the offset changed since the first reading."""
    _last: int | None = None
    """MONOTONIC of the last snapshot, ns."""
    _taken: int = 0
    """Readings of the list that `new_snapshots` has seen."""

    @property
    def primary(self) -> bool:
        """Whether MONOTONIC is the trace's primary clock: `clock` is, or no BOOTTIME is known."""
        return self.clock == MONOTONIC if self.aligned else self.offset is None

    def at(self, monotonic: int) -> list[tuple[int, int]]:
        """Return (Perfetto's clock id, time in ns) pairs for one moment, the primary clock last.

        monotonic: ns of the log's CLOCK_MONOTONIC; of the trace's `clock` if `aligned`, which then
        is the only one. BOOTTIME follows if the offset is known; it is never below 0.
        """
        if self.aligned:
            return [(self.clock, monotonic)]
        pairs = [(MONOTONIC, monotonic)]
        if self.offset is not None:
            # A damaged reading may give a negative time, which Perfetto's uint64 cannot hold.
            pairs.append((BOOTTIME, max(monotonic + self.offset, 0)))
        return pairs

    @property
    def to_boottime(self) -> int:
        """What makes a time of the log one of BOOTTIME (ns), by the last reading; 0: none says.

        Where `aligned`, `clock` has to be BOOTTIME.
        """
        return 0 if self.aligned else self.offset or 0

    def new_snapshots(self, readings: list[dict[str, Any]]) -> Iterator[ClockSnapshot]:
        """Yield clock snapshots of readings appended to the log's list since the last call.

        readings: clock name → ns, all so far, in order of time. One of less than a second after the
        last snapshot is left out, unless the machine slept in between (BOOTTIME - MONOTONIC grew by
        more than 1 ms): then only one that is not later. Updates `offset` and `offset_changes`.
        """
        new, self._taken = readings[self._taken :], len(readings)
        for reading in new:
            monotonic = int(reading["monotonic"])
            offset = int(reading["boottime"]) - monotonic
            slept = self.offset is not None and offset > self.offset + SLEPT
            if self._last is not None and monotonic < self._last + (0 if slept else _EVERY):
                continue
            if self.offset is None or slept:
                self.offset_changes += slept
                self.offset = offset
            self._last = monotonic
            snapshot = self.snapshot_at(monotonic)
            snapshot.clocks.add(clock_id=REALTIME, timestamp=int(reading["realtime"]))
            yield snapshot

    def snapshot_at(self, at: int) -> ClockSnapshot:
        """Return a clock snapshot of one moment (ns, as of `at`), without REALTIME.

        It has `at` on the clock of the converter's own sequence, and the pairs of `ClockBook.at`.
        """
        snapshot = ClockSnapshot(primary_trace_clock=MONOTONIC if self.primary else None)
        snapshot.clocks.add(clock_id=OWN_CLOCK, timestamp=at)
        for clock, time in self.at(at):
            snapshot.clocks.add(clock_id=clock, timestamp=time)
        return snapshot
