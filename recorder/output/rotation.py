# SPDX-License-Identifier: Apache-2.0
"""When a new file begins: decided by the poll loop, done by the writer thread."""

from biotrail.recorder.output.series import Clock
from biotrail.recorder.output.sinks import LogSink, RotatingLog, Sink
from biotrail.recorder.output.writer import WriterThread


class Rotation:
    """Knows whether a new file is due, and orders it once."""

    def __init__(self, sink: Sink, writer: WriterThread) -> None:
        """A sink that does not rotate is never due."""
        self._sink = sink if isinstance(sink, RotatingLog) else None
        self._writer = writer
        self._ordered = False

    @property
    def possible(self) -> bool:
        """Whether there can be a next file."""
        return self._sink is not None

    @property
    def deleted(self) -> int:
        """Files that were deleted for being the oldest."""
        return 0 if self._sink is None else self._sink.deleted

    def due(self, _now_ns: int) -> bool:
        """Whether the present file is full, old enough, or was removed by others."""
        sink = self._sink
        if sink is None or self._ordered:
            return False
        return sink.due() or sink.removed()

    @property
    def gone(self) -> int:
        """Files that others deleted or moved away."""
        return 0 if self._sink is None else self._sink.gone

    def order(self, _clock: Clock) -> None:
        """End the file behind all that is queued; not now, where the queue is full."""
        self._ordered = self._writer.offer(self._rotate)

    def _rotate(self, _log: LogSink) -> None:
        try:
            if self._sink is not None and self._writer.error is None:
                self._sink.rotate()
        finally:
            self._ordered = False
