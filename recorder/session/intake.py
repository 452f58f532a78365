# SPDX-License-Identifier: Apache-2.0
"""Moves records and losses from the rings to the writer thread's queue, for the poll loop."""

from collections.abc import Sequence

from biotrail.recorder.accounting.loss import LossCounters, Window
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.host import clocks
from biotrail.recorder.log import Segment
from biotrail.recorder.notes.stacks import StackWatch
from biotrail.recorder.notes.titles import TitleWatch
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.session.session_types import RecordOptions

_GUESSED_RATIO = 0.2
"""Log bytes per byte of records, assumed until the first chunk is written."""


class StopLimits:
    """The limits, checked at each poll, so exceeded by at most what one poll takes."""

    def __init__(self, options: RecordOptions, writer: WriterThread) -> None:
        """Use `max_events`, `max_bytes` and `level` of the options."""
        self._events, self._bytes = options.max_events, options.max_bytes
        self._ratio = _GUESSED_RATIO if options.level else 1.0
        self._writer = writer
        self._meter = Meter()

    def count(self, segments: Sequence[Segment]) -> None:
        """Count the events that one poll copied from the rings, if `max_events` is set."""
        if self._events is not None and segments:
            self._meter.add(segments)

    def reached(self, taken_bytes: int) -> str:
        """Return the reason to stop: "number of events" or "size of the log"; "" if neither.

        `taken_bytes`: bytes of records copied from the rings so far; compared is the size that the
        log would have if all were written.
        """
        if self._events is not None and self._meter.events >= self._events:
            return "number of events"
        if self._bytes is not None and self._size(taken_bytes) >= self._bytes:
            return "size of the log"
        return ""

    def _size(self, taken: int) -> float:
        """Return the log's estimated size in bytes once `taken` bytes of records are written."""
        written, raw = self._writer.log_bytes, self._writer.raw_bytes
        return written + (taken - raw) * (written / raw if raw else self._ratio)


CHUNK_BYTES = 4 << 20
CHUNK_NS = 900_000_000
"""A chunk is closed at this size or age, so that kill -9 costs about a second."""


class Intake:
    """The records that were copied from the rings and wait to become a chunk of the log."""

    def __init__(
        self,
        probes: Probes,
        stacks: StackWatch,
        titles: TitleWatch,
        writer: WriterThread,
        limits: StopLimits,
        now_ns: int,
    ) -> None:
        self._probes = probes
        self._stacks = stacks
        self._titles = titles
        self._writer = writer
        self._limits = limits
        self._chunk_ns = now_ns
        self._pending: list[Segment] = []
        self._pending_bytes = 0
        self.clock = clocks.reading()
        """Clock readings (name → ns) right after records were last copied from the rings."""
        self.taken_bytes = 0
        """Bytes of records copied from the rings so far."""

    @property
    def empty(self) -> bool:
        """Whether no records wait: all that were copied from the rings are queued."""
        return not self._pending

    def poll(self, now_ns: int) -> None:
        """Copy records from the rings, then queue all that wait as a chunk if large or old enough.

        Nothing is copied while CHUNK_BYTES wait already or the writer has too much to do: records
        stay in the rings then, which count what they lose. Raises ProbeError.
        """
        if self._pending_bytes < CHUNK_BYTES and self._writer.ready():
            self.drain()
        if self._pending_bytes >= CHUNK_BYTES or now_ns - self._chunk_ns >= CHUNK_NS:
            self.offer_chunk(now_ns)

    @property
    def due_ns(self) -> int:
        """When the present chunk is old enough to be queued; CLOCK_MONOTONIC."""
        return self._chunk_ns + CHUNK_NS

    def drain(self) -> bool:
        """Copy all committed records from the rings; return whether there were any.

        Raises ProbeError: the rings cannot be read.
        """
        segments = self._probes.drain()
        self.clock = clocks.reading()  # right after the copy: later events go to the next chunk
        size = sum(len(segment.data) for segment in segments)
        self._pending.extend(segments)
        self._pending_bytes += size
        self.taken_bytes += size
        self._limits.count(segments)
        return bool(segments)

    def offer_chunk(self, now_ns: int) -> None:
        """Queue the waiting records as a chunk, behind new call stacks if a look for these is due.

        If the writer's queue is full, the records go on waiting.
        """
        if self._pending and self._stacks.due(now_ns):
            self._stacks.put(self._writer)
        if self._pending and not self._writer.offer_chunk(self._pending, self.clock):
            return
        if self._pending:
            self._writer.offer(self._titles.job(self._writer))
        self._pending, self._pending_bytes, self._chunk_ns = [], 0, now_ns

    def jobs(self) -> list[Job]:
        """Return the jobs that write new stacks, the waiting records and their titles."""
        chunk = [self._writer.chunk(self._pending, self.clock)] if self._pending else []
        return [*self._stacks.jobs(self._writer), *chunk, self._titles.job(self._writer)]


class LossFeed:
    """Samples the counters of lost events, and queues loss windows for the log."""

    def __init__(self, probes: Probes, counters: LossCounters, writer: WriterThread) -> None:
        """`counters`: gets every sample; nothing is sampled yet."""
        self._probes = probes
        self._counters = counters
        self._writer = writer
        self._windows: list[Window] = []

    @property
    def empty(self) -> bool:
        """Whether no loss windows wait: all that were found are queued."""
        return not self._windows

    def sample_rings(self, now_ns: int) -> None:
        """Sample the rings' counters, and queue windows for what was lost up to `now_ns`."""
        lost, too_deep = self._probes.lost(), self._probes.too_deep()
        self._put(self._counters.sample_rings(lost, too_deep, now_ns))

    def sample_programs(self, now_ns: int) -> None:
        """Sample the programs' counters of skipped runs, and queue loss windows up to `now_ns`.

        The kernel skips a program that is already running on that CPU (recursion_misses).
        """
        misses: dict[str, int] = {}
        for program in self._probes.programs():
            misses[program.letter] = misses.get(program.letter, 0) + program.recursion_misses
        self._put(self._counters.sample_programs(misses, now_ns))

    def _put(self, windows: list[Window]) -> None:
        self._windows.extend(windows)
        if self._windows and self._writer.offer(self._writer.loss(self._windows)):
            self._windows = []

    def jobs(self) -> list[Job]:
        """Return the job that writes the waiting windows; [] without any."""
        return [self._writer.loss(self._windows)] if self._windows else []
