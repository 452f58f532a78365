# SPDX-License-Identifier: Apache-2.0
"""Slices of what is recorded beside the block layer: commits, submissions, interrupts."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import name_of_error
from biotrail.converters.events.path_tables import Commits
from biotrail.converters.events.submission_tables import Joined, Runner, Submissions
from biotrail.converters.events.tables import FAR, I64, NEVER, U32, Lifecycles, Table, Tasks
from biotrail.converters.outputs.perfetto.columns import Slices, stages_in_turn
from biotrail.converters.outputs.perfetto.flows import FlowMaker
from biotrail.converters.outputs.perfetto.names import (
    COMMIT,
    COMMIT_PHASES,
    INTERRUPT,
    INTERRUPT_PARTS,
    SUBMISSION,
    Detail,
    Drawing,
)
from biotrail.converters.outputs.perfetto.ranking import Ranking
from biotrail.converters.submissions.names import (
    JOINED_NAMES,
    RUNNER_NAMES,
    operation_name,
    operations_of,
)


def commit_slices(table: Commits, drawing: Drawing, flows: FlowMaker | None) -> Slices:
    """Return a slice per commit of a journal that ended in a window, in the order of start.

    Its phases are nested. A commit whose start was not seen starts at the first phase that was
    seen, or at its end. Phases between moments of which one was not seen have no slice.
    """
    if not len(table):
        return Slices.none(COMMIT)
    begun = np.stack([table.started, table.locking, table.flushing, table.logging], axis=1)
    start = np.where(begun == NEVER, table.end[:, None], begun).min(axis=1)
    order = np.argsort(start, kind="stable")
    table, start, begun = table.take(order), start[order], begun[order]
    name = np.full(len(table), drawing.names.id(COMMIT))
    slices = Slices.of_rows(COMMIT, table.dev, start, table.end, name)
    slices.uint("transaction", table.transaction)
    slices.uint("tid", table.tid)
    ended = np.concatenate([begun[:, 1:], table.end[:, None]], axis=1)
    names = np.array([drawing.names.id(phase) for phase in COMMIT_PHASES])
    slices.stages = stages_in_turn(names, begun, ended, begun != NEVER)
    if flows is not None:
        flows.of_commits(slices, table)
    return slices


_STEPS = {
    "submit_to_queue_ns": ("submitted", "queued"),
    "queue_to_end_ns": ("queued", "ended"),
    "end_to_complete_ns": ("ended", "completed"),
    "complete_to_reap_ns": ("completed", "reaped"),
}
"""Argument → the columns of Submissions at which the step begins and ends."""


class SubmissionMaker:
    """Makes slices of io_uring's requests and aio's iocbs, on lanes below their process."""

    def __init__(self, drawing: Drawing, processes: dict[int, str]) -> None:
        """processes: by id, the name of a thread that queued a submission; filled here."""
        self._drawing, self._processes = drawing, processes
        self._ranking = Ranking()

    def submissions(self, rows: Submissions, tasks: Tasks) -> Slices:
        """Return a slice per submission of a window, in the order of (start, number).

        From the submission, or the first Q where that is not known, to the completion, or the end
        of the last bio; those without a known start are left out. `group` is the process id, or the
        thread's where the task is not known. Adds to `processes` each new id, with the name of the
        thread that queued the first bio of the first such row.
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
                self._processes.setdefault(int(pid), name)
        names = self._drawing.names.ids(operations_of(rows), operation_name)
        slices = Slices.of_rows(SUBMISSION, process, start, end, names)

        def add(part: Slices, at: I64, every: bool) -> None:
            self._arguments(part, rows.take(at), every)

        failed = np.asarray((rows.completed != NEVER) & (rows.result < 0))
        self._ranking.add_arguments(self._drawing.options.detail, slices, failed, add)
        return slices

    def _arguments(self, slices: Slices, rows: Submissions, every: bool) -> None:
        strings, over = self._drawing.strings, rows.completed != NEVER
        if every:
            slices.uint("number", rows.number, rows.number >= 0)
            slices.uint("user_data", rows.user_data)
            slices.uint("tid", rows.tid)
            slices.uint("fd", rows.fd, rows.fd >= 0)
            slices.uint("offset", rows.offset, rows.offset >= 0)
            slices.uint("bytes", rows.bytes)
            slices.uint("queued_bios", rows.bios)
            slices.text("mode", strings.ids(rows.runner, lambda one: RUNNER_NAMES[Runner(one)]))
            slices.text("joined", strings.ids(rows.joined, lambda one: JOINED_NAMES[Joined(one)]))
            slices.uint("result", rows.result, over & (rows.result >= 0))
        failed = over & (rows.result < 0)
        if failed.any():
            results = np.where(failed, rows.result, 0)
            slices.text("error", strings.ids(results, lambda n: name_of_error(n) or "none"), failed)
        for name, (begin, end) in _STEPS.items() if every else ():
            first, last = getattr(rows, begin), getattr(rows, end)
            known = (first != NEVER) & (last != NEVER) & (last >= first)
            slices.uint(name, last - first, known)


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

        A time is NEVER if it is not known or cannot be this completion's: an interrupt that is not
        between issue and completion (or softirq, if there is one), a softirq after the completion,
        a raise that is not between interrupt and softirq. Left out are requests never issued, and
        rows whose `entered` is then NEVER.
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


