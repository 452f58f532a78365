# SPDX-License-Identifier: Apache-2.0
"""Figures of the requests of io_uring and iocbs of aio that queued bios, by their operation."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary, stage_times
from biotrail.converters.analysis.report.tree import SubmissionReport
from biotrail.converters.calls.names import name_of_error
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.submission_tables import Runner, Submissions
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.submissions.names import RUNNER_NAMES, operation_name, operations_of
from biotrail.recorder.schema.syscalls import numbers

STEPS = {
    "submit to Q": ("submitted", "queued"),
    "Q to C": ("queued", "ended"),
    "C to complete": ("ended", "completed"),
    "complete to reaped": ("completed", "reaped"),
}
"""Name of a step → the columns of Submissions at which it begins and ends."""
_SUBMITTING = frozenset({"io_uring_enter", "io_submit"})


@dataclass
class _Figures:
    """Figures of the submissions of one operation."""

    count: int = 0
    modes: Counter[str] = field(default_factory=Counter)
    """Name of a Runner → submissions whose first bio it queued."""
    completed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Name of the error → submissions that completed with it."""
    bios: int = 0
    bytes: int = 0
    time: Distribution = field(default_factory=Distribution)
    """ns from submission to completion, where both are known."""
    steps: dict[str, Distribution] = field(default_factory=dict)
    """Name in STEPS → ns, where both of its ends are known."""

    def add(self, rows: Submissions) -> None:
        """Add submissions of this operation; a step that would be negative is not counted."""
        self.count += len(rows)
        for runner, count in zip(*np.unique(rows.runner, return_counts=True), strict=True):
            self.modes[RUNNER_NAMES[Runner(int(runner))]] += int(count)
        self.completed += int((rows.completed != NEVER).sum())
        results, counts = np.unique(rows.result[rows.result < 0], return_counts=True)
        for result, count in zip(results.tolist(), counts.tolist(), strict=True):
            self.errors[name_of_error(result) or str(result)] += count
        self.bios += int(rows.bios.sum(dtype=np.int64))
        self.bytes += int(rows.bytes.sum())
        both = (rows.submitted != NEVER) & (rows.completed != NEVER)
        self.time.add((rows.completed - rows.submitted)[both])
        for name, (begin, end) in STEPS.items():
            start, stop = getattr(rows, begin), getattr(rows, end)
            known = (start != NEVER) & (stop != NEVER) & (stop >= start)
            if known.any():
                self.steps.setdefault(name, Distribution()).add((stop - start)[known])


class SubmissionsByOperation:
    """Figures of all submissions, window after window."""

    def __init__(self, context: Context) -> None:
        self._figures: dict[int, _Figures] = {}
        """Number of `operations_of` → figures."""
        self._recorded = "uring" in context.path_parts
        self._submitting = numbers(_SUBMITTING, context.machine)
        self.unknown = 0
        """Bios queued inside io_uring_enter or io_submit whose request is not known."""

    def add(self, window: Lifecycles) -> None:
        """Add the log's next window; open bios count in `unknown` once they have ended."""
        if window.path is None or not self._recorded:
            return
        rows, bios = window.path.submissions, window.path.bios
        inside = np.isin(bios.call, self._submitting) & ~bios.foreign
        self.unknown += int((inside & (bios.submission < 0)).sum())
        operations = operations_of(rows)
        for code in names_of(operations).tolist():
            self._figures.setdefault(code, _Figures()).add(rows.take(operations == code))

    def reports(self) -> list[SubmissionReport]:
        """Return a report for each operation, those with most submissions first.

        A step's share is of the sum of `time`: where steps are known of submissions without a time,
        shares add up to more than 1.
        """
        found = [
            SubmissionReport(
                operation=operation_name(code),
                count=one.count,
                modes=dict(sorted(one.modes.items())),
                completed=one.completed,
                failed=sum(one.errors.values()),
                errors=dict(sorted(one.errors.items())),
                bios=one.bios,
                bytes=one.bytes,
                time=Summary.of(one.time),
                steps=stage_times(one.steps, {name: name for name in STEPS}, one.time.sum),
            )
            for code, one in sorted(self._figures.items())
        ]
        return sorted(found, key=lambda one: -one.count)
