# SPDX-License-Identifier: Apache-2.0
"""Moves records and losses from the rings to the writer thread's queue, for the poll loop."""

from biotrail.recorder.accounting.loss import LossCounters, Window
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.host import clocks
from biotrail.recorder.log import Segment
from biotrail.recorder.notes.titles import TitleWatch
from biotrail.recorder.output.writer import Job, Packing, WriterThread
from biotrail.recorder.session.opening import Opened

_GUESSED_RATIO = 0.2
"""Log bytes per byte of records, assumed until the first chunk is written."""
CHUNK_BYTES = 4 << 20
CHUNK_NS = 900_000_000
"""A chunk is closed at this size or age, so that kill -9 costs about a second."""


class Intake:
    """The records and losses that wait to become frames of the log. Times: ns, CLOCK_MONOTONIC."""

    def __init__(self, opened: Opened, writer: WriterThread, now_ns: int) -> None:
        """now_ns: of the first chunk."""
        self._options, self._probes, self._stacks = opened.options, opened.probes, opened.stacks
        self._titles = TitleWatch(opened.options.command_lines)
        self._writer = writer
        self._chunk_ns = now_ns
        self._pending: list[Segment] = []
        self._pending_bytes = 0
        self._meter = Meter()  # only for max_events
        self.clock = clocks.reading()
        """Clock readings (name → ns) right after records were last copied from the rings."""
        self.taken_bytes = 0
        """Bytes of records copied from the rings so far."""
        self.loss = LossCounters(int(opened.header["clocks"]["monotonic"]))
        self._windows: list[Window] = []

    @property
    def empty(self) -> bool:
        """Whether all that was taken from the rings is queued."""
        return not self._pending and not self._windows

    @property
    def due_ns(self) -> int:
        """When the present chunk is old enough to be queued."""
        return self._chunk_ns + CHUNK_NS

    def limit_reached(self) -> str:
        """Return the reason to stop: "number of events" or "size of the log"; "" if neither."""
        options, writer = self._options, self._writer
        if options.max_events is not None and self._meter.events >= options.max_events:
            return "number of events"
        if options.max_bytes is not None:
            written, raw = writer.log_bytes, writer.meter.bytes
            ratio = written / raw if raw else _GUESSED_RATIO if options.level else 1.0
            if written + (self.taken_bytes - raw) * ratio >= options.max_bytes:
                return "size of the log"
        return ""

    def poll(self, now_ns: int) -> None:
        """Copy records from the rings, then queue all that wait as a chunk if large or old enough.

        While much waits, records stay in the rings, which count what they lose. Raises ProbeError.
        """
        if self._pending_bytes < CHUNK_BYTES and self._writer.ready():
            self.drain()
        if self._pending_bytes >= CHUNK_BYTES or now_ns - self._chunk_ns >= CHUNK_NS:
            self.offer_chunk(now_ns)

    def drain(self) -> bool:
        """Copy all committed records from the rings; return whether there were any."""
        segments = self._probes.drain()
        self.clock = clocks.reading()  # right after the copy: later events go to the next chunk
        size = sum(len(segment.data) for segment in segments)
        self._pending.extend(segments)
        self._pending_bytes += size
        self.taken_bytes += size
        if self._options.max_events is not None and segments:
            self._meter.add(segments)
        return bool(segments)

    def offer_chunk(self, now_ns: int) -> None:
        """Queue the waiting records, behind new call stacks, unless the queue is full."""
        if self._pending:
            if self._stacks.due(now_ns):
                self._stacks.put(self._writer)
            if not self._writer.offer_chunk(self._pending, self.clock):
                return
            self._writer.offer(self._titles.job(self._writer))
        self._pending, self._pending_bytes, self._chunk_ns = [], 0, now_ns

    def sample_rings(self, now_ns: int) -> None:
        """Queue loss windows for the records that the rings lost up to `now_ns`."""
        lost, too_deep = self._probes.lost(), self._probes.too_deep()
        self._put(self.loss.sample_rings(lost, too_deep, now_ns))

    def sample_programs(self, now_ns: int) -> None:
        """Queue loss windows for events whose program was skipped, as it ran already."""
        misses: dict[str, int] = {}
        for program in self._probes.programs():
            misses[program.letter] = misses.get(program.letter, 0) + program.recursion_misses
        self._put(self.loss.sample_programs(misses, now_ns))

    def _put(self, windows: list[Window]) -> None:
        self._windows.extend(windows)
        if self._windows and self._writer.offer(self._writer.loss(self._windows)):
            self._windows = []

    def jobs(self) -> list[Job]:
        """Return the jobs that write new stacks and all that waits, then titles."""
        writer = self._writer
        chunk = [writer.chunk(Packing(self._pending, self.clock))] if self._pending else []
        losses = [writer.loss(self._windows)] if self._windows else []
        stacks = writer.notes("stacks", self._stacks.changes)
        return [stacks, *chunk, self._titles.job(writer), *losses]
