# SPDX-License-Identifier: Apache-2.0
"""The calls that waited most, by process: for what, and what others did meanwhile."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biotrail.converters.analysis.distributions.keys import RECORDER, ByWriter, ProcessNames
from biotrail.converters.analysis.distributions.samples import of_bios
from biotrail.converters.analysis.distributions.sketch import sum_by
from biotrail.converters.analysis.report.calls import CallsByGroup
from biotrail.converters.analysis.report.tree import (
    Caller,
    CallerWait,
    CallReport,
    OthersInFlight,
    Party,
    Who,
)
from biotrail.converters.analysis.report.waits import WaitsByReason
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import PathTables
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
from biotrail.recorder.schema.syscalls import KERNEL_THREAD, REAPING_CALLS, numbers, shown_name

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
        who = self._writer.codes(window, of_bios(bios, none, self._context))
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
