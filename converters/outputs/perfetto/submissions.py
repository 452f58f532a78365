# SPDX-License-Identifier: Apache-2.0
"""Slices of io_uring's requests and aio's iocbs, on lanes below their process."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.calls.names import name_of_error
from biotrail.converters.events.path_tables import PathTables
from biotrail.converters.events.submission_tables import Joined, Runner, Submissions
from biotrail.converters.events.tables import I64, NEVER, Bool, Tasks
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.names import SUBMISSION, Detail, Interned
from biotrail.converters.outputs.perfetto.ranking import Ranking
from biotrail.converters.submissions.names import (
    JOINED_NAMES,
    RUNNER_NAMES,
    operation_name,
    operations_of,
)

_STEPS = {
    "submit_to_queue_ns": ("submitted", "queued"),
    "queue_to_end_ns": ("queued", "ended"),
    "end_to_complete_ns": ("ended", "completed"),
    "complete_to_reap_ns": ("completed", "reaped"),
}
"""Argument → the columns of Submissions at which the step begins and ends."""


@dataclass
class SubmissionMaker:
    """Makes slices of the submissions of each window."""

    names: Interned
    """Event names."""
    strings: Interned
    """Values of text arguments."""
    processes: dict[int, str]
    """Per process id that has a submission: the name of a thread that queued one; filled here."""
    detail: Detail = Detail.STANDARD
    _ranking: Ranking = field(default_factory=Ranking)

    def submissions(self, path: PathTables | None, tasks: Tasks) -> Slices:
        """Return a slice per submission of the window, in the order of (start, number).

        From the submission, or the first Q where that is not known, to the completion, or the end
        of the last bio; those without a known start are left out, the end is at least the start.
        `group` is the process id. path: the window's; None: no submissions. tasks: rows of
        `Submissions.task`. Adds processes to `processes`.
        """
        if path is None or not len(path.submissions):
            return Slices.none(SUBMISSION)
        rows = path.submissions
        start = np.where(rows.submitted != NEVER, rows.submitted, rows.queued)
        rows = rows.take(start != NEVER)
        start = start[start != NEVER]
        order = np.lexsort((rows.number, start))
        rows, start = rows.take(order), start[order]
        end = np.where(rows.completed != NEVER, rows.completed, rows.ended)
        slices = Slices(
            SUBMISSION,
            number=rows.number,
            group=self._process(rows, tasks),
            start=start,
            end=np.maximum(end, start),
            name=self.names.ids(operations_of(rows), operation_name),
            family=None,
            rows=np.arange(len(rows)),
        )
        if self.detail == Detail.FULL:
            self._arguments(slices, rows)
        elif self.detail == Detail.STANDARD:
            self._ranking.add_arguments(
                slices,
                _failed(rows),
                lambda part, at: self._arguments(part, rows.take(at)),
                lambda part, at: self._errors(part, rows.take(at)),
            )
        return slices

    def _process(self, rows: Submissions, tasks: Tasks) -> I64:
        """Return per row its process id, int64 (n,), the thread's id where the task is not known.

        Adds each new id to `processes`, with the name of the thread that queued the first bio of
        the first such row, "" if not known; nothing is added if `tasks` is empty.
        """
        known = rows.task >= 0
        if not len(tasks):
            return rows.tid.astype(np.int64)
        task = np.maximum(rows.task, 0)
        process = np.where(known, tasks.tgid[task].astype(np.int64), rows.tid.astype(np.int64))
        for pid, at in zip(*np.unique(process, return_index=True), strict=True):
            name = str(tasks.comm[task[at]]) if known[at] else ""
            self.processes.setdefault(int(pid), name)
        return process

    def _arguments(self, slices: Slices, rows: Submissions) -> None:
        """Add the arguments of names.SUBMISSION_ARGUMENTS to the slices of `rows`."""
        if not len(rows):
            return
        slices.uint("number", rows.number, rows.number >= 0)
        slices.uint("user_data", rows.user_data)
        slices.uint("tid", rows.tid)
        slices.uint("fd", rows.fd, rows.fd >= 0)
        slices.uint("offset", rows.offset, rows.offset >= 0)
        slices.uint("bytes", rows.bytes)
        slices.uint("queued_bios", rows.bios)
        runners = self.strings.ids(rows.runner, lambda one: RUNNER_NAMES[Runner(one)])
        slices.text("mode", runners)
        how = self.strings.ids(rows.joined, lambda one: JOINED_NAMES[Joined(one)])
        slices.text("joined", how)
        over = rows.completed != NEVER
        slices.uint("result", rows.result, over & (rows.result >= 0))
        self._errors(slices, rows)
        for name, (begin, end) in _STEPS.items():
            first, last = getattr(rows, begin), getattr(rows, end)
            known = (first != NEVER) & (last != NEVER) & (last >= first)
            slices.uint(name, last - first, known)

    def _errors(self, slices: Slices, rows: Submissions) -> None:
        failed = _failed(rows)
        if failed.any():
            results = np.where(failed, rows.result, 0)
            ids = self.strings.ids(results, lambda one: name_of_error(one) or "none")
            slices.text("error", np.where(failed, ids, np.uint64(0)))


def _failed(rows: Submissions) -> Bool:
    return np.asarray((rows.completed != NEVER) & (rows.result < 0), dtype=np.bool_)
