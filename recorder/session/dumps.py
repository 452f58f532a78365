# SPDX-License-Identifier: Apache-2.0
"""Decides in the poll loop when a rotation begins a file, or a flight recorder writes a dump."""

from dataclasses import asdict
from typing import Any

from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.output.sinks import FlightBuffer, LogSink, RotatingLog
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.schema.payloads import Clock


class FileOrders:
    """Orders one file at a time: the next of a rotation, or a dump of a flight recorder."""

    def __init__(
        self, sink: LogSink, writer: WriterThread, after: float = 0.0, every: float = 0.0
    ) -> None:
        """`after`: seconds recorded after a trigger. `every`: least between two with a dump."""
        self._sink, self._writer = sink, writer
        self._after_ns, self._every_ns = round(after * 1e9), round(every * 1e9)
        self.asked_by = ""
        """Name of the signal that asked for a dump, for its header; "": none did."""
        self.waiting_hit: Hit | None = None
        """The trigger whose dump is not ordered yet."""
        self._next_trigger_ns = 0
        self._ordered = False
        self.let_pass = 0
        """Triggers ignored because they came within `every` seconds of one that made a dump.

        At least: of those of one CPU between two polls only the first is known.
        """

    def request_dump_after(self, hit: Hit) -> None:
        """Request a dump for a trigger that fired, `after` seconds behind the trigger's time.

        Ignored if it fired less than `every` seconds after the last trigger that made a dump
        (counted in `let_pass`), and while another trigger's dump is waiting, which will cover this
        one too.
        """
        if hit.monotonic < self._next_trigger_ns:
            self.let_pass += 1
        elif self.waiting_hit is None:
            self.waiting_hit = hit

    def hold_from(self, begin_ns: int | None) -> None:
        """Keep records from `begin_ns` on (CLOCK_MONOTONIC); None: as the limits have it.

        Not while a dump is waiting or begun, which may be the one that needs them.
        """
        if isinstance(self._sink, FlightBuffer) and self.waiting_hit is None and not self._ordered:
            self._sink.hold_from = begin_ns

    def due(self, now_ns: int) -> bool:
        """Return whether to order a file: not while another one is ordered or being written."""
        sink, hit = self._sink, self.waiting_hit
        if self._ordered:
            return False
        if isinstance(sink, RotatingLog):
            return sink.due()
        if not isinstance(sink, FlightBuffer) or sink.busy:
            return False
        return bool(self.asked_by) or (hit is not None and now_ns >= hit.monotonic + self._after_ns)

    def order(self, clock: Clock) -> None:
        """Queue what ends the present file, or dumps all that is queued, up to `clock`.

        Nothing changes if the queue is full. One dump is for a user's request and a trigger's, and
        its header's "kept" then has the trigger.
        """
        hit = self.waiting_hit
        facts: dict[str, Any] = {"reason": f"asked for ({self.asked_by})"}
        if hit is not None:
            facts = {"reason": f"trigger {hit.trigger}", "trigger": asdict(hit)}
        facts["triggers_let_pass"] = self.let_pass

        def begin_file(_log: LogSink) -> None:
            try:
                if isinstance(self._sink, FlightBuffer):
                    self._sink.dump(facts, clock)
                elif isinstance(self._sink, RotatingLog) and self._writer.error is None:
                    self._sink.rotate(clock)
            finally:
                self._ordered = False

        self._ordered = True  # first: the job may have run when `offer` returns
        if not self._writer.offer(begin_file):
            self._ordered = False
            return
        self.asked_by = ""
        if hit is not None:
            self._next_trigger_ns = hit.monotonic + self._every_ns
            self.waiting_hit = None
