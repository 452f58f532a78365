# SPDX-License-Identifier: Apache-2.0
"""Watches what timing the system calls costs, and ends it where that is more than its budget."""

from collections.abc import Callable

from biotrail.recorder.accounting.path_cost import calls_ns
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.schema.payloads import CallTimingNote

LOOK_NS = 500_000_000
"""Period at which `CallBudget.look` is to be called."""


class CallBudget:
    """The budget of one recording's timed calls. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, probes: Probes, budget: float, now_ns: int) -> None:
        """Begin at `now_ns`. `budget`: per cent of one CPU; 0: calls are timed whatever it costs.

        `probes` are attached. Without timed calls, or without a budget, `look` does nothing.
        """
        self._probes = probes
        self._budget = budget
        self._on = bool(budget) and "time" in probes.path.parts
        self._since_ns = now_ns
        self._spent_ns = calls_ns(probes.path_runs()) if self._on else 0

    def look(self, now_ns: int, report: Callable[[CallTimingNote], None]) -> None:
        """End the timing if the calls since the last look took more than the budget.

        `now_ns`: when it is called; nothing happens unless that is after the last look, nor once
        the timing has ended. `report`: called once, with the note for the log ("until": ns,
        "percent" of a CPU, "budget"), after the programs were detached. What calls took is
        estimated from their number (`calls_ns`). Raises RefusedError.
        """
        if not self._on or now_ns <= self._since_ns:
            return
        spent_ns = calls_ns(self._probes.path_runs())
        share = 100 * (spent_ns - self._spent_ns) / (now_ns - self._since_ns)
        self._since_ns, self._spent_ns = now_ns, spent_ns
        if share <= self._budget:
            return
        self._on = False
        self._probes.stop_timing()
        report({"until": now_ns, "percent": round(share, 2), "budget": self._budget})


def end_message(note: CallTimingNote) -> str:
    """Return the message to the user about the end of timing."""
    return (
        f"timing system calls ended: it took about {note['percent']:.1f} % of a CPU, more "
        f"than --call-budget {note['budget']:g}; waits and the call of each bio are recorded as "
        "before"
    )
