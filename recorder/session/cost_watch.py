# SPDX-License-Identifier: Apache-2.0
"""Watches what recording costs while it goes on: samples of the programs' time, a warning."""

from collections.abc import Callable

from biotrail.recorder.accounting import cost
from biotrail.recorder.probes.core import ProgramInfo

TICK_NS = 100_000_000
SAMPLE_TICKS = 100
"""Runs are counted in one tick of so many: counting costs as well, all of the host's programs."""
EARLY_TICKS = frozenset({3, 8, 16, 32})
"""And in these, for short recordings."""
SAMPLE_BYTES = 64 << 10
"""A sample ends once so much came out of the rings, some thousand runs; else with its tick.

At a million events a second a whole tick would be 100,000 runs, each with two more clock readings.
"""
WINDOW_NS = 5_000_000_000
QUIET_NS = 60_000_000_000
"""Between two warnings."""


def ns_per_run(programs: list[ProgramInfo]) -> float:
    """Mean time of the runs that the kernel counted; 0 where it counted none."""
    runs = sum(p.run_count for p in programs)
    return sum(p.run_ns for p in programs) / runs if runs else 0.0


class CostWatch:
    """Called each tick by the poll loop. Times are ns of CLOCK_MONOTONIC."""

    def __init__(
        self,
        programs: Callable[[], list[ProgramInfo]],
        count_runs: Callable[[bool], None],
        max_cpu: float | None,
        now_ns: int,
    ) -> None:
        """`max_cpu`: per cent of one core, above which `tick` warns."""
        self._programs = programs
        self._count_runs = count_runs
        self._max = max_cpu
        self._ticks = 0
        self._taken_bytes = self._sample_bytes = 0
        self._counting = False
        self._since_ns = now_ns
        self._cpu = cost.read(()).cpu_seconds
        self._events = 0.0
        self._warned_ns = -QUIET_NS
        self.warnings = 0
        """Windows in which the limit was exceeded."""

    def tick(self, now_ns: int, events: float) -> str:
        """`events` so far; gives what to warn of, empty most of the time."""
        self._ticks += 1
        self._count(self._ticks in EARLY_TICKS or self._ticks % SAMPLE_TICKS == 0)
        if self._max is None or now_ns - self._since_ns < WINDOW_NS:
            return ""
        share = self._share(now_ns, events)
        if share <= self._max:
            return ""
        self.warnings += 1
        if now_ns - self._warned_ns < QUIET_NS:
            return ""
        self._warned_ns = now_ns
        return (
            f"recording takes {share:.1f} % of one core, more than --max-cpu {self._max:g}: record "
            "fewer devices (-d) or events (--events minimal), or compress less (--level 0)"
        )

    def took(self, taken_bytes: int) -> None:
        """Called each round. taken_bytes: what came out of the rings so far."""
        self._taken_bytes = taken_bytes
        if self._counting and taken_bytes - self._sample_bytes >= SAMPLE_BYTES:
            self._count(False)

    def _count(self, on: bool) -> None:
        self._sample_bytes = self._taken_bytes
        self._counting = on
        self._count_runs(on)

    def _share(self, now_ns: int, events: float) -> float:
        """Per cent of one core since the last call: the recorder's, and the programs'."""
        cpu = cost.read(()).cpu_seconds
        kernel = (events - self._events) * ns_per_run(self._programs()) / 1e9
        used = cpu - self._cpu + kernel
        share = 100 * used / ((now_ns - self._since_ns) / 1e9)
        self._since_ns, self._cpu, self._events = now_ns, cpu, events
        return share

    def end(self) -> None:
        """Stop counting runs."""
        self._count(False)
