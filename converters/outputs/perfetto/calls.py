# SPDX-License-Identifier: Apache-2.0
"""Slices of system calls, on their threads' own tracks, with the waits of each call nested."""

import numpy as np

from biotrail.converters.calls.names import LARGEST_ERRNO, name_of_call, name_of_error
from biotrail.converters.calls.pending import PendingWaits
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.path_tables import Calls, PathTables, Waits
from biotrail.converters.events.tables import I64, NEVER, Bool, Tasks
from biotrail.converters.outputs.perfetto.columns import Slices, StageColumns
from biotrail.converters.outputs.perfetto.flows import FlowMaker
from biotrail.converters.outputs.perfetto.names import BLOCKED, CALL, RUNNABLE, Detail, Drawing
from biotrail.converters.outputs.perfetto.ranking import Ranking
from biotrail.converters.outputs.perfetto.slowest import SlowCalls

_MOST_HELD = 1 << 16
"""Calls that are held back at most: beyond, all are drawn."""


class CallMaker:
    """Makes slices of the calls of each window, in the order of the windows."""

    def __init__(
        self,
        drawing: Drawing,
        threads: dict[int, tuple[int, str]],
        flows: FlowMaker | None,
        slowest: SlowCalls,
    ) -> None:
        """Start before the first window.

        threads: per thread id that has a call (process id, thread name) at its last one; filled
        here.
        """
        self._drawing, self._detail = drawing, drawing.options.detail
        self._threads, self._flows, self._slowest = threads, flows, slowest
        self._ranking = Ranking()
        self._pending = PendingWaits()
        self._held = Calls.none()
        """Calls that have returned, and have no slice yet."""
        self._says_reasons = "fs" in drawing.context.path_parts
        self._names_of = np.zeros(0, dtype=np.uint16)
        """Event name id of each WaitReason, and RUNNABLE's: interned early, to be below 128."""
        if self._says_reasons:
            self._intern()

    def _intern(self) -> None:
        said = self._says_reasons
        waits = [
            WAIT_REASON_NAMES[reason] if said and reason != WaitReason.UNKNOWN else BLOCKED
            for reason in WaitReason
        ]
        ids = [self._drawing.names.id(name) for name in (*waits, RUNNABLE)]
        self._names_of = np.array(ids, dtype=np.uint16)

    def calls(self, path: PathTables | None, tasks: Tasks, *, rest: bool = False) -> Slices:
        """Return slices of calls, and of waits outside of timed ones, in the order of entry.

        Calls whose entry is not known are left out. With `flows`, calls that return at or after
        `FlowMaker.settled` are held back for a later window, as more of their bios' completions may
        follow; if more than 65,536 calls are held, or no window follows (`rest`), all are returned.
        Keeps waits of calls without a slice so far.
        """
        if path is not None:
            shown = path.calls.with_io | self._drawing.options.every_call
            shown &= self._detail != Detail.BIOS
            known = path.calls.take((path.calls.entry != NEVER) & shown)
            self._held = Calls.concatenate([self._held, known])
            self._pending.add(path.waits)
            self._pending.take(path.calls.take(~shown))
        ready = np.ones(len(self._held), dtype=np.bool_)
        if not rest and self._flows is not None and len(ready) <= _MOST_HELD:
            ready = self._held.exit < self._flows.settled
        table = self._held.take(ready)
        self._held = self._held.take(~ready)
        return self._take(table.take(np.argsort(table.entry, kind="stable")), tasks)

    def _take(self, table: Calls, tasks: Tasks) -> Slices:
        self._intern()
        tids, last = np.unique(table.tid[::-1], return_index=True)
        for tid, row in zip(tids.tolist(), table.task[::-1][last].tolist(), strict=True):
            known = row >= 0
            named = (int(tasks.tgid[row]), str(tasks.comm[row])) if known else (tid, "")
            self._threads[tid] = named
        machine, names = self._drawing.context.machine, self._drawing.names
        ids = names.ids(
            table.number.astype(np.int64) * 2 + table.timed,
            lambda one: name_of_call(one >> 1, False, machine, bool(one & 1)),
        )
        if table.foreign.any():
            ids[table.foreign] = names.id("32-bit system call")
        end = np.maximum(table.exit, table.entry)
        slices = Slices.of_rows(CALL, table.tid, table.entry, end, ids)
        row, waits = self._pending.take(table)
        if not len(slices):
            return slices
        commit = np.full(len(slices), NEVER)
        np.maximum.at(commit, row, waits.commit)
        failed = (table.result < 0) & (table.result >= -LARGEST_ERRNO)

        def add(part: Slices, at: I64, every: bool) -> None:
            self._arguments(part, table.take(at), commit[at], every)

        self._ranking.add_arguments(self._detail, slices, failed, add)
        slowest = self._slowest.add(slices, table, row, waits, tasks)
        self._add_waits(slices, row, waits, np.isin(row, slowest))
        if self._flows is not None:
            self._flows.of_calls(slices, table)
            self._flows.forget(table)
        return slices

    def _arguments(self, slices: Slices, table: Calls, commit: I64, every: bool) -> None:
        errors = -np.clip(table.result, -LARGEST_ERRNO - 1, 0)
        error = self._drawing.strings.ids(errors, lambda number: name_of_error(-number))
        if not every:
            slices.text("error", error)
            return
        blocked, runnable = table.blocked, table.runnable
        slices.uint("tid", table.tid)
        slices.uint("fd", table.arg0, table.number >= 0)
        slices.uint("result", table.result, (table.result >= 0) & table.timed)
        slices.sint("result", table.result, table.result < -LARGEST_ERRNO)
        slices.text("error", error)
        slices.uint("blocked_ns", blocked, blocked > 0)
        slices.uint("runnable_ns", runnable, runnable > 0)
        slices.uint("running_ns", np.maximum(slices.end - slices.start - blocked - runnable, 0))
        slices.uint("queued_bios", table.bios, table.bios > 0)
        slices.uint("waits", table.waits, table.waits > 0)
        slices.uint("commit", commit, commit != NEVER)

    def _add_waits(self, slices: Slices, row: I64, waits: Waits, shown: Bool) -> None:
        """Set `slices.stages` to waits of these calls.

        row: per wait (n,), its slice; sorted, then by time. shown: per wait, whether an arrow from
        the commit that ended it is drawn in any case. A wait has two stages: off the CPU until
        woken, named by the reason, and from there until it ran, which has the arrow from what ended
        the wait. They are clipped to the call; those of no length are left out.
        """
        if not len(waits):
            return
        blocked = self._names_of[waits.reason]
        names = np.stack([blocked, np.full_like(blocked, self._names_of[-1])], axis=1).reshape(-1)
        start = np.stack([waits.out, waits.woken], axis=1).reshape(-1)
        end = np.stack([waits.woken, waits.run], axis=1).reshape(-1)
        rows = np.repeat(row, 2)
        start = np.clip(start, slices.start[rows], slices.end[rows])
        end = np.clip(end, start, slices.end[rows])
        lasting = np.flatnonzero(end > start)
        flow = None
        if self._flows is not None:
            by = self._flows.of_waits(waits, shown)
            flow = np.stack([np.zeros_like(by), by], axis=1).reshape(-1)[lasting]
        count = np.bincount(rows[lasting], minlength=len(slices))
        slices.stages = StageColumns(count, names[lasting], start[lasting], end[lasting], flow)
