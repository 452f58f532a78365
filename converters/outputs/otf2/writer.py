# SPDX-License-Identifier: Apache-2.0
"""Write a location's events, in order of time: name them as OTF2 does, and encode them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    OP_MASK,
    U8,
    U32,
    U64,
    Bool,
    Certainty,
)
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.events import (
    BLOCKING,
    DOUBTFUL,
    NO_STRING,
    OWN,
    TRUNCATED,
    EventArray,
    Phase,
)
from biotrail.converters.outputs.otf2.handles import BIOS, COUNTERS, GAUGES, Handles, Location
from biotrail.converters.outputs.otf2.records import Attribute, Column, Field, Shape
from biotrail.recorder.schema.records import NO_SECTOR

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

    What is no read, write or flush has the mode of its data's direction (the lowest bit of a
    req_op), and a name; "" where the mode says it, or no event has the operation. An empty write
    with PREFLUSH is how the kernel spells a flush. Only Begin has the mode: other events look
    empty.
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


# Attributes: what events of I/O carry besides OTF2's own fields.

UINT8, UINT32, UINT64, STRING = 1, 3, 4, 11
"""OTF2_TYPE_*."""
_FIELDS = {UINT8: (1, False), UINT32: (4, True), UINT64: (8, True), STRING: (4, True)}

MEANINGS = {
    "sector": (UINT64, "first 512-byte sector on the disk"),
    "op": (STRING, "operation that OTF2's modes do not name"),
    "tid": (UINT32, "thread that submitted it"),
    "comm": (STRING, "name of that thread"),
    "parent": (UINT64, "matching id of the bio or request of the device above"),
    "own": (UINT8, "1: I/O of the recording itself"),
    "request": (UINT64, "matching id of the request that finished a bio last"),
    "fragments": (UINT32, "pieces that a bio was served in, where there were several"),
    "bios": (UINT32, "bios that a request served, where there were several"),
    "requeues": (UINT32, "times that the driver gave it back"),
    "error": (STRING, "status other than good"),
    "certainty": (STRING, "how its history is known, where that is not exactly"),
    "truncated": (UINT8, "1: the trace does not show this event, its time is the nearest known"),
    "absorbed by": (UINT64, "matching id of the request that took over this one's bios"),
    "doubtful": (UINT8, "1: may be another one's end; the time since Begin is open by over 10 %"),
}
"""(type, description) by name; the position is the attribute's number."""

PATH_MEANINGS = {
    "fd": (UINT32, "file descriptor"),
    "result": (UINT64, "what a system call returned that moves no bytes, where not 0"),
    "queued bios": (UINT32, "bios that the system call queued"),
    "waits for": (STRING, "what a thread inside a system call was blocked for"),
}
"""The same of the attributes that only the events of threads have; numbered after the others."""

PAIR_MEANINGS = {
    "key": (STRING, "key of a pair of events, where keys share a location"),
    "ended by": (STRING, "name of the thread that ran at a pair's second event"),
    "ended by tid": (UINT32, "that thread"),
    "ended on CPU": (UINT32, "CPU of a pair's second event"),
}
"""The same of the attributes that only pairs of events have; numbered last."""

_ALL = MEANINGS | PATH_MEANINGS | PAIR_MEANINGS
ATTRIBUTES = {
    name: Attribute(number, type_, Field(name, *_FIELDS[type_]))
    for number, (name, (type_, _)) in enumerate(_ALL.items())
}

AttributeColumn = tuple[Attribute, Column, Bool]
"""An attribute, its value for each event (n,), and which events (n,) have it."""


_NONE = {"sector": NO_SECTOR, "op": NO_STRING, "tid": 0}
"""Values for which an attribute is left out."""


def operation_attributes(
    events: EventArray, ops: U32, context: Context, string: Callable[[str], int], *, bios: bool
) -> Iterator[AttributeColumn]:
    """Yield each attribute of operations, its values (n,), and which events (n,) have it.

    ops: per event (n,) the number of its operation's name, NO_STRING: OTF2's mode says it. string:
    returns a text's number in the archive. bios: whether the events are of bios or of requests. An
    event for which an attribute has its usual value lacks it.
    """
    phase, flags = events["phase"], events["flags"]
    begin = phase == Phase.BEGIN
    for name, column in (("sector", events["detail"]), ("op", ops), ("tid", events["tid"])):
        yield attribute(name, column, begin & (column != _NONE[name]))
    yield attribute("comm", events["comm"], begin & (events["comm"] != NO_STRING))
    yield attribute("parent", events["link"], begin & (events["link"] != NEVER))
    yield attribute("own", np.ones_like(flags), flags & OWN > 0)
    end = (phase == Phase.COMPLETE) | (phase == Phase.CANCELLED)
    yield attribute("request", events["link"], end & (events["link"] != NEVER))
    name = "fragments" if bios else "bios"
    yield attribute(name, events["pieces"], end & (events["pieces"] > 1))
    yield attribute("requeues", events["requeues"], end & (events["requeues"] > 0))
    status, certainty = events["status"], events["certainty"]
    certainties = [certainty.name.lower() for certainty in Certainty]
    named: tuple[tuple[str, Column, Bool, Callable[[int], str]], ...] = (
        ("error", status, status != 0, context.status_name),
        ("certainty", certainty, end & (certainty != Certainty.EXACT), certainties.__getitem__),
    )
    for name, values, has, text in named:
        strings = np.zeros(len(values), dtype=np.uint32)
        for value in np.unique(values[has]).tolist():
            strings[values == value] = string(text(value))
        yield attribute(name, strings, has)
    yield attribute("truncated", np.ones_like(flags), flags & TRUNCATED > 0)
    absorbed = (phase == Phase.CANCELLED) & (events["detail"] > 0)
    yield attribute("absorbed by", events["detail"] - np.uint64(1), absorbed)
    yield attribute("doubtful", np.ones_like(flags), flags & DOUBTFUL > 0)


def attribute(name: str, values: Column, has: Bool) -> AttributeColumn:
    return ATTRIBUTES[name], values, has


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

    def samples(self, disk: int, gauge: U32, time: I64, value: U64) -> int:
        """Append samples of a disk's counters (indices in GAUGES) by time (ns); return how many."""
        if not len(time):
            return 0
        location = self.handles.location(disk, COUNTERS)
        numbers = [self.handles.metric(location, at) for at in range(len(GAUGES))]
        columns: dict[str, Column] = {
            _METRIC.name: np.array(numbers, dtype=np.uint32)[gauge],
            _VALUES.name: np.ones(len(time), dtype=np.uint8),
            _TYPE.name: np.full(len(time), UINT64, dtype=np.uint8),
            _VALUE.name: value,
        }
        shape = np.zeros(len(time), dtype=np.uint8)
        self.archive.append(location.number, time, shape, METRIC_SHAPES, columns)
        return len(time)

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
