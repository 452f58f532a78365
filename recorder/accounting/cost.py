# SPDX-License-Identifier: Apache-2.0
"""Measures what recording cost between two readings, and builds the END frame's statistics."""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from biotrail.recorder.accounting.loss import Losses
from biotrail.recorder.host import clocks
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.maps.path_maps import PathRuns
from biotrail.recorder.schema.payloads import Clock, End


@dataclass(frozen=True)
class Reading:
    """Running totals at one moment."""

    monotonic: int
    """That moment, ns of CLOCK_MONOTONIC."""
    cpu_seconds: float
    """User and system time of the recorder's process."""
    programs: Sequence[ProgramInfo]
    max_rss_bytes: int = 0
    """The recorder's largest resident set so far."""


def read(programs: Sequence[ProgramInfo]) -> Reading:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = used.ru_utime + used.ru_stime
    return Reading(time.monotonic_ns(), cpu_seconds, programs, used.ru_maxrss * 1024)


def program_rows(then: Reading | None, now: Reading) -> list[dict[str, Any]]:
    """Return a row per program for the END frame: its counters' growth from `then` to `now`.

    `then` None: since the programs were loaded; likewise for a program that `then` has not.
    """
    before = {} if then is None else {(p.letter, p.tracepoint): p for p in then.programs}
    rows = []
    for p in now.programs:
        row = {"name": p.name, "letter": p.letter, "attached": p.attached}
        old = before.get((p.letter, p.tracepoint))
        for counter in ("run_count", "run_ns", "recursion_misses"):
            row[counter] = getattr(p, counter) - (getattr(old, counter) if old else 0)
        rows.append({**row, **({"part": p.part} if p.part else {})})
    return rows


def end_facts(reason: str, began: Reading, now: Reading, losses: Losses, stopped: Clock) -> End:
    """Return the statistics for the END frame of one file.

    `stopped`: the clocks when the file's last records were copied from the rings.
    """
    return {
        "reason": reason,
        "seconds": (now.monotonic - began.monotonic) / 1e9,
        "stopped": stopped,
        "clocks": clocks.reading(),
        "lost": {str(kind): count for kind, count in losses.by_kind.items()},
        "too_deep": losses.too_deep,
        "skipped": losses.skipped,
        "programs": program_rows(began, now),
        "recorder": {
            "cpu_seconds": now.cpu_seconds - began.cpu_seconds,
            "max_rss_bytes": now.max_rss_bytes,
        },
    }


CALL_NS = 270
"""ns of CPU that a timed call costs, with the kernel's slow entry path: measured on 4 KiB reads."""
OTHER_CALL_NS = 170
"""The same of a call that a filter leaves out while others are timed: 110 of getppid(), 230 of
4 KiB reads."""
TIME = "time"
"""The part whose cost is also known from its number of calls alone."""


def ns_per_run(programs: Sequence[ProgramInfo]) -> float:
    """Return the mean time in ns of counted runs of the block layer's programs; 0: none counted."""
    block = [p for p in programs if not p.part]
    runs = sum(p.run_count for p in block)
    return sum(p.run_ns for p in block) / runs if runs else 0.0


def calls_ns(runs: PathRuns) -> int:
    return runs.timed * CALL_NS + (runs.calls - runs.timed) * OTHER_CALL_NS


def part_seconds(
    programs: Sequence[ProgramInfo], runs: PathRuns, block_events: float
) -> dict[str, float]:
    """Return about how many seconds of CPU the programs of each part of the path took.

    Of the part `time` by `calls_ns`, or by the mean time of its counted runs if that is more. Of a
    part that counts its runs (`runs.by_part`): these times the mean time of a counted run. Of
    another: in proportion to the events of the block layer, `block_events` (one run each), as in
    the kernel's samples. A part of which nothing is known has no entry.
    """
    block_runs = sum(p.run_count for p in programs if not p.part)
    found: dict[str, float] = {}
    for part in dict.fromkeys(p.part for p in programs if p.part):
        mine = [p for p in programs if p.part == part]
        counted, spent = sum(p.run_count for p in mine), sum(p.run_ns for p in mine)
        if part == TIME:
            # Two programs run for each call. Those that write records take longer than CALL_NS.
            measured = 2 * runs.calls * spent / counted if counted else 0.0
            found[part] = max(calls_ns(runs), measured) / 1e9
        elif counted and part in runs.by_part:
            found[part] = runs.by_part[part] * spent / counted / 1e9
        elif counted and block_runs:
            found[part] = block_events * spent / block_runs / 1e9
    return found
