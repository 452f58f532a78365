# SPDX-License-Identifier: Apache-2.0
"""The one thread that compresses and writes, so that the poll loop never waits for a disk."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import Segment
from biotrail.recorder.output.series import Clock
from biotrail.recorder.output.sinks import LogSink
from biotrail.recorder.schema.errors import OutputError

QUEUE_JOBS = 64
QUEUE_BYTES = 64 << 20
"""Bytes of records that may wait; beyond that the rings hold, and count, what comes."""

_NO_MEMORY = (
    "there was not enough memory to write the log: what was written before reads back as an "
    "interrupted log; free some, or record less (-d, a smaller --buffer-size or --keep)"
)
_FELL_OVER = (
    "what writes the log ended unexpectedly (the lines above say where): what was written before "
    "reads back as an interrupted log; please report it"
)

Job = Callable[[LogSink], None]


class WriterThread:
    """Runs jobs on a sink in order. After an error it only discards what is queued."""

    def __init__(self, log: LogSink) -> None:
        self._log = log
        self._jobs: queue.Queue[Job | None] = queue.Queue(QUEUE_JOBS)
        self._thread = threading.Thread(target=self._run, name="biotrail-write", daemon=True)
        self._ended = False
        self._given = self._done = 0  # bytes of records, each counted by one thread alone
        self.error: OSError | OutputError | None = None
        self.log_bytes = 0
        """Bytes of chunks written to the log so far."""
        self.raw_bytes = 0
        """Bytes of records in them."""
        self.chunks = 0
        self.meter = Meter()
        """Counts the events of what was written."""
        self.until: Clock | None = None
        """The clocks when the newest of it was taken from the rings; None: nothing was."""
        self.unwritten = Meter()
        """Counts the events of what could not be written."""
        self.progress_ns = time.monotonic_ns()
        """CLOCK_MONOTONIC when a job last ended."""
        self._thread.start()

    def ready(self) -> bool:
        """Whether more records may be taken from the rings."""
        return self._given - self._done < QUEUE_BYTES and not self._jobs.full()

    def submit(self, job: Job) -> None:
        """Queue a job; waits while the queue is full."""
        self._jobs.put(job)

    def offer(self, job: Job) -> bool:
        """Queue a job unless the queue is full; whether it was taken."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        return True

    @property
    def thread(self) -> int:
        """The kernel's id of the thread; 0 before it runs, which means the caller's."""
        return self._thread.native_id or 0

    def finish(self, last: Job, waited: Callable[[], bool]) -> bool:
        """Run all that is queued, then `last`, and end the thread.

        `waited` is called about every 0.1 s; when it returns True, waiting is given up.
        Returns whether the thread ended.
        """
        for job in (last, None):
            while self._thread.is_alive():
                try:
                    self._jobs.put(job, timeout=0.1)
                    break
                except queue.Full:
                    if waited():
                        return False
        while self._thread.is_alive():
            self._thread.join(0.1)
            if self._thread.is_alive() and waited():
                return False
        return True

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                try:
                    job(self._log)
                except (OSError, OutputError) as error:
                    self.error = self.error or error
                except MemoryError:
                    self.error = self.error or OutputError(_NO_MEMORY)
                self.progress_ns = time.monotonic_ns()
            self._ended = True
        finally:
            if not self._ended:  # a fault of ours, whose traceback is printed: stop, say so
                self.error = self.error or OutputError(_FELL_OVER)

    def chunk(self, segments: Sequence[Segment], clock: dict[str, int]) -> Job:
        """A job that writes the segments as one chunk and keeps count."""
        raw = sum(len(segment.data) for segment in segments)

        def write(log: LogSink) -> None:
            chunks, merged = self.chunks, merge(segments)
            try:
                if self.error is None:
                    self._write_chunk(log, merged, clock, raw)
            finally:
                self._done += raw
                if self.chunks == chunks:
                    self.unwritten.add(merged)

        return write

    def offer_chunk(self, segments: Sequence[Segment], clock: dict[str, int]) -> bool:
        """Queue a chunk unless the queue is full; whether it was taken."""
        if not self.offer(self.chunk(segments, clock)):
            return False
        self._given += sum(len(segment.data) for segment in segments)
        return True

    def _write_chunk(
        self, log: LogSink, segments: list[Segment], clock: dict[str, int], raw: int
    ) -> None:
        self.log_bytes += log.write_chunk(segments, clock)
        self.raw_bytes += raw
        self.chunks += 1
        self.until = clock
        self.meter.add(segments)

    def note(self, name: str, make: Callable[[], dict[str, Any] | None]) -> Job:
        """A job that collects a note in this thread and writes it, unless it is None."""

        def write(log: LogSink) -> None:
            if self.error is None and (payload := make()) is not None:
                log.write_note(name, payload)

        return write

    def notes(self, name: str, make: Callable[[], list[dict[str, Any]]]) -> Job:
        """A job that collects notes in this thread and writes them."""

        def write(log: LogSink) -> None:
            if self.error is None:
                for payload in make():
                    log.write_note(name, payload)

        return write

    def loss(self, windows: list[dict[str, int]]) -> Job:
        """A job that writes loss windows."""

        def write(log: LogSink) -> None:
            if self.error is None:
                log.write_loss(windows)

        return write


def merge(segments: Sequence[Segment]) -> list[Segment]:
    """Segments with those of one ring that follow each other joined, in order of first sight.

    A chunk holds many polls; their segments are contiguous in each ring, so this leaves one
    per ring and spares the log the framing of the others.
    """
    rings: dict[tuple[int, int], list[list[Segment]]] = {}
    for segment in segments:
        runs = rings.setdefault((segment.cpu, segment.level), [])
        if runs and runs[-1][-1].position + len(runs[-1][-1].data) == segment.position:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return [_join(run) for runs in rings.values() for run in runs]


def _join(run: list[Segment]) -> Segment:
    if len(run) == 1:
        return run[0]
    first = run[0]
    return Segment(first.cpu, first.level, first.position, b"".join(s.data for s in run))
