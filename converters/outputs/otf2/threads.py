# SPDX-License-Identifier: Apache-2.0
"""Write the locations of threads: their system calls, with waits and I/O operations in them."""

from collections.abc import Iterator

import numpy as np

from biotrail.converters.calls.files import CallFiles
from biotrail.converters.calls.names import name_of_call, name_of_error
from biotrail.converters.calls.waiting import PendingWaits
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U8,
    U32,
    WAIT_CAUSE_NAMES,
    Lifecycles,
    Tasks,
    WaitCause,
)
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.attributes import AttributeColumn, attribute
from biotrail.converters.outputs.otf2.calls import (
    CALL_SHAPES,
    NO_IO,
    CallEvents,
    CallPhase,
    Regions,
    asked_bytes,
    call_events,
    in_order,
    operation_modes,
)
from biotrail.converters.outputs.otf2.handles import Handles
from biotrail.converters.outputs.otf2.records import Column, encode
from biotrail.converters.outputs.otf2.writer import (
    BYTES,
    FLUSH,
    HANDLE,
    ID,
    MODE,
    REGION,
    WAY,
    WRITE_EVENTS,
    stamped,
)

BLOCKED, RUNNABLE = "blocked", "runnable"
"""Names of the regions of a wait: off the CPU until woken, and from there until it ran."""


