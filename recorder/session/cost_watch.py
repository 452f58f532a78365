# SPDX-License-Identifier: Apache-2.0
"""Watches the cost of recording while it goes on: warns, and ends what costs more than wanted."""

from collections.abc import Callable

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.cost import calls_ns
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.schema.payloads import CallTimingNote

TICK_NS = 100_000_000
"""How long runs are counted at a time, and the unit of when they are."""
SAMPLE_TICKS = 100
"""Runs are counted in one tick of so many: counting slows down every BPF program of the host."""
EARLY_TICKS = frozenset({3, 8, 16, 32})
"""Numbers of further ticks, the first being 0, in which runs are counted, for short recordings."""
SAMPLE_BYTES = 64 << 10
"""A sample ends after so many bytes from the rings, some thousand runs; else with its tick.

At a million events a second a whole tick would be 100,000 runs, each with two more clock readings.
"""
WINDOW_NS = 5_000_000_000
"""Period over which the share of a core is averaged."""
ADVICE = "record fewer devices (-d) or events (--events minimal), or compress less (--level 0)"
SITES_ADVICE = "it was ended; leave out pairs or functions that occur often"
QUIET_NS = 60_000_000_000
"""Time between two warnings, at least."""


class CostWatch:
    """Cost of the recorder and of the programs. Times are ns of CLOCK_MONOTONIC."""

    def __init__(
        self,
        probes: Probes,
        count_runs: Callable[[bool], None],
        max_cpu: float | None,
        now_ns: int,
        advice: str = ADVICE,
    ) -> None:
        """`count_runs`: switches the kernel's counting of program runs on or off.

        `max_cpu`: per cent of one core above which `tick` warns; None: never. `advice`: what the
        warning says to do.
        """
        self._probes = probes
        self._count_runs = count_runs
        self._max = max_cpu
        self._advice = advice
        self._began_ns = self._since_ns = now_ns
        self._taken_bytes = self._sample_bytes = 0
        self._counting = False
        self._cpu = cost.read(()).cpu_seconds
        self._events = self._path = 0.0
        self._warned_ns = -QUIET_NS
        self.due_ns = self._due_ns(now_ns)
        """When `tick` is to be called next."""
        self.warnings = 0
        """Number of windows of WINDOW_NS in which `max_cpu` was exceeded."""

    def tick(self, now_ns: int, events: float) -> str:
        """Switch the counting of runs for this tick; return a warning for the user, or "".

        To be called at `due_ns`, which it sets anew. `events`: the block layer's, recorded so far.
        """
        self.count(_is_sample((now_ns - self._began_ns) // TICK_NS))
        share = 0.0
        if self._max is not None and now_ns - self._since_ns >= WINDOW_NS:
            share = self._share(now_ns, events)
        self.due_ns = self._due_ns(now_ns)
        if self._max is None or share <= self._max:
            return ""
        self.warnings += 1
        if now_ns - self._warned_ns < QUIET_NS:
            return ""
        self._warned_ns = now_ns
        return (
            f"recording takes {share:.1f} % of one core, more than --max-cpu {self._max:g}: "
            + self._advice
        )

    def _due_ns(self, now_ns: int) -> int:
        """Return when a sample begins or ends next, or a look is due."""
        number = (now_ns - self._began_ns) // TICK_NS + 1
        while not self._counting and not _is_sample(number):
            number += 1
        due_ns = self._began_ns + number * TICK_NS
        return due_ns if self._max is None else min(due_ns, self._since_ns + WINDOW_NS)

    def end_full_sample(self, taken_bytes: int) -> None:
        """Switch the counting off if the present sample has SAMPLE_BYTES; call it in each round."""
        self._taken_bytes = taken_bytes
        if self._counting and taken_bytes - self._sample_bytes >= SAMPLE_BYTES:
            self.count(False)

    def count(self, on: bool) -> None:
        """Switch the kernel's counting on, for a sample that begins now, or off."""
        self._sample_bytes = self._taken_bytes
        self._counting = on
        self._count_runs(on)

    def _share(self, now_ns: int, events: float) -> float:
        """Return the per cent of one core that recorder and programs took since the last call."""
        cpu, programs = cost.read(()).cpu_seconds, self._probes.programs()
        # Programs that count their runs know better than the number of records.
        runs = self._probes.runs()
        events = events if runs is None else float(runs)
        kernel = (events - self._events) * cost.ns_per_run(programs) / 1e9
        parts = cost.part_seconds(programs, self._probes.path_runs(), events)
        path = sum(parts.values())
        used = cpu - self._cpu + kernel + max(path - self._path, 0.0)
        share = 100 * used / ((now_ns - self._since_ns) / 1e9)
        self._since_ns, self._cpu, self._events, self._path = now_ns, cpu, events, path
        return share


def _is_sample(tick: int) -> bool:
    return tick in EARLY_TICKS or (tick > 0 and tick % SAMPLE_TICKS == 0)


LOOK_NS = 500_000_000
"""Period at which `CallBudget.look` is to be called."""


class CallBudget:
    """The budget of one recording's timed calls. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, probes: Probes, budget: float, now_ns: int) -> None:
        """`probes`: attached. `budget`: per cent of one CPU; 0: unlimited."""
        self._probes = probes
        self._budget = budget
        self._on = bool(budget) and "time" in probes.path.parts
        self._since_ns = now_ns
        self._spent_ns = calls_ns(probes.path_runs()) if self._on else 0

    def look(self, now_ns: int) -> CallTimingNote | None:
        """End the timing if calls took too much since the last look; return its note then.

        What they took is estimated from their number (`calls_ns`). Raises RefusedError.
        """
        if not self._on or now_ns <= self._since_ns:
            return None
        spent_ns = calls_ns(self._probes.path_runs())
        share = 100 * (spent_ns - self._spent_ns) / (now_ns - self._since_ns)
        self._since_ns, self._spent_ns = now_ns, spent_ns
        if share <= self._budget:
            return None
        self._on = False
        self._probes.stop_timing()
        return {"until": now_ns, "percent": round(share, 2), "budget": self._budget}


def end_message(note: CallTimingNote) -> str:
    return (
        f"timing system calls ended: it took about {note['percent']:.1f} % of a CPU, more "
        f"than --call-budget {note['budget']:g}; waits and the call of each bio are recorded as "
        "before"
    )
