# SPDX-License-Identifier: Apache-2.0
"""Stops a recording at a number of events, or at a size of the log."""

from collections.abc import Sequence

from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import Segment
from biotrail.recorder.output.writer import WriterThread
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

        `taken_bytes`: bytes of records copied from the rings so far. Compared are the events of
        `count` with `max_events`, and with `max_bytes` the size that the log would have if all
        these bytes were written. If both are reached, the number of events; a limit of None never
        is.
        """
        if self._events is not None and self._meter.events >= self._events:
            return "number of events"
        if self._bytes is not None and self._size(taken_bytes) >= self._bytes:
            return "size of the log"
        return ""

    def _size(self, taken: int) -> float:
        """Return the log's estimated size in bytes once `taken` bytes of records are written.

        Bytes of chunks written (without header and notes), and the rest scaled by bytes of the log
        per byte of records so far; while nothing was written by a guess, 0.2, or 1 without
        compression.
        """
        written, raw = self._writer.log_bytes, self._writer.raw_bytes
        return written + (taken - raw) * (written / raw if raw else self._ratio)
