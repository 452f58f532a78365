# SPDX-License-Identifier: Apache-2.0
"""How long a cgroup's limit held bios, by the waits that these bios' completions ended.

What a limit (blk-throttle) holds is queued by a worker: nothing in the log leads from the call to
the bio. But who waits for it is woken right after its completion, before anything else completes.
The wait began when the bio had been submitted, so from there to its Q the limit held it, at least.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.reason_rules import WaitReason
from biotrail.converters.events.path_tables import HeldBios, HeldSince, PathTables, Waits
from biotrail.converters.events.tables import I64, NEVER, SETTLE_NS, Bios, Lifecycles, WaitCause

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.result import Result

WAKE_NS = 1_000_000
"""Longest time from a bio's completion to the wake-up of who waits for it."""
REMEMBERED_NS = 1_000_000_000
"""Waits that ended so long before a window's last one are kept for bios of the next window."""
_FOR_BIOS = (
    *(WaitReason.UNKNOWN, WaitReason.OTHER, WaitReason.BIO, WaitReason.METADATA),
    *(WaitReason.PAGE_READ, WaitReason.PAGE_WRITE, WaitReason.WRITE_BACK, WaitReason.MEMORY),
)
"""Reasons of waits that a bio's completion can end."""


class HeldWaits:
    """Joins held bios and waits, window after window, in the log's order."""

    def __init__(self) -> None:
        self._waits = Waits.none()
        """Waits that may be of the next window's bios."""

    def join(self, window: "Lifecycles | Result", path: PathTables) -> PathTables:
        """Return the path with `held` of bios that a wait tells, and the waits that were for these.

        New are `held`, `since`, `tid` and `task` of held bios for which it was not known, `entry`
        of all that a call waited for, and of the window's waits `limit` and, where the limit held
        the bio for at least half of the wait, `reason`: CGROUP_LIMIT. path: the window's, its waits
        with `cause` and `reason`.
        """
        waits = path.waits
        before = len(self._waits)
        known = Waits.concatenate([self._waits, waits])
        self._waits = known.take(known.run > known.run.max(initial=0) - REMEMBERED_NS)
        if not len(path.held) and not len(path.open_held):
            return path
        ends = np.concatenate([window.bios.complete, window.open_bios.complete])
        ends = np.unique(ends[ends != NEVER])
        tables = []
        waits = replace(waits, limit=waits.limit.copy(), reason=waits.reason.copy())
        for table, bios in ((path.held, window.bios), (path.open_held, window.open_bios)):
            rows, by = _match(table, bios, known, ends)
            held = _with_waits(table, bios, known, rows, by)
            tables.append(held)
            now = np.flatnonzero(by >= before)
            held, of = held.take(rows[now]), by[now] - before
            waits.limit[of] = held.limit
            blocked = waits.woken[of] - waits.out[of]
            mostly = of[2 * np.minimum(held.held, blocked) >= blocked]
            waits.reason[mostly] = WaitReason.CGROUP_LIMIT
        return replace(path, waits=waits, held=tables[0], open_held=tables[1])


def _match(held: HeldBios, bios: Bios, waits: Waits, ends: I64) -> tuple[I64, I64]:
    """Return rows of held bios, and of the wait that each one's completion ended.

    That is the first wait to end after the completion, within WAKE_NS and before any other
    completion, if its thread ran again within SETTLE_NS of it, it began before the bio's Q, was
    not for a bio that its own call queued, is not known to be for anything but I/O, and is of the
    thread that the bio names, if it names one.
    bios: those of `held` and others. ends: the completions of all of the window's bios, distinct,
    ascending.
    """
    row, there = rows_of(bios.number, held.number)
    own = np.flatnonzero(there & (bios.complete[row] != NEVER) if len(bios) else there)
    usable = (waits.cause != WaitCause.OWN_IO) & np.isin(waits.reason, _FOR_BIOS)
    usable_rows = np.flatnonzero(usable)
    order = usable_rows[np.argsort(waits.woken[usable_rows], kind="stable")]
    if not len(own) or not len(order):
        none = np.zeros(0, dtype=np.int64)
        return none, none
    complete, queue = bios.complete[row[own]], bios.queue[row[own]]
    place = np.searchsorted(waits.woken[order], complete)
    first = order[np.minimum(place, len(order) - 1)]
    woken = waits.woken[first]
    good = (place < len(order)) & (woken - complete <= WAKE_NS) & (waits.out[first] < queue)
    good &= waits.run[first] - complete <= SETTLE_NS
    ended = np.searchsorted(ends, complete, side="right")
    good &= np.searchsorted(ends, woken, side="right") == ended
    unnamed = (held.tid[own] == 0) | (held.since[own] == HeldSince.REMAP)
    good &= unnamed | (held.tid[own] == waits.tid[first])
    return own[good], first[good]


def _with_waits(held: HeldBios, bios: Bios, waits: Waits, rows: I64, by: I64) -> HeldBios:
    """Return the held bios with call, length and thread by their waits, the last two if fresh.

    rows, by: as `_match` returns them.
    """
    if not len(rows):
        return held
    entry = held.entry.copy()
    entry[rows] = waits.entry[by]
    fresh = held.held[rows] == NEVER
    rows, by = rows[fresh], by[fresh]
    row, _ = rows_of(bios.number, held.number[rows])
    length, since = held.held.copy(), held.since.copy()
    tid, task = held.tid.copy(), held.task.copy()
    length[rows] = bios.queue[row] - waits.out[by]
    since[rows], tid[rows], task[rows] = HeldSince.WAIT, waits.tid[by], waits.task[by]
    return replace(held, entry=entry, held=length, since=since, tid=tid, task=task)
