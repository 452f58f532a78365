# SPDX-License-Identifier: Apache-2.0
"""Convert lifecycles to an OTF2 archive: every bio and request is an I/O operation of its device.

`docs/otf2.md` describes the mapping. A location is one device's bios or requests; its events are
held back until they are in order of time (`events.Queue`), counted (`Gauges`) and encoded
(`writer`); the library writes the definitions last (`archive.Archive`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    OP_MASK,
    U32,
    U64,
    Bios,
    Lifecycles,
    Requests,
    Table,
)
from biotrail.converters.outputs.counters import RATE_BIN, READ_OPS, WRITE_OPS, Level, Rate, Samples
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.definitions import define
from biotrail.converters.outputs.otf2.events import (
    LATEST,
    TRUNCATED,
    UNISSUED,
    EventArray,
    Phase,
    Queue,
    bio_operations,
    request_operations,
)
from biotrail.converters.outputs.otf2.handles import BIOS, REQUESTS, Handles, Location
from biotrail.converters.outputs.otf2.threads import PairLocations, Threads
from biotrail.converters.outputs.otf2.writer import Writer
from biotrail.recorder.schema.records import BY_KIND, Kind


@dataclass
class Otf2Summary:
    """What an archive holds. Times in ns of CLOCK_MONOTONIC, NEVER where there is no event."""

    anchor: Path
    """Path of the file that readers open."""
    bios: int = 0
    requests: int = 0
    events: int = 0
    """Number of events of operations."""
    samples: int = 0
    """Number of samples of counters."""
    calls: int = 0
    """System calls of threads."""
    call_operations: int = 0
    """I/O operations of these calls; their events are not among `events`."""
    pairs: int = 0
    """Pairs of events; their own events are not among `events`."""
    cancelled: int = 0
    """Operations without a recorded completion."""
    moved: int = 0
    """Operations or events whose time was moved to keep OTF2's order: 0 in a sound log."""
    lost: int = 0
    """Events that the recorder counted as lost."""
    lost_unknown: int = 0
    """Loss windows without a count."""
    held: int = 0
    """The most events that one location held back in memory."""
    first_ns: int = NEVER
    last_ns: int = NEVER


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
        """Begin all counters with 0 at `origin`, ns: the time of the disk's first event."""
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
        """Take in events of the disk's bios, by time; return samples that no later one can change.

        Samples are by time, then GAUGES, one per counter and time; those from the 10 ms of the last
        event on are held back. Bios are queued until their Issued, or until their end if no issue
        was recorded (a TRUNCATED Issued does not count), and from then on in the device.
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
        """Return what was held back, by time, then GAUGES, none after `end` (ns)."""
        none = np.zeros(0, dtype=np.int64)
        until = end + 2 * RATE_BIN
        counters = self._queued, self._in_device, self._reads, self._writes
        return self._release([one.update(none, none, until) for one in counters], until, end)

    def _release(self, samples: list[Samples], before: int, end: int = LATEST) -> Values:
        """Return samples before `before` (ns), sorted by time, then gauge; hold back the others.

        samples: new ones, for each of GAUGES. Times are clipped to the first event and to `end`
        (ns); of a counter's samples that then have one time, the last one is kept.
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


