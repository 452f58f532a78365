# SPDX-License-Identifier: Apache-2.0
"""Estimates what the programs of the path beside the block layer cost (`record --path`).

The kernel counts a program's runs and time in a few samples only, so a time is the mean of the
counted runs times the number of all runs. Programs of the path run far more often than they write
a record, so they count their runs themselves.
"""

from collections.abc import Sequence

from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.maps.path_maps import PathRuns

CALL_NS = 270
"""ns of CPU that a timed call costs, with the kernel's slow entry path: measured on 4 KiB reads."""
OTHER_CALL_NS = 170
"""The same of a call that a filter leaves out while others are timed: 110 of getppid(), 230 of
4 KiB reads."""
TIME = "time"
"""The part whose cost is also known from its number of calls alone."""


def ns_per_run(programs: Sequence[ProgramInfo]) -> float:
    """Return the mean time in ns of the counted runs of the block layer's programs; 0: none was.

    Programs of the path, which have a part, are left out: most of their runs write no record.
    """
    block = [p for p in programs if not p.part]
    runs = sum(p.run_count for p in block)
    return sum(p.run_ns for p in block) / runs if runs else 0.0


def calls_ns(runs: PathRuns) -> int:
    """Return about how many ns of CPU the timing of system calls took, entry path included."""
    return runs.timed * CALL_NS + (runs.calls - runs.timed) * OTHER_CALL_NS


def part_seconds(
    programs: Sequence[ProgramInfo], runs: PathRuns, block_events: float
) -> dict[str, float]:
    """Return about how many seconds of CPU the programs of each part of the path took.

    By part, in the order of `programs`; {} if none of these has a part. Of the part `time` by
    `calls_ns`, or by the mean time of its counted runs if that is more. Of a part that counts its
    runs (`runs.by_part`): these times the mean time of a counted run. Of another: in proportion to
    the events of the block layer, of which there were `block_events` (one run each), as in the
    kernel's samples. A part of which the kernel has counted no run, or (the last case) no run of
    the block layer's programs, has no entry. What the part adds to the block layer's own programs
    (CALL, DIRTIED, INTERRUPT records) is in their time.
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