class Threads:
    """Writes the calls of a log's threads, window by window, as they return."""

    def __init__(self, archive: Archive, handles: Handles, context: Context) -> None:
        """Write into `archive`; nothing is written yet.

        handles: numbers locations, regions and I/O handles, and gets the names of threads and
        processes. context: the log's.
        """
        self._archive = archive
        self._handles = handles
        self._context = context
        self._waits = PendingWaits()
        self._files = CallFiles()
        self._last: dict[int, int] = {}
        """Per thread: time (ns) of its newest event."""
        self.calls = 0
        """Calls that were written."""
        self.operations = 0
        """I/O operations among them."""
        self.moved = 0
        """Times that were moved to keep OTF2's order."""
        self.first_ns = NEVER
        """Time (ns) of the earliest event."""
        self.last_ns = NEVER

    def add(self, window: Lifecycles) -> None:
        """Write the calls that returned in a window, the log's next, whose entry is known.

        With their waits, also of windows before, and as I/O operations where they are. Calls are
        numbered as they returned (`calls` counts on). Creates a location for each thread with a
        call; adds regions, I/O handles and names to `handles`. Changes the class's counts. Raises
        OutputError where writing fails.
        """
        if window.path is None:
            return
        known = window.path.calls.take(window.path.calls.entry != NEVER)
        order = np.lexsort((known.entry, known.tid))
        calls = known.take(order)
        self._waits.add(window.path.waits)
        row, waits = self._waits.take(calls)
        files = self._files.of(window, calls)
        if not len(calls) or waits is None:
            return
        modes = operation_modes(calls, self._context.machine)
        modes[~calls.timed] = NO_IO  # what these moved is not known
        events, moved = call_events(calls, modes, row, waits, self._regions(calls))
        self.moved += moved
        self._name_threads(calls, window.tasks)
        # Numbered as they returned, whatever the windows are.
        columns = self._columns(calls, events, modes, files, self.calls + order)
        attributes = list(self._attributes(calls, waits, events, modes))
        self.operations += int((modes != NO_IO).sum())
        self.calls += len(calls)
        tid = calls.tid[events["row"]]
        edges = np.flatnonzero(np.diff(tid.astype(np.int64), prepend=-1))
        for begin, end in zip(edges, [*edges[1:], len(events)], strict=True):
            for start in range(int(begin), int(end), WRITE_EVENTS):
                rows = slice(start, min(start + WRITE_EVENTS, int(end)))
                self._write(int(tid[begin]), events, rows, columns, attributes)

    def _write(
        self,
        tid: int,
        events: CallEvents,
        rows: slice,
        columns: dict[str, Column],
        attributes: list[AttributeColumn],
    ) -> None:
        """Write the events `rows` of one thread, after all that it has so far, in order of time.

        Times before the thread's newest event are moved to it and counted in `moved`. columns,
        attributes: of all `events`. Sets `_last`, `first_ns` and `last_ns`. Raises OutputError
        where writing fails.
        """
        file = self._archive.event_file(self._handles.thread(tid).number)
        time, moved = in_order(events["time"][rows], self._last.get(tid, 0))
        self.moved += moved
        self._last[tid] = int(time[-1])
        self.last_ns = max(self.last_ns, int(time[-1]))
        first = int(time[0])
        self.first_ns = first if self.first_ns == NEVER else min(first, self.first_ns)
        these = {name: column[rows] for name, column in columns.items()}
        carried = [(what, values[rows], has[rows]) for what, values, has in attributes]
        phase = events["phase"][rows]
        records = encode(time, stamped(time, file), phase, CALL_SHAPES, these, carried)
        self._archive.write(file, records)

    def _regions(self, calls: Calls) -> Regions:
        """Return the numbers of the regions of calls and waits; new ones get the next numbers.

        A call's is that of its name, which all 32-bit calls of one number share; those of waits,
        BLOCKED and RUNNABLE, are numbered even where there are no waits.
        """
        keys = calls.number.astype(np.int64) << 2 | calls.timed << 1 | calls.foreign
        found, codes = np.unique(keys, return_inverse=True)
        machine = self._context.machine
        names = [
            name_of_call(key >> 2, bool(key & 1), machine, bool(key & 2)) for key in found.tolist()
        ]
        region = self._handles.region
        of_call = np.array([region(name) for name in names], dtype=np.uint32)[codes]
        return Regions(of_call, region(BLOCKED), region(RUNNABLE))

    def _name_threads(self, calls: Calls, tasks: Tasks) -> None:
        """Note process id and name of each thread with a call, and the name of its main thread.

        At its last row in `calls`. Where the thread is not known (task -1), the process has the
        thread's id, and the name is empty. A main thread that is not in `tasks` gets no name.
        Changes `threads` and `processes` of the handles.
        """
        tids, last = np.unique(calls.tid[::-1], return_index=True)
        for tid, row in zip(tids.tolist(), calls.task[::-1][last].tolist(), strict=True):
            pid, comm = (int(tasks.tgid[row]), str(tasks.comm[row])) if row >= 0 else (tid, "")
            self._handles.name_thread(tid, pid, comm)
            main = np.flatnonzero(tasks.tid == pid)
            if len(main):
                self._handles.processes[pid] = str(tasks.comm[main[-1]])

    def _columns(
        self, calls: Calls, events: CallEvents, modes: U8, files: I64, number: I64
    ) -> dict[str, Column]:
        """Return the fields of all events, by name: (events,) each.

        Bytes: at BEGIN those asked for, else those returned; 0 for calls other than reads and
        writes, and for errors. files, number: per call, its row in `Context.files` (-1: none), and
        its matching id. Numbers new I/O handles.
        """
        row = events["row"]
        asked = asked_bytes(calls, self._context.machine)
        done = np.maximum(calls.result, 0).astype(np.int64)
        moves = modes < FLUSH
        begins = events["phase"] == CallPhase.BEGIN
        size = np.where(begins, asked[row], done[row]) * moves[row]
        return {
            REGION.name: events["region"],
            HANDLE.name: self._io_handles(calls, modes, files)[row],
            MODE.name: modes[row],
            WAY.name: np.zeros(len(row), dtype=np.uint32),
            BYTES.name: size.astype(np.uint64),
            ID.name: number[row].astype(np.uint64),
        }

    def _io_handles(self, calls: Calls, modes: U8, files: I64) -> U32:
        """Return the number of each call's I/O handle (n,), 0 for a call that is no operation.

        It is that of the file's path where the file is known and no block device, else of the file
        descriptor (first argument) in its process, which must be in the handles' `threads`. files:
        per call, its row in `Context.files`, -1: none. New handles get numbers.
        """
        numbers = np.zeros(len(calls), dtype=np.uint32)
        for row in np.flatnonzero(modes != NO_IO).tolist():
            file = self._context.files[int(files[row])] if files[row] >= 0 else None
            if file is not None and not file.device:
                numbers[row] = self._handles.file(file.path)
            else:
                tid, fd = int(calls.tid[row]), int(calls.arg0[row])
                numbers[row] = self._handles.descriptor(tid, fd)
        return numbers

    def _attributes(
        self, calls: Calls, waits: Waits, events: CallEvents, modes: U8
    ) -> Iterator[AttributeColumn]:
        """Yield the attributes of all events: (what, values (events,), which have it (events,)).

        At BEGIN: fd. At a call's LEAVE: error, its name, of those that failed; result of calls that
        are no read or write, if above 0; queued bios if above 0. At ENTER of a wait's `blocked`
        region: what it waits for. Numbers new texts in the archive.
        """
        row, phase = events["row"], events["phase"]
        begins, leaves = phase == CallPhase.BEGIN, phase == CallPhase.LEAVE
        of_call = leaves & (events["wait"] < 0)
        yield attribute("fd", calls.arg0[row], begins)
        error = self._errors(calls)
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

    def _errors(self, calls: Calls) -> U32:
        """Return the number of the name of each call's error (n,), 0: it did not fail."""
        found, codes = np.unique(calls.result, return_inverse=True)
        names = (name_of_error(int(result)) for result in found)
        texts = [self._archive.string(name) if name else 0 for name in names]
        return np.array(texts, dtype=np.uint32)[codes]
