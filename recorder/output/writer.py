# SPDX-License-Identifier: Apache-2.0
"""The thread that compresses and writes the log, so that the poll loop never waits for a disk."""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import Segment
from biotrail.recorder.log.names import Rows
from biotrail.recorder.log.writer import Packed, Packer
from biotrail.recorder.output.sinks import LogSink
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.payloads import Clock, Note

QUEUE_JOBS = 64
"""Jobs that may wait in the queue."""
QUEUE_BYTES = 64 << 20
"""Bytes of records that may wait; beyond that they stay in the rings, whose losses are counted."""

MOST_HELPERS = 3
"""Threads that pack beside the writer thread; one less than there are CPUs, if that is fewer."""

_NO_MEMORY = (
    "there was not enough memory to write the log: what was written before reads back as an "
    "interrupted log; free some, or record less (-d, a smaller --buffer-size or --keep)"
)
_WRITER_CRASHED = (
    "what writes the log ended unexpectedly (the lines above say where): what was written before "
    "reads back as an interrupted log; please report it"
)

Job = Callable[[LogSink], None]


class Packing:
    """The records of a drain, to be packed by the first thread that comes to them."""

    def __init__(self, segments: Sequence[Segment], clock: dict[str, int]) -> None:
        self.segments, self.clock = segments, clock
        self.over = threading.Event()
        """Set when the thread that packs has done so or failed."""
        self._begun = threading.Lock()
        self._packed: list[Packed] | None = None

    def run(self, packer: Packer) -> None:
        """Pack, unless a thread has begun to."""
        if self._begun.acquire(blocking=False):
            try:
                with suppress(MemoryError):  # `take` tries again
                    self._packed = packer.chunks(self.segments, self.clock)
            finally:
                self.over.set()

    def take(self, packer: Packer) -> list[Packed]:
        """Return the chunks once `over` is set; pack here what another thread failed to."""
        packed, self._packed = self._packed, None
        return packer.chunks(self.segments, self.clock) if packed is None else packed


class WriterThread:
    """A thread that runs jobs on a sink in order, and helpers that pack chunks while it is behind.

    After an error the jobs of `chunk`, `note`, `notes` and `loss` write nothing any more.
    """

    def __init__(self, log: LogSink, helpers: int | None = None) -> None:
        """`helpers`: None: as many as MOST_HELPERS says."""
        if helpers is None:
            helpers = min(MOST_HELPERS, len(os.sched_getaffinity(0)) - 1)
        self._log = log
        self._packer = log.new_packer()
        self._packings: queue.SimpleQueue[Packing | None] = queue.SimpleQueue()
        self._helpers = [
            threading.Thread(target=self._help, name="biotrail-pack", daemon=True)
            for _ in range(helpers)
        ]
        self._jobs: queue.Queue[Job | None] = queue.Queue(QUEUE_JOBS)
        self._thread = threading.Thread(target=self._run, name="biotrail-write", daemon=True)
        self._ended = False
        self._given = 0
        """Bytes of the records in queued chunks; of those that are done see the meters."""
        self.error: OSError | OutputError | None = None
        self.log_bytes = 0
        """Bytes of chunks written to the log so far."""
        self.meter = Meter()
        """Events of the records that were written."""
        self.until: Clock | None = None
        """The clocks when the newest written records left the rings; None: none was written."""
        self.unwritten = Meter()
        """Events of the records whose job did not write them."""
        self.progress_ns = time.monotonic_ns()
        """When a job last ended, ns of CLOCK_MONOTONIC."""
        self.tasks: deque[Rows] = deque(maxlen=16)
        """TASK records of the chunks written last, which who looks at them takes away."""
        for thread in (self._thread, *self._helpers):
            thread.start()

    def ready(self) -> bool:
        """Return whether more records may be copied from the rings."""
        return self._waiting_bytes() < QUEUE_BYTES and not self._jobs.full()

    def _waiting_bytes(self) -> int:
        return self._given - self.meter.bytes - self.unwritten.bytes

    def submit(self, job: Job) -> None:
        """Queue a job; wait while the queue is full."""
        self._jobs.put(job)

    def offer(self, job: Job) -> bool:
        """Queue a job unless the queue is full; return whether it was queued. Never waits."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        return True

    @property
    def threads(self) -> list[int]:
        """The kernel's ids of the threads that run."""
        return [one.native_id for one in (self._thread, *self._helpers) if one.native_id]

    def finish(self, last: Job, waited: Callable[[], bool]) -> bool:
        """Have the thread run all queued jobs, then `last`, and wait for its end.

        `waited` is called about every 0.1 s; when it returns True, waiting is given up, and the
        thread goes on by itself. Returns whether the thread has ended.
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
            if not self._ended:  # an unexpected exception: threading prints its traceback
                self.error = self.error or OutputError(_WRITER_CRASHED)
            for _ in self._helpers:
                self._packings.put(None)
            for helper in self._helpers:
                helper.join()

    def _help(self) -> None:
        packer = self._log.new_packer()
        while (packing := self._packings.get()) is not None:
            packing.run(packer)

    def _pack(self, packing: Packing) -> list[Packed]:
        """Return packed chunks; while a helper packs them, pack others that wait."""
        packing.run(self._packer)
        while not packing.over.is_set():
            try:
                other = self._packings.get_nowait()
            except queue.Empty:
                packing.over.wait()
            else:
                if other is not None:
                    other.run(self._packer)
        return packing.take(self._packer)

    def chunk(self, packing: Packing) -> Job:
        """Return a job that writes the records, and adds to the counters or to `unwritten`."""
        segments = packing.segments

        def write(log: LogSink) -> None:
            meter, size = self.unwritten, 0
            try:
                if self.error is None:
                    packed = self._pack(packing)
                    size = log.write_chunk(segments, packing.clock, packed)
                    meter = self.meter
                    self.until = packing.clock
                    self.tasks.extend(one.names.tasks for one in packed if len(one.names.tasks))
            finally:
                meter.add(segments)
                self.log_bytes += size  # together: their ratio is asked for meanwhile

        return write

    def offer_chunk(self, segments: Sequence[Segment], clock: dict[str, int]) -> bool:
        """Queue a chunk's job unless the queue is full; helpers pack it while others wait."""
        packing = Packing(segments, clock)
        if not self.offer(self.chunk(packing)):
            return False
        if self._helpers and self._waiting_bytes():
            self._packings.put(packing)
        self._given += sum(len(segment.data) for segment in segments)
        return True

    def note(self, name: str, make: Callable[[], Note | None]) -> Job:
        """Return a job that writes what `make` returns, called in the writer thread, as a note."""
        return self.notes(name, lambda: [one for one in (make(),) if one is not None])

    def notes(self, name: str, make: Callable[[], Sequence[Note]]) -> Job:

        def write(log: LogSink) -> None:
            if self.error is None:
                for payload in make():
                    log.write_note(name, payload)

        return write

    def loss(self, windows: list[dict[str, int]]) -> Job:
        """Return a job that writes loss windows."""

        def write(log: LogSink) -> None:
            if self.error is None:
                log.write_loss(windows)

        return write
