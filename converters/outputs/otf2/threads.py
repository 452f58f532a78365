# SPDX-License-Identifier: Apache-2.0
"""Write the locations of threads (calls, with waits and I/O in them), and of pairs of events."""

from collections import defaultdict
from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.calls.names import name_of_call, name_of_error
from biotrail.converters.calls.pending import CallFiles, PendingWaits
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U8,
    U32,
    WAIT_CAUSE_NAMES,
    Lifecycles,
    WaitCause,
)
from biotrail.converters.outputs.otf2.handles import CALLS
from biotrail.converters.outputs.otf2.records import Column, Shape
from biotrail.converters.outputs.otf2.writer import (
    BYTES,
    FLUSH,
    HANDLE,
    ID,
    MODE,
    READ,
    REGION,
    WAY,
    WRITE,
    WRITE_EVENTS,
    AttributeColumn,
    Writer,
    attribute,
)
from biotrail.converters.sites.pair_names import DrawnPairs, PairNames
from biotrail.recorder.schema.syscalls import numbers

# Turn system calls into events of their threads' locations: regions, and I/O operations in them.
#
# A call is Enter and Leave of a region named after it. In it are its waits, as regions, and, if it
# reads, writes or syncs a file, a blocking I/O operation: Begin right after Enter, Complete right
# before Leave.


class CallPhase(IntEnum):
    """The kinds of events of a thread's location."""

    ENTER = 0
    LEAVE = 1
    BEGIN = 2
    COMPLETE = 3


