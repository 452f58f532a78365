# SPDX-License-Identifier: Apache-2.0
"""Slices of system calls, on their threads' own tracks, with the waits of each call nested."""

import errno
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.calls.keys import rows_of_calls
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls, PathTables, Waits
from biotrail.converters.events.tables import (
    NEVER,
    U8,
    Tasks,
)
from biotrail.converters.outputs.perfetto.columns import Slices, StageColumns
from biotrail.converters.outputs.perfetto.encode import distinct
from biotrail.converters.outputs.perfetto.names import BLOCKED, CALL, RUNNABLE, Interned
from biotrail.recorder.schema.syscalls import call_name

_MOST_PENDING = 1 << 18
"""Waits that are kept at most until their call returns; the oldest are dropped first."""


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
    _pending: Waits | None = None
    """Waits of calls that have not returned in the windows so far."""
    _runnable: int = 0
    """Event name id of RUNNABLE: interned early, as it has to be below 128."""
    _names_of: U8 = field(default_factory=lambda: np.zeros(len(WaitReason), dtype=np.uint8))
    """Per WaitReason: event name id of such a wait, likewise."""
    _numbered: int = 0
    """Calls so far, which numbers them."""

    def __post_init__(self) -> None:
        """Intern the names of the reasons, if the log says what waits were for."""
        if "fs" in self.context.path_parts:
            self._intern()

    def _intern(self) -> None:
        """Set the name ids of waits; BLOCKED where the log does not say what a wait was for."""
        said = "fs" in self.context.path_parts
        for reason in WaitReason:
            named = said and reason != WaitReason.UNKNOWN
            self._names_of[reason] = self.names.id(WAIT_REASON_NAMES[reason] if named else BLOCKED)
        self._runnable = self.names.id(RUNNABLE)

    def calls(self, path: PathTables | None, tasks: Tasks) -> Slices:
        """Return a slice per timed call of the window, in the order of (entry, number).

        path: the window's; None: no calls. tasks: the window's threads, rows of `Calls.task`. Calls
        whose entry is not known are left out. Adds the threads of the calls to `threads`, and keeps
        waits whose calls have not returned for a later window.
        """
        if path is None:
            return self._slices(None)
        self._intern()
        known = path.calls.take(path.calls.entry != NEVER)
        table = known.take(np.argsort(known.entry, kind="stable"))
        self._add_threads(table, tasks)
        slices = self._slices(table)
        self._arguments(slices, table)
        waits = path.waits
        if self._pending is not None:
            waits = Waits.concatenate([self._pending, waits])
        self._pending = self._add_waits(slices, table, waits)
        return slices

    def _add_threads(self, table: Calls, tasks: Tasks) -> None:
        """Add process and name of each call's thread to `threads`; (tid, "") where not known."""
        tids, last = np.unique(table.tid[::-1], return_index=True)
        rows = table.task[::-1][last]
        for tid, row in zip(tids.tolist(), rows.tolist(), strict=True):
            known = row >= 0
            named = (int(tasks.tgid[row]), str(tasks.comm[row])) if known else (int(tid), "")
            self.threads[int(tid)] = named

    def _slices(self, table: Calls | None) -> Slices:
        """Return slices of the calls, sorted by entry, without arguments; None: no call."""
        none = np.zeros(0, dtype=np.int64)
        if table is None or not len(table):
            return Slices(CALL, none, none, none, none, none.astype(np.uint64), None)
        machine = str(self.context.header.get("host", {}).get("machine", ""))
        found, codes = distinct(table.number)
        texts = [call_name(int(number), machine) for number in found]
        ids = np.array([self.names.id(text) for text in texts], dtype=np.uint64)[codes]
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

    def _arguments(self, slices: Slices, table: Calls) -> None:
        """Add the arguments of names.CALL_ARGUMENTS."""
        if not len(table):
            return
        blocked, runnable = table.blocked, table.runnable
        slices.uint("tid", table.tid)
        slices.uint("fd", table.arg0)
        slices.uint("result", table.result, table.result >= 0)
        failed = table.result < 0
        if failed.any():
            found, codes = distinct(np.where(failed, -table.result, 0))
            texts = [errno.errorcode.get(int(code), f"errno {code}") for code in found]
            ids = np.array([self.strings.id(text) for text in texts], dtype=np.uint64)[codes]
            slices.text("error", np.where(failed, ids, np.uint64(0)))
        slices.uint("blocked_ns", blocked, blocked > 0)
        slices.uint("runnable_ns", runnable, runnable > 0)
        slices.uint("running_ns", np.maximum(slices.end - slices.start - blocked - runnable, 0))
        slices.uint("queued_bios", table.bios, table.bios > 0)
        slices.uint("waits", table.waits, table.waits > 0)

    def _add_waits(self, slices: Slices, table: Calls, waits: Waits) -> Waits:
        """Set `slices.stages` to the waits of these calls; return the waits of no call among them.

        table: the call of each slice. A wait is a call's if thread and entry time are the same. It
        has two stages: off the CPU until woken, named by the reason, and from there until it ran.
        """
        row = rows_of_calls(table, waits)
        ours = np.flatnonzero(row >= 0)
        ours = ours[np.lexsort((waits.out[ours], row[ours]))]
        pending = waits.take(np.flatnonzero(row < 0)[-_MOST_PENDING:])
        if not len(ours):
            return pending
        blocked = self._names_of[waits.reason[ours]]
        names = np.stack([blocked, np.full_like(blocked, self._runnable)], axis=1).reshape(-1)
        start = np.stack([waits.out[ours], waits.woken[ours]], axis=1).reshape(-1)
        end = np.stack([waits.woken[ours], waits.run[ours]], axis=1).reshape(-1)
        rows = np.repeat(row[ours], 2)
        start = np.clip(start, slices.start[rows], slices.end[rows])
        end = np.clip(end, start, slices.end[rows])
        lasting = np.flatnonzero(end > start)
        count = np.bincount(rows[lasting], minlength=len(slices))
        slices.stages = StageColumns(
            first=np.cumsum(count) - count,
            count=count,
            name=names[lasting],
            start=start[lasting],
            end=end[lasting],
        )
        return pending
