# SPDX-License-Identifier: Apache-2.0
"""Write a location's events, in order of time: name them as OTF2 does, and encode them."""

from collections.abc import Iterable, Mapping

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, NEVER, OP_MASK, U8, U32, U64
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.attributes import (
    UINT64,
    AttributeColumn,
    operation_attributes,
)
from biotrail.converters.outputs.otf2.events import BLOCKING, NO_STRING, EventArray, Phase
from biotrail.converters.outputs.otf2.handles import BIOS, Handles, Location
from biotrail.converters.outputs.otf2.records import Column, Field, Shape

WRITE_EVENTS = 16_384
"""Events encoded at once: few enough for a CPU's cache."""

READ, WRITE, FLUSH = 0, 1, 2
"""OTF2_IO_OPERATION_MODE_*."""
_NON_BLOCKING = 1
_MODE_NAMES = {READ: "read", WRITE: "write", FLUSH: "flush"}

HANDLE, MODE, WAY = Field("handle", 4), Field("mode", 1, False), Field("operation flags", 4)
BYTES, ID = Field("bytes", 8), Field("matching id", 8)
REGION = Field("region", 4)
OPERATION_SHAPES = {
    int(Phase.BEGIN): Shape(75, (HANDLE, MODE, WAY, BYTES, ID)),
    int(Phase.ISSUED): Shape(77, (HANDLE, ID)),
    int(Phase.COMPLETE): Shape(78, (HANDLE, BYTES, ID)),
    int(Phase.CANCELLED): Shape(79, (HANDLE, ID)),
}
"""OTF2_EVENT_IO_OPERATION_*, and the fields of each."""

_METRIC, _VALUES = Field("metric", 4), Field("values", 1, False)
_TYPE, _VALUE = Field("type", 1, False), Field("value", 8)
METRIC_SHAPES = {0: Shape(31, (_METRIC, _VALUES, _TYPE, _VALUE))}
"""OTF2_EVENT_METRIC with one value."""


def modes(events: EventArray, context: Context) -> tuple[U8, list[str]]:
    """Return OTF2's mode of each event (n,), and names by operation number (0 to OP_MASK).

    OTF2 knows reads, writes and flushes. Any other operation is a read or a write by the direction
    of its data (the lowest bit of a req_op), with its own name; "" where the mode says it, or no
    event has the operation. An empty write with PREFLUSH is how the kernel spells a flush. Events
    without bytes, such as Issued, look empty; only Begin has the mode.
    """
    ops = events["opf"] & OP_MASK
    seen = np.bincount(ops, minlength=OP_MASK + 1)
    names = [context.op_name(op) if seen[op] else "" for op in range(OP_MASK + 1)]
    by_op = np.array([op & 1 for op in range(OP_MASK + 1)], dtype=np.uint8)
    by_op[[name == "flush" for name in names]] = FLUSH
    mode: U8 = by_op[ops]
    is_write = np.array([name == "write" for name in names])[ops]
    preflush = events["opf"] & context.flag_mask("PREFLUSH") != 0
    mode[is_write & (events["bytes"] == 0) & preflush] = FLUSH
    plain = set(_MODE_NAMES.values())
    return mode, ["" if name in plain else name for name in names]


class Writer:
    """Writes locations' events into an archive."""

    def __init__(self, archive: Archive, handles: Handles, context: Context) -> None:
        """handles: numbers the I/O handles that events refer to."""
        self.archive, self.handles, self.context = archive, handles, context
        self._last: dict[int, int] = {}
        """Per location of `in_turn`: time (ns) of its newest event."""
        self.moved = 0
        """Times that `in_turn` moved to keep OTF2's order."""
        self.first_ns = self.last_ns = NEVER
        """Times (ns) of the earliest and of the latest event of `in_turn`."""

    def operations(self, location: Location, events: EventArray) -> None:
        """Append a location's next events, in order of time, to its event file."""
        string, bios = self.archive.string, location.layer == BIOS
        for start in range(0, len(events), WRITE_EVENTS):
            batch = events[start : start + WRITE_EVENTS]
            mode, names = modes(batch, self.context)
            strings = [string(name) if name else NO_STRING for name in names]
            ops = np.array(strings, dtype=np.uint32)[batch["opf"] & OP_MASK]
            way = np.where(batch["flags"] & BLOCKING, 0, _NON_BLOCKING).astype(np.uint32)
            devs, _, codes = distinct_values(batch["dev"])
            handles = [self.handles.number(location, dev) for dev in devs.tolist()]
            columns: dict[str, Column] = {
                HANDLE.name: np.array(handles, dtype=np.uint32)[codes],
                MODE.name: mode,
                WAY.name: way,
                BYTES.name: batch["bytes"],
                ID.name: batch["number"].astype(np.uint64),
            }
            attributes = operation_attributes(batch, ops, self.context, string, bios=bios)
            time, phase = batch["time"], batch["phase"]
            number = location.number
            self.archive.append(number, time, phase, OPERATION_SHAPES, columns, attributes)

    def samples(self, location: Location, metric: U32, time: I64, value: U64) -> None:
        """Append samples of counters, in order of time, to a location's event file.

        metric: number of each sample's counter (`Handles.metric`); time: ns; value: in the
        counter's unit.
        """
        columns: dict[str, Column] = {
            _METRIC.name: metric,
            _VALUES.name: np.ones(len(time), dtype=np.uint8),
            _TYPE.name: np.full(len(time), UINT64, dtype=np.uint8),
            _VALUE.name: value,
        }
        shape = np.zeros(len(time), dtype=np.uint8)
        self.archive.append(location.number, time, shape, METRIC_SHAPES, columns)

    def in_turn(
        self,
        location: int,
        time: I64,
        phase: Column,
        shapes: Mapping[int, Shape],
        columns: Mapping[str, Column],
        attributes: Iterable[AttributeColumn],
    ) -> None:
        """Append events of a location, by its number, in the given order.

        Their times may go back, also behind the location's last one, which OTF2 does not allow:
        such a time is moved.
        """
        ordered = np.maximum(np.maximum.accumulate(time), self._last.get(location, 0))
        self.moved += int((ordered != time).sum())
        first, last = int(ordered[0]), int(ordered[-1])
        self._last[location], self.last_ns = last, max(self.last_ns, last)
        self.first_ns = first if self.first_ns == NEVER else min(first, self.first_ns)
        self.archive.append(location, ordered, phase, shapes, columns, attributes)
