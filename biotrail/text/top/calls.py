# SPDX-License-Identifier: Apache-2.0
"""Tables of `biotrail top` on system calls."""

from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.converters.analysis.report.tree.tree import CallReport
from biotrail.converters.events.titles import called
from biotrail.text import units
from biotrail.text.columns import Column
from biotrail.text.report.path import PARTS
from biotrail.text.top.table import TIMES, Table, times


def calls(snapshot: Snapshot) -> Table:
    """Return the table of system calls by name, of the last minute and now; empty without any."""
    stretch = snapshot.now
    seconds = max(stretch.end_ns - stretch.begin_ns, 1) / 1e9
    now = {(one.call, one.io): one for one in stretch.calls}
    rows = []
    for one in snapshot.minute.calls:
        newest = now.get((one.call, one.io))
        count = newest.count if newest else 0
        rows.append(
            [
                one.call if one.io else f"{one.call} (no I/O)",
                f"{count / seconds:,.0f}",
                ", ".join(f"{name} {units.count(n)}" for name, n in one.errors.items()) or "-",
                *times(newest.time if newest else None, one.time),
                _longest(one),
            ]
        )
    columns = [
        Column("calls with I/O or waits", left=True),
        Column("calls/s"),
        Column("failed 1 min", 3),
        *TIMES,
        Column("most of it", left=True),
    ]
    return Table(columns, rows)


def _longest(one: CallReport) -> str:
    """Return the part with most of the calls' time and its share; `-` without any."""
    longest = max(one.parts, key=lambda part: part.share, default=None)
    return "-" if longest is None else f"{PARTS[longest.stage]} {100 * longest.share:.0f} %"


def slowest_calls(snapshot: Snapshot) -> Table:
    """Return the table of the slowest system calls of the last minute."""
    rows = [
        [
            units.duration(one.duration_ns),
            one.call,
            called(one.process or "(unknown)", one.title),
            str(one.pid or ""),
            units.count(one.bios) if one.bios else "-",
            f"{PARTS[one.part]} {units.duration(one.part_ns)}",
            one.error or "",
            f"{units.duration(max(snapshot.now.end_ns - one.end_ns, 0))} ago",
        ]
        for one in snapshot.slowest_calls
    ]
    columns = [
        Column("slowest calls"),
        Column("", left=True),
        Column("process", left=True),
        Column("pid", 3),
        Column("bios", 2),
        Column("longest part", 1, left=True),
        Column("", 2, left=True),
        Column("when", 1),
    ]
    return Table(columns, rows)
