# SPDX-License-Identifier: Apache-2.0
"""Decides in the poll loop when a flight recorder dumps the chunks that it keeps in memory."""

from collections import deque
from dataclasses import asdict
from typing import Any

from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.output.flight_buffer import FlightBuffer
from biotrail.recorder.output.sinks import Sink
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.schema.payloads import Clock, End


class Flight:
    """Dumps that users and triggers ask for; orders one dump at a time."""

    def __init__(self, sink: Sink, writer: WriterThread, after: float, every: float) -> None:
        """Begin without requests for dumps.

        `sink`: the recording's; unless it is a FlightBuffer (chunks in memory), there are no dumps.
        `writer`: the thread that starts them. `after`: seconds that are recorded after a trigger
        before its dump. `every`: least seconds from a trigger with a dump to the next one with a
        dump.
        """
        self._sink = sink if isinstance(sink, FlightBuffer) else None
        self._writer = writer
        self._after_ns, self._every_ns = round(after * 1e9), round(every * 1e9)
        self._dump_request: deque[dict[str, Any]] = deque(maxlen=1)
        self._waiting_hit: Hit | None = None
        self._next_trigger_ns = 0
        self._ordered = False
        self.let_pass = 0
        """Triggers ignored because they came within `every` seconds of one that made a dump.

        At least: of those of one CPU between two polls only the first is known.
        """

    @property
    def possible(self) -> bool:
        """Whether the recording is a flight recorder, so that there can be dumps."""
        return self._sink is not None

    @property
    def waits(self) -> bool:
        """Whether a dump was asked for, or is to be made, and is not ordered yet."""
        return bool(self._dump_request) or self._waiting_hit is not None

    @property
    def deleted(self) -> int:
        """Number of dumps that were deleted as the oldest beyond the limit."""
        return 0 if self._sink is None else self._sink.deleted

    @property
    def taken_away(self) -> int:
        """Number of dumps that others deleted, moved away or replaced."""
        return 0 if self._sink is None else self._sink.taken_away

    def messages(self) -> list[str]:
        """Return the messages for the user since the last call: dumps written or failed."""
        messages: list[str] = []
        while self._sink is not None and not self._sink.messages.empty():
            messages.append(self._sink.messages.get())
        return messages

    def request_dump(self, how: str) -> None:
        """Request a dump as soon as possible, in place of a user's request not yet ordered.

        `how`: the signal's name, for the reason "asked for (…)" in the dump's header. Without a
        flight recorder nothing comes of it.
        """
        self._dump_request.append({"reason": f"asked for ({how})"})

    def request_dump_after(self, hit: Hit) -> None:
        """Request a dump for a trigger that fired, `after` seconds behind the trigger's time.

        Sets `_waiting_hit`. Ignored if it fired less than `every` seconds after the last trigger
        that made a dump, which adds 1 to `let_pass`; and, not counted, while another trigger's dump
        is waiting, which will cover this one too.
        """
        if hit.monotonic < self._next_trigger_ns:
            self.let_pass += 1
        elif self._waiting_hit is None:
            self._waiting_hit = hit

    def hold_from(self, begin_ns: int | None) -> None:
        """Keep records from `begin_ns` on (CLOCK_MONOTONIC); None: as the limits have it.

        Not while a dump is waiting or begun, which may be the one that needs them.
        """
        if self._sink is None or self._waiting_hit is not None or self._ordered:
            return
        self._sink.hold_from = begin_ns

    def due(self, now_ns: int) -> bool:
        """Return whether a dump is to be ordered at `now_ns` (CLOCK_MONOTONIC).

        So if a user requested one, or a trigger did and `after` seconds have passed since it fired;
        and no other dump is ordered or being written: until then requests wait. False without a
        flight recorder.
        """
        if self._sink is None or self._ordered or self._sink.busy:
            return False
        ripe = (
            self._waiting_hit is not None and now_ns >= self._waiting_hit.monotonic + self._after_ns
        )
        return bool(self._dump_request) or ripe

    def order(self, clock: Clock) -> None:
        """Queue the requested dump behind all other jobs of the writer thread; only if `due`.

        `clock`: clock readings (name → ns) of the dump's end, up to which all records are queued.
        Sets `_ordered`, and removes the user's request (`_dump_request`) and the trigger's
        (`_waiting_hit`). One dump is for both, and counts as the trigger's, even if that still had
        to wait: sets until when triggers are ignored (`_next_trigger_ns`), `every` seconds after
        the trigger fired. If the writer's queue is full, nothing changes.
        """
        facts = self._facts()
        self._ordered = True  # first: the job may have run when `offer` returns
        if not self._writer.offer(lambda _log: self._dump(facts, clock)):
            self._ordered = False
            return
        self._dump_request.clear()
        if self._waiting_hit is not None:
            self._next_trigger_ns = self._waiting_hit.monotonic + self._every_ns
            self._waiting_hit = None

    def _facts(self) -> dict[str, Any]:
        """Return entries of the header's "kept": the dump's reason, its trigger if any, `let_pass`.

        {"reason": "trigger NAME", "trigger": the Hit as a dict, "triggers_let_pass": number} or,
        for a user's request, without "trigger". If there are both, the trigger's; one must be
        there.
        """
        passed = {"triggers_let_pass": self.let_pass}
        hit = self._waiting_hit
        if hit is None:
            return {**self._dump_request[0], **passed}
        return {"reason": f"trigger {hit.trigger}", "trigger": asdict(hit), **passed}

    def _dump(self, facts: dict[str, Any], clock: Clock) -> None:
        """Have the sink start writing a dump up to `clock`, and reset `_ordered`, also by an error.

        Runs in the writer thread; the dump goes on in a thread of its own. `facts`: as `_facts`
        returns. Raises what FlightBuffer.dump raises.
        """
        try:
            if self._sink is not None:
                self._sink.dump(facts, clock)
        finally:
            self._ordered = False

    def at_end(self) -> End:
        """Return for the END frame `triggers_let_pass`, and `trigger` if one waits for its dump.

        `trigger` is the Hit as a dict; a user's request that waits is not reported. {} without a
        flight recorder.
        """
        if self._sink is None:
            return {}
        trigger: End = {} if self._waiting_hit is None else {"trigger": asdict(self._waiting_hit)}
        return {**trigger, "triggers_let_pass": self.let_pass}
