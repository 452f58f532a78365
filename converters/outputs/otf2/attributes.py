# SPDX-License-Identifier: Apache-2.0
"""Attributes: what an archive's I/O events carry besides OTF2's own fields."""

from collections.abc import Callable, Iterator

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, U32, Bool, Certainty
from biotrail.converters.outputs.otf2.events import (
    DOUBTFUL,
    NO_STRING,
    OWN,
    TRUNCATED,
    EventArray,
    Phase,
)
from biotrail.converters.outputs.otf2.records import Attribute, Column, Field
from biotrail.recorder.schema.records import NO_SECTOR

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

    events: of one location, as EVENT. ops: per event (n,) the number of its operation's name,
    NO_STRING: OTF2's mode says it. string: returns a text's number in the archive. bios: whether
    the events are of bios or of requests: "fragments" or "bios" is the number of pieces. MEANINGS
    describes the attributes; an event for which one has its usual value lacks it. Begin events have
    sector, op, tid, comm, parent and own, end events request, pieces, requeues, error (Complete
    only), certainty, absorbed by and doubtful; any may be truncated.
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
