# SPDX-License-Identifier: Apache-2.0
"""Figures of the timed system calls of a log, by the calls' names and by groups.

Calls that did no I/O are in the log only if they took long (`record --call-over`), as a read of a
pipe does. They are counted apart, so that they do not hide the calls that did I/O.
"""

from collections import Counter
from dataclasses import dataclass, field, fields, replace

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import (
    CALL_PARTS,
    CallFigures,
    by_pair,
    coded,
    named,
)
from biotrail.converters.analysis.distributions.groups import MOST_GROUPS, OTHERS
from biotrail.converters.analysis.distributions.keys import (
    KEYS,
    NO_IO,
    OF_FILES,
    Key,
    Name,
    name_of,
)
from biotrail.converters.analysis.distributions.samples import samples_of
from biotrail.converters.analysis.distributions.sketch import Distribution, Mergeable
from biotrail.converters.analysis.figures import as_row, stage_times
from biotrail.converters.analysis.report.tree import CallReport, SubmissionReport
from biotrail.converters.calls.names import name_of_error
from biotrail.converters.calls.pending import FirstBios
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.path_tables import Calls, PathTables
from biotrail.converters.events.submission_tables import Runner
from biotrail.converters.events.tables import NEVER, Bios, Lifecycles
from biotrail.converters.submissions.names import RUNNER_NAMES, operation_name, operations_of
from biotrail.recorder.schema.syscalls import numbers

OF_CALLS = (
    *("process", "thread", "cgroup", "unit", "container", "pod", "namespace"),
    *("file", "inode", "dir"),
)


class CallsByGroup:
    """Figures of all timed calls by group and name, window after window.

    A call is grouped as its thread (process), or as the first bio that it queued: by its cgroup, by
    the file of the call's descriptor or of the first one that has a file, else by what it is for.
    """

    def __init__(self, context: Context, by: str) -> None:
        self._context = context
        self._key: Key = KEYS[by](context)
        self._first = FirstBios()
        self._files = by in OF_FILES
        self._figures: dict[tuple[int, int], CallFigures] = {}

    def add(self, window: Lifecycles, path: PathTables) -> None:
        """Past MOST_GROUPS pairs of group and name calls are in OTHERS."""
        calls = path.calls
        first = self._first.of_calls(window)
        if not len(calls):
            return
        # Keys are of bios: a stand-in for each call, of 1 byte, has what they look at.
        columns = {one.name: getattr(window.bios, one.name) for one in fields(Bios)}
        columns = {
            name: np.zeros((len(calls), *like.shape[1:]), like.dtype)
            for name, like in columns.items()
        }
        stand_in = Bios(**columns)
        stand_in.tid, stand_in.task, stand_in.cpu = calls.tid, calls.task, calls.cpu
        stand_in.bytes[:], stand_in.whom[:] = 1, -1
        stand_in.cgroup, stand_in.file = first.cgroup, first.file.astype(np.int32)
        stand_in.opf, stand_in.page = first.opf, first.page
        stood = replace(window, bios=stand_in, path=None)
        none = window.bio_stages.take(np.zeros(0, dtype=np.int64))
        group = self._key.codes(stood, samples_of(stand_in, none, self._context))
        if self._files:
            group = np.where((first.file < 0) & (calls.bios == 0) & calls.timed, NO_IO, group)
        for one, what, rows in by_pair(group, coded(calls)):
            known = (one, what) in self._figures or len(self._figures) < MOST_GROUPS
            figures = self._figures.setdefault((one if known else OTHERS, what), CallFigures())
            figures.add(calls.take(rows), named(what, self._context)[0])

    def reports(self) -> list[CallReport]:
        """Return a report for each group and name: groups with most time first, with I/O first.

        Figures of codes that stand for one group are added up in copies: more windows may follow.
        """
        groups: dict[int, dict[int, CallFigures]] = {}
        for (code, what), figures in sorted(self._figures.items()):
            same = groups.setdefault(self._key.canonical(code), {})
            same.setdefault(what, CallFigures()).merge(figures)
        found = []
        for code, calls in groups.items():
            name = dict(name_of(self._key, code))
            reports = [
                _report(what, figures, self._context, name) for what, figures in calls.items()
            ]
            found.append(sorted(reports, key=lambda one: (not one.io, -one.time.sum)))
        found.sort(key=lambda reports: -sum(one.time.sum for one in reports))
        return [one for reports in found for one in reports]


