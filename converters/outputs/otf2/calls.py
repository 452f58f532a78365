# SPDX-License-Identifier: Apache-2.0
"""Turn system calls into events of their threads' locations: regions, and I/O operations in them.

A call is Enter and Leave of a region named after it. In it are its waits, as regions, and, if it
reads, writes or syncs a file, a blocking I/O operation: Begin right after Enter, Complete right
before Leave.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import I64, U8, U32, Bool
from biotrail.converters.outputs.otf2.records import Shape
from biotrail.converters.outputs.otf2.writer import BYTES, FLUSH, HANDLE, ID, MODE, READ, WAY, WRITE
from biotrail.converters.outputs.otf2.writer import REGION as REGION_FIELD
from biotrail.recorder.schema.syscalls import numbers


class CallPhase(IntEnum):
    """The kinds of events of a thread's location."""

    ENTER = 0
    LEAVE = 1
    BEGIN = 2
    COMPLETE = 3


CALL_SHAPES = {
    int(CallPhase.ENTER): Shape(12, (REGION_FIELD,), measured=False),
    int(CallPhase.LEAVE): Shape(13, (REGION_FIELD,), measured=False),
    int(CallPhase.BEGIN): Shape(75, (HANDLE, MODE, WAY, BYTES, ID)),
    int(CallPhase.COMPLETE): Shape(78, (HANDLE, BYTES, ID)),
}
"""OTF2_EVENT_ENTER, LEAVE, IO_OPERATION_BEGIN and IO_OPERATION_COMPLETE, and their fields."""

_LENGTH_GIVEN = frozenset(("read", "write", "pread64", "pwrite64"))
"""Calls whose third argument is the number of bytes."""
_MODES = {
    READ: ("read", "pread64", "readv", "preadv", "preadv2"),
    WRITE: ("write", "pwrite64", "writev", "pwritev", "pwritev2"),
    FLUSH: ("fsync", "fdatasync", "sync_file_range", "syncfs"),
}
NO_IO = 255
"""Mode of a call that is no I/O operation."""

EVENT = np.dtype(
    [
        ("time", "<i8"),  # ns
        ("row", "<i8"),  # of its call
        ("place", "<i8"),  # within its call: an order
        ("wait", "<i8"),  # ENTER and LEAVE of a wait: its row; -1: not a wait's
        ("region", "<u4"),  # ENTER and LEAVE: number of the region
        ("phase", "u1"),  # CallPhase
    ]
)
CallEvents = NDArray[np.void]
_FIRST, _LAST = -2, np.iinfo(np.int64).max - 1


def operation_modes(calls: Calls, machine: str) -> U8:
    """Return OTF2's I/O mode of each call (n,), uint8: READ, WRITE, FLUSH, or NO_IO.

    By the call's name, as in _MODES; all other calls, also sync, and those of 32-bit programs are
    NO_IO. machine: uname's, by which calls are numbered.
    """
    modes = np.full(len(calls), NO_IO, dtype=np.uint8)
    for mode, names in _MODES.items():
        modes[np.isin(calls.number, numbers(frozenset(names), machine)) & ~calls.foreign] = mode
    return modes


def asked_bytes(calls: Calls, machine: str) -> I64:
    """Return the bytes that each call asked for: int64 (n,).

    It is the third argument of read, write, pread64 and pwrite64. Calls with a vector of buffers do
    not say: for these, and all others, it is what they returned, 0 where they failed. It has a
    meaning for reads and writes of 64-bit programs alone. machine: uname's.
    """
    given = np.isin(calls.number, numbers(_LENGTH_GIVEN, machine))
    return np.where(given, calls.arg2, np.maximum(calls.result, 0)).astype(np.int64)


@dataclass
class Regions:
    """Numbers of the regions of a window's calls and waits."""

    call: U32
    """Per call (n,)."""
    blocked: int
    runnable: int


def call_events(
    calls: Calls, modes: U8, row: I64, waits: Waits, regions: Regions
) -> tuple[CallEvents, int]:
    """Return the events of calls, and how many calls were moved: those that end before their entry.

    Such a call ends at its entry. calls: in the order in which they are written, entries known;
    modes: of `operation_modes`. row, waits: waits of these calls and per wait the row of its call,
    as PendingWaits.take returns them. The events are in the order of the calls; within a call:
    ENTER, BEGIN (unless NO_IO), its waits in their order, COMPLETE, LEAVE. A wait is two regions:
    `blocked` until it was woken, then `runnable`; those of no length are left out. Waits are
    clipped to their call; times may go back between waits and calls (`in_order`).
    """
    start, end = calls.entry, np.maximum(calls.exit, calls.entry)
    every = np.arange(len(calls))
    io = np.flatnonzero(modes != NO_IO)
    parts = [
        _events(every, start, _FIRST, CallPhase.ENTER, regions.call),
        _events(io, start[io], _FIRST + 1, CallPhase.BEGIN),
        _events(io, end[io], _LAST, CallPhase.COMPLETE),
        _events(every, end, _LAST + 1, CallPhase.LEAVE, regions.call),
    ]
    moved = int((calls.exit < calls.entry).sum())
    spans = (waits.out, waits.woken, regions.blocked), (waits.woken, waits.run, regions.runnable)
    for half, (out, back, region) in enumerate(spans):
        since = np.clip(out, start[row], end[row])
        until = np.clip(back, since, end[row])
        some = np.flatnonzero(until > since)
        place = 4 * some + 2 * half
        for phase, time, at in ((CallPhase.ENTER, since, 0), (CallPhase.LEAVE, until, 1)):
            one = _events(row[some], time[some], place + at, phase, region)
            one["wait"] = some
            parts.append(one)
    events = np.concatenate(parts)
    events = events[np.lexsort((events["place"], events["row"]))]
    return events, moved


def _events(
    row: I64, time: I64, place: I64 | int, phase: CallPhase, region: U32 | int = 0
) -> CallEvents:
    """Return events (n,) of the calls in rows `row` at `time` (ns), with `wait` -1.

    place: order of an event within its call. region: 0 for events that are no ENTER or LEAVE.
    """
    events = np.zeros(len(row), dtype=EVENT)
    columns: dict[str, Any] = {"time": time, "row": row, "place": place, "region": region}
    for name, values in columns.items():
        events[name] = values
    events["phase"], events["wait"] = int(phase), -1
    return events


def in_order(time: I64, since: int) -> tuple[I64, int]:
    """Return times (n,) of a location's events that never go back, and how many were moved.

    time: ns, in the order of the events. since: time of the location's last event before.
    """
    ordered = np.maximum(np.maximum.accumulate(time), since)
    moved: Bool = ordered != time
    return ordered, int(moved.sum())
