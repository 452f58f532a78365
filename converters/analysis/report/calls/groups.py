# SPDX-License-Identifier: Apache-2.0
"""Figures of timed system calls by group: by process, cgroup, file, and the call's name."""

from dataclasses import fields, replace

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import (
    CallFigures,
    by_pair,
    coded,
    named,
)
from biotrail.converters.analysis.distributions.groups import MOST_GROUPS, OTHERS
from biotrail.converters.analysis.distributions.keys import (
    KEYS,
    OF_FILES,
    Key,
    canonical,
    name_of,
)
from biotrail.converters.analysis.distributions.keys_files import NO_IO
from biotrail.converters.analysis.distributions.samples import of_bios
from biotrail.converters.analysis.report.calls.calls import report_of
from biotrail.converters.analysis.report.tree import CallReport
from biotrail.converters.calls.first_bios import FirstBios
from biotrail.converters.events.context import Context
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
        """Start without calls. context: the log's. by: a word of OF_CALLS."""
        self._context = context
        self._key: Key = KEYS[by](context)
        self._first = FirstBios()
        self._files = by in OF_FILES
        self._figures: dict[tuple[int, int], CallFigures] = {}
        """(code of the group, code of name and I/O) → figures."""

    def add(self, window: Lifecycles) -> None:
        """Add the calls of the log's next window, if it has any; call it for each window, in order.

        Calls whose bios were queued in earlier windows are grouped by these, too. Past MOST_GROUPS
        pairs of group and name, calls of new pairs are in the group OTHERS.
        """
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
        """Return a report for each group and name: groups with most time first.

        Within a group, calls with I/O come first, then those with most time. A name has a report
        for calls that did I/O and one for those that did none. Figures of codes that stand for the
        same group are added up, in copies: it can be called again, after more windows too.
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
    """Return a table with a bio per call that has its tid, task, CPU and 1 byte.

    `whom` is -1, all else 0. like: gives the columns' types; not changed.
    """
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