def _report(code: int, figures: CallFigures, context: Context, group: Name) -> CallReport:
    call, io = named(code, context)
    return as_row(
        CallReport,
        figures,
        name=group,
        call=call,
        io=io,
        failed=sum(figures.errors.values()),
        parts=stage_times(figures.parts, CALL_PARTS, figures.time.sum),
    )


@dataclass
class CallsByName(Mergeable):
    figures: dict[int, CallFigures] = field(default_factory=dict)

    def add(self, calls: Calls, context: Context) -> None:
        codes = coded(calls)
        for code in names_of(codes).tolist():
            figures = self.figures.setdefault(code, CallFigures())
            figures.add(calls.take(codes == code), named(code, context)[0])

    def reports(self, context: Context) -> list[CallReport]:
        """Calls with I/O first, then by time in total, by name."""
        found = [_report(code, one, context, {}) for code, one in self.figures.items()]
        return sorted(found, key=lambda call: (not call.io, -call.time.sum, call.call))


STEPS = {
    "submit to Q": ("submitted", "queued"),
    "Q to C": ("queued", "ended"),
    "C to complete": ("ended", "completed"),
    "complete to reaped": ("completed", "reaped"),
}
"""Name of a step → the columns of Submissions at which it begins and ends."""
_SUBMITTING = frozenset({"io_uring_enter", "io_submit"})


@dataclass
class _Figures:
    count: int = 0
    modes: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    bios: int = 0
    bytes: int = 0
    time: Distribution = field(default_factory=Distribution)
    """ns from submission to completion, where both are known."""
    steps: dict[str, Distribution] = field(default_factory=dict)


@dataclass
class SubmissionsByOperation:
    context: Context
    unknown: int = 0
    """Bios queued inside io_uring_enter or io_submit whose request is not known."""
    _figures: dict[int, _Figures] = field(default_factory=dict)

    def add(self, window: Lifecycles, path: PathTables) -> None:
        """Open bios count in `unknown` once they have ended."""
        if "uring" not in self.context.path_parts:
            return
        rows, bios = path.submissions, path.bios
        inside = np.isin(bios.call, numbers(_SUBMITTING, self.context.machine)) & ~bios.foreign
        self.unknown += int((inside & (bios.submission < 0)).sum())
        operations = operations_of(rows)
        for code in names_of(operations).tolist():
            one = self._figures.setdefault(code, _Figures())
            mine = rows.take(operations == code)
            one.count += len(mine)
            for runner, count in zip(*np.unique(mine.runner, return_counts=True), strict=True):
                one.modes[RUNNER_NAMES[Runner(int(runner))]] += int(count)
            one.completed += int((mine.completed != NEVER).sum())
            results, counts = np.unique(mine.result[mine.result < 0], return_counts=True)
            for result, count in zip(results.tolist(), counts.tolist(), strict=True):
                one.errors[name_of_error(result) or str(result)] += count
            one.bios += int(mine.bios.sum(dtype=np.int64))
            one.bytes += int(mine.bytes.sum())
            both = (mine.submitted != NEVER) & (mine.completed != NEVER)
            one.time.add((mine.completed - mine.submitted)[both])
            for name, (begin, end) in STEPS.items():
                start, stop = getattr(mine, begin), getattr(mine, end)
                known = (start != NEVER) & (stop != NEVER) & (stop >= start)
                if known.any():
                    one.steps.setdefault(name, Distribution()).add((stop - start)[known])

    def reports(self) -> list[SubmissionReport]:
        """Shares are of the sum of `time`, and more than 1 where steps are known without a time."""
        found = [
            as_row(
                SubmissionReport,
                one,
                operation=operation_name(code),
                failed=sum(one.errors.values()),
                steps=stage_times(one.steps, tuple(STEPS), one.time.sum),
            )
            for code, one in sorted(self._figures.items())
        ]
        return sorted(found, key=lambda one: -one.count)
