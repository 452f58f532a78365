# SPDX-License-Identifier: Apache-2.0
"""The table of `biotrail top` on who waited for whom."""

from biotrail.converters.analysis.blame.tree import Kind, Waited
from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.text import units
from biotrail.text.blame import FILTERED, KINDS, share
from biotrail.text.columns import Column
from biotrail.text.top.table import PLAIN_ROWS, Table

_LEAST = 0.01
"""Share of a victim's time from which a part has a row."""


def blame(snapshot: Snapshot) -> Table:
    """Return a row for each part of a victim's time that is _LEAST, of the last minute and now.

    Empty unless that is asked for.
    """
    now, minute = snapshot.now.blame, snapshot.minute.blame
    newest = {one.name: _parts(one) for one in now.victims} if now else {}
    rows = []
    for one in minute.victims if minute else ():
        mine = newest.get(one.name, {})
        for what, ns in sorted(_parts(one).items(), key=lambda part: -part[1]):
            if ns < _LEAST * one.wait_ns:
                continue
            cells = [share(mine.get(what, 0), sum(mine.values())), share(ns, one.wait_ns)]
            rows.append([one.name, what, *cells, units.duration(ns / max(one.ios, 1))])
    columns = [
        Column("waits", left=True),
        Column("", left=True),
        Column("share", 1),
        Column("share 1 min"),
        Column("of each I/O"),
    ]
    return Table(columns, rows, 1, 2 * PLAIN_ROWS)


def _parts(one: Waited) -> dict[str, int]:
    """Return the parts of a victim's time by what they are called, ns."""
    return {
        f"behind {part.culprit}" if part.kind == Kind.OTHER else KINDS[part.kind]: part.wait_ns
        for part in one.parts
    }


def blame_lines(snapshot: Snapshot) -> list[str]:
    """Return what the table lacks."""
    minute = snapshot.minute.blame
    if minute is None:
        return []
    found = [] if minute.everybody else [FILTERED]
    if missing := minute.left_out.get("time_not_known"):
        found.append(
            f"{units.plural(missing, 'bio')} of the last minute waited for an unknown time"
        )
    if missing := minute.left_out.get("requests_too_long"):
        requests = units.plural(missing, "request")
        found.append(f"{requests} of more than a second are blamed for nothing")
    return found
