# SPDX-License-Identifier: Apache-2.0
"""Tables of a report on what calls waited for, and on the commits of journals."""

from rich.console import RenderableType

from biotrail.converters.analysis.report.tree.tree import Report
from biotrail.text import units
from biotrail.text.columns import Column, table, with_more, without_repeats
from biotrail.text.report.cells import TIMES, times
from biotrail.text.rows import first

_NONE = "-"


def waits(report: Report, width: int, limit: int) -> RenderableType:
    """Return the table of waits by name of the call and reason. limit: rows, 0: all.

    It says how much of page faults' waits is for files that are not known, if any is.
    """
    shown, more = first(report.waits, limit)
    faults = any(one.no_file_ns for one in report.waits)
    rows = [
        [
            one.call,
            one.reason,
            units.count(one.time.count),
            units.duration(one.time.sum),
            _percent(one.share),
            *([_percent((one.no_file_ns or 0) / max(one.time.sum, 1))] if faults else []),
            *times(one.time),
        ]
        for one in shown
    ]
    columns = [
        Column("call", left=True),
        Column("waited for", left=True),
        Column("count"),
        Column("total"),
        Column("of calls"),
        *([Column("no file", 1)] if faults else []),
        *TIMES,
    ]
    title = "What calls waited for"
    if report.waits_dropped:
        title += f"; without {units.count(report.waits_dropped)} waits of calls that went on"
    return with_more(table(title, columns, rows, width), more)


def commits(report: Report, width: int) -> RenderableType:
    """Return the table of the commits of each journal, with their phases."""
    rows = []
    for one in report.commits:
        name, waited = one.device, units.count(one.waits)
        rows.append([name, "all", units.count(one.commits), waited, _NONE, *times(one.time)])
        for part in one.phases:
            count, share = units.count(part.time.count), _percent(part.share)
            rows.append([name, part.stage, count, "", share, *times(part.time)])
    columns = [
        Column("journal of", left=True),
        Column("phase", left=True),
        Column("count"),
        Column("waits", 1),
        Column("share"),
        *TIMES,
    ]
    return table("Commits of journals (jbd2)", columns, without_repeats(rows, 1), width)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share else _NONE
