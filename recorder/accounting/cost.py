# SPDX-License-Identifier: Apache-2.0
"""What recording cost and lost, between two moments: for a log's end and for the user."""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from biotrail.recorder.accounting.loss import NOT_ONE_CPU, Window
from biotrail.recorder.host import clocks
from biotrail.recorder.probes.core import ProgramInfo
from biotrail.recorder.probes.ring import LEVELS
from biotrail.recorder.schema.records import BY_KIND, Kind


@dataclass(frozen=True)
class Reading:
    """Running totals at one moment."""

    monotonic: int
    cpu_seconds: float
    programs: Sequence[ProgramInfo]


def read(programs: Sequence[ProgramInfo]) -> Reading:
    """The totals now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Reading(time.monotonic_ns(), used.ru_utime + used.ru_stime, programs)


def max_rss_bytes() -> int:
    """The most memory that the recorder had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def program_rows(then: Reading | None, now: Reading) -> list[dict[str, Any]]:
    """Each program's runs since `then` (None: since it was loaded), for the END frame."""
    before = {} if then is None else {(p.letter, p.tracepoint): p for p in then.programs}
    rows = []
    for p in now.programs:
        old = before.get((p.letter, p.tracepoint))
        rows.append(
            {
                "name": p.name,
                "letter": p.letter,
                "attached": p.attached,
                "run_count": p.run_count - (old.run_count if old else 0),
                "run_ns": p.run_ns - (old.run_ns if old else 0),
                "recursion_misses": p.recursion_misses - (old.recursion_misses if old else 0),
            }
        )
    return rows


class Losses:
    """Adds up loss windows: what one file's END says of them."""

    def __init__(self) -> None:
        self.lost: dict[str, int] = {}
        self.too_deep = 0
        self.skipped: dict[str, int] = {}

    def add(self, windows: Sequence[Window]) -> None:
        """Take in the windows that went into the file."""
        for window in windows:
            kind, count = window["kind"], window["count"]
            if window["cpu"] == NOT_ONE_CPU:
                known = BY_KIND.get(Kind(kind)) if kind in set(Kind) else None
                letter = known.letter if known else "?"
                self.skipped[letter] = self.skipped.get(letter, 0) + count
                continue
            self.lost[str(kind)] = self.lost.get(str(kind), 0) + count
            self.too_deep += count if window["level"] >= LEVELS else 0


def end_facts(
    reason: str, began: Reading, now: Reading, losses: Losses, stopped: dict[str, int]
) -> dict[str, Any]:
    """Statistics for the END frame of one file; the writer adds the log's size.

    `stopped`: the clocks when the last records of this file were taken.
    """
    return {
        "reason": reason,
        "seconds": (now.monotonic - began.monotonic) / 1e9,
        "stopped": stopped,
        "clocks": clocks.reading(),
        "lost": losses.lost,
        "too_deep": losses.too_deep,
        "skipped": losses.skipped,
        "programs": program_rows(began, now),
        "recorder": {
            "cpu_seconds": now.cpu_seconds - began.cpu_seconds,
            "max_rss_bytes": max_rss_bytes(),
        },
    }
