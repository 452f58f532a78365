# SPDX-License-Identifier: Apache-2.0
"""Figures of each device: queue depths, active time, access patterns, lower devices, purposes."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.depth import Depth, Flow, Seen, both_idle
from biotrail.converters.analysis.distributions.keys import ProcessNames
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.distributions.sketch import Distribution, Mergeable, sum_by
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.analysis.report.tree import HangingReport, PurposeTime, Who
from biotrail.converters.calls.behalf import doers
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values, names_of
from biotrail.converters.events.events import kind_table
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    OP_MASK,
    U32,
    Certainty,
    Lifecycles,
    RequestKind,
    Stage,
    Table,
)
from biotrail.converters.lifecycles.operations import operation_numbers, operations
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.converters.lifecycles.windows import HANGS_NS, sure_complete, under_way


@dataclass
class Below:
    children: int = 0
    doubtful: int = 0
    to_child: Distribution = field(default_factory=Distribution)
    child: Distribution = field(default_factory=Distribution)
    from_child: Distribution = field(default_factory=Distribution)


@dataclass
class Stacked:
    """Times of children: bios that work for a bio of an upper device."""

    by_pair: dict[tuple[int, int, int], Below] = field(default_factory=dict)
    """(upper dev_t, lower dev_t, the parent's operation as in Samples.place) → times."""
    unmatched: int = 0

    def add(self, window: Lifecycles, context: Context) -> None:
        """A time that is not known, in doubt, or negative, is not counted, but the child is."""
        bios = window.bios
        child_row = np.flatnonzero(bios.parent != NEVER)
        if not len(child_row):
            return
        parent_row, here = rows_of(bios.number, bios.parent[child_row])
        self.unmatched += int((~here).sum())
        child_row, parent_row = child_row[here], parent_row[here]
        operation = operation_numbers(context, bios)[parent_row]
        complete = sure_complete(bios)
        keys = np.stack([bios.dev[parent_row], bios.dev[child_row], operation], axis=1)
        keys = keys.astype(np.int64)
        names, place = np.unique(keys, axis=0, return_inverse=True)
        for row, (upper, lower, op) in enumerate(names.tolist()):
            ours = place.reshape(-1) == row
            child, parent = child_row[ours], parent_row[ours]
            below = self.by_pair.setdefault((upper, lower, op), Below())
            below.children += int(ours.sum())
            below.doubtful += int((bios.doubtful[child] | bios.doubtful[parent]).sum())
            for into, begin, end in (
                (below.to_child, bios.queue[parent], bios.queue[child]),
                (below.child, bios.queue[child], complete[child]),
                (below.from_child, complete[child], complete[parent]),
            ):
                known = (begin != NEVER) & (end != NEVER) & (end >= begin)
                into.add((end - begin)[known])


DISCARD = "discard"
_DISCARD = len(Purpose)
_BITS = 8
_NAMES = {**{int(one): name for one, name in PURPOSE_NAMES.items()}, _DISCARD: DISCARD}


@dataclass
class Purposes:
    _sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    """dev_t << _BITS | purpose → bios, ns."""

    def add(self, window: Lifecycles, bios: Samples, context: Context) -> None:
        if not len(bios):
            return
        purpose = purposes(window.bios, window.tasks, context).astype(np.int64)
        discard = (window.bios.opf & OP_MASK) == context.op_number(DISCARD)
        purpose = np.where(discard, _DISCARD, purpose)
        keys, _, place = distinct_values(window.bios.dev.astype(np.int64) << _BITS | purpose)
        count = np.bincount(place, minlength=len(keys))
        ns = sum_by(place, np.maximum(bios.latency, 0), len(keys))
        for key, ios, took in zip(keys.tolist(), count.tolist(), ns.tolist(), strict=True):
            before = self._sums.get(key, (0, 0))
            self._sums[key] = before[0] + ios, before[1] + took

    def reports(self, context: Context) -> list[PurposeTime]:
        found = [
            PurposeTime(
                context.device_name(key >> _BITS),
                _NAMES.get(key & ((1 << _BITS) - 1), "no data"),
                ios,
                ns,
            )
            for key, (ios, ns) in sorted(self._sums.items())
        ]
        return sorted(found, key=lambda one: -one.ns)


SECTOR_SHIFT = 9


@dataclass
class Pattern(Mergeable):
    """Distances between successive I/Os with data of one device, in time order."""

    sequential: int = 0
    forward: int = 0
    backward: int = 0
    seek: Distribution = field(default_factory=Distribution)
    gap: Distribution = field(default_factory=Distribution)
    _end: int = -1
    _at: int = -1
    """ns when the last I/O began; -1 before the first one."""

    @property
    def sequential_share(self) -> float:
        return self.sequential / self.seek.count if self.seek.count else 0.0

    def update(self, seen: Seen) -> None:
        """Add I/Os of one device; those of 0 bytes are ignored, the first begins the comparison."""
        seen = seen.take(seen.bytes > 0)
        if not len(seen):
            return
        at, first = seen.at, seen.sector.astype(np.int64)
        end = first + (seen.bytes >> SECTOR_SHIFT)
        before = np.concatenate([[self._end], end[:-1]])
        since = np.concatenate([[self._at], at[:-1]])
        begin = 0 if self._at >= 0 else 1
        distance = (first - before)[begin:]
        self.sequential += int((distance == 0).sum())
        self.forward += int((distance > 0).sum())
        self.backward += int((distance < 0).sum())
        self.seek.add(np.abs(distance) << SECTOR_SHIFT)
        self.gap.add((at - since)[begin:])
        self._end, self._at = int(end[-1]), int(at[-1])


@dataclass
class Device:
    queue: Depth
    issued: Depth
    queue_pattern: Pattern = field(default_factory=Pattern)
    issue_pattern: Pattern = field(default_factory=Pattern)
    operations: dict[int, tuple[Depth, Depth]] = field(default_factory=dict)
    """Number of an operation (as in Samples.place) → (queue, issued) of that operation alone;
    without intervals."""


@dataclass
class Devices:
    interval: int = 0
    by_dev: dict[int, Device] = field(default_factory=dict)
    """dev_t → device; of devices on which a bio or request began or ended."""
    _bios: Flow = field(default_factory=Flow)
    _requests: Flow = field(default_factory=Flow)
    _origin: int = -1

    def add(self, window: Lifecycles, context: Context) -> None:
        if self._origin < 0:
            self._origin = window.begin
        queue = self._bios.steps(window, window.bios, window.open_bios, context)
        issue = self._requests.steps(window, window.requests, window.open_requests, context)
        steps = queue, issue
        for dev in dict.fromkeys([*queue.devices(), *issue.devices()]):
            if dev not in self.by_dev:
                self.by_dev[dev] = Device(*both_idle(self._origin, steps, self.interval))
        moments = [part for one in steps for part in (one.start, one.stop, one.fade, one.gone)]
        for dev, device in self.by_dev.items():
            device.queue_pattern.update(queue.seen.take(queue.seen.dev == dev))
            device.issue_pattern.update(issue.seen.take(issue.seen.dev == dev))
            # One without a change gets the window's time, too.
            device.queue.add(queue, dev)
            device.issued.add(issue, dev)
            numbers = np.concatenate([part.op[part.dev == dev] for part in moments])
            for op in names_of(numbers).tolist():
                if op not in device.operations:
                    device.operations[op] = both_idle(self._origin, steps)
            for op, (queued, issued) in device.operations.items():
                queued.add(queue, dev, op)
                issued.add(issue, dev, op)


LINGER_NS = 10_000_000_000
"""ns after a flush's completion for which later windows may bring bios that waited for it: a bio
comes when its whole family has ended."""
_IS_WAIT = kind_table((Stage.FLUSH, Stage.PRE_FLUSH, Stage.POST_FLUSH))


@dataclass
class Flush(Mergeable):
    requests: int = 0
    waits: int = 0
    unmatched: int = 0
    shared: Counter[int] = field(default_factory=Counter)
    time: Distribution = field(default_factory=Distribution)
    doubtful: int = 0

    @property
    def bios_per_request(self) -> float:
        return (self.waits - self.unmatched) / self.requests if self.requests else 0.0


@dataclass
class _Recent(Table):
    """Flush requests for which bios of a later window may have waited, (n,) each."""

    dev: U32
    issue: I64
    complete: I64
    bios: I64


@dataclass
class Flushes:
    """Flush requests of all devices, window after window."""

    by_dev: dict[int, Flush] = field(default_factory=lambda: defaultdict(Flush))
    """dev_t → flushes; of devices with a flush request or a wait."""
    _recent: _Recent = field(default_factory=_Recent.none)

    def add(self, window: Lifecycles) -> None:
        """Add the window's flush requests, and its bios' waits for them.

        A wait is matched with the last of the device's flush requests to complete by the wait's
        end, if that was issued during the wait.
        """
        requests, stages, bios = window.requests, window.bio_stages, window.bios
        flushes = requests.take(
            (requests.kind == RequestKind.FLUSH)
            & (requests.issue != NEVER)
            & (requests.complete != NEVER)
        )
        for dev in names_of(flushes.dev).tolist():
            mine, one = flushes.take(flushes.dev == dev), self.by_dev[dev]
            one.time.add((mine.complete - mine.issue)[~mine.doubtful])
            one.doubtful += int(mine.doubtful.sum())
        none = np.zeros(len(flushes), dtype=np.int64)
        fresh = _Recent(flushes.dev, flushes.issue, flushes.complete, none)
        known = self._recent = _Recent.concatenate([self._recent, fresh])
        waits = stages.take(_IS_WAIT[stages.stage])
        waiting = (
            bios.dev[np.searchsorted(bios.number, waits.owner)] if len(waits) else bios.dev[:0]
        )
        for dev in names_of(waiting).tolist():
            ours, theirs = waiting == dev, np.flatnonzero(known.dev == dev)
            theirs = theirs[np.argsort(known.complete[theirs], kind="stable")]
            at = np.searchsorted(known.complete[theirs], waits.end[ours], side="right") - 1
            begun, last = waits.start[ours][at >= 0], theirs[at[at >= 0]]
            matched = last[known.issue[last] >= begun]
            self.by_dev[dev].waits += len(at)
            self.by_dev[dev].unmatched += len(at) - len(matched)
            np.add.at(known.bios, matched, 1)
        self.retire(window.begin - LINGER_NS)

    def retire(self, before: int) -> None:
        """Count the flush requests that completed before (ns); FAR after the last window: all."""
        known, old = self._recent, self._recent.complete < before
        for dev, bios in zip(known.dev[old].tolist(), known.bios[old].tolist(), strict=True):
            device = self.by_dev[dev]
            device.requests += 1
            device.shared[bios] += 1
        self._recent = known.take(~old)


@dataclass
class _Open:
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


@dataclass
class Hanging:
    """Finds I/O in flight, window after window: the last one has what was when the log ended."""

    context: Context
    _names: ProcessNames = field(default_factory=ProcessNames)
    _open: dict[int, _Open] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)

    def add(self, window: Lifecycles) -> None:
        self._names.take(window.tasks)
        bios = window.bios
        ended = np.flatnonzero(bios.complete != NEVER)
        for dev in names_of(bios.dev[ended]).tolist():
            last = int(bios.complete[ended[bios.dev[ended] == dev]].max())
            self._done[dev] = max(last, self._done.get(dev, NEVER))
        rows = np.flatnonzero(under_way(bios) & ~bios.own)
        codes, names = operations(self.context, bios.opf, bios.bytes)
        for row in rows[np.argsort(bios.queue[rows], kind="stable")].tolist():
            one = self._open.setdefault(int(bios.dev[row]), _Open())
            one.bios += 1
            one.bytes += int(bios.bytes[row])
            one.operations.add(names[codes[row]])
            if bios.issue[row] != NEVER:
                one.issued_operations.add(names[codes[row]])
            if one.queued >= 0:
                continue
            one.queued = int(bios.queue[row])
            task = int(doers(bios.take(np.array([row])))[0])
            if task >= 0:
                one.tid, one.pid = int(window.tasks.tid[task]), int(window.tasks.tgid[task])
            if window.path is not None and task == int(bios.task[row]):
                paths = window.path.bios
                place, known = rows_of(paths.number, bios.number[row : row + 1])
                if known[0] and (call := int(paths.call[place[0]])) >= 0:
                    foreign = bool(paths.foreign[place[0]])
                    one.call = name_of_call(call, foreign, self.context.machine)
        requests = window.requests
        still = (requests.issue != NEVER) & (requests.complete == NEVER)
        still &= (requests.absorbed_by == NEVER) & (requests.certainty == Certainty.INCOMPLETE)
        for row in np.flatnonzero(still).tolist():
            if (found := self._open.get(int(requests.dev[row]))) is not None:
                found.requests += 1
                found.request_bytes += int(requests.bytes[row])
                issue = int(requests.issue[row])
                found.issued = issue if found.issued < 0 else min(issue, found.issued)

    def reports(self, end: int) -> list[HangingReport]:
        """Return devices with I/O that completed none for HANGS_NS at `end` (ns), oldest first."""
        found = []
        for dev, one in self._open.items():
            idle = end - max(one.queued, self._done.get(dev, NEVER))
            if idle < HANGS_NS:
                continue
            name = self._names[one.pid] if one.pid else ""
            title = self.context.titles.title(one.pid, name)
            found.append(
                as_row(
                    HangingReport,
                    one,
                    device=self.context.device_name(dev),
                    operations=sorted(one.issued_operations or one.operations),
                    bytes=one.request_bytes if one.requests else one.bytes,
                    since_queue_ns=end - one.queued,
                    since_issue_ns=None if one.issued < 0 else end - one.issued,
                    completes_none_ns=idle,
                    who=Who(name, one.pid, title, end - one.queued) if name else None,
                )
            )
        return sorted(found, key=lambda one: -one.since_queue_ns)
