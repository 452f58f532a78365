# SPDX-License-Identifier: Apache-2.0
"""What calls waited for, and who waited most; commits of journals.

A wait is counted when its call returns, as only then the call's name is known.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions.call_figures import by_pair, coded, named
from biotrail.converters.analysis.distributions.groups import MOST_GROUPS, OTHERS
from biotrail.converters.analysis.distributions.keys import RECORDER, ByWriter, ProcessNames
from biotrail.converters.analysis.distributions.samples import samples_of
from biotrail.converters.analysis.distributions.sketch import Distribution, Mergeable, sum_by
from biotrail.converters.analysis.figures import StageTimes, Summary, as_row
from biotrail.converters.analysis.report.calls import CallsByGroup
from biotrail.converters.analysis.report.tree import (
    Caller,
    CallerWait,
    CallReport,
    CommitReport,
    OthersInFlight,
    Party,
    WaitReport,
    Who,
)
from biotrail.converters.calls.keys import rows_by_key
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.path_tables import PathTables, Waits
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    OP_MASK,
    U32,
    Lifecycles,
    Table,
    WaitCause,
)
from biotrail.converters.events.tasks import by_threads
from biotrail.converters.lifecycles.operations import transferred
from biotrail.converters.lifecycles.purposes import JOURNAL_THREADS
from biotrail.recorder.schema.syscalls import (
    KERNEL_THREAD,
    PAGE_FAULT,
    REAPING_CALLS,
    numbers,
    shown_name,
)

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


# Whose I/O devices had while a process's calls waited, for I/O or for who does it.
#
# That something was in flight beside a wait does not say that it caused it: `analysis/blame` does.

MOST = 10
"""Pairs of a process and a call's name that are shown."""
KEPT_NS = 10_000_000_000
"""Bios that ended so long before a window's end are kept for waits that end later."""
MOST_KEPT = 1 << 17
MOST_COLUMNS = 24
"""Parties of a window, by device and operation, that are told apart: those with most time."""
_RECORDER = (1 << 24) - 1
_WORKERS = shown_name(KERNEL_THREAD, False, "")
_WAITING = ("runnable", "own_io", "other_io")
"""Parts of a call's time in which it waits for a CPU, or for I/O, or for who does it."""


@dataclass
class _Flight(Table):
    begin: I64
    end: I64
    dev: U32
    op: U32
    who: I64
    bytes: I64


