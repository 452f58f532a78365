# SPDX-License-Identifier: Apache-2.0
"""The figures of a report that only logs of `record --path` have: calls, waits, interrupts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.keys import OP_BITS, ProcessNames
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.distributions.sketch import Distribution, sum_by
from biotrail.converters.analysis.figures import Summary, as_row, stage_times
from biotrail.converters.analysis.report.calls import (
    OF_CALLS,
    CallsByGroup,
    CallsByName,
    SubmissionsByOperation,
)
from biotrail.converters.analysis.report.tree import (
    CompletionReport,
    DriverReport,
    HeldReport,
    ReadyTime,
    Report,
)
from biotrail.converters.analysis.report.waits import Callers, CommitsByDevice, WaitsByReason
from biotrail.converters.calls.keys import rows_by_key, rows_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct, names_of
from biotrail.converters.events.path import DRIVERS
from biotrail.converters.events.path_tables import NO_BPS, NO_IOPS, Calls, PathTables
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    STAGE_NAMES,
    Bool,
    Lifecycles,
    Requests,
    Stage,
)
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.windows import sure_complete

# The steps between the issue and the completion of a device's requests divide D2C without a gap, by
# the way of completion, and by driver. A completion is recorded (C) in the device's interrupt, in
# the BLOCK softirq that the interrupt raised, or in a task that polls or works for the driver. The
# CPU of the interrupt need not be the one that completes (blk_mq_complete_request sends an IPI):
# the softirq is then raised on a CPU that had no interrupt of the device.

WAYS = ("interrupt", "softirq", "softirq without interrupt", "task")
"""Ways of a completion. "softirq without interrupt": raised by a task, or for another CPU."""
INTERRUPT, SOFTIRQ, RAISED, TASK = range(len(WAYS))
STEPS_BY_WAY = (
    ("D to interrupt", "interrupt to C"),
    ("D to interrupt", "interrupt to softirq", "softirq to C"),
    ("D to raise", "raise to softirq", "softirq to C"),
    ("D to C",),
)
_IN_SOFTIRQ, _IN_INTERRUPT = 1, 2

SETUP = "setup to D"
"""Of an NVMe command, before D: nvme sets a request up, then issues it."""
STEPS = {
    "nvme": ("D to answer", "answer to driver done", "driver done to C"),
    "scsi": ("D to dispatch", "dispatch to answer", "answer to C"),
    "loop": ("D to file I/O", "file I/O", "file I/O to C"),
}
"""Driver → names of the steps from the issue to the completion."""
_BETWEEN = {
    "nvme": ("answered", "finished"),
    "scsi": ("begun", "answered"),
    "loop": ("begun", "answered"),
}
"""Driver → the columns of DriverSteps that are between the issue and the completion."""


@dataclass
class _Divided:
    """Requests of one device that were completed in one way, or that one driver served."""

    requests: int = 0
    undivided: int = 0
    steps: dict[str, Distribution] = field(default_factory=dict)
    errors: int = 0
    timeouts: int = 0
    setup: Distribution = field(default_factory=Distribution)

    def add(self, names: Sequence[str], requests: Requests, between: Sequence[I64]) -> Bool:
        """Return which requests are divided, (n,).

        between: times (ns) from the issue to the completion. All must be known and in order: an
        interrupt raised for an earlier request can be all that the CPU still knows. The request
        must have been issued once: the steps are those of its last attempt.
        """
        times = np.stack([requests.issue, *between, sure_complete(requests)])
        divided: Bool = (times != NEVER).all(axis=0) & (np.diff(times, axis=0) >= 0).all(axis=0)
        divided &= requests.requeues == 0
        self.requests += len(requests)
        self.undivided += len(requests) - int(divided.sum())
        for name, values in zip(names, np.diff(times[:, divided], axis=0), strict=True):
            self.steps.setdefault(name, Distribution()).add(values)
        return divided


@dataclass
class Completions:
    """How requests were completed, and what drivers did with them, by device."""

    _ways: dict[tuple[int, int], _Divided] = field(default_factory=lambda: defaultdict(_Divided))
    """(dev_t, index of WAYS) → requests whose completion has an INTERRUPT record."""
    _drivers: dict[tuple[int, str], _Divided] = field(default_factory=lambda: defaultdict(_Divided))
    """(dev_t, driver) → requests whose completion has a DRIVER record of a driver of STEPS."""

    def add(self, window: Lifecycles, path: PathTables) -> None:
        row, known = rows_of(window.requests.number, path.interrupts.number)
        interrupts = path.interrupts.take(known)
        requests = window.requests.take(row[known])
        in_softirq = interrupts.context == _IN_SOFTIRQ
        way = np.where(in_softirq, np.where(interrupts.hard != NEVER, SOFTIRQ, RAISED), TASK)
        way = np.where(interrupts.context == _IN_INTERRUPT, INTERRUPT, way)
        between = {
            INTERRUPT: (interrupts.hard,),
            SOFTIRQ: (interrupts.hard, interrupts.soft),
            RAISED: (interrupts.raised, interrupts.soft),
            TASK: (),
        }
        for code, columns in between.items():
            for dev in names_of(requests.dev[way == code]).tolist():
                rows = np.flatnonzero((way == code) & (requests.dev == dev))
                found = self._ways[dev, code]
                found.add(STEPS_BY_WAY[code], requests.take(rows), [of[rows] for of in columns])
        row, known = rows_of(window.requests.number, path.steps.number)
        steps = path.steps.take(known)
        requests = window.requests.take(row[known])
        for number, driver in enumerate(DRIVERS):
            mine = steps.driver == number
            for dev in names_of(requests.dev[mine]).tolist() if driver in STEPS else ():
                rows = mine & (requests.dev == dev)
                work = self._drivers[dev, driver]
                asked, done = requests.take(rows), steps.take(rows)
                between_of = [getattr(done, name) for name in _BETWEEN[driver]]
                divided = work.add(STEPS[driver], asked, between_of)
                work.errors += int(done.errors.sum())
                work.timeouts += int(done.timeouts.sum())
                if driver == "nvme":
                    set_up = divided & (done.begun != NEVER) & (done.begun <= asked.issue)
                    work.setup.add((asked.issue - done.begun)[set_up])

    def reports(self, dev: int) -> tuple[list[CompletionReport], list[DriverReport]]:
        ways = [
            as_row(
                CompletionReport, one, way=name, steps=stage_times(one.steps, STEPS_BY_WAY[code])
            )
            for code, name in enumerate(WAYS)
            if (one := self._ways.get((dev, code))) is not None
        ]
        drivers = [
            as_row(
                DriverReport,
                one,
                driver=driver,
                setup=Summary.of(one.setup) if one.setup.count else None,
                steps=stage_times(one.steps, names),
            )
            for driver, names in STEPS.items()
            if (one := self._drivers.get((dev, driver))) is not None
        ]
        return ways, drivers


# For how long of its stages a bio stood still because its thread had no CPU, at least.

PLUGGED = (Stage.G2I, Stage.M2I)
"""Stages in which the thread holds the bio back in its plug: it runs, or has no CPU, for a plug is
flushed where its thread waits for anything else."""
BY_THREAD = (Stage.Q2M, Stage.Q2G, *PLUGGED)
"""Stages that end when the thread goes on."""


KEPT_NS = 2_000_000_000
"""For how long waits and calls are kept: an I/O's window comes after theirs."""


