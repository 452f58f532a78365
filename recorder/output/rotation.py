# SPDX-License-Identifier: Apache-2.0
"""Decides in the poll loop when a rotating log needs a new file; the writer thread makes it."""

from biotrail.recorder.output.sinks import LogSink, RotatingLog, Sink
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.schema.payloads import Clock


class Rotation:
    """Rotation of one recording's log; orders one new file at a time."""

    def __init__(self, sink: Sink, writer: WriterThread) -> None:
        """`sink`: unless it is a RotatingLog, `due` is always False."""
        self._sink = sink if isinstance(sink, RotatingLog) else None
        self._writer = writer
        self._ordered = False

    @property
    def possible(self) -> bool:
        """Whether the sink rotates."""
        return self._sink is not None

    @property
    def deleted(self) -> int:
        """Number of files that were deleted as the oldest beyond the limit."""
        return 0 if self._sink is None else self._sink.deleted

    def due(self, _now_ns: int) -> bool:
        """Return whether the present file has reached its limit, or was deleted by others.

        False while an ordered rotation is under way, between two files, and where the sink does not
        rotate. The argument is ignored.
        """
        sink = self._sink
        if sink is None or self._ordered:
            return False
        return sink.due() or sink.removed()

    @property
    def due_ns(self) -> float:
        """When the present file is too old (CLOCK_MONOTONIC); inf: never."""
        return float("inf") if self._sink is None else self._sink.due_ns()

    @property
    def taken_away(self) -> int:
        """Number of files that others deleted, moved away or replaced."""
        return 0 if self._sink is None else self._sink.taken_away

    def order(self, clock: Clock) -> None:
        """Queue a job that ends the present file behind all other jobs of the writer thread.

        `clock`: read when the last records of the present file left the rings. Sets `_ordered`
        until the job has run, so that `due` is False. Where the queue is full nothing happens. Only
        to be called if `due`.
        """

        def rotate(_log: LogSink) -> None:
            """End the present file, unless writing failed; clear `_ordered` in any case.

            Runs in the writer thread.
            """
            try:
                if self._sink is not None and self._writer.error is None:
                    self._sink.rotate(clock)
            finally:
                self._ordered = False

        self._ordered = True  # first: the job may have run when `offer` returns
        if not self._writer.offer(rotate):
            self._ordered = False
