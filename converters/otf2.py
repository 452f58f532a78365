# SPDX-License-Identifier: Apache-2.0
"""Lifecycles as an OTF2 archive: every bio and request is an I/O operation of its device.

The mapping is in `docs/otf2.md`. A location is one device's bios or requests; its events
are held back until they are in order of time (`otf2_events.Queue`) and then go to the
library (`otf2_archive.Archive`), the definitions last.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from converters.model.context import Context
from converters.model.tables import NEVER, Lifecycles, LossWindows
from converters.otf2_archive import NO_STRING, Archive
from converters.otf2_definitions import BIOS, REQUESTS, Handles, Location, define
from converters.otf2_events import (
    BLOCKING,
    HOLD_EVENTS,
    OWN,
    TRUNCATED,
    EventArray,
    Operations,
    Phase,
    Queue,
    bio_operations,
    request_operations,
)
from recorder.records import BY_KIND, Kind

NO_SECTOR = 2**64 - 1
WRITE_EVENTS = 100_000
"""Events turned into Python's numbers at once."""

READ, WRITE, FLUSH = 0, 1, 2
"""OTF2_IO_OPERATION_MODE_*."""
_NON_BLOCKING = 1

_MODE_NAMES = {READ: "read", WRITE: "write", FLUSH: "flush"}


@dataclass
class Otf2Summary:
    """What an archive holds. Times in ns of CLOCK_MONOTONIC, NEVER where there is no event."""

    anchor: Path
    """The file that readers open."""
    bios: int = 0
    requests: int = 0
    events: int = 0
    cancelled: int = 0
    """Operations whose completion the trace does not show."""
    moved: int = 0
    """Operations or events whose time was moved to keep OTF2's order: 0 in a sound log."""
    lost: int = 0
    """Events lost while recording, as far as they were counted."""
    lost_unknown: int = 0
    """Loss windows of unknown count."""
    held: int = 0
    """The most events that one location held back in memory."""
    first_ns: int = NEVER
    last_ns: int = NEVER


def modes(events: EventArray, context: Context) -> tuple[NDArray[np.uint8], list[str]]:
    """OTF2's mode of each event's operation, and its name for an `op` attribute ("": none).

    OTF2 knows reads, writes and flushes. All else is a read or a write by the direction of
    its data (the lowest bit of a req_op), with its own name. An empty write with PREFLUSH is
    how the kernel spells a flush.
    """
    codes, names = context.op_codes(events["opf"])
    mode = np.where(events["opf"] & 1, WRITE, READ).astype(np.uint8)
    is_flush = np.array([name == "flush" for name in names], dtype=np.bool_)[codes]
    empty_write = np.array([name == "write" for name in names], dtype=np.bool_)[codes]
    empty_write &= (events["bytes"] == 0) & (events["opf"] & context.flag_mask("PREFLUSH") != 0)
    mode[is_flush | empty_write] = FLUSH
    plain = set(_MODE_NAMES.values())
    by_code = np.array(["" if name in plain else name for name in names], dtype=object)
    return mode, by_code[codes].tolist()


class _Writer:
    """Writes one location's sorted events."""

    def __init__(self, archive: Archive, handles: Handles, context: Context) -> None:
        self._archive = archive
        self._handles = handles
        self._context = context
        self.cancelled = 0

    def write(self, location: Location, events: EventArray) -> None:
        """Writes events that are in order; raises OutputError where the library refuses."""
        for start in range(0, len(events), WRITE_EVENTS):
            self._write(location, events[start : start + WRITE_EVENTS])

    def _write(self, location: Location, events: EventArray) -> None:
        functions = self._archive.functions
        writer = self._archive.writer(location.number)
        no_list, attributes = None, self._archive.attributes
        begin, issued, complete = int(Phase.BEGIN), int(Phase.ISSUED), int(Phase.COMPLETE)
        for time, number, phase, handle, detail, size, mode, op, status, flags in zip(
            *self._columns(location, events), strict=False
        ):
            extra = flags & TRUNCATED
            if extra:
                functions.add_u8(attributes, Handles.TRUNCATED, 1)
            if phase == begin:
                if detail != NO_SECTOR:
                    functions.add_u64(attributes, Handles.SECTOR, detail)
                if flags & OWN:
                    functions.add_u8(attributes, Handles.OWN, 1)
                if op != NO_STRING:
                    functions.add_string(attributes, Handles.OP, op)
                way = 0 if flags & BLOCKING else _NON_BLOCKING
                failed = functions.begin(writer, attributes, time, handle, mode, way, size, number)
            elif phase == issued:
                failed = functions.issued(
                    writer, attributes if extra else no_list, time, handle, number
                )
            elif phase == complete:
                if status:
                    functions.add_string(attributes, Handles.ERROR, self._error(status))
                failed = functions.complete(
                    writer, attributes if status else no_list, time, handle, size, number
                )
            else:
                if detail:
                    functions.add_u64(attributes, Handles.ABSORBED_BY, detail - 1)
                failed = functions.cancelled(writer, attributes, time, handle, number)
                self.cancelled += 1
            if failed:
                self._archive.check(failed)

    def _error(self, status: int) -> int:
        return self._archive.string(self._context.status_name(status))

    def _columns(self, location: Location, events: EventArray) -> list[Iterable[int]]:
        """Python numbers, a list per column."""
        mode, names = modes(events, self._context)
        ops = [self._archive.string(name) if name else NO_STRING for name in names]
        devs, codes = np.unique(events["dev"], return_inverse=True)
        handles = [self._handles.number(location, int(dev)) for dev in devs]
        return [
            events["time"].tolist(),
            events["number"].tolist(),
            events["phase"].tolist(),
            [handles[code] for code in codes.tolist()],
            events["detail"].tolist(),
            events["bytes"].tolist(),
            mode.tolist(),
            ops if any(names) else repeat(NO_STRING),
            events["status"].tolist(),
            events["flags"].tolist(),
        ]