class Callers:
    """Adds up what devices did during waits, window after window."""

    def __init__(self, context: Context, calls: CallsByGroup, waits: WaitsByReason) -> None:
        self._context, self._calls, self._waits = context, calls, waits
        self._names = ProcessNames()
        self._process: dict[int, int] = {}
        self._writer = ByWriter(context)
        self._reaping = numbers(REAPING_CALLS, context.machine)
        self._kept: _Flight | None = None
        self._sums: dict[tuple[int, int, int, int], list[int]] = {}
        """(process that waited, dev, operation, code of ByWriter) → ns in flight, bytes."""
        self._waited: Counter[int] = Counter()
        self._carried: Counter[tuple[int, int]] = Counter()
        """(dev, code of ByWriter) → bytes that threads which commit journals wrote of others."""

    def add(self, window: Lifecycles, path: PathTables) -> None:
        self._process.update((tid, tgid) for tid, tgid, _ in self._names.take(window.tasks))
        ended = self._flights(window, carries=True)
        still = replace(window, bios=window.open_bios, path=replace(path, bios=path.open_bios))
        known = [ended] if self._kept is None else [self._kept, ended]
        flights = _Flight.concatenate([*known, self._flights(still, carries=False)])
        closed = _Flight.concatenate(known)
        recent = np.flatnonzero(closed.end > window.end - KEPT_NS)
        self._kept = closed.take(recent[-MOST_KEPT:])
        waits = path.waits
        rows = np.flatnonzero(
            (waits.cause != WaitCause.OTHERWISE)
            & ~np.isin(waits.number, self._reaping)
            & (waits.number != KERNEL_THREAD)
            & (waits.task >= 0)
            & ~waits.own
            & (waits.woken > waits.out)
        )
        calls = path.calls  # those that reap wait for a ring, which is no recorded wait
        reaps = np.flatnonzero(
            np.isin(calls.number, self._reaping)
            & ~calls.foreign
            & (calls.own_io + calls.other_io > 0)
            & (calls.task >= 0)
            & (calls.entry != NEVER)
            & calls.timed
        )
        if not len(rows) and not len(reaps):
            return
        task = np.concatenate([waits.task[rows], calls.task[reaps]])
        process = window.tasks.tgid[task].astype(np.int64)
        begin = np.concatenate([waits.out[rows], calls.entry[reaps]])
        end = np.concatenate([waits.woken[rows], calls.exit[reaps]])
        pids, place = np.unique(process, return_inverse=True)
        place = place.astype(np.int64)
        lasted = sum_by(place, end - begin, len(pids)).tolist()
        self._waited.update(dict(zip(pids.tolist(), lasted, strict=True)))
        first, last = begin.min(), end.max()
        flights = flights.take((flights.end > first) & (flights.begin < last))
        if not len(flights):
            return
        keys = flights.dev.astype(np.int64) << 32 | flights.op.astype(np.int64) << 24 | flights.who
        columns, at = np.unique(keys, return_inverse=True)
        span = np.minimum(flights.end, last) - np.maximum(flights.begin, first)
        most = np.argsort(-sum_by(at.astype(np.int64), span, len(columns)), kind="stable")
        for column in most[:MOST_COLUMNS].tolist():
            one = flights.take(at == column)
            order = np.argsort(one.end)
            ends, sizes = one.end[order], np.concatenate([[0], np.cumsum(one.bytes[order])])
            by_end, by_begin = (
                sizes[np.searchsorted(ends, times, side="right")] for times in (end, begin)
            )
            flown = _integral(one.begin, one.end, end) - _integral(one.begin, one.end, begin)
            ns_each = sum_by(place, flown, len(pids)).tolist()
            done_each = sum_by(place, by_end - by_begin, len(pids)).tolist()
            key = int(columns[column])
            dev, op, who = key >> 32, key >> 24 & 0xFF, key & 0xFFFFFF
            for pid, ns, done in zip(pids.tolist(), ns_each, done_each, strict=True):
                sums = self._sums.setdefault((pid, dev, op, who), [0, 0])
                sums[0] += ns
                sums[1] += done

    def _flights(self, window: Lifecycles, *, carries: bool) -> _Flight:
        if carries:
            window = window.with_own()
        bios = window.bios
        none = window.bio_stages.take(np.zeros(0, dtype=np.int64))
        who = self._writer.codes(window, samples_of(bios, none, self._context))
        size = transferred(self._context, bios.opf, bios.bytes)
        if carries:
            journal = by_threads(JOURNAL_THREADS, bios.task, window.tasks)
            for row in np.flatnonzero(journal).tolist():
                self._carried[(int(bios.dev[row]), int(who[row]))] += int(size[row])
        who = np.where(bios.own, _RECORDER, who)
        kept = bios.queue != NEVER
        end = np.where(bios.complete == NEVER, FAR, bios.complete)
        op = (bios.opf & OP_MASK).astype(np.uint32)
        return _Flight(bios.queue, end, bios.dev, op, who, size).take(kept)

    def reports(self) -> list[Caller]:
        """The MOST pairs of a process and a call's name that waited most; of calls with I/O."""
        found = []
        for call in self._calls.reports():
            if call.io and call.call != _WORKERS and call.name.get("pid") is not None:
                waited = sum(part.time.sum for part in call.parts if part.stage in _WAITING)
                found.append((waited, call))
        found.sort(key=lambda one: (-one[0], one[1].call))
        carried: Counter[Party] = Counter()  # data of files that threads of journals wrote
        for (dev, who), size in self._carried.items():
            party = self._party(dev, who, "write")
            if party.process is not None and not party.process.startswith(JOURNAL_THREADS):
                carried[party] += size
        return [self._caller(call, carried) for waited, call in found[:MOST] if waited]

    def _caller(self, call: CallReport, carried: Counter[Party]) -> Caller:
        pid = int(call.name["pid"] or 0)
        beside: dict[Party, OthersInFlight] = {}
        for (of, dev, op, who), (ns, size) in self._sums.items():
            if of != pid or not ns:
                continue
            party = self._party(dev, who, self._context.op_name(op))
            if (party.process or "").startswith(JOURNAL_THREADS):
                continue  # what they write for themselves
            others = beside.setdefault(party, OthersInFlight(party, 0.0, 0))
            others.mean += ns / max(self._waited[pid], 1)
            others.bytes += size
        waits = self._waits.of_call(pid, call.call)
        ran = sum((wait.ran for _, wait in waits), Counter[int]())
        devices = {party.device for party in beside}
        found = []
        for reason, wait in waits:
            if reason != WAIT_REASON_NAMES[WaitReason.UNKNOWN]:
                limit = next((cgroup for cgroup, _ in wait.limits.most_common(1)), -1)
                tid, ns = (wait.wakers.most_common(1) or [(-1, 0)])[0]
                found.append(
                    CallerWait(
                        reason=reason,
                        ns=wait.time.sum,
                        own_io_ns=wait.own,
                        limit=self._context.cgroups.get(limit),
                        waker=self._named(self._process.get(tid, 0), ns),
                    )
                )
        return Caller(
            call=call,
            waits=found,
            ran=[one for by, ns in ran.most_common() if (one := self._named(by, ns))],
            beside=sorted(beside.values(), key=lambda one: -one.mean),
            carried={
                party: size
                for party, size in carried.items()
                if party.device in devices and party.pid != pid
            },
        )

    def _named(self, pid: int, ns: int) -> Who | None:
        name = self._names[pid] if pid else ""
        return Who(name, pid, self._context.titles.title(pid, name), ns) if name else None

    def _party(self, dev: int, who: int, operation: str) -> Party:
        name: dict[str, Any] = {"process": RECORDER, "pid": None, "title": None}
        if who != _RECORDER:
            name |= self._writer.name(who)
        return Party(
            device=self._context.device_name(dev),
            operation=operation,
            process=name["process"],
            pid=name["pid"],
            title=name["title"],
        )


def _integral(begin: I64, end: I64, times: I64) -> I64:
    """Return, for each time (m,), the ns for which I/Os (n,) were in flight until then, summed."""
    origin = begin.min()
    times = times - origin
    passed = []  # since all begins, and since all ends, that are before each time
    for since in (np.sort(begin - origin), np.sort(end - origin)):
        sums = np.concatenate([[0], np.cumsum(np.minimum(since, times.max(initial=0)))])
        count = np.searchsorted(since, times, side="right")
        passed.append(count * times - sums[count])
    return np.asarray(passed[0] - passed[1], dtype=np.int64)
