# SPDX-License-Identifier: Apache-2.0
"""Compute a disk's counters from the events of its bios, in the order in which they are written."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, OP_MASK, U32, U64, Table
from biotrail.converters.outputs.counters import RATE_BIN, READ_OPS, WRITE_OPS, Level, Rate, Samples
from biotrail.converters.outputs.otf2.events import LATEST, TRUNCATED, UNISSUED, EventArray, Phase


@dataclass(frozen=True)
class Gauge:
    """A counter that every disk has."""

    name: str
    meaning: str
    unit: str


GAUGES = (
    Gauge("queued", "Q to D: bios queued and not yet issued", "bios"),
    Gauge("in device", "D to C: bios issued and not yet complete", "bios"),
    Gauge("reads", "bytes that reads completed, over 10 ms", "B/s"),
    Gauge("writes", "bytes that writes completed, over 10 ms", "B/s"),
)


@dataclass
class Values(Table):
    """Samples of all counters, in order of time. Shape (n,)."""

    gauge: U32
    """Index in GAUGES."""
    time: I64
    """ns."""
    value: U64


class Gauges:
    """Queue depths and throughput of one disk."""

    def __init__(self, context: Context, origin: int) -> None:
        """Begin all counters with 0 at `origin`, ns: the time of the disk's first event.

        A counter that changes right there begins with its new value. Bins begin at multiples of
        their length.
        """
        self._first = origin
        origin -= origin % RATE_BIN
        self._queued, self._in_device = Level(origin), Level(origin)
        self._reads, self._writes = Rate(origin), Rate(origin)
        self._held = Values.none()
        """Samples that a later one may still precede."""
        names = [context.op_name(op) for op in range(OP_MASK + 1)]
        self._is_read = np.array([name in READ_OPS for name in names])
        self._is_write = np.array([name in WRITE_OPS for name in names])

    def update(self, events: EventArray) -> Values:
        """Take in events of the disk's bios; return the samples that no later event can change.

        events: at least one, in order of time. The samples are in order of time, then of GAUGES,
        one per counter and time; those from the 10 ms of the last event on are held back. Bios are
        queued until their Issued, or until their end if no issue was recorded (a TRUNCATED Issued
        does not count); they are in the device from a recorded Issued until Complete or Cancelled.
        Rates count the bytes of Complete, of reads and of writes alone.
        """
        time, phase, flags = (events[name].copy() for name in ("time", "phase", "flags"))
        until = int(time[-1])
        issued = (phase == Phase.ISSUED) & (flags & TRUNCATED == 0)
        ended = (phase == Phase.COMPLETE) | (phase == Phase.CANCELLED)
        unissued = flags & UNISSUED > 0
        began, left = time[phase == Phase.BEGIN], time[issued | (ended & unissued)]
        samples = [
            self._queued.update(began, left, until),
            self._in_device.update(time[issued], time[ended & ~unissued], until),
        ]
        done = phase == Phase.COMPLETE
        op = events["opf"] & OP_MASK
        for rate, kind in ((self._reads, self._is_read), (self._writes, self._is_write)):
            of_kind = done & kind[op]
            moved = events["bytes"][of_kind].astype(np.int64)
            samples.append(rate.update(time[of_kind], moved, until))
        return self._release(samples, until - until % RATE_BIN)

    def finish(self, end: int) -> Values:
        """Return the samples that were held back, in order of time, then of GAUGES.

        end: the last event's time, ns; samples after it are moved to it. No events may follow.
        """
        none = np.zeros(0, dtype=np.int64)
        until = end + 2 * RATE_BIN
        counters = self._queued, self._in_device, self._reads, self._writes
        return self._release([one.update(none, none, until) for one in counters], until, end)

    def _release(self, samples: list[Samples], before: int, end: int = LATEST) -> Values:
        """Return samples before `before` (ns), sorted by time, then gauge; hold back the others.

        samples: new ones, for each of GAUGES; to them come those in `_held`. Times are clipped to
        the first event and to `end` (ns) beforehand; of a counter's samples that then have one
        time, the last one is kept.
        """
        new = [
            Values(np.full(len(time), at, np.uint32), time, np.rint(value).astype(np.uint64))
            for at, (time, value) in enumerate(samples)
        ]
        values = Values.concatenate([self._held, *new])
        values.time = values.time.clip(self._first, end)
        values = values.take(np.lexsort((values.gauge, values.time)))
        ready = values.time < before
        self._held = values.take(~ready)
        values = values.take(ready)
        superseded = (np.diff(values.time) == 0) & (np.diff(values.gauge) == 0)
        return values.take(np.append(~superseded, True)[: len(values.time)])
