# SPDX-License-Identifier: Apache-2.0
"""For whom a worker queued a bio, beside what the bio's own Q says (`Bios.whom`).

By what a cgroup's limit held: the thread that submitted it, or that waited for it. By the upper
bio, for a bio of a lower device: whoever queued that, or for whom it was queued.
"""

from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.tables import I32, NEVER, Bios

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import HeldBios
    from biotrail.converters.lifecycles.result import Result


def set_whom(window: "Result") -> None:
    """Set `whom` of the window's bios where a limit or an upper bio tells it, in place.

    A value that is there, by the bio's own fields, stays. window: its `path` as `converters.calls`
    sets it. An upper bio that is in neither of the window's tables tells nothing.
    """
    path = window.path
    if path is not None:
        _by_limits(window.bios, path.held)
        _by_limits(window.open_bios, path.open_held)
    tables = (window.bios, window.open_bios)
    if not any((table.parent != NEVER).any() for table in tables):
        return
    number = np.concatenate([table.number for table in tables])
    who = np.concatenate([doers(table) for table in tables])
    order = np.argsort(number)
    number, who = number[order], who[order]
    for table in tables:
        below = np.flatnonzero((table.parent != NEVER) & (table.whom < 0))
        row, there = rows_of(number, table.family[below])
        below, top = below[there], who[row[there]]
        other = (top >= 0) & (top != table.task[below])
        table.whom[below[other]] = top[other]


def _by_limits(bios: Bios, held: "HeldBios") -> None:
    """Set `whom` of bios that a limit held for a thread that is known. held: of these bios."""
    row, there = rows_of(bios.number, held.number)
    told = np.flatnonzero(there & (held.task >= 0))
    rows = row[told]
    fresh = (bios.whom[rows] < 0) & (bios.task[rows] != held.task[told])
    bios.whom[rows[fresh]] = held.task[told[fresh]]


def doers(bios: Bios) -> I32:
    """Return the row in `Lifecycles.tasks` of for whom, else by whom each bio was queued."""
    return np.where(bios.whom >= 0, bios.whom, bios.task)