@dataclass
class Ready:
    _sums: Counter[tuple[int, int]] = field(default_factory=Counter)
    _waits: I64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """(n, 3): thread, when woken, when it ran again."""
    _calls: list[Calls] = field(default_factory=list)
    """Timed calls that were ready to run, without a CPU."""

    def add(self, window: Lifecycles, path: PathTables, bios: Samples) -> None:
        since, waits, calls = window.end - KEPT_NS, path.waits, path.calls
        waits = waits.take(waits.run > waits.woken)
        fresh = np.stack([waits.tid.astype(np.int64), waits.woken, waits.run], axis=1)
        self._waits = np.concatenate([self._waits[self._waits[:, 2] >= since], fresh])
        every = [*self._calls, calls.take(calls.timed & (calls.runnable > 0))]
        self._calls = [late for of in every if len(late := of.take(of.exit >= since))]
        stages = window.bio_stages
        rows = np.flatnonzero(np.isin(stages.stage, np.array(BY_THREAD, stages.stage.dtype)))
        if not len(rows):
            return
        owner, there = rows_of(window.bios.number, stages.owner[rows])
        rows, owner = rows[there], owner[there]
        begin, end, stage = stages.start[rows], stages.end[rows], stages.stage[rows]
        tid = window.bios.tid[owner].astype(np.int64)
        # By recorded waits: for how long each thread was ready to run from begin to end.
        found = np.zeros(len(tid), np.int64)
        for thread in np.intersect1d(tid, self._waits[:, 0]).tolist():
            ready, mine = self._waits[self._waits[:, 0] == thread], np.flatnonzero(tid == thread)
            ready = ready[np.argsort(ready[:, 1], kind="stable")]
            whole = np.concatenate([[0], np.cumsum(ready[:, 2] - ready[:, 1])])
            spent = []  # for how long the thread had been ready by its ends, and by its begins
            for times in (end[mine], begin[mine]):
                at = np.searchsorted(ready[:, 1], times, side="right")
                over = np.maximum(ready[np.maximum(at - 1, 0), 2] - times, 0)
                spent.append(whole[at] - np.where(at > 0, over, 0))
            found[mine] = spent[0] - spent[1]
        # By the bio's timed call, if it has returned: what is left of a time in a plug beyond all
        # that the call ran, at most what it was ready to run.
        row, there = rows_of(path.bios.number, window.bios.number[owner])
        entry = np.where(there, path.bios.entry[row] if len(path.bios) else NEVER, NEVER)
        least = np.zeros(len(tid), np.int64)
        known = np.flatnonzero(np.isin(stage, np.array(PLUGGED, stage.dtype)) & (entry != NEVER))
        for of in self._calls:
            at = rows_by_key(of, tid[known], entry[known])
            mine, at = known[at >= 0], at[at >= 0]
            least[mine] = np.clip((end - begin)[mine] - of.running[at], 0, of.runnable[at])
        ns = np.clip(np.maximum(found, least), 0, np.maximum(end - begin, 0))
        pairs, row = distinct(bios.place[owner], stage.astype(np.int64))
        sums = sum_by(row, ns, len(pairs)).tolist()
        for (place, one), took in zip(pairs, sums, strict=True):
            self._sums[place, one] += took

    def reports(self, context: Context) -> list[ReadyTime]:
        found = [
            ReadyTime(
                context.device_name(place >> OP_BITS),
                context.op_name(place),
                STAGE_NAMES[Stage(stage)],
                ns,
            )
            for (place, stage), ns in sorted(self._sums.items())
            if ns
        ]
        return sorted(found, key=lambda one: -one.ns)