class InterruptMaker:
    """Makes slices of the interrupts that led to recorded completions, below their devices."""

    def __init__(self, drawing: Drawing) -> None:
        self._names = drawing.names
        self._every = drawing.options.detail == Detail.FULL
        """Whether all are drawn; else the longest of each device, up to then."""
        self._ranking = Ranking()
        self._held = _Completions.none()
        """Completions whose interrupt may have completed requests of later windows."""

    def interrupts(self, window: Lifecycles) -> Slices:
        """Return a slice for each interrupt, or softirq, that no later window adds to.

        Requests that were completed in the same softirq, or in the same interrupt without a
        softirq, share a slice, from the first that is known of interrupt, raise and softirq to the
        last completion. Held back is what may have completed a request that is still open, up to
        65,536 completions. Sorted by start.
        """
        if window.path is None:
            return Slices.none(INTERRUPT)
        every = _Completions.concatenate([self._held, _Completions.of(window)])
        issue = window.open_requests.issue
        edge = min(window.end, int(issue[issue != NEVER].min(initial=window.end)))
        ready = every.entered < edge
        ready[: max(len(every) - _MOST_PENDING, 0)] = True
        self._held = every.take(~ready)
        return self._slices(every.take(ready))

    def rest(self) -> Slices:
        """Return the slices that were held back; no window follows."""
        return self._slices(self._held)

    def _slices(self, ends: _Completions) -> Slices:
        """Return the slices of completions, with arguments and stages, sorted by start.

        Rows of the same device and `entered` share a slice; its name says whether it begins with an
        interrupt. `irq` only with an interrupt, `completions` if more than 1.
        """
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
        names = np.array([self._names.id(name) for name in _NAMES])
        if not self._every:
            at = at[self._ranking.choose_of(dev[at], (end - start)[at])]
        name = names[(hard == NEVER).astype(np.int64)]
        slices = Slices.of_rows(INTERRUPT, dev[at], start[at], end[at], name[at])
        if not len(slices):
            return slices
        slices.uint("irq", irq[at], (hard != NEVER)[at])
        served = np.bincount(group)[at]
        slices.uint("completions", served, served > 1)
        parts = np.array([self._names.id(name) for name in INTERRUPT_PARTS])
        until = np.stack([np.where(raised != NEVER, raised, soft), soft, end], axis=1)[at]
        since = np.stack([hard, raised, soft], axis=1)[at]
        known = (since != NEVER) & (soft != NEVER)[at][:, None]
        slices.stages = stages_in_turn(parts, since, until, known)
        return slices
