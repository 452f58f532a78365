# SPDX-License-Identifier: Apache-2.0
"""For how long of its stages a bio stood still because its thread had no CPU, at least."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.keys import OP_BITS, operation
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.distributions.sums import sum_by
from biotrail.converters.analysis.report.tree import ReadyTime
from biotrail.converters.calls.keys import rows_by_key, rows_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.path_tables import Calls, PathTables
from biotrail.converters.events.tables import I64, NEVER, STAGE_NAMES, Lifecycles, Stage

PLUGGED = (Stage.G2I, Stage.M2I)
"""Stages in which the thread holds the bio back in its plug: it runs, or has no CPU, for a plug is
flushed where its thread waits for anything else."""
BY_THREAD = (Stage.Q2M, Stage.Q2G, *PLUGGED)
"""Stages that end when the thread goes on."""


KEPT_NS = 2_000_000_000
"""For how long waits and calls are kept: an I/O's window comes after theirs."""


@dataclass
class Ready:
    """Adds up windows."""

    _sums: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(place, stage) → ns."""
    _waits: I64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """(n, 3): thread, when woken, when it ran again."""
    _calls: list[Calls] = field(default_factory=list)
    """Timed calls that were ready to run, without a CPU."""

    def add(self, window: Lifecycles, bios: Samples) -> None:
        """Add the next window. bios: samples of its bios, row by row."""
        if window.path is None:
            return
        self._keep(window.path, window.end - KEPT_NS)
        stages = window.bio_stages
        rows = np.flatnonzero(np.isin(stages.stage, np.array(BY_THREAD, stages.stage.dtype)))
        if not len(rows):
            return
        owner, there = rows_of(window.bios.number, stages.owner[rows])
        rows, owner = rows[there], owner[there]
        begin, end, stage = stages.start[rows], stages.end[rows], stages.stage[rows]
        found = _overlap(window.bios.tid[owner].astype(np.int64), begin, end, self._waits)
        held = np.isin(stage, np.array(PLUGGED, stage.dtype))
        least = np.where(held, self._of_calls(window, window.path, owner, end - begin), 0)
        ns = np.clip(np.maximum(found, least), 0, np.maximum(end - begin, 0))
        pairs, row = distinct(bios.place[owner], stage.astype(np.int64))
        sums = sum_by(row, ns, len(pairs)).tolist()
        for (place, one), mine in zip(pairs, sums, strict=True):
            self._sums[place, one] += mine

    def _keep(self, path: PathTables, since: int) -> None:
        """Keep the window's waits and calls, and of former ones those that ended since (ns)."""
        rows = path.waits.take(path.waits.run > path.waits.woken)
        fresh = np.stack([rows.tid.astype(np.int64), rows.woken, rows.run], axis=1)
        self._waits = np.concatenate([self._waits[self._waits[:, 2] >= since], fresh])
        calls = path.calls
        every = [*self._calls, calls.take(calls.timed & (calls.runnable > 0))]
        self._calls = [one for table in every if len(one := table.take(table.exit >= since))]

    def _of_calls(self, window: Lifecycles, path: PathTables, owner: I64, ns: I64) -> I64:
        """Return what is left of times in a plug (n,) beyond all that the bio's call ran: (n,).

        owner: rows of bios. At most what the call was ready to run; 0 where the call is not known,
        was not timed, or has not returned yet.
        """
        row, there = rows_of(path.bios.number, window.bios.number[owner])
        entry = np.where(there, path.bios.entry[row] if len(path.bios) else NEVER, NEVER)
        found = np.zeros(len(owner), np.int64)
        known = np.flatnonzero(entry != NEVER)
        tid, begun = window.bios.tid[owner[known]].astype(np.int64), entry[known]
        for calls in self._calls:
            at = rows_by_key(calls, tid, begun)
            mine, rows = known[at >= 0], at[at >= 0]
            left = ns[mine] - calls.running[rows]
            found[mine] = np.clip(left, 0, calls.runnable[rows])
        return found

    def reports(self, context: Context) -> list[ReadyTime]:
        """Return the time of each device, operation and stage, most first."""
        found = [
            ReadyTime(
                context.device_name(place >> OP_BITS),
                operation(context, place),
                STAGE_NAMES[Stage(stage)],
                ns,
            )
            for (place, stage), ns in sorted(self._sums.items())
            if ns
        ]
        return sorted(found, key=lambda one: -one.ns)


def _overlap(tid: I64, begin: I64, end: I64, ready: I64) -> I64:
    """Return for how many ns of [begin, end] each thread was ready to run: (n,)."""
    found = np.zeros(len(tid), np.int64)
    for one in np.intersect1d(tid, ready[:, 0]).tolist():
        mine, rows = ready[ready[:, 0] == one], np.flatnonzero(tid == one)
        mine = mine[np.argsort(mine[:, 1], kind="stable")]
        whole = np.concatenate([[0], np.cumsum(mine[:, 2] - mine[:, 1])])

        def until(times: I64, mine: I64 = mine, whole: I64 = whole) -> I64:
            """Return for how long the thread had been ready at these times."""
            at = np.searchsorted(mine[:, 1], times, side="right")
            last = np.maximum(at - 1, 0)
            over = np.maximum(mine[last, 2] - times, 0)
            return np.asarray(whole[at] - np.where(at > 0, over, 0))

        found[rows] = until(end[rows]) - until(begin[rows])
    return found
