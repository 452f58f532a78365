# SPDX-License-Identifier: Apache-2.0
"""Moves records and losses from the rings to the writer thread's queue, for the poll loop."""

from biotrail.recorder.accounting.loss import LossCounters, Window
from biotrail.recorder.host import clocks
from biotrail.recorder.log import Segment
from biotrail.recorder.notes.stacks import StackWatch
from biotrail.recorder.notes.titles import TitleWatch
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.session.limits import StopLimits

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
        """Begin without records, and with a new chunk at `now_ns` (CLOCK_MONOTONIC).

        `stacks`: new call stacks are written before the records that have their ids.
        `titles`: looks up those of the processes that records name. `limits`: counts the records
        that are copied.
        """
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

        `now_ns`: CLOCK_MONOTONIC. Nothing is copied while CHUNK_BYTES wait already or the writer
        has too much to do (`WriterThread.ready`): records stay in the rings then, which count what
        they lose. A chunk is queued at CHUNK_BYTES, or CHUNK_NS after it began, which is when the
        one before was queued; if the writer's queue is full, it goes on waiting. Raises ProbeError:
        the rings cannot be read.
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

        However many wait already. Adds them to the waiting records, `taken_bytes` and the limits'
        count; sets `clock`, also if there were none. Raises ProbeError: the rings cannot be read.
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
        """Queue the waiting records as a chunk; then none wait, and the next begins at `now_ns`.

        If the writer's queue is full, the records go on waiting. Before them, a job for new call
        stacks is queued, if a look for these is due. Without records nothing is queued, and only
        the next chunk's beginning is set.
        """
        if self._pending and self._stacks.due(now_ns):
            self._stacks.put(self._writer)
        if self._pending and not self._writer.offer_chunk(self._pending, self.clock):
            return
        if self._pending:
            self._writer.offer(self._titles.job(self._writer, self._pending))
        self._pending, self._pending_bytes, self._chunk_ns = [], 0, now_ns

    def jobs(self) -> list[Job]:
        """Return the jobs that write new stacks, the waiting records and titles of their processes.

        The records go on waiting.
        """
        chunk = [self._writer.chunk(self._pending, self.clock)] if self._pending else []
        titles = self._titles.job(self._writer, self._pending)
        return [*self._stacks.jobs(self._writer), *chunk, titles]


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

        The kernel skips a program that is already running on that CPU (recursion_misses). The
        counters of programs with the same event letter are added up; a program that was not loaded
        counts 0. Windows that find the writer's queue full wait for the next sample. `now_ns`:
        CLOCK_MONOTONIC.
        """
        misses: dict[str, int] = {}
        for program in self._probes.programs():
            misses[program.letter] = misses.get(program.letter, 0) + program.recursion_misses
        self._put(self._counters.sample_programs(misses, now_ns))

    def _put(self, windows: list[Window]) -> None:
        """Queue one job for the windows that wait and `windows`; all wait if the queue is full."""
        self._windows.extend(windows)
        if self._windows and self._writer.offer(self._writer.loss(self._windows)):
            self._windows = []

    def jobs(self) -> list[Job]:
        """Return the job that writes the waiting windows, which go on waiting; [] without any."""
        return [self._writer.loss(self._windows)] if self._windows else []
