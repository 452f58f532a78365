# SPDX-License-Identifier: Apache-2.0
"""A disk's counters, from the events of its bios in the order in which they are written."""

from dataclasses import dataclass

import numpy as np

from converters.model.context import OP_MASK, Context
from converters.model.counters import RATE_BIN, READ_OPS, WRITE_OPS, Level, Rate, Samples
from converters.model.tables import I64, U8, U32, U64, Bool
from converters.otf2_attributes import UINT64
from converters.otf2_events import TRUNCATED, UNISSUED, EventArray, Phase

DOUBLE = 10
"""OTF2_TYPE_DOUBLE."""


@dataclass(frozen=True)
class Gauge:
    """A counter that every disk has."""

    name: str
    meaning: str
    unit: str
    exponent: int
    """Of ten: what a value is multiplied with for the unit."""
    type: int


GAUGES = (
    Gauge("queued", "Q to D: bios queued and not yet issued", "bios", 0, UINT64),
    Gauge("in device", "D to C: bios issued and not yet complete", "bios", 0, UINT64),
    Gauge("reads", "bytes that reads completed, over 10 ms", "B/s", 6, DOUBLE),
    Gauge("writes", "bytes that writes completed, over 10 ms", "B/s", 6, DOUBLE),
)


@dataclass(frozen=True)
class Values:
    """Samples in order of time. Shape (n,)."""

    gauge: U32
    """Index in GAUGES."""
    time: I64
    """ns."""
    type: U8
    bits: U64
    """The value as its type has it."""

    def take(self, rows: Bool | I64) -> "Values":
        """The samples given by mask or index."""
        return Values(self.gauge[rows], self.time[rows], self.type[rows], self.bits[rows])


class Gauges:
    """Queue depths and throughput of one disk."""

    def __init__(self, context: Context, origin: int) -> None:
        """origin: ns of its first event, where its counters begin with 0."""
        self._first = origin
        origin -= origin % RATE_BIN
        self._queued, self._in_device = Level(origin), Level(origin)
        self._reads, self._writes = Rate(origin), Rate(origin)
        self._held = _values([])
        names = [context.op_name(op) for op in range(OP_MASK + 1)]
        self._is_read = np.array([name in READ_OPS for name in names])
        self._is_write = np.array([name in WRITE_OPS for name in names])

    def update(self, events: EventArray, until: int) -> Values:
        """The samples that can be told now. events: of the disk's bios, all before `until` (ns)."""
        time, phase, flags = (events[name].copy() for name in ("time", "phase", "flags"))
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
        """The samples that were held back. end: the last event's time, ns."""
        none = np.zeros(0, dtype=np.int64)
        until = end + 2 * RATE_BIN
        levels = [level.update(none, none, until) for level in (self._queued, self._in_device)]
        rates = [rate.update(none, none, until) for rate in (self._reads, self._writes)]
        values = self._release([*levels, *rates], until)
        return Values(values.gauge, np.minimum(values.time, end), values.type, values.bits)

    def _release(self, samples: list[Samples], before: int) -> Values:
        """What no later sample can precede, in order; none before the first event."""
        new = _values(samples)
        held = self._held
        found = Values(
            np.concatenate([held.gauge, new.gauge]),
            np.maximum(np.concatenate([held.time, new.time]), self._first),
            np.concatenate([held.type, new.type]),
            np.concatenate([held.bits, new.bits]),
        )
        found = found.take(np.lexsort((found.gauge, found.time)))
        ready = found.time < before
        self._held = found.take(~ready)
        return found.take(ready)


def _values(samples: list[Samples]) -> Values:
    """Samples, one pair for each of GAUGES, in a row."""
    gauges, times, types, bits = [], [], [], []
    for index, (time, value) in enumerate(samples):
        type_ = GAUGES[index].type
        of_type = value.astype("<u8") if type_ == UINT64 else value.astype("<f8").view("<u8")
        gauges.append(np.full(len(time), index, dtype=np.uint32))
        times.append(time)
        types.append(np.full(len(time), type_, dtype=np.uint8))
        bits.append(of_type)
    if not samples:
        return Values(*(np.zeros(0, dtype=kind) for kind in ("<u4", "<i8", "u1", "<u8")))
    return Values(*(np.concatenate(column) for column in (gauges, times, types, bits)))
