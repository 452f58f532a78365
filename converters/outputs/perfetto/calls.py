# SPDX-License-Identifier: Apache-2.0
"""Slices of system calls, on their threads' own tracks, with the waits of each call nested."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.calls.names import LARGEST_ERRNO, name_of_call, name_of_error
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.calls.waiting import PendingWaits
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls, PathTables, Waits
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U16,
    Bool,
    Tasks,
)
from biotrail.converters.outputs.perfetto.columns import Slices, StageColumns
from biotrail.converters.outputs.perfetto.flows import FlowMaker
from biotrail.converters.outputs.perfetto.names import BLOCKED, CALL, RUNNABLE, Detail, Interned
from biotrail.converters.outputs.perfetto.ranking import Ranking
from biotrail.converters.outputs.perfetto.slowest import SlowCalls

_MOST_HELD = 1 << 16
"""Calls that are held back at most: beyond, all are drawn."""


@dataclass
class CallMaker:
    """Makes slices of the calls of each window, in the order of the windows."""

    context: Context
    names: Interned
    """Event names."""
    strings: Interned
    """Values of text arguments."""
    threads: dict[int, tuple[int, str]]
    """Per thread id that has a call: (process id, thread name) at its last one; filled here."""
    flows: FlowMaker | None = None
    """Arrows to the calls' bios and from these to waits, with the window's bios; None: none."""
    detail: Detail = Detail.STANDARD
    every: bool = False
    """Whether calls are drawn that neither queued nor waited for I/O."""
    slowest: SlowCalls | None = None
    """The track of the slowest calls; None: it is not drawn."""
    _ranking: Ranking = field(default_factory=Ranking)
    _pending: PendingWaits = field(default_factory=PendingWaits)
    """Waits of calls that have no slice in the windows so far."""
    _held: Calls | None = None
    """Calls that have returned, and have no slice yet."""
    _runnable: int = 0
    """Event name id of RUNNABLE: interned early, as it has to be below 128."""
    _names_of: U16 = field(default_factory=lambda: np.zeros(len(WaitReason), dtype=np.uint16))
    """Per WaitReason: event name id of such a wait, likewise."""
    _numbered: int = 0
    """Calls so far, which numbers them."""

    def __post_init__(self) -> None:
        """Intern the names of the reasons, if the log says what waits were for."""
        if "fs" in self.context.path_parts:
            self._intern()

    def _intern(self) -> None:
        """Set the name ids of waits, `_names_of` and `_runnable`, and intern the names.

        A wait has its reason's name; BLOCKED if the reason is UNKNOWN or the log has no part `fs`
        of the path.
        """
        said = "fs" in self.context.path_parts
        for reason in WaitReason:
            named = said and reason != WaitReason.UNKNOWN
            self._names_of[reason] = self.names.id(WAIT_REASON_NAMES[reason] if named else BLOCKED)
        self._runnable = self.names.id(RUNNABLE)

    def calls(self, path: PathTables | None, tasks: Tasks) -> Slices:
        """Return slices of calls, and of waits outside of timed ones.

        A slice for each, in the order of (entry, number).

        path: the window's; None: it has no calls. tasks: the window's threads, rows of
        `Calls.task`. Calls whose entry is not known are left out. With `flows`, calls that return
        at or after `FlowMaker.settled` are held back for a later window or `rest`, as more of their
        bios' completions may follow; if more than 65,536 calls are held, all are returned. Adds the
        threads of the returned calls to `threads`; keeps waits of calls without a slice so far.
        """
        if path is not None:
            drawn = self._drawn(path.calls)
            known = path.calls.take((path.calls.entry != NEVER) & drawn)
            held = [] if self._held is None else [self._held]
            self._held = Calls.concatenate([*held, known])
            self._pending.add(path.waits)
            self._pending.take(path.calls.take(~drawn))
        if self._held is None:
            return self._slices(None)
        ready = np.ones(len(self._held), dtype=np.bool_)
        if self.flows is not None and len(ready) <= _MOST_HELD:
            ready = self._held.exit < self.flows.settled
        return self._take(ready, tasks)

    def _drawn(self, calls: Calls) -> Bool:
        """Return per call (n,) whether it is drawn: as `every` says, and at all with `detail`."""
        if self.detail == Detail.BIOS:
            return np.zeros(len(calls), dtype=np.bool_)
        return calls.with_io | self.every

    def rest(self, tasks: Tasks) -> Slices:
        """Return slices of the calls that were held back; no window follows.

        In the order of (entry, number), as full slices. tasks: the last window's threads, rows of
        `Calls.task`. Adds the threads of these calls to `threads`.
        """
        if self._held is None:
            return self._slices(None)
        return self._take(np.ones(len(self._held), dtype=np.bool_), tasks)

    def _take(self, ready: Bool, tasks: Tasks) -> Slices:
        """Return slices of the held calls that are `ready` (n,); these are held no longer."""
        assert self._held is not None
        self._intern()
        table = self._held.take(ready)
        table = table.take(np.argsort(table.entry, kind="stable"))
        self._held = self._held.take(~ready)
        self._add_threads(table, tasks)
        slices = self._slices(table)
        row, waits = self._pending.take(table)
        if not len(slices) or waits is None:
            return slices
        commit = np.full(len(slices), NEVER)
        np.maximum.at(commit, row, waits.commit)
        self._arguments(slices, table, commit)
        slowest = np.zeros(0, dtype=np.int64)
        if self.slowest is not None:
            slowest = self.slowest.add(slices, table, row, waits, tasks)
        self._add_waits(slices, row, waits, np.isin(row, slowest))
        if self.flows is not None:
            self.flows.of_calls(slices, table)
            self.flows.forget(table)
        return slices

    def _add_threads(self, table: Calls, tasks: Tasks) -> None:
        """Add (process id, name) of each call's thread, at its last row, to `threads`."""
        tids, last = np.unique(table.tid[::-1], return_index=True)
        rows = table.task[::-1][last]
        for tid, row in zip(tids.tolist(), rows.tolist(), strict=True):
            known = row >= 0
            named = (int(tasks.tgid[row]), str(tasks.comm[row])) if known else (int(tid), "")
            self.threads[int(tid)] = named

    def _slices(self, table: Calls | None) -> Slices:
        """Return slices of the calls, in the table's order, without arguments; None: no call."""
        if table is None or not len(table):
            return Slices.none(CALL)
        machine = str(self.context.header.get("host", {}).get("machine", ""))
        ids = self.names.ids(
            table.number.astype(np.int64) * 2 + table.timed,
            lambda one: name_of_call(one >> 1, False, machine, bool(one & 1)),
        )
        if table.foreign.any():
            ids[table.foreign] = self.names.id("32-bit system call")
        number = self._numbered + np.arange(len(table))
        self._numbered += len(table)
        return Slices(
            CALL,
            number=number,
            group=table.tid.astype(np.int64),
            start=table.entry,
            end=np.maximum(table.exit, table.entry),
            name=ids,
            family=None,
            rows=np.arange(len(table)),
        )

    def _arguments(self, slices: Slices, table: Calls, commit: I64) -> None:
        """Add to `slices`, of the rows of `table`, the arguments that `detail` gives them.

        FULL: all; STANDARD: all to the slowest of each call, and `error` to the others; else none.
        commit: of each slice (n,); NEVER: none.
        """
        if self.detail == Detail.FULL:
            self._all_arguments(slices, table, commit)
        elif self.detail == Detail.STANDARD:
            failed = (table.result < 0) & (table.result >= -LARGEST_ERRNO)
            self._ranking.add_arguments(
                slices,
                failed,
                lambda part, at: self._all_arguments(part, table.take(at), commit[at]),
                lambda part, at: self._errors(part, table.take(at)),
            )

    def _all_arguments(self, slices: Slices, table: Calls, commit: I64) -> None:
        """Add names.CALL_ARGUMENTS to `slices`, which are of the rows of `table`."""
        if not len(table):
            return
        blocked, runnable = table.blocked, table.runnable
        slices.uint("tid", table.tid)
        slices.uint("fd", table.arg0, table.number >= 0)
        slices.uint("result", table.result, (table.result >= 0) & table.timed)
        slices.sint("result", table.result, table.result < -LARGEST_ERRNO)
        self._errors(slices, table)
        slices.uint("blocked_ns", blocked, blocked > 0)
        slices.uint("runnable_ns", runnable, runnable > 0)
        slices.uint("running_ns", np.maximum(slices.end - slices.start - blocked - runnable, 0))
        slices.uint("queued_bios", table.bios, table.bios > 0)
        slices.uint("waits", table.waits, table.waits > 0)
        slices.uint("commit", commit, commit != NEVER)

    def _errors(self, slices: Slices, table: Calls) -> None:
        if not len(table):
            return
        errors = -np.clip(table.result, -LARGEST_ERRNO - 1, 0)
        slices.text("error", self.strings.ids(errors, lambda number: name_of_error(-number)))

    def _add_waits(self, slices: Slices, row: I64, waits: Waits, shown: Bool) -> None:
        """Set `slices.stages` to waits of these calls.

        row: per wait (n,), its slice; sorted, then by time. shown: per wait, whether an arrow from
        the commit that ended it is drawn in any case. A wait has two stages: off the CPU until
        woken, named by the
        reason, and from there until it ran, which has the arrow from what ended the wait. They
        are clipped to the call; those of no length are left out. Without waits nothing is done.
        """
        if not len(waits):
            return
        blocked = self._names_of[waits.reason]
        names = np.stack([blocked, np.full_like(blocked, self._runnable)], axis=1).reshape(-1)
        start = np.stack([waits.out, waits.woken], axis=1).reshape(-1)
        end = np.stack([waits.woken, waits.run], axis=1).reshape(-1)
        rows = np.repeat(row, 2)
        start = np.clip(start, slices.start[rows], slices.end[rows])
        end = np.clip(end, start, slices.end[rows])
        lasting = np.flatnonzero(end > start)
        flow = None
        if self.flows is not None:
            by = self.flows.of_waits(waits, shown)
            flow = np.stack([np.zeros_like(by), by], axis=1).reshape(-1)[lasting]
        count = np.bincount(rows[lasting], minlength=len(slices))
        slices.stages = StageColumns(
            count=count,
            name=names[lasting],
            start=start[lasting],
            end=end[lasting],
            flow=flow,
        )
