# SPDX-License-Identifier: Apache-2.0
"""Slices beside those of the block layer: calls, commits, submissions, interrupts."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import LARGEST_ERRNO, name_of_call, name_of_error
from biotrail.converters.calls.pending import PendingWaits
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.path_tables import Calls, Commits, PathTables, Waits
from biotrail.converters.events.submission_tables import Joined, Runner, Submissions
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    U16,
    U32,
    Bool,
    Lifecycles,
    Table,
    Tasks,
)
from biotrail.converters.outputs.perfetto.columns import (
    INT,
    Ranking,
    Slices,
    StageColumns,
    stages_in_turn,
)
from biotrail.converters.outputs.perfetto.flows import FlowMaker
from biotrail.converters.outputs.perfetto.names import (
    BLOCKED,
    CALL,
    COMMIT,
    COMMIT_PHASES,
    INTERRUPT,
    INTERRUPT_PARTS,
    RUNNABLE,
    SUBMISSION,
    Detail,
    Drawing,
)
from biotrail.converters.outputs.perfetto.slowest import Flights, SlowCalls
from biotrail.converters.outputs.perfetto.tree import Tree
from biotrail.converters.submissions.names import (
    JOINED_NAMES,
    RUNNER_NAMES,
    operation_name,
    operations_of,
)

_MOST_HELD = 1 << 16
"""Calls that are held back at most: beyond, all are drawn."""
_STEPS = {
    "submit_to_queue_ns": ("submitted", "queued"),
    "queue_to_end_ns": ("queued", "ended"),
    "end_to_complete_ns": ("ended", "completed"),
    "complete_to_reap_ns": ("completed", "reaped"),
}
"""Argument → the columns of Submissions at which the step begins and ends."""

_IN_SOFTIRQ, _IN_INTERRUPT = 1, 2
_NAMES = "interrupt", "softirq without interrupt"
_MOST_PENDING = 1 << 16
"""Completions that are held back at most until their interrupt is known as a whole."""


@dataclass
class _Completions(Table):
    """Completions in an interrupt or in the BLOCK softirq. Times in ns; NEVER: not this one's."""

    dev: I64
    entered: I64
    """Entry of the softirq, or else of the interrupt, in which the request was completed."""
    hard: I64
    raised: I64
    soft: I64
    complete: I64
    irq: U32

    @classmethod
    def of(cls, window: Lifecycles) -> "_Completions":
        """Return a row for each request of a window that was completed in an interrupt or softirq.

        A time is NEVER if it cannot be this completion's: they are in the order of issue,
        interrupt, raise, softirq, completion.
        """
        assert window.path is not None
        row, known = rows_of(window.requests.number, window.path.interrupts.number)
        ends = window.path.interrupts.take(known)
        requests = window.requests.take(row[known])
        soft = np.where(ends.context == _IN_SOFTIRQ, ends.soft, NEVER)
        soft = np.where(soft <= requests.complete, soft, NEVER)
        until = np.where(soft == NEVER, requests.complete, soft)
        hard = np.where((ends.hard >= requests.issue) & (ends.hard <= until), ends.hard, NEVER)
        raised = np.where((ends.raised >= hard) & (ends.raised <= soft), ends.raised, NEVER)
        entered = np.where(ends.context == _IN_INTERRUPT, hard, soft)
        dev = requests.dev.astype(np.int64)
        every = cls(dev, entered, hard, raised, soft, requests.complete, ends.irq)
        return every.take((entered != NEVER) & (requests.issue != NEVER))