class _Conversion:
    """One run: the queues of all locations, what was counted, and what was lost."""

    def __init__(self, archive: Archive, context: Context, hold_events: int) -> None:
        self._archive = archive
        self._context = context
        self._hold_events = hold_events
        self.handles = Handles()
        self._writer = _Writer(archive, self.handles, context)
        self._queues: dict[Location, Queue] = {}
        self._markers: list[tuple[int, int, str]] = []
        self._seen_to = NEVER
        self.summary = Otf2Summary(archive.anchor)

    def add(self, window: Lifecycles) -> None:
        """Takes a window; writes what is in order by now."""
        self.summary.bios += len(window.bios)
        self.summary.requests += len(window.requests)
        self._note_loss(window.loss)
        bios, requests = bio_operations(window.bios), request_operations(window.requests)
        self._seen_to = max(self._seen_to, *(_latest(ops) for ops in (bios, requests)))
        until = min(window.end, self._seen_to)
        open_bios = bio_operations(window.open_bios)
        open_requests = request_operations(window.open_requests)
        self._finish(BIOS, bios, until)
        self._finish(REQUESTS, requests, until)
        for location, queue in self._queues.items():
            rest = open_bios if location.layer == BIOS else open_requests
            rest = rest.take(rest.disk == location.dev)
            self._write(location, queue.release(window.end, rest))

    def end(self, last: Lifecycles | None) -> Otf2Summary:
        """Writes all that is held, what the last window leaves open, and the definitions."""
        if last is not None:
            self.summary.bios += len(last.open_bios)
            self.summary.requests += len(last.open_requests)
            rest = bio_operations(last.open_bios), request_operations(last.open_requests)
            self._seen_to = max(self._seen_to, *(_latest(ops) for ops in rest))
            self._finish(BIOS, rest[0], self._seen_to)
            self._finish(REQUESTS, rest[1], self._seen_to)
        for location, queue in self._queues.items():
            self._write(location, queue.drain())
            self.summary.moved += queue.moved
            self.summary.held = max(self.summary.held, queue.peak)
        self.summary.cancelled = self._writer.cancelled
        if not self.handles.locations:
            self._locations_without_io()
        define(self._archive, self._context, self.handles, self.summary, self._markers)
        return self.summary

    def _finish(self, layer: str, ops: Operations, until: int) -> None:
        for disk in np.unique(ops.disk):
            location = self.handles.location(int(disk), layer)
            queue = self._queues.setdefault(location, Queue(self._hold_events))
            queue.finish(ops.take(ops.disk == disk), until)

    def _write(self, location: Location, events: EventArray) -> None:
        if not len(events):
            return
        summary = self.summary
        first, last = int(events["time"][0]), int(events["time"][-1])
        summary.first_ns = first if summary.first_ns == NEVER else min(first, summary.first_ns)
        summary.last_ns = max(last, summary.last_ns)
        summary.events += len(events)
        self._writer.write(location, events)

    def _locations_without_io(self) -> None:
        """Gives a trace without I/O its disks as empty locations: readers insist on one."""
        disks = [dev for dev in self._context.devices if self._context.disk_of(dev) == dev]
        for disk in disks or [0]:
            self._archive.writer(self.handles.location(disk, BIOS).number)

    def _note_loss(self, loss: LossWindows) -> None:
        for row in range(len(loss)):
            start, end, count = int(loss.start[row]), int(loss.end[row]), int(loss.count[row])
            self._markers.append((start, max(end - start, 0), _loss_text(loss, row)))
            self.summary.lost += max(count, 0)
            self.summary.lost_unknown += count < 0


def _latest(ops: Operations) -> int:
    return int(max(ops.last.max(), ops.complete.max())) if len(ops) else NEVER


def _loss_text(loss: LossWindows, row: int) -> str:
    """`lost: 5 issue (D) events on CPU 1`."""
    count, kind, cpu = int(loss.count[row]), int(loss.kind[row]), int(loss.cpu[row])
    known = Kind(kind) if kind in set(Kind) else None
    what = f"{BY_KIND[known].name} ({BY_KIND[known].letter}) events" if known else "events"
    number = "an unknown number of" if count < 0 else str(count)
    return f"lost: {number} {what}" + (f" on CPU {cpu}" if cpu >= 0 else "")


@contextmanager
def _archive(directory: Path) -> Iterator[Archive]:
    """An archive that is whole or not there."""
    archive = Archive(directory)
    try:
        yield archive
        archive.close()
    except BaseException:
        archive.abandon()
        raise


def convert(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    directory: Path,
    *,
    hold_events: int = HOLD_EVENTS,
) -> Otf2Summary:
    """Writes an OTF2 archive into `directory`, which is made, or is there and empty.

    Memory does not grow with the trace: a location holds back what is younger than its oldest
    open operation, at most about `hold_events` events and one second's.

    Raises ConversionError without the otf2 package, OutputError where the directory is in use
    or cannot be written; then nothing of the archive is left.
    """
    with _archive(directory) as archive:
        conversion = _Conversion(archive, context, hold_events)
        last = None
        for last in lifecycles:
            conversion.add(last)
        return conversion.end(last)
