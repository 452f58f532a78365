# SPDX-License-Identifier: Apache-2.0
"""Table of a report on bios that cgroups' limits held before they were queued."""

from rich.console import RenderableType

from biotrail.converters.analysis.report.tree.tree import HeldReport, Report
from biotrail.text import units
from biotrail.text.columns import Column, table, with_more
from biotrail.text.report.cells import TIMES, times
from biotrail.text.rows import first

_NONE = "-"


def held(report: Report, width: int, limit: int) -> RenderableType:
    """Return the table of held bios by limit, device and operation. limit: rows, 0: all."""
    shown, more = first(report.held, limit)
    rows = [
        [
            one.cgroup or "(not known)",
            one.device,
            one.operation,
            limit_text(one.bps, one.iops),
            units.count(one.bios),
            f"{one.process} ({one.pid})" if one.process else _NONE,
            units.count(one.time.count),
            units.duration(one.time.sum) if one.time.count else _NONE,
            *times(one.time),
        ]
        for one in shown
    ]
    columns = [
        Column("limit of", left=True),
        Column("device", left=True),
        Column("operation", left=True),
        Column("limit"),
        Column("bios"),
        Column("most of", 2, left=True),
        Column("known"),
        Column("total"),
        *TIMES,
    ]
    title = "Held by a cgroup's limit before Q (blk-throttle)"
    if several := sum(one.several for one in report.held):
        title += f"; of {units.count(several)}, cgroups above have limits, too"
    return with_more(table(title, columns, rows, width), more)


def limit_text(bps: int | None, iops: int | None) -> str:
    """Return a limit's rates; `-` where none is known."""
    found = [f"{units.size(bps)}/s"] if bps is not None else []
    found += [f"{units.count(iops)}/s"] if iops is not None else []
    return ", ".join(found) or _NONE


def length_text(one: HeldReport) -> str:
    """Return for how long limits held these bios, as far as it is known."""
    if not one.time.count:
        return "for how long is not known"
    unknown = one.bios - one.time.count
    rest = f", {units.count(unknown)} of them for a time not known" if unknown else ""
    return f"for {units.duration(one.time.mean)} on average{rest}"