@dataclass
class _Held:
    bios: int = 0
    several: int = 0
    time: Distribution = field(default_factory=Distribution)
    bps: int = NO_BPS
    iops: int = NO_IOPS
    processes: Counter[int] = field(default_factory=Counter)
    """Process of the thread that submitted it or waited → bios."""


@dataclass
class HeldByLimit:
    context: Context
    _names: ProcessNames = field(default_factory=ProcessNames)
    _held: dict[tuple[int, int, str], _Held] = field(default_factory=dict)

    def add(self, window: Lifecycles, path: PathTables) -> None:
        if not len(path.held):
            return
        self._names.take(window.tasks)
        row, known = rows_of(window.bios.number, path.held.number)
        held, bios = path.held.take(known), window.bios.take(row[known])
        codes, names = operations(self.context, bios.opf, bios.bytes)
        keys = np.stack([held.limit, bios.dev.astype(np.uint64), codes.astype(np.uint64)], axis=1)
        distinct, at = np.unique(keys, axis=0, return_inverse=True)
        for place, (limit, dev, code) in enumerate(distinct.tolist()):
            key = limit, dev, names[code]
            rows = np.flatnonzero(at.reshape(-1) == place)
            one, mine = self._held.setdefault(key, _Held()), held.take(rows)
            one.bios += len(mine)
            one.several += int((mine.limits > 1).sum())
            # The limit shown is the last one, as it may be changed.
            one.bps, one.iops = int(mine.bps[-1]), int(mine.iops[-1])
            one.time.add(mine.held[mine.held != NEVER])
            one.processes.update(window.tasks.tgid[mine.task[mine.task >= 0]].tolist())

    def reports(self) -> list[HeldReport]:
        found = []
        for (limit, dev, op), one in sorted(self._held.items()):
            pid = next((pid for pid, _ in one.processes.most_common(1)), None)
            report = as_row(
                HeldReport,
                one,
                cgroup=self.context.cgroups.get(limit, f"id {limit}") if limit else None,
                device=self.context.device_name(dev),
                dev=dev,
                operation=op,
                bps=None if one.bps == NO_BPS else one.bps,
                iops=None if one.iops == NO_IOPS else one.iops,
                process=None if pid is None else self._names[pid],
                pid=pid,
            )
            found.append(report)
        return sorted(found, key=lambda one: (-one.time.sum, -one.bios))


class PathFigures:
    def __init__(self, context: Context, by: str | None) -> None:
        self._context = context
        self._ready = Ready()
        self._calls = CallsByName()
        by_process = CallsByGroup(context, "process")
        self._groups = None
        if by in OF_CALLS:
            self._groups = by_process if by == "process" else CallsByGroup(context, by)
        self._waits = WaitsByReason(context)
        self._callers = Callers(context, by_process, self._waits)
        self._commits = CommitsByDevice(context)
        self._held = HeldByLimit(context)
        self._submissions = SubmissionsByOperation(context)
        self.completions = Completions()
        self._adding = [
            *(by_process.add, self._waits.add, self._callers.add, self._commits.add),
            *(self._held.add, self._submissions.add, self.completions.add),
        ]
        if self._groups is not None and self._groups is not by_process:
            self._adding.append(self._groups.add)

    def add(self, window: Lifecycles, path: PathTables, bios: Samples) -> None:
        self._ready.add(window, path, bios)
        self._calls.add(path.calls, self._context)
        for add in self._adding:
            add(window, path)

    def fill(self, report: Report) -> None:
        report.ready = self._ready.reports(self._context)
        report.calls = self._calls.reports(self._context)
        report.call_groups = self._groups.reports() if self._groups is not None else []
        report.waits, report.waits_dropped = self._waits.reports(), self._waits.dropped
        report.callers = self._callers.reports()
        report.commits = self._commits.reports()
        report.held = self._held.reports()
        report.submissions = self._submissions.reports()
        report.submissions_unknown = self._submissions.unknown