CALL_SHAPES = {
    int(CallPhase.ENTER): Shape(12, (REGION,), measured=False),
    int(CallPhase.LEAVE): Shape(13, (REGION,), measured=False),
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


def call_events(
    calls: Calls, modes: U8, row: I64, waits: Waits, regions: tuple[U32, int, int]
) -> tuple[CallEvents, int]:
    """Return the events of calls, and how many calls were moved: those that end before their entry.

    Such a call ends at its entry. row, waits: waits of these calls and per wait the row of its
    call. regions: numbers: per call; of a wait until it was woken, and from there. In the order of
    the calls; within a call: ENTER, BEGIN (unless NO_IO), its waits in their order and clipped to
    it, COMPLETE, LEAVE. Halves of a wait of no length are left out. Times may go back.
    """
    of_call, blocked, runnable = regions
    start, end = calls.entry, np.maximum(calls.exit, calls.entry)
    every = np.arange(len(calls))
    io = np.flatnonzero(modes != NO_IO)
    parts = [
        _events(every, start, _FIRST, CallPhase.ENTER, of_call),
        _events(io, start[io], _FIRST + 1, CallPhase.BEGIN),
        _events(io, end[io], _LAST, CallPhase.COMPLETE),
        _events(every, end, _LAST + 1, CallPhase.LEAVE, of_call),
    ]
    moved = int((calls.exit < calls.entry).sum())
    spans = (waits.out, waits.woken, blocked), (waits.woken, waits.run, runnable)
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
    """Return events (n,) of the calls in rows `row` at `time` (ns), with `wait` -1."""
    events = np.zeros(len(row), dtype=EVENT)
    events["time"], events["row"], events["place"], events["region"] = time, row, place, region
    events["phase"], events["wait"] = int(phase), -1
    return events


BLOCKED, RUNNABLE = "blocked", "runnable"
"""Names of the regions of a wait: off the CPU until woken, and from there until it ran."""


class Threads:
    """Writes the calls of a log's threads, window by window, as they return."""

    def __init__(self, writer: Writer) -> None:
        """writer: its handles get the names of threads and processes, too."""
        self._writer = writer
        self._archive, self._handles, self._context = writer.archive, writer.handles, writer.context
        self._waits = PendingWaits()
        self._files = CallFiles()
        self.calls = 0
        """Calls that were written."""
        self.operations = 0
        """I/O operations among them."""

    def add(self, window: Lifecycles) -> None:
        """Write the calls that returned in a window, with their waits, also of windows before."""
        if window.path is None:
            return
        known = window.path.calls.take(window.path.calls.entry != NEVER)
        order = np.lexsort((known.entry, known.tid))
        calls = known.take(order)
        self._waits.add(window.path.waits)
        row, waits = self._waits.take(calls)
        files = self._files.of(window, calls)
        if not len(calls):
            return
        modes = np.full(len(calls), NO_IO, dtype=np.uint8)
        moves = calls.timed & ~calls.foreign  # what others moved is not known
        for mode, names in _MODES.items():
            these = numbers(frozenset(names), self._context.machine)
            modes[np.isin(calls.number, these) & moves] = mode
        # The region of a call is that of its name; those of waits there are even without any.
        keys = calls.number.astype(np.int64) << 2 | calls.timed << 1 | calls.foreign
        found, codes = np.unique(keys, return_inverse=True)
        region, machine = self._handles.region, self._context.machine
        of_name = [
            region(name_of_call(key >> 2, bool(key & 1), machine, bool(key & 2)))
            for key in found.tolist()
        ]
        of_call = np.array(of_name, dtype=np.uint32)[codes]
        regions = of_call, region(BLOCKED), region(RUNNABLE)
        events, moved = call_events(calls, modes, row, waits, regions)
        self._writer.moved += moved
        tasks = window.tasks
        tids, last = np.unique(calls.tid[::-1], return_index=True)
        for tid, task in zip(tids.tolist(), calls.task[::-1][last].tolist(), strict=True):
            pid, comm = (int(tasks.tgid[task]), str(tasks.comm[task])) if task >= 0 else (tid, "")
            self._handles.threads[tid] = (pid, comm)
            main = np.flatnonzero(tasks.tid == pid)
            if len(main):
                self._handles.processes[pid] = str(tasks.comm[main[-1]])
        # Numbered as they returned, whatever the windows are.
        columns = self._columns(calls, events, modes, files, self.calls + order)
        attributes = list(self._attributes(calls, waits, events, modes))
        self.operations += int((modes != NO_IO).sum())
        self.calls += len(calls)
        of = calls.tid[events["row"]].astype(np.int64)
        edges = np.flatnonzero(np.diff(of, prepend=-1))
        for begin, end in zip(edges, [*edges[1:], len(events)], strict=True):
            for start in range(int(begin), int(end), WRITE_EVENTS):
                rows = slice(start, min(start + WRITE_EVENTS, int(end)))
                self._writer.in_turn(
                    self._handles.location(int(of[begin]), CALLS).number,
                    events["time"][rows],
                    events["phase"][rows],
                    CALL_SHAPES,
                    {name: column[rows] for name, column in columns.items()},
                    [(what, values[rows], has[rows]) for what, values, has in attributes],
                )

    def _columns(
        self, calls: Calls, events: CallEvents, modes: U8, files: I64, number: I64
    ) -> dict[str, Column]:
        """Return the fields of all events, by name: (events,) each.

        Calls with a vector of buffers do not say how many bytes they ask for. files, number: per
        call, its row in `Context.files` (-1: none), and its matching id.
        """
        row = events["row"]
        done = np.maximum(calls.result, 0).astype(np.int64)
        says = np.isin(calls.number, numbers(_LENGTH_GIVEN, self._context.machine))
        asked = np.where(says, calls.arg2, done).astype(np.int64)
        moves = modes < FLUSH
        begins = events["phase"] == CallPhase.BEGIN
        size = np.where(begins, asked[row], done[row]) * moves[row]
        # The handle is the file's where that is known and no block device, else the descriptor's.
        handles = np.zeros(len(calls), dtype=np.uint32)
        for at in np.flatnonzero(modes != NO_IO).tolist():
            file = self._context.files[int(files[at])] if files[at] >= 0 else None
            pid, _ = self._handles.threads[int(calls.tid[at])]
            key = file.path if file is not None and not file.device else (pid, int(calls.arg0[at]))
            handles[at] = self._handles.handle(key)
        return {
            REGION.name: events["region"],
            HANDLE.name: handles[row],
            MODE.name: modes[row],
            WAY.name: np.zeros(len(row), dtype=np.uint32),
            BYTES.name: size.astype(np.uint64),
            ID.name: number[row].astype(np.uint64),
        }

    def _attributes(
        self, calls: Calls, waits: Waits, events: CallEvents, modes: U8
    ) -> Iterator[AttributeColumn]:
        """Yield the attributes of all events: (what, values (events,), which have it (events,))."""
        row, phase = events["row"], events["phase"]
        begins, leaves = phase == CallPhase.BEGIN, phase == CallPhase.LEAVE
        of_call = leaves & (events["wait"] < 0)
        yield attribute("fd", calls.arg0[row], begins)
        results, codes = np.unique(calls.result, return_inverse=True)
        names = [name_of_error(result) for result in results.tolist()]
        numbers_of = [self._archive.string(name) if name else 0 for name in names]
        error = np.array(numbers_of, dtype=np.uint32)[codes]
        yield attribute("error", error[row], of_call & (error[row] > 0))
        given = (calls.result > 0) & ((modes == NO_IO) | (modes == FLUSH)) & (error == 0)
        result = np.maximum(calls.result, 0).astype(np.uint64)
        yield attribute("result", result[row], of_call & given[row])
        queued = calls.bios.astype(np.uint32)
        yield attribute("queued bios", queued[row], of_call & (queued[row] > 0))
        texts = [self._archive.string(WAIT_CAUSE_NAMES[cause]) for cause in WaitCause]
        cause = np.array(texts, dtype=np.uint32)[np.append(waits.cause, 0)[events["wait"]]]
        blocked = events["region"] == self._handles.region(BLOCKED)
        yield attribute("waits for", cause, blocked & (phase == CallPhase.ENTER))


# Pairs of events: a region for each pair, at a location for each key.

PAIR_SHAPES = {key: CALL_SHAPES[key] for key in (int(CallPhase.ENTER), int(CallPhase.LEAVE))}
"""A pair is Enter and Leave, as a call."""


class PairLocations:
    """Writes the pairs of a log, window by window, as they end."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._handles = writer, writer.handles
        self._string = string = writer.archive.string
        self._names = PairNames(writer.context)
        self._drawn = DrawnPairs(
            self._names,
            lambda pair, _rank, key: self._location(pair, key),
            lambda _pair: -1,
            lambda pair, text: self._handles.pair_region(
                text, self._names.name(pair), self._names.events(pair)
            ),
            string,
        )
        self._shared: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Per pair a heap of its locations of other keys: (end ns of the last pair, number)."""
        self.pairs = 0
        """Pairs that were written."""

    def add(self, window: Lifecycles) -> None:
        """Write the pairs that ended in a window, the log's next. Raises OutputError."""
        if window.sites is None or not len(window.sites.pairs):
            return
        pairs = window.sites.pairs
        pairs = pairs.take(np.lexsort((pairs.number, pairs.began)))
        self.pairs += len(pairs)
        place, shared = self._drawn.places(pairs)
        # A key's pairs follow each other, so a location has one at a time; those of other keys go
        # to the first shared location that is free.
        for row in np.flatnonzero(shared).tolist():
            began, ended = int(pairs.began[row]), int(pairs.ended[row])
            place[row] = self._free(int(pairs.pair[row]), began, ended)
        regions = self._drawn.names(pairs).astype(np.uint32)
        texts = self._drawn.texts(pairs, shared).astype(np.uint32)
        order = np.argsort(place, kind="stable")
        edges = np.flatnonzero(np.diff(place[order], prepend=-1))
        for begin, end in zip(edges, [*edges[1:], len(order)], strict=True):
            for start in range(int(begin), int(end), WRITE_EVENTS // 2):
                rows = order[start : min(start + WRITE_EVENTS // 2, int(end))]
                self._write(int(place[rows[0]]), pairs.take(rows), regions[rows], texts[rows])

    def _write(self, number: int, pairs: Pairs, regions: U32, texts: U32) -> None:
        """Write pairs of one location, by begin: Enter has the key, Leave who ended the pair."""
        time = np.stack([pairs.began, pairs.ended], axis=1).reshape(-1)
        phases = (int(CallPhase.ENTER), int(CallPhase.LEAVE))
        phase = np.tile(np.array(phases, dtype=np.uint8), len(pairs))
        columns: dict[str, Column] = {REGION.name: np.repeat(regions, 2)}
        leaves = phase == CallPhase.LEAVE
        names, of = np.unique(pairs.comm, return_inverse=True)
        numbers = [self._string(name.decode(errors="replace")) for name in names.tolist()]
        comm = np.array(numbers, dtype=np.uint32)[of.reshape(-1)]
        key = np.repeat(texts, 2)
        attributes = [
            attribute("key", key, ~leaves & (key > 0)),
            attribute("ended by", np.repeat(comm, 2), leaves),
            attribute("ended by tid", np.repeat(pairs.tid, 2), leaves),
            attribute("ended on CPU", np.repeat(pairs.cpu.astype(np.uint32), 2), leaves),
        ]
        self._writer.in_turn(number, time, phase, PAIR_SHAPES, columns, attributes)

    def _free(self, pair: int, began: int, ended: int) -> int:
        """Return the location of other keys that has been free for longest, else a new one."""
        lanes = self._shared[pair]
        if lanes and lanes[0][0] <= began:
            _, number = heappop(lanes)
        else:
            number = self._location(pair, f"other keys {len(lanes) + 1}")
        heappush(lanes, (ended, number))
        return number

    def _location(self, pair: int, key: str) -> int:
        return self._handles.pair(self._names.name(pair), key).number
