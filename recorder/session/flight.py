# SPDX-License-Identifier: Apache-2.0
"""Decides in the poll loop when a flight recorder dumps the chunks that it keeps in memory."""

from collections import deque
from dataclasses import asdict
from typing import Any

from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.output.flight_buffer import KeptLog
from biotrail.recorder.output.sinks import Sink
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.schema.payloads import Clock, End


class Flight:
    """Dumps that users and triggers ask for; orders one dump at a time."""

    def __init__(self, sink: Sink, writer: WriterThread, after: float, every: float) -> None:
        """`sink`: unless it is a KeptLog, there are no dumps.

        `after`: seconds that are recorded after a trigger before its dump. `every`: least seconds
        from a trigger with a dump to the next one.
        """
        self._sink = sink if isinstance(sink, KeptLog) else None
        self._writer = writer
        self._after_ns, self._every_ns = round(after * 1e9), round(every * 1e9)
        self._asked: deque[dict[str, Any]] = deque(maxlen=1)
        self._hit: Hit | None = None
        self._next_ns = 0
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
    def deleted(self) -> int:
        """Number of dumps that were deleted as the oldest beyond the limit."""
        return 0 if self._sink is None else self._sink.deleted

    @property
    def gone(self) -> int:
        """Number of dumps that others deleted, moved away or replaced."""
        return 0 if self._sink is None else self._sink.gone

    def messages(self) -> list[str]:
        """Return the messages for the user since the last call: dumps written or failed."""
        found: list[str] = []
        while self._sink is not None and not self._sink.messages.empty():
            found.append(self._sink.messages.get())
        return found

    def ask(self, how: str) -> None:
        """Ask for a dump as soon as possible, in place of one asked for and not yet ordered.

        `how`: for the dump's reason, such as the signal's name.
        """
        self._asked.append({"reason": f"asked for ({how})"})

    def hit(self, hit: Hit) -> None:
        """Ask for a dump for a trigger, `after` seconds behind it.

        Ignored within `every` seconds of the last trigger that made a dump (see `let_pass`), and
        while another trigger's dump is waiting, which will cover this one too.
        """
        if hit.monotonic < self._next_ns:
            self.let_pass += 1
        elif self._hit is None:
            self._hit = hit

    def due(self, now_ns: int) -> bool:
        """Return whether a dump is asked for, its time has come, and no other is under way.

        `now_ns`: CLOCK_MONOTONIC. False without a flight recorder.
        """
        if self._sink is None or self._ordered or self._sink.busy:
            return False
        ripe = self._hit is not None and now_ns >= self._hit.monotonic + self._after_ns
        return bool(self._asked) or ripe

    def order(self, clock: Clock) -> None:
        """Queue the dump that was asked for behind all other jobs of the writer thread.

        `clock`: the dump's end, up to which all records are queued. Then sets `_ordered`, and
        forgets what users asked for (`_asked`) and the trigger that waits for a dump (`_hit`);
        triggers within `every` seconds of that one are then ignored (`_next_ns`). If the writer's
        queue is full, nothing changes. Only to be called if `due`.
        """
        facts = self._facts()
        if not self._writer.offer(lambda _log: self._dump(facts, clock)):
            return
        self._ordered = True
        self._asked.clear()
        if self._hit is not None:
            self._next_ns = self._hit.monotonic + self._every_ns
            self._hit = None

    def _facts(self) -> dict[str, Any]:
        """Return the dump's reason, its trigger if any, and `let_pass`, for the dump's header.

        A trigger comes before a user. One of both must have asked for the dump.
        """
        passed = {"triggers_let_pass": self.let_pass}
        if self._hit is None:
            return {**self._asked[0], **passed}
        trigger = {"reason": f"trigger {self._hit.trigger}", "trigger": asdict(self._hit)}
        return {**trigger, **passed}

    def _dump(self, facts: dict[str, Any], clock: Clock) -> None:
        """Start the dump and reset `_ordered`, also by an error; runs in the writer thread."""
        try:
            if self._sink is not None:
                self._sink.dump(facts, clock)
        finally:
            self._ordered = False

    def at_end(self) -> End:
        """Return facts for the last dump: `let_pass`, and a trigger whose dump was still waiting.

        {} without a flight recorder.
        """
        if self._sink is None:
            return {}
        trigger: End = {} if self._hit is None else {"trigger": asdict(self._hit)}
        return {**trigger, "triggers_let_pass": self.let_pass}
