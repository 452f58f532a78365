# SPDX-License-Identifier: Apache-2.0
"""A log that is still being written: read at once by a thread, given on as fast as it is asked for.

Whoever asks too slowly gets no more than the newest: what is older is skipped, and is a
damaged window for the model, so that what was in flight there counts as lost.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from biotrail.converters.events.events import Decoder
from biotrail.converters.inputs.log import LogSource, Part
from biotrail.recorder.log import Chunk
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.schema.records import Kind

MOST_WAITING_BYTES = 64 << 20
"""Of records that wait."""
MOST_WAITING_NS = 5_000_000_000
"""From the oldest record that waits to the newest."""
IDLE_SECONDS = 0.25
MOST_NAMES = 1000
"""Skipped chunks whose names of tasks, cgroups and files are kept."""
_NAMING = [int(kind) for kind in (Kind.TASK, Kind.CGROUP, Kind.FILE_NAME)]
MOST_SKIPS = 100_000
"""Of which nobody has asked yet: a day of recording."""
MOST_WINDOWS = 1000
"""Loss windows that are remembered."""


class Skip(NamedTuple):
    """A chunk that nobody got; CLOCK_MONOTONIC."""

    first_ns: int
    last_ns: int
    bios: int
    """That were queued in it."""


class LiveSource(LogSource):
    """A stream of a log as `Trace` reads it; `start` begins to read."""

    def __init__(self, stream: BinaryIO) -> None:
        """Reads the header. Raises LogFormatError where there is none."""
        super().__init__(stream)
        self.skipped_ns = 0
        self.skipped_parts = 0
        self._skips: deque[Skip] = deque(maxlen=MOST_SKIPS)
        self.error: Exception | None = None
        """Why reading ended before the log's end."""
        self.on_idle: Callable[[], None] | None = None
        """Called about every IDLE_SECONDS while nothing comes, by whoever takes `parts`."""
        self._waiting: deque[Chunk] = deque()
        self._bytes = 0
        self._names: deque[Part] = deque(maxlen=MOST_NAMES)
        self._names_decoder = Decoder(self.header.get("schema"))
        self._done = False
        self._forgotten = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="log reader", daemon=True)

    def start(self) -> None:
        """Read from now on, whether somebody takes it or not."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the stream has ended and nothing is read from it any more."""
        self._thread.join()

    def parts(self) -> Iterator[Part]:
        """As they come, until the stream ends."""
        while (chunk := self._next()) is not None:
            while self._names:
                yield self._names.popleft()
            yield self.part(chunk)
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def lost_records(self) -> int:
        """Records that the recorder counted as lost so far."""
        return self._forgotten + _count(self.losses)

    def take_skips(self) -> list[Skip]:
        """Return what was skipped since the last call, in the order of time."""
        with self._changed:
            found = list(self._skips)
            self._skips.clear()
        return found

    def forget(self, most: int = MOST_WINDOWS) -> tuple[int, int]:
        """Lets go of all loss windows but the newest; (losses, damaged) let go of."""
        self._forgotten += _count(self.losses[: max(len(self.losses) - most, 0)])
        gone = max(len(self.losses) - most, 0), max(len(self.damaged) - most, 0)
        del self.losses[: gone[0]]
        del self.damaged[: gone[1]]
        return gone

    def _read(self) -> None:
        try:
            for chunk in self.reader.chunks():
                self.put(chunk)
        except (TraceError, OSError) as error:
            self.error = error
        finally:
            with self._changed:
                self._done = True
                self._changed.notify()

    def put(self, chunk: Chunk) -> None:
        """One more waits; the oldest are skipped where too much does."""
        with self._changed:
            self._waiting.append(chunk)
            self._bytes += _size(chunk)
            while len(self._waiting) > 1 and self._too_much():
                self._skip(self._waiting.popleft())
            self._changed.notify()

    def _too_much(self) -> bool:
        behind = self._waiting[-1].last_ns - self._waiting[0].last_ns
        return self._bytes > MOST_WAITING_BYTES or behind > MOST_WAITING_NS

    def _skip(self, chunk: Chunk) -> None:
        self._bytes -= _size(chunk)
        self.skipped_parts += 1
        self.skipped_ns += chunk.last_ns - chunk.first_ns
        window = {"offset": chunk.offset, "start": chunk.first_ns, "end": chunk.last_ns}
        self.damaged.append(window)
        # Each name is told once: without it, all that its task does later has none.
        events = self._names_decoder.decode(chunk).events
        queued = int((events.kind == Kind.Q).sum())
        self._skips.append(Skip(chunk.first_ns, chunk.last_ns, queued))
        names = events.take(np.isin(events.kind, _NAMING))
        if len(names):
            self._names.append(Part(names, int(chunk.clock["monotonic"]), None, chunk.offset))

    def _next(self) -> Chunk | None:
        while True:
            with self._changed:
                if not self._waiting and not self._done:
                    self._changed.wait(IDLE_SECONDS)
                if self._waiting or self._done:
                    break
            if self.on_idle is not None:
                self.on_idle()
        with self._changed:
            if not self._waiting:
                return None
            chunk = self._waiting.popleft()
            self._bytes -= _size(chunk)
            return chunk


def _size(chunk: Chunk) -> int:
    return sum(len(segment.data) for segment in chunk.segments)


def _count(losses: list[dict[str, Any]]) -> int:
    return sum(max(int(window.get("count", 0)), 0) for window in losses)
