# SPDX-License-Identifier: Apache-2.0
"""Figures of the timed system calls of a log, by the calls' names and by groups.

Calls that did no I/O are in the log only if they took long (`record --call-over`), as a read of a
pipe does. They are counted apart, so that they do not hide the calls that did I/O.
"""

from dataclasses import fields, replace

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
    canonical,
    name_of,
)
from biotrail.converters.analysis.distributions.samples import of_bios
from biotrail.converters.analysis.figures import Summary, stage_times
from biotrail.converters.analysis.report.tree import CallReport
from biotrail.converters.calls.first_bios import FirstBios
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.path_tables import Calls
from biotrail.converters.events.tables import Bios, Lifecycles

OF_CALLS = (
    *("process", "thread", "cgroup", "unit", "container", "pod", "namespace"),
    *("file", "inode", "dir"),
)
"""Words of KEYS by which calls are grouped, too."""


class CallsByGroup:
    """Figures of all timed calls by group and name, window after window.

    A call is grouped as its thread (process), or as the bios that it queued: by the cgroup (or
    what it is) of the first one, by the file of its descriptor or of the first one that has a file,
    else by what the first one is for. A call without such a bio is in the group of what is not
    known; by file, a timed one without any bio in that of calls without I/O. A wait of a call that
    was not timed may have a file without a bio of its own.
    """

    def __init__(self, context: Context, by: str) -> None:
        self._context = context
        self._key: Key = KEYS[by](context)
        self._first = FirstBios()
        self._files = by in OF_FILES
        self._figures: dict[tuple[int, int], CallFigures] = {}
        """(code of the group, code of name and I/O) → figures."""

    def add(self, window: Lifecycles) -> None:
        """Add the window's calls. Past MOST_GROUPS pairs of group and name they are in OTHERS."""
        if window.path is None:
            return
        calls = window.path.calls
        first = self._first.of_calls(window)
        if not len(calls):
            return
        stand_in = _bios(window.bios, calls)
        stand_in.cgroup, stand_in.file = first.cgroup, first.file.astype(np.int32)
        stand_in.opf, stand_in.page = first.opf, first.page
        # Keys are of bios: a stand-in for each call has what they look at.
        stood = replace(window, bios=stand_in, path=None)
        none = window.bio_stages.take(np.zeros(0, dtype=np.int64))
        group = self._key.codes(stood, of_bios(stand_in, none, self._context))
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
            same = groups.setdefault(canonical(self._key, code), {})
            same.setdefault(what, CallFigures()).merge(figures)
        found = []
        for code, calls in groups.items():
            name = dict(name_of(self._key, code))
            reports = [
                replace(report_of(*named(what, self._context), figures), name=name)
                for what, figures in calls.items()
            ]
            found.append(sorted(reports, key=lambda one: (not one.io, -one.time.sum)))
        found.sort(key=lambda reports: -sum(one.time.sum for one in reports))
        return [one for reports in found for one in reports]


def _bios(like: Bios, calls: Calls) -> Bios:
    """Return a table with a bio per call that has its tid, task, CPU and 1 byte."""
    count = len(calls)
    columns = {
        one.name: np.zeros(
            (count, *getattr(like, one.name).shape[1:]), getattr(like, one.name).dtype
        )
        for one in fields(Bios)
    }
    columns.update(tid=calls.tid, task=calls.task, cpu=calls.cpu)
    columns["bytes"] = np.ones(count, dtype=np.uint32)
    columns["whom"] = np.full(count, -1, dtype=np.int32)
    return Bios(**columns)


def report_of(name: str, io: bool, figures: CallFigures) -> CallReport:
    """Return the report of the calls of one name that did I/O (`io`), or of those that did none."""
    return CallReport(
        call=name,
        io=io,
        count=figures.count,
        failed=sum(figures.errors.values()),
        errors=dict(sorted(figures.errors.items())),
        bytes=figures.bytes,
        bios=figures.bios,
        time=Summary.of(figures.time),
        parts=stage_times(figures.parts, {part: part for part in CALL_PARTS}, figures.time.sum),
    )


class CallsByName:
    """Figures of all timed calls, window after window."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._figures: dict[tuple[str, bool], CallFigures] = {}
        """(name, whether the calls did I/O) → figures."""

    def add(self, window: Lifecycles) -> None:
        """Add the window's calls to the figures of their name, apart by whether they did I/O."""
        if window.path is None or not len(window.path.calls):
            return
        calls = window.path.calls
        codes = coded(calls)
        for code in names_of(codes).tolist():
            name, io = named(code, self._context)
            figures = self._figures.setdefault((name, io), CallFigures())
            figures.add(calls.take(codes == code), name)

    def reports(self) -> list[CallReport]:
        """Return a report for each name of a call: those with I/O, then those without."""
        found = [report_of(name, io, one) for (name, io), one in sorted(self._figures.items())]
        return sorted(found, key=lambda call: (not call.io, -call.time.sum))
