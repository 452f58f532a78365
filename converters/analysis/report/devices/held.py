# SPDX-License-Identifier: Apache-2.0
"""Bios that cgroups' limits held before their Q; I/O that a device still had at the log's end."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.analysis.distributions.keys import ProcessNames
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.report.tree import HangingReport, HeldReport, Who
from biotrail.converters.calls.behalf import doers
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.tables import NEVER, Certainty, Lifecycles, Tasks
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.windows import HANGS_NS, under_way

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import HeldBios


@dataclass
class _Open:
    """I/O of one device that had not ended."""

    bios: int = 0
    bytes: int = 0
    requests: int = 0
    request_bytes: int = 0
    queued: int = -1
    """Time (ns) of the earliest Q; the following is of that bio."""
    issued: int = -1
    """Time (ns) of the earliest issue; NEVER: none was issued."""
    operations: set[str] = field(default_factory=set)
    issued_operations: set[str] = field(default_factory=set)
    tid: int = 0
    pid: int = 0
    call: str | None = None


class Hanging:
    """Finds I/O in flight, window after window: the last one has what was when the log ended."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names = ProcessNames()
        self._open: dict[int, _Open] = {}
        self._done: dict[int, int] = {}
        """dev_t → time of its last completion, ns."""

    def add(self, window: Lifecycles) -> None:
        """Add the log's next window."""
        self._names.take(window.tasks)
        bios = window.bios
        ended = np.flatnonzero(bios.complete != NEVER)
        for dev in names_of(bios.dev[ended]).tolist():
            last = int(bios.complete[ended[bios.dev[ended] == dev]].max())
            self._done[dev] = max(last, self._done.get(dev, NEVER))
        rows = np.flatnonzero(under_way(bios) & ~bios.own)
        codes, names = operations(self._context, bios.opf, bios.bytes)
        for row in rows[np.argsort(bios.queue[rows], kind="stable")].tolist():
            one = self._open.setdefault(int(bios.dev[row]), _Open())
            one.bios += 1
            one.bytes += int(bios.bytes[row])
            one.operations.add(names[codes[row]])
            if bios.issue[row] != NEVER:
                one.issued_operations.add(names[codes[row]])
            if one.queued < 0:
                self._first(one, window, row)
        requests = window.requests
        still = (requests.issue != NEVER) & (requests.complete == NEVER)
        still &= (requests.absorbed_by == NEVER) & (requests.certainty == Certainty.INCOMPLETE)
        for row in np.flatnonzero(still).tolist():
            if (found := self._open.get(int(requests.dev[row]))) is not None:
                found.requests += 1
                found.request_bytes += int(requests.bytes[row])
                issue = int(requests.issue[row])
                found.issued = issue if found.issued < 0 else min(issue, found.issued)

    def _first(self, one: _Open, window: Lifecycles, row: int) -> None:
        bios = window.bios
        one.queued = int(bios.queue[row])
        task = int(doers(bios.take(np.array([row])))[0])
        if task >= 0:
            one.tid, one.pid = int(window.tasks.tid[task]), int(window.tasks.tgid[task])
        if window.path is None or task != int(bios.task[row]):
            return
        paths = window.path.bios
        place, known = rows_of(paths.number, bios.number[row : row + 1])
        if known[0] and (call := int(paths.call[place[0]])) >= 0:
            foreign = bool(paths.foreign[place[0]])
            one.call = name_of_call(call, foreign, self._context.machine)

    def reports(self, end: int) -> list[HangingReport]:
        """Return devices with I/O that completed none for HANGS_NS at `end` (ns), oldest first."""
        found = []
        for dev, one in self._open.items():
            idle = end - max(one.queued, self._done.get(dev, NEVER))
            if idle < HANGS_NS:
                continue
            name = self._names[one.pid] if one.pid else ""
            title = self._context.titles.title(one.pid, name)
            found.append(
                HangingReport(
                    device=self._context.device_name(dev),
                    operations=sorted(one.issued_operations or one.operations),
                    bios=one.bios,
                    requests=one.requests,
                    bytes=one.request_bytes if one.requests else one.bytes,
                    since_queue_ns=end - one.queued,
                    since_issue_ns=None if one.issued < 0 else end - one.issued,
                    completes_none_ns=idle,
                    who=Who(name, one.pid, title, end - one.queued) if name else None,
                    tid=one.tid,
                    call=one.call,
                )
            )
        return sorted(found, key=lambda one: -one.since_queue_ns)


_NO_BPS, _NO_IOPS = (1 << 64) - 1, (1 << 32) - 1


@dataclass
class _Held:
    """Bios held by one cgroup's limit, of one device and operation."""

    bios: int = 0
    several: int = 0
    time: Distribution = field(default_factory=Distribution)
    """ns of those for which it is known."""
    bps: int = _NO_BPS
    iops: int = _NO_IOPS
    processes: Counter[int] = field(default_factory=Counter)
    """Process of the thread that submitted it or waited → bios."""


class HeldByLimit:
    """Figures of all held bios, window after window."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names = ProcessNames()
        self._held: dict[tuple[int, int, str], _Held] = {}
        """(cgroup's id, dev_t, operation) → its bios."""

    def add(self, window: Lifecycles) -> None:
        """Add the held bios that ended in the log's next window."""
        if window.path is None or not len(window.path.held):
            return
        self._names.take(window.tasks)
        row, known = rows_of(window.bios.number, window.path.held.number)
        held, bios = window.path.held.take(known), window.bios.take(row[known])
        codes, names = operations(self._context, bios.opf, bios.bytes)
        keys = np.stack([held.limit, bios.dev.astype(np.uint64), codes.astype(np.uint64)], axis=1)
        distinct, at = np.unique(keys, axis=0, return_inverse=True)
        for place, (limit, dev, code) in enumerate(distinct.tolist()):
            key = limit, dev, names[code]
            rows = np.flatnonzero(at.reshape(-1) == place)
            self._add(self._held.setdefault(key, _Held()), held.take(rows), window.tasks)

    def _add(self, one: _Held, held: "HeldBios", tasks: Tasks) -> None:
        """Add held bios of one key. The limit shown is the last one, as it may be changed."""
        one.bios += len(held)
        one.several += int((held.limits > 1).sum())
        one.bps, one.iops = int(held.bps[-1]), int(held.iops[-1])
        one.time.add(held.held[held.held != NEVER])
        for task in held.task[held.task >= 0].tolist():
            one.processes[int(tasks.tgid[task])] += 1

    def _process(self, one: _Held) -> tuple[str, int] | tuple[None, None]:
        for tgid, _ in one.processes.most_common(1):
            return self._names[tgid], tgid
        return None, None

    def reports(self) -> list[HeldReport]:
        """Return a report for each limit's cgroup, device and operation, the longest held first."""
        found = []
        for (limit, dev, operation), one in sorted(self._held.items()):
            process, pid = self._process(one)
            report = HeldReport(
                cgroup=self._context.cgroups.get(limit, f"id {limit}") if limit else None,
                device=self._context.device_name(dev),
                dev=dev,
                operation=operation,
                bios=one.bios,
                several=one.several,
                bps=None if one.bps == _NO_BPS else one.bps,
                iops=None if one.iops == _NO_IOPS else one.iops,
                process=process,
                pid=pid,
                time=Summary.of(one.time),
            )
            found.append(report)
        return sorted(found, key=lambda one: (-one.time.sum, -one.bios))
