# SPDX-License-Identifier: Apache-2.0
"""Timed system calls of one stretch of time of a recording that goes on."""

import heapq
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import (
    CALL_PARTS,
    CallFigures,
    coded,
    named,
)
from biotrail.converters.analysis.live.tree import SlowCall
from biotrail.converters.analysis.report.calls.calls import report_of
from biotrail.converters.analysis.report.tree import CallReport
from biotrail.converters.calls.names import name_of_error
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls
from biotrail.converters.events.tables import NEVER, Lifecycles, Tasks

MOST_SLOW = 10
"""Slowest calls in a snapshot."""


@dataclass
class CallsOfStretch:
    """Figures of the calls whose windows came in a stretch of time, which can be added up."""

    every: bool = False
    """Whether calls that neither queued a bio nor waited for I/O are among the slowest, too."""
    figures: dict[int, CallFigures] = field(default_factory=dict)
    """Code of `call_figures.coded` → figures."""
    slowest: list[SlowCall] = field(default_factory=list)
    """The MOST_SLOW slowest, the slowest first; among equals the one that returned last."""

    def add(self, window: Lifecycles, context: Context) -> None:
        """Add a window's calls; those whose entry is not known are never among the slowest."""
        if window.path is None or not len(window.path.calls):
            return
        calls = window.path.calls
        codes = coded(calls)
        for code in np.unique(codes).tolist():
            figures = self.figures.setdefault(code, CallFigures())
            figures.add(calls.take(codes == code), named(code, context)[0])
        of_kernel = context.files.of_kernel(calls.file) & (calls.bios == 0)
        shown = (calls.entry != NEVER) & ((calls.with_io & ~of_kernel) | self.every)
        took = np.where(shown, calls.exit - calls.entry, -1)
        rows = np.argsort(-took, kind="stable")[:MOST_SLOW]
        found = [
            _slow(calls, row, window.tasks, context) for row in rows.tolist() if took[row] >= 0
        ]
        self.slowest = slowest_calls(self.slowest + found)

    def merge(self, other: "CallsOfStretch") -> None:
        """Add the calls of another stretch, which is not changed; MOST_SLOW of both stay."""
        for code, figures in other.figures.items():
            self.figures.setdefault(code, CallFigures()).merge(figures)
        self.slowest = slowest_calls(self.slowest + other.slowest)

    def reports(self, context: Context) -> list[CallReport]:
        """Return a report for each name of a call: those with I/O first, then by time in total."""
        found = [report_of(*named(code, context), one) for code, one in self.figures.items()]
        return sorted(found, key=lambda call: (not call.io, -call.time.sum, call.call))


def slowest_calls(found: list[SlowCall]) -> list[SlowCall]:
    """Return the MOST_SLOW slowest, the slowest first; among equals the one that returned last."""
    return heapq.nlargest(MOST_SLOW, found, key=lambda slow: (slow.duration_ns, slow.end_ns))


def _slow(calls: Calls, row: int, tasks: Tasks, context: Context) -> SlowCall:
    """Return the call in a row, whose entry is known, with names and its longest part."""
    one = calls.take(np.array([row]))
    parts = {part: int(getattr(one, part)[0]) for part in CALL_PARTS}
    longest = max(parts, key=lambda part: parts[part])
    task, end = int(one.task[0]), int(one.exit[0])
    comm = str(tasks.comm[task]) if task >= 0 else None
    return SlowCall(
        call=named(int(coded(one)[0]), context)[0],
        process=comm,
        pid=tasks.pid(task),
        tid=int(one.tid[0]),
        end_ns=end,
        duration_ns=end - int(one.entry[0]),
        part=longest,
        part_ns=parts[longest],
        bios=int(one.bios[0]),
        error=name_of_error(int(one.result[0])),
        title=context.titles.title(tasks.pid(task), comm),
    )
