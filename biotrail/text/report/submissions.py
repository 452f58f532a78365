# SPDX-License-Identifier: Apache-2.0
"""The table of a report on io_uring and aio."""

from rich.console import RenderableType

from biotrail.converters.analysis.report.tree.submissions import SubmissionReport
from biotrail.converters.analysis.report.tree.tree import Report
from biotrail.text import units
from biotrail.text.columns import Column, table, without_repeats
from biotrail.text.report.cells import TIMES, times

_WHOLE = "submit to complete"
_NONE = "-"


def submissions(report: Report, width: int) -> RenderableType:
    """Return the table of submissions by operation: their whole time, then its steps."""
    rows = [row for one in report.submissions for row in _rows(one)]
    columns = [
        Column("operation", left=True),
        Column("mode", 2, left=True),
        Column("failed", 4),
        Column("data", 3),
        Column("step", left=True),
        Column("count", 1),
        *TIMES,
    ]
    title = "io_uring and aio, from submission to completion, of I/O that reached a device"
    if report.submissions_unknown:
        missed = units.plural(report.submissions_unknown, "bio")
        title += f" ({missed} of their calls without a known request)"
    return table(title, columns, without_repeats(rows, 4), width)


def _rows(one: SubmissionReport) -> list[list[str]]:
    """Return the rows of an operation: one for the whole time, one for each step."""
    modes = ", ".join(f"{name} {units.count(count)}" for name, count in one.modes.items())
    errors = ", ".join(f"{name} {units.count(n)}" for name, n in one.errors.items()) or _NONE
    head = [one.operation, modes, errors, units.size(one.bytes) if one.bytes else _NONE]
    steps = [(_WHOLE, one.time), *((step.stage, step.time) for step in one.steps)]
    return [
        [*head, step, units.count(time.count), *times(time)] for step, time in steps if time.count
    ] or [[*head, _WHOLE, _NONE, *[_NONE] * len(TIMES)]]