class _Conversion:
    """One run: the queues and counters of all locations, and the loss markers."""

    def __init__(self, archive: Archive, context: Context) -> None:
        self._archive = archive
        self._context = context
        self.handles = Handles()
        self._writer = Writer(archive, self.handles, context)
        self._threads = Threads(self._writer)
        self._pairs = PairLocations(self._writer)
        self._queues: dict[Location, Queue] = {}
        self._gauges: dict[Location, Gauges] = {}
        """Counters of a disk, by the location of its bios."""
        self._comms = np.empty(0, dtype=np.uint32)
        """Per row of the window's tasks: number of the thread's name in the archive."""
        self._markers: list[tuple[int, int, str]] = []
        """Loss windows: (start ns, duration ns, text)."""
        self._seen_to = 0
        """ns: the latest time of any operation."""
        self._open: tuple[Bios, Requests] | None = None
        """What was in flight at the end of the last window; None: there was no window."""
        self.summary = Otf2Summary(archive.anchor)

    def add(self, window: Lifecycles) -> None:
        """Take in a window of lifecycles; write the events that nothing can precede any more."""
        loss = window.loss
        columns = (loss.start, loss.end, loss.count, loss.kind, loss.cpu)
        for start, end, count, kind, cpu in zip(*(c.tolist() for c in columns), strict=True):
            known = BY_KIND[Kind(kind)] if kind in set(Kind) else None
            what = f"{known.name} ({known.letter}) events" if known else "events"
            text = f"lost: {'an unknown number of' if count < 0 else count} {what}"
            text += f" on CPU {cpu}" if cpu >= 0 else ""
            self._markers.append((start, max(end - start, 0), text))
            self.summary.lost += max(count, 0)
            self.summary.lost_unknown += count < 0
        new = [self._archive.string(comm) for comm in window.tasks.comm[len(self._comms) :]]
        self._comms = np.concatenate([self._comms, np.array(new, dtype=np.uint32)])
        self._ended(window.bios, window.requests, window.end)
        open_bios = bio_operations(window.open_bios, self._comms)
        open_requests = request_operations(window.open_requests)
        for location, queue in self._queues.items():
            still_open = open_bios if location.layer == BIOS else open_requests
            still_open = still_open.take(still_open.disk == location.dev)
            self._write(location, queue.release(window.end, still_open))
        self._threads.add(window)
        self._pairs.add(window)
        self._open = window.open_bios, window.open_requests

    def end(self) -> Otf2Summary:
        """Write all events that are held back, and the definitions; return the summary."""
        if self._open is not None:
            self._ended(*self._open, LATEST)
        for location, queue in self._queues.items():
            self._write(location, queue.take())
            self.summary.moved += queue.moved
            self.summary.held = max(self.summary.held, queue.peak)
        summary, written = self.summary, self._writer
        summary.calls, summary.call_operations = self._threads.calls, self._threads.operations
        summary.pairs = self._pairs.pairs
        summary.moved += written.moved
        if written.first_ns != NEVER:
            first = written.first_ns if summary.first_ns == NEVER else summary.first_ns
            summary.first_ns = min(first, written.first_ns)
            summary.last_ns = max(summary.last_ns, written.last_ns)
        for location, gauges in self._gauges.items():
            values = gauges.finish(summary.last_ns)
            summary.samples += self._writer.samples(
                location.dev, values.gauge, values.time, values.value
            )
        if not self.handles.locations:  # readers require one
            disks = [dev for dev in self._context.devices if self._context.disk_of(dev) == dev]
            for disk in disks or [0]:
                self._archive.event_file(self.handles.location(disk, BIOS).number)
        define(self._archive, self._context, self.handles, self.summary, self._markers)
        return self.summary

    def _ended(self, bios: Bios, requests: Requests, end: int) -> None:
        """Queue the events of what ended, or is cut off at `end` (ns) or the latest time seen."""
        self.summary.bios += len(bios)
        self.summary.requests += len(requests)
        layers = (BIOS, bio_operations(bios, self._comms)), (REQUESTS, request_operations(requests))
        seen = (int(max(ops.last.max(), ops.complete.max())) for _, ops in layers if len(ops))
        self._seen_to = max([self._seen_to, *seen])
        until = max(min(end, self._seen_to), 0)
        for layer, ops in layers:
            for disk in np.unique(ops.disk).tolist():
                location = self.handles.location(disk, layer)
                queue = self._queues.setdefault(location, Queue())
                queue.finish(ops.take(ops.disk == disk), until)

    def _write(self, location: Location, events: EventArray) -> None:
        """Write events of one location, and count them in `summary`."""
        if not len(events):
            return
        summary = self.summary
        first, last = int(events["time"][0]), int(events["time"][-1])
        summary.first_ns = first if summary.first_ns == NEVER else min(first, summary.first_ns)
        summary.last_ns = max(last, summary.last_ns)
        summary.events += len(events)
        summary.cancelled += int(np.count_nonzero(events["phase"] == Phase.CANCELLED))
        self._writer.operations(location, events)
        if location.layer == BIOS:
            if location not in self._gauges:
                self._gauges[location] = Gauges(self._context, first)
            values = self._gauges[location].update(events)
            summary.samples += self._writer.samples(
                location.dev, values.gauge, values.time, values.value
            )


def convert(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    directory: Path,
) -> Otf2Summary:
    """Write an OTF2 archive of a log's lifecycles, and return what it holds.

    directory: is created, or exists and is empty; the archive is `traces.otf2` in it, and the files
    beside that. Raises ConversionError without the otf2 package, OutputError where the directory is
    in use or cannot be written; then nothing of the archive is left.
    """
    archive = Archive(directory)
    try:
        conversion = _Conversion(archive, context)
        for window in lifecycles:
            conversion.add(window)
            del window  # not kept while the next is made
        summary = conversion.end()
        archive.close()
    except BaseException:  # Ctrl-C, too: no part of an archive stays
        archive.abandon()
        raise
    return summary
