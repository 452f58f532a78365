# SPDX-License-Identifier: Apache-2.0
"""Figures of what calls waited for, by the calls' names and the reasons, and of journals' commits.

A wait is counted when its call returns, as only then the call's name is known.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions.call_figures import by_pair, coded, named
from biotrail.converters.analysis.distributions.groups import MOST_GROUPS, OTHERS
from biotrail.converters.analysis.distributions.sketch import Distribution, Mergeable, sum_by
from biotrail.converters.analysis.figures import StageTimes, Summary, as_row
from biotrail.converters.analysis.report.tree import CommitReport, WaitReport
from biotrail.converters.calls.keys import rows_by_key
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.path_tables import PathTables, Waits
from biotrail.converters.events.tables import FAR, I64, NEVER, Lifecycles, WaitCause
from biotrail.recorder.schema.syscalls import PAGE_FAULT, shown_name

MOST_PENDING = 1 << 18
"""Waits that are kept at most until their call returns; the oldest are dropped first, counted."""
PHASES = ("starting", "locking", "flushing", "logging")
"""Of a commit, in this order; each ends where the next one begins."""
_BITS = 8
_FAULT = shown_name(PAGE_FAULT, False, "")
LOCKS = frozenset((WaitReason.LOCK, WaitReason.DIRECTORY, WaitReason.INODE, WaitReason.PAGE_LOCK))
"""Reasons of waits that end when another thread lets go of something: who wakes up had it."""
_MOST_WAKERS = 64


@dataclass
class Waited(Mergeable):
    time: Distribution = field(default_factory=Distribution)
    own: int = 0
    """ns of these with a bio of the call in flight."""
    no_file: int = 0
    """ns of these that are page faults' and have no file."""
    limits: Counter[int] = field(default_factory=Counter)
    """Cgroup whose limit held what was waited for → ns."""
    wakers: Counter[int] = field(default_factory=Counter)
    """Thread that ended waits for LOCKS → ns."""
    ran: Counter[int] = field(default_factory=Counter)
    """Process that had the CPU until the thread ran again → ns for which it was ready to run."""


@dataclass
class WaitsByReason:
    context: Context
    dropped: int = 0
    """Waits whose calls had not returned when there were more than MOST_PENDING of them."""
    _pending: Waits | None = None
    _waited: dict[tuple[int, str, WaitReason], Waited] = field(default_factory=dict)
    _calls: dict[str, int] = field(default_factory=dict)

    def add(self, window: Lifecycles, path: PathTables) -> None:
        """Add the waits of the calls that ended in the window.

        Waits of a call that has not returned are kept for a later window; those of calls whose
        entry is not known, or that did no I/O, are never counted.
        """
        if "fs" not in self.context.path_parts:
            return
        calls, waits = path.calls, path.waits
        calls = calls.take(calls.entry != NEVER)
        if self._pending is not None:
            waits = Waits.concatenate([self._pending, waits])
        row = rows_by_key(calls, waits.tid, waits.entry)
        later = np.flatnonzero(row < 0)
        self.dropped += max(0, len(later) - MOST_PENDING)
        self._pending = waits.take(later[-MOST_PENDING:])
        known = np.flatnonzero(row >= 0)
        did_io = (calls.bios > 0) | (calls.own_io > 0) | (calls.other_io > 0)
        did_io[row[known[waits.cause[known] != WaitCause.OTHERWISE]]] = True
        known = known[did_io[row[known]]]
        timed, codes = calls.take(did_io), coded(calls)[did_io] >> 1
        for code in names_of(codes).tolist():
            mine = timed.take(codes == code)
            name, _ = named(code << 1, self.context)
            self._calls[name] = self._calls.get(name, 0) + int((mine.exit - mine.entry).sum())
        row = row[known]
        io = np.where(calls.timed, FAR, calls.own_io + calls.other_io)[row]
        process = take_or(window.tasks.tgid.astype(np.int64), calls.task[row], 0)
        waits = waits.take(known)
        keys = coded(calls)[row] >> 1 << _BITS | waits.reason.astype(np.int64)
        blocked = np.minimum(np.maximum(waits.woken - waits.out, 0), io)
        own = np.where(waits.cause == WaitCause.OWN_IO, blocked, 0)
        no_file = np.where((waits.number == PAGE_FAULT) & (waits.file < 0), blocked, 0)
        for pid, key, rows in by_pair(process, keys):
            name, _ = named(key >> _BITS << 1, self.context)
            reason = WaitReason(key & ((1 << _BITS) - 1))
            apart = (pid, name, reason) in self._waited or len(self._waited) < MOST_GROUPS
            one = self._waited.setdefault((pid if apart else OTHERS, name, reason), Waited())
            one.time.add(blocked[rows])
            one.own += int(own[rows].sum())
            one.no_file += int(no_file[rows].sum())
            _count(one.ran, waits.ran_pid[rows], (waits.run - waits.woken)[rows])
            if reason == WaitReason.CGROUP_LIMIT:
                _count(one.limits, waits.limit[rows], blocked[rows])
            elif reason in LOCKS:
                _count(one.wakers, waits.waker[rows], blocked[rows])

    def reports(self) -> list[WaitReport]:
        merged: dict[tuple[str, WaitReason], Waited] = {}
        for (_, name, reason), one in self._waited.items():
            merged.setdefault((name, reason), Waited()).merge(one)
        found = [
            WaitReport(
                call=name,
                reason=WAIT_REASON_NAMES[reason],
                share=one.time.sum / max(self._calls.get(name, 0), 1),
                own_io_ns=one.own,
                no_file_ns=one.no_file if name == _FAULT and self.context.has_files else None,
                time=Summary.of(one.time),
            )
            for (name, reason), one in sorted(merged.items())
        ]
        return sorted(found, key=lambda one: -one.time.sum)

    def of_call(self, pid: int, name: str) -> list[tuple[str, Waited]]:
        """Return (reason, waits) of the calls of one name of a process, the longest first."""
        found = [
            (WAIT_REASON_NAMES[reason], one)
            for (of, call, reason), one in self._waited.items()
            if (of, call) == (pid, name)
        ]
        return sorted(found, key=lambda found: (-found[1].time.sum, found[0]))


