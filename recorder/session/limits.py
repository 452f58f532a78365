# SPDX-License-Identifier: Apache-2.0
"""Stopping by what was recorded: so many events, so many bytes of log."""

from collections.abc import Sequence

from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import Segment
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.session.session_types import RecordOptions

_GUESSED_RATIO = 0.2
"""Log bytes per byte of records, until some were written."""


class StopLimits:
    """Looks at each poll; what is found is as exact as a poll."""

    def __init__(self, options: RecordOptions, writer: WriterThread) -> None:
        """Takes `max_events` and `max_bytes` of the options."""
        self._events, self._bytes = options.max_events, options.max_bytes
        self._ratio = _GUESSED_RATIO if options.level else 1.0
        self._writer = writer
        self._meter = Meter()

    def took(self, segments: Sequence[Segment]) -> None:
        """Count what one poll took from the rings, if anybody asks."""
        if self._events is not None and segments:
            self._meter.add(segments)

    def reached(self, taken_bytes: int) -> str:
        """The limit that was reached, as a reason to stop; empty: none.

        `taken_bytes`: of records, from the rings.
        """
        if self._events is not None and self._meter.events >= self._events:
            return "number of events"
        if self._bytes is not None and self._size(taken_bytes) >= self._bytes:
            return "size of the log"
        return ""

    def _size(self, taken: int) -> float:
        """Of the log, when all that was taken is written."""
        written, raw = self._writer.log_bytes, self._writer.raw_bytes
        return written + (taken - raw) * (written / raw if raw else self._ratio)
