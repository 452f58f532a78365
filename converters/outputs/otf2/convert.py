# SPDX-License-Identifier: Apache-2.0
"""Convert lifecycles to an OTF2 archive: every bio and request is an I/O operation of its device.

`docs/otf2.md` describes the mapping. A location is one device's bios or requests; its events are
held back until they are in order of time (`events.Queue`), counted (`gauges`) and encoded
(`writer`); the library writes the definitions last (`archive.Archive`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios, Lifecycles, Requests
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.definitions import define
from biotrail.converters.outputs.otf2.events import (
    HOLD_EVENTS,
    EventArray,
    Operations,
    Phase,
    Queue,
    bio_operations,
    request_operations,
)
from biotrail.converters.outputs.otf2.gauges import GAUGES, Gauges, Values
from biotrail.converters.outputs.otf2.handles import BIOS, COUNTERS, REQUESTS, Handles, Location
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


class _Conversion:
    """One run: the queues and counters of all locations, and the loss markers."""

    def __init__(self, archive: Archive, context: Context, hold_events: int) -> None:
        self._archive = archive
        self._context = context
        self._hold_events = hold_events
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
        self.summary.bios += len(window.bios)
        self.summary.requests += len(window.requests)
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
        bios = bio_operations(window.bios, self._comms)
        requests = request_operations(window.requests)
        self._seen_to = max(self._seen_to, *(_latest(ops) for ops in (bios, requests)))
        until = max(min(window.end, self._seen_to), 0)
        open_bios = bio_operations(window.open_bios, self._comms)
        open_requests = request_operations(window.open_requests)
        self._queue_ended(BIOS, bios, until)
        self._queue_ended(REQUESTS, requests, until)
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
            open_bios, open_requests = self._open
            self.summary.bios += len(open_bios)
            self.summary.requests += len(open_requests)
            bios = bio_operations(open_bios, self._comms)
            requests = request_operations(open_requests)
            self._seen_to = max(self._seen_to, _latest(bios), _latest(requests))
            self._queue_ended(BIOS, bios, self._seen_to)
            self._queue_ended(REQUESTS, requests, self._seen_to)
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
            self._samples(location, gauges.finish(self.summary.last_ns))
        if not self.handles.locations:  # readers require one
            disks = [dev for dev in self._context.devices if self._context.disk_of(dev) == dev]
            for disk in disks or [0]:
                self._archive.event_file(self.handles.location(disk, BIOS).number)
        define(self._archive, self._context, self.handles, self.summary, self._markers)
        return self.summary

    def _queue_ended(self, layer: str, ops: Operations, until: int) -> None:
        """Put the events of ended operations into the queue of each disk's location."""
        for disk in np.unique(ops.disk):
            location = self.handles.location(int(disk), layer)
            queue = self._queues.setdefault(location, Queue(self._hold_events))
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
            self._samples(location, self._gauges[location].update(events))

    def _samples(self, location: Location, values: Values) -> None:
        """Write and count samples of a disk's counters, to its location of counters."""
        if len(values.time):
            place = self.handles.location(location.dev, COUNTERS)
            numbers = [self.handles.metric(place, at) for at in range(len(GAUGES))]
            metric = np.array(numbers, dtype=np.uint32)[values.gauge]
            self._writer.samples(place, metric, values.time, values.value)
            self.summary.samples += len(values.time)


def _latest(ops: Operations) -> int:
    return int(max(ops.last.max(), ops.complete.max())) if len(ops) else NEVER


def convert(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    directory: Path,
    *,
    hold_events: int = HOLD_EVENTS,
) -> Otf2Summary:
    """Write an OTF2 archive of a log's lifecycles, and return what it holds.

    directory: is created, or exists and is empty; the archive is `traces.otf2` in it, and the files
    beside that. hold_events: most events of a device's bios, or of its requests, that are held in
    memory; some more are held where an operation is open for up to one second. Raises
    ConversionError without the otf2 package, OutputError where the directory is in use or cannot be
    written; then nothing of the archive is left.
    """
    archive = Archive(directory)
    try:
        conversion = _Conversion(archive, context, hold_events)
        for window in lifecycles:
            conversion.add(window)
            del window  # not kept while the next is made
        summary = conversion.end()
        archive.close()
    except BaseException:
        archive.abandon()
        raise
    return summary