def _count(into: Counter[int], keys: NDArray[np.unsignedinteger[Any]], ns: I64) -> None:
    """Add ns by key, both (n,); of more than _MOST_WAKERS keys those with least are dropped."""
    distinct, place = np.unique(keys, return_inverse=True)
    sums = sum_by(place.astype(np.int64), ns, len(distinct))
    into.update(dict(zip(distinct.tolist(), sums.tolist(), strict=True)))
    for key, _ in into.most_common()[_MOST_WAKERS:]:
        del into[key]


@dataclass
class _Journal:
    time: Distribution = field(default_factory=Distribution)
    phases: dict[str, Distribution] = field(default_factory=dict)
    commits: int = 0
    waits: int = 0


@dataclass
class CommitsByDevice:
    context: Context
    _journals: dict[int, _Journal] = field(default_factory=dict)

    def add(self, window: Lifecycles, path: PathTables) -> None:
        """A commit whose start was not seen has no time. Waits are of their commit's device."""
        commits, waits = path.commits, path.waits
        for dev in names_of(commits.dev).tolist():
            mine = commits.take(commits.dev == dev)
            journal = self._journals.setdefault(dev, _Journal())
            journal.commits += len(mine)
            seen = mine.take(mine.started != NEVER)
            journal.time.add(seen.end - seen.started)
            edges = (seen.started, seen.locking, seen.flushing, seen.logging, seen.end)
            for phase, (start, end) in zip(PHASES, pairwise(edges), strict=True):
                known = (start != NEVER) & (end != NEVER)
                journal.phases.setdefault(phase, Distribution()).add((end - start)[known])
        named = waits.commit_dev[waits.commit != NEVER]
        for dev, count in zip(*np.unique(named, return_counts=True), strict=True):
            self._journals.setdefault(int(dev), _Journal()).waits += int(count)

    def reports(self) -> list[CommitReport]:
        found = [
            as_row(
                CommitReport,
                one,
                device=self.context.device_name(dev),
                dev=dev,
                phases=[
                    StageTimes(phase, times.sum / max(one.time.sum, 1), Summary.of(times))
                    for phase, times in one.phases.items()
                ],
            )
            for dev, one in sorted(self._journals.items())
        ]
        return sorted(found, key=lambda one: -one.time.sum)