class PathMaker:
    """Makes slices of the path's tables, window by window in their order."""

    def __init__(
        self, drawing: Drawing, tree: Tree, flows: FlowMaker | None, flights: Flights
    ) -> None:
        """tree: its `threads` and `processes` are filled. flights: as for `SlowCalls`."""
        self._drawing, self._tree, self._flows = drawing, tree, flows
        self._detail = drawing.options.detail
        self.slow = SlowCalls(drawing, flights)
        self.with_path = False
        """Whether a window had tables of the path."""
        self._calls, self._submissions, self._interrupts = Ranking(), Ranking(), Ranking()
        self._pending = PendingWaits()
        self._held = Calls.none()
        """Calls that have returned, and have no slice yet."""
        self._completions = _Completions.none()
        """Completions whose interrupt may have completed requests of later windows."""
        says_reasons = "fs" in drawing.context.path_parts
        waits = [
            WAIT_REASON_NAMES[reason] if says_reasons and reason != WaitReason.UNKNOWN else BLOCKED
            for reason in sorted(WaitReason)
        ]
        self._waits = *waits, RUNNABLE
        """Name of each WaitReason, and RUNNABLE."""
        if says_reasons:  # interned early, to be below 128
            for name in self._waits:
                drawing.names.id(name)

    def slices(self, window: Lifecycles) -> list[Slices]:
        """Return the window's slices of calls, commits and submissions."""
        path, tasks = window.path, window.tasks
        self.with_path |= path is not None
        found = [self.calls(path, tasks)] if self.with_path else []
        if path is not None:
            found.append(self._of_commits(path.commits))
            if self._detail != Detail.BIOS:
                found.append(self._of_submissions(path.submissions, tasks))
        return found

    def calls(self, path: PathTables | None, tasks: Tasks, *, rest: bool = False) -> Slices:
        """Return slices of calls, and of waits outside of timed ones, in the order of entry.

        Calls that return at or after `FlowMaker.settled` are held back, as completions of their
        bios may follow, unless too many are held, or no window follows (`rest`).
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
        table = table.take(np.argsort(table.entry, kind="stable"))
        names_of_waits = np.array([self._drawing.names.id(n) for n in self._waits], np.uint16)
        tids, last = np.unique(table.tid[::-1], return_index=True)
        for tid, row in zip(tids.tolist(), table.task[::-1][last].tolist(), strict=True):
            known = row >= 0
            named = (int(tasks.tgid[row]), str(tasks.comm[row])) if known else (tid, "")
            self._tree.threads[tid] = named
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
        self._calls.add_arguments(
            self._detail,
            slices,
            failed,
            lambda part, at, every: self._arguments(part, table.take(at), commit[at], every),
        )
        slowest = self.slow.add(slices, table, row, waits, tasks)
        self._add_waits(slices, row, waits, names_of_waits, np.isin(row, slowest))
        if self._flows is not None:
            self._flows.of_calls(slices, table)
        return slices

    def _arguments(self, slices: Slices, table: Calls, commit: I64, every: bool) -> None:
        errors = -np.clip(table.result, -LARGEST_ERRNO - 1, 0)
        error = self._drawing.strings.ids(errors, lambda number: name_of_error(-number))
        if not every:
            slices.text("error", error)
            return
        blocked, runnable = table.blocked, table.runnable
        slices.put("tid", table.tid)
        slices.put("fd", table.arg0, table.number >= 0)
        slices.put("result", table.result, (table.result >= 0) & table.timed)
        slices.put("result", table.result, table.result < -LARGEST_ERRNO, INT)
        slices.text("error", error)
        slices.put("blocked_ns", blocked, blocked > 0)
        slices.put("runnable_ns", runnable, runnable > 0)
        slices.put("running_ns", np.maximum(slices.end - slices.start - blocked - runnable, 0))
        slices.put("queued_bios", table.bios, table.bios > 0)
        slices.put("waits", table.waits, table.waits > 0)
        slices.put("commit", commit, commit != NEVER)

    def _add_waits(
        self, slices: Slices, row: I64, waits: Waits, names_of: U16, shown: Bool
    ) -> None:
        """Set `slices.stages`: off the CPU until woken, named by the reason, then until it ran.

        row: per wait (n,), its slice; sorted, then by time. names_of: id of the name of each
        WaitReason, and of RUNNABLE. shown: per wait, whether an arrow from the commit that ended it
        is drawn in any case. What ended the wait has its arrow to the second stage.
        """
        if not len(waits):
            return
        blocked = names_of[waits.reason]
        names = np.stack([blocked, np.full_like(blocked, names_of[-1])], axis=1).reshape(-1)
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

    def _of_commits(self, table: Commits) -> Slices:
        """Return a slice per commit of a journal that ended in a window, in the order of start.

        Its phases are nested. A commit whose start was not seen starts at the first phase that was
        seen, or at its end. Phases between moments of which one was not seen have no slice.
        """
        if not len(table):
            return Slices.none(COMMIT)
        names = self._drawing.names
        begun = np.stack([table.started, table.locking, table.flushing, table.logging], axis=1)
        start = np.where(begun == NEVER, table.end[:, None], begun).min(axis=1)
        order = np.argsort(start, kind="stable")
        table, start, begun = table.take(order), start[order], begun[order]
        name = np.full(len(table), names.id(COMMIT))
        slices = Slices.of_rows(COMMIT, table.dev, start, table.end, name)
        slices.put("transaction", table.transaction)
        slices.put("tid", table.tid)
        ended = np.concatenate([begun[:, 1:], table.end[:, None]], axis=1)
        phases = np.array([names.id(phase) for phase in COMMIT_PHASES])
        slices.stages = stages_in_turn(phases, begun, ended, begun != NEVER)
        if self._flows is not None:
            self._flows.of_commits(slices, table)
        return slices

    def _of_submissions(self, rows: Submissions, tasks: Tasks) -> Slices:
        """Return a slice per submission (io_uring's, aio's), in order of (start, number).

        From the submission, or else the first Q, to the completion, or else the end of the last
        bio. `group` is the process id, or else the thread's. Fills the tree's `processes` with the
        name of a thread that queued a submission, by process id.
        """
        if not len(rows):
            return Slices.none(SUBMISSION)
        start = np.where(rows.submitted != NEVER, rows.submitted, rows.queued)
        rows, start = rows.take(start != NEVER), start[start != NEVER]
        order = np.lexsort((rows.number, start))
        rows, start = rows.take(order), start[order]
        end = np.maximum(np.where(rows.completed != NEVER, rows.completed, rows.ended), start)
        process = rows.tid.astype(np.int64)
        if len(tasks):
            known, task = rows.task >= 0, np.maximum(rows.task, 0)
            process = np.where(known, tasks.tgid[task].astype(np.int64), process)
            for pid, at in zip(*np.unique(process, return_index=True), strict=True):
                name = str(tasks.comm[task[at]]) if known[at] else ""
                self._tree.processes.setdefault(int(pid), name)
        names = self._drawing.names.ids(operations_of(rows), operation_name)
        slices = Slices.of_rows(SUBMISSION, process, start, end, names)
        self._submissions.add_arguments(
            self._detail,
            slices,
            np.asarray((rows.completed != NEVER) & (rows.result < 0)),
            lambda part, at, every: self._submission_arguments(part, rows.take(at), every),
        )
        return slices

    def _submission_arguments(self, slices: Slices, rows: Submissions, every: bool) -> None:
        strings = self._drawing.strings
        over = rows.completed != NEVER
        if every:
            slices.put("number", rows.number, rows.number >= 0)
            slices.put("user_data", rows.user_data)
            slices.put("tid", rows.tid)
            slices.put("fd", rows.fd, rows.fd >= 0)
            slices.put("offset", rows.offset, rows.offset >= 0)
            slices.put("bytes", rows.bytes)
            slices.put("queued_bios", rows.bios)
            slices.text("mode", strings.ids(rows.runner, lambda one: RUNNER_NAMES[Runner(one)]))
            slices.text("joined", strings.ids(rows.joined, lambda one: JOINED_NAMES[Joined(one)]))
            slices.put("result", rows.result, over & (rows.result >= 0))
        failed = over & (rows.result < 0)
        if failed.any():
            results = np.where(failed, rows.result, 0)
            slices.text("error", strings.ids(results, lambda n: name_of_error(n) or "none"), failed)
        for name, (begin, end) in _STEPS.items() if every else ():
            first, last = getattr(rows, begin), getattr(rows, end)
            known = (first != NEVER) & (last != NEVER) & (last >= first)
            slices.put(name, last - first, known)

    def interrupts(self, window: Lifecycles | None) -> Slices:
        """Return a slice, by start, for each interrupt or softirq that no later window adds to.

        window: None: none follows. Requests that were completed in the same softirq, or in the same
        interrupt without a softirq, share a slice, up to the last completion. Held back is what may
        have completed a request that is still open.
        """
        if window is not None and window.path is None:
            return Slices.none(INTERRUPT)
        ends, self._completions = self._completions, _Completions.none()
        if window is not None:
            ends = _Completions.concatenate([ends, _Completions.of(window)])
            issue = window.open_requests.issue
            edge = min(window.end, int(issue[issue != NEVER].min(initial=window.end)))
            ready = ends.entered < edge
            ready[: max(len(ends) - _MOST_PENDING, 0)] = True
            self._completions, ends = ends.take(~ready), ends.take(ready)
        if not len(ends):
            return Slices.none(INTERRUPT)
        ends = ends.take(np.lexsort((ends.entered, ends.dev)))
        changes = (np.diff(ends.dev, prepend=-1) != 0) | (np.diff(ends.entered, prepend=-1) != 0)
        group, first = np.cumsum(changes) - 1, np.flatnonzero(changes)
        hard, raised = np.full((2, len(first)), FAR)
        for earliest, times in ((hard, ends.hard), (raised, ends.raised)):
            np.minimum.at(earliest, group, np.where(times == NEVER, FAR, times))
            earliest[earliest == FAR] = NEVER
        soft, dev = ends.soft[first], ends.dev[first]
        end, irq = np.zeros((2, len(first)), dtype=np.int64)
        np.maximum.at(end, group, ends.complete)
        np.maximum.at(irq, group, np.where(ends.hard != NEVER, ends.irq, 0))
        start = np.where(hard != NEVER, hard, np.where(raised != NEVER, raised, soft))
        at = np.argsort(start, kind="stable")
        interned = self._drawing.names
        names = np.array([interned.id(name) for name in _NAMES])
        if self._detail != Detail.FULL:  # the longest of each device, up to then
            at = at[self._interrupts.choose_of(dev[at], (end - start)[at])]
        name = names[(hard == NEVER).astype(np.int64)]
        slices = Slices.of_rows(INTERRUPT, dev[at], start[at], end[at], name[at])
        if not len(slices):
            return slices
        slices.put("irq", irq[at], (hard != NEVER)[at])
        served = np.bincount(group)[at]
        slices.put("completions", served, served > 1)
        parts = np.array([interned.id(name) for name in INTERRUPT_PARTS])
        until = np.stack([np.where(raised != NEVER, raised, soft), soft, end], axis=1)[at]
        since = np.stack([hard, raised, soft], axis=1)[at]
        known = (since != NEVER) & (soft != NEVER)[at][:, None]
        slices.stages = stages_in_turn(parts, since, until, known)
        return slices
