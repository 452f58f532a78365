# SPDX-License-Identifier: Apache-2.0
"""When a flight recorder writes out what it keeps: decided by the poll loop."""

from collections import deque
from dataclasses import asdict
from typing import Any

from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.output.flight_buffer import KeptLog
from biotrail.recorder.output.series import Clock
from biotrail.recorder.output.sinks import Sink
from biotrail.recorder.output.writer import WriterThread


class Flight:
    """Knows what was asked for, and orders one dump at a time."""

    def __init__(self, sink: Sink, writer: WriterThread, after: float, every: float) -> None:
        """`after`: seconds of recording behind a trigger; `every`: between two by triggers."""
        self._sink = sink if isinstance(sink, KeptLog) else None
        self._writer = writer
        self._after_ns, self._every_ns = round(after * 1e9), round(every * 1e9)
        self._asked: deque[dict[str, Any]] = deque(maxlen=1)
        self._hit: Hit | None = None
        self._next_ns = 0
        self._ordered = False
        self.let_pass = 0
        """Triggers too soon after the last that was followed; of one poll and CPU, the first."""

    @property
    def possible(self) -> bool:
        """Whether there can be dumps."""
        return self._sink is not None

    @property
    def deleted(self) -> int:
        """Dumps that were deleted for being the oldest."""
        return 0 if self._sink is None else self._sink.deleted

    @property
    def gone(self) -> int:
        """Dumps that others deleted or moved away."""
        return 0 if self._sink is None else self._sink.gone

    def messages(self) -> list[str]:
        """What the user is to be told since the last call."""
        found: list[str] = []
        while self._sink is not None and not self._sink.messages.empty():
            found.append(self._sink.messages.get())
        return found

    def ask(self, how: str) -> None:
        """Somebody wants a dump now. One that waits for the last to be written stands for all."""
        self._asked.append({"reason": f"asked for ({how})"})

    def hit(self, hit: Hit) -> None:
        """A trigger fired; one that comes before the last one's dump is in that dump."""
        if hit.monotonic < self._next_ns:
            self.let_pass += 1
        elif self._hit is None:
            self._hit = hit

    def due(self, now_ns: int) -> bool:
        """Whether a dump can and should be made now."""
        if self._sink is None or self._ordered or self._sink.busy:
            return False
        ripe = self._hit is not None and now_ns >= self._hit.monotonic + self._after_ns
        return bool(self._asked) or ripe

    def order(self, clock: Clock) -> None:
        """Dump behind all that is queued; not now, where the queue is full.

        `clock`: the reading up to which all that was recorded is queued.
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
        passed = {"triggers_let_pass": self.let_pass}
        if self._hit is None:
            return {**self._asked[0], **passed}
        trigger = {"reason": f"trigger {self._hit.trigger}", "trigger": asdict(self._hit)}
        return {**trigger, **passed}

    def _dump(self, facts: dict[str, Any], clock: Clock) -> None:
        try:
            if self._sink is not None:
                self._sink.dump(facts, clock)
        finally:
            self._ordered = False

    def at_end(self) -> dict[str, Any]:
        """What the last dump says, also of a trigger that had not been written out yet."""
        if self._sink is None:
            return {}
        trigger = {} if self._hit is None else {"trigger": asdict(self._hit)}
        return {**trigger, "triggers_let_pass": self.let_pass}
