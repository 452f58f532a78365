# SPDX-License-Identifier: Apache-2.0
"""A log that is still being written: a thread reads its chunks into a queue of limited size.

If chunks are taken too slowly, the oldest ones are skipped. A skipped chunk becomes a damaged
window, so that bios and requests in flight then count as LOST.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.log import LogSource, Part
from biotrail.recorder.log import Chunk
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.schema.records import Kind

MOST_WAITING_BYTES = 64 << 20
MOST_WAITING_NS = 5_000_000_000
IDLE_SECONDS = 0.25
QUIET_NS = 1_500_000_000
"""Age from which on, in a log without new chunks, a time counts as without events. A chunk is
0.9 s long, so younger events may not have been written yet."""
SILENCE_NS = 2_000_000_000
"""Time without events after which what waits for later ones is given out: longer than any reader
of a log waits for them."""
MOST_NAMES = 1000
_NAMING = [int(kind) for kind in (Kind.TASK, Kind.CGROUP, Kind.FILE_NAME)]
MOST_SKIPS = 100_000
MOST_WINDOWS = 1000


class Skip(NamedTuple):
    """A skipped chunk: its first and last time (CLOCK_MONOTONIC)."""

    first_ns: int
    last_ns: int
    bios: int
    """Number of bios that were queued in the chunk (Q events)."""


class LiveSource(LogSource):
    """A log stream as a Source. `start` starts the reading thread; `parts` takes from its queue.

    skipped_parts, skipped_ns: number of skipped chunks, and the sum of their durations.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Read the log's header from the stream. Raises LogFormatError: it has none."""
        super().__init__(stream)
        self.skipped_ns = 0
        self.skipped_parts = 0
        self._skips: deque[Skip] = deque(maxlen=MOST_SKIPS)
        self.error: Exception | None = None
        """Why reading ended before the log's end; None: it has not, or the log ended."""
        self.on_idle: Callable[[], None] | None = None
        """Called about every IDLE_SECONDS while `parts` waits for a chunk, in its thread."""
        self._waiting: deque[Chunk] = deque()
        self._bytes = 0
        self._names: deque[Part] = deque(maxlen=MOST_NAMES)
        self._names_decoder = Decoder(self.header.get("schema"))
        self._done = False
        self._written: int | None = None
        """When the chunk that was taken last was written, ns; None after a silence."""
        self._offset = 0
        self._forgotten = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="log reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def parts(self) -> Iterator[Part]:
        """Yield chunks as they arrive, until the stream ends; blocks while there is none.

        Call `start` first. After a silence an empty part says up to when no events came. Of skipped
        chunks (the last MOST_NAMES before the next chunk) only records of names come, as parts with
        `clock` None, before that chunk. After the last chunk raises the TraceError or OSError that
        ended reading, if any. Can be called once.
        """
        while (found := self._next()) is not None:
            while self._names:
                yield self._names.popleft()
            yield self.part(found) if isinstance(found, Chunk) else found
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def lost_records(self) -> int:
        return self._forgotten + _count(self.losses)

    def take_skips(self) -> list[Skip]:
        with self._changed:
            found = list(self._skips)
            self._skips.clear()
        return found

    def forget(self, most: int = MOST_WINDOWS) -> tuple[int, int]:
        """Delete all but the newest `most` entries of each of `losses` and `damaged`.

        Returns how many were deleted, (losses, damaged): indices into the two lists shift by that.
        `lost_records` still counts the deleted ones.
        """
        deleted = max(len(self.losses) - most, 0), max(len(self.damaged) - most, 0)
        self._forgotten += _count(self.losses[: deleted[0]])
        del self.losses[: deleted[0]]
        del self.damaged[: deleted[1]]
        return deleted

    def _read(self) -> None:
        try:
            for chunk in self.chunks():
                self.put(chunk)
        except (TraceError, OSError) as error:
            self.error = error
        finally:
            with self._changed:
                self._done = True
                self._changed.notify()

    def put(self, chunk: Chunk) -> None:
        """Append a chunk, skip the oldest while too much waits; for the reading thread."""
        with self._changed:
            self._waiting.append(chunk)
            self._bytes += _size(chunk)
            while len(self._waiting) > 1 and (
                self._bytes > MOST_WAITING_BYTES
                or chunk.last_ns - self._waiting[0].last_ns > MOST_WAITING_NS
            ):
                self._skip(self._waiting.popleft())
            self._changed.notify()

    def _skip(self, chunk: Chunk) -> None:
        self._bytes -= _size(chunk)
        self.skipped_parts += 1
        self.skipped_ns += chunk.last_ns - chunk.first_ns
        window = {"offset": chunk.offset, "start": chunk.first_ns, "end": chunk.last_ns}
        self.damaged.append(window)
        # A thread's name is recorded once: without it, its later bios would have none.
        events = self._names_decoder.decode(chunk)
        queued = int((events.kind == Kind.Q).sum())
        self._skips.append(Skip(chunk.first_ns, chunk.last_ns, queued))
        names = events.take(np.isin(events.kind, _NAMING))
        if len(names):
            self._names.append(Part(names, int(chunk.clock["monotonic"]), None, chunk.offset))

    def _next(self) -> Chunk | Part | None:
        """Return the oldest chunk, waiting for one, or a silence; None at the end."""
        while True:
            with self._changed:
                if not self._waiting and not self._done:
                    self._changed.wait(IDLE_SECONDS)
                if self._waiting or self._done:
                    break
            if self.on_idle is not None:
                self.on_idle()
            if (silence := self._silence()) is not None:
                return silence
        with self._changed:
            if not self._waiting:
                return None
            chunk = self._waiting.popleft()
            self._bytes -= _size(chunk)
        self._written = int(chunk.clock["monotonic"])
        self._offset = chunk.offset
        return chunk

    def _silence(self) -> Part | None:
        """Return a part without events, once, if there were none for SILENCE_NS."""
        until = time.monotonic_ns() - QUIET_NS
        if self._written is None or until - self._written < SILENCE_NS:
            return None
        self._written = None
        return Part(Events.empty(), until, None, self._offset, quiet=True)


def _size(chunk: Chunk) -> int:
    return sum(len(segment.data) for segment in chunk.segments)


def _count(losses: list[dict[str, Any]]) -> int:
    return sum(max(int(window.get("count", 0)), 0) for window in losses)
