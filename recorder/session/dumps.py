# SPDX-License-Identifier: Apache-2.0
"""Decides in the poll loop when a rotation begins a file, or a flight recorder writes a dump."""

from dataclasses import asdict
from typing import Any

from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.output.sinks import FlightBuffer, RotatingLog, Sink
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.schema.payloads import Clock, End


class Rotation:
    """Rotation of one recording's log; orders one new file at a time."""

    def __init__(self, sink: Sink, writer: WriterThread) -> None:
        """`sink`: unless it is a RotatingLog, `due` is always False."""
        self._sink = sink if isinstance(sink, RotatingLog) else None
        self._writer = writer
        self._ordered = False

    def due(self, _now_ns: int) -> bool:
        """Return whether the present file has reached its limit, or was deleted by others."""
        sink = self._sink
        return sink is not None and not self._ordered and (sink.due() or sink.removed())

    @property
    def due_ns(self) -> float:
        """When the present file is too old (CLOCK_MONOTONIC); inf: never."""
        return float("inf") if self._sink is None else self._sink.due_ns()

    def order(self, clock: Clock) -> None:
        """Queue a job that ends the present file at `clock`, unless the queue is full."""

        def rotate(_log: object) -> None:
            try:
                if self._sink is not None and self._writer.error is None:
                    self._sink.rotate(clock)
            finally:
                self._ordered = False

        self._ordered = True  # first: the job may have run when `offer` returns
        if not self._writer.offer(rotate):
            self._ordered = False


class Flight:
    """Dumps that users and triggers ask for; orders one dump at a time."""

    def __init__(self, sink: Sink, writer: WriterThread, after: float, every: float) -> None:
        """`after`: seconds recorded after a trigger. `every`: least between two with a dump."""
        self._sink = sink if isinstance(sink, FlightBuffer) else None
        self._writer = writer
        self._after_ns, self._every_ns = round(after * 1e9), round(every * 1e9)
        self.asked_by = ""
        """Name of the signal that asked for a dump, for its header; "": none did."""
        self._waiting_hit: Hit | None = None
        self._next_trigger_ns = 0
        self._ordered = False
        self.let_pass = 0
        """Triggers ignored because they came within `every` seconds of one that made a dump.

        At least: of those of one CPU between two polls only the first is known.
        """

    @property
    def waits(self) -> bool:
        """Whether a dump was asked for, or is to be made, and is not ordered yet."""
        return bool(self.asked_by) or self._waiting_hit is not None

    def messages(self) -> list[str]:
        """Return the messages for the user since the last call: dumps written or failed."""
        messages: list[str] = []
        while self._sink is not None and not self._sink.messages.empty():
            messages.append(self._sink.messages.get())
        return messages

    def request_dump_after(self, hit: Hit) -> None:
        """Request a dump for a trigger that fired, `after` seconds behind the trigger's time.

        Ignored if it fired less than `every` seconds after the last trigger that made a dump
        (counted in `let_pass`), and while another trigger's dump is waiting, which will cover this
        one too.
        """
        if hit.monotonic < self._next_trigger_ns:
            self.let_pass += 1
        elif self._waiting_hit is None:
            self._waiting_hit = hit

    def hold_from(self, begin_ns: int | None) -> None:
        """Keep records from `begin_ns` on (CLOCK_MONOTONIC); None: as the limits have it.

        Not while a dump is waiting or begun, which may be the one that needs them.
        """
        if self._sink is not None and self._waiting_hit is None and not self._ordered:
            self._sink.hold_from = begin_ns

    def due(self, now_ns: int) -> bool:
        """Return whether to order a dump: not while another one is ordered or being written."""
        if self._sink is None or self._ordered or self._sink.busy:
            return False
        hit = self._waiting_hit
        return bool(self.asked_by) or (hit is not None and now_ns >= hit.monotonic + self._after_ns)

    def order(self, clock: Clock) -> None:
        """Queue the dump of all that is queued up to `clock`; nothing changes if the queue is full.

        One dump is for a user's request and a trigger's, and its header's "kept" then has the
        trigger.
        """
        hit = self._waiting_hit
        facts: dict[str, Any] = {"reason": f"asked for ({self.asked_by})"}
        if hit is not None:
            facts = {"reason": f"trigger {hit.trigger}", "trigger": asdict(hit)}
        facts["triggers_let_pass"] = self.let_pass

        def dump(_log: object) -> None:
            try:
                if self._sink is not None:
                    self._sink.dump(facts, clock)
            finally:
                self._ordered = False

        self._ordered = True  # first: the job may have run when `offer` returns
        if not self._writer.offer(dump):
            self._ordered = False
            return
        self.asked_by = ""
        if hit is not None:
            self._next_trigger_ns = hit.monotonic + self._every_ns
            self._waiting_hit = None

    def end_facts(self) -> End:
        """Return for the END frame `triggers_let_pass`, and `trigger` if one waits for its dump."""
        if self._sink is None:
            return {}
        trigger: End = {} if self._waiting_hit is None else {"trigger": asdict(self._waiting_hit)}
        return {**trigger, "triggers_let_pass": self.let_pass}
