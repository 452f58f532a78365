# SPDX-License-Identifier: Apache-2.0
"""Figures of each device: queue depths, active time, access patterns, lower devices, purposes."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.flow import Flow, Steps
from biotrail.converters.analysis.distributions.samples import Samples, operations_of
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.distributions.sums import sum_by
from biotrail.converters.analysis.report.tree import PurposeTime
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, NEVER, OP_MASK, U64, Lifecycles
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.converters.lifecycles.windows import sure_complete


@dataclass
class Below:
    """Times of the children that one upper device's operation has on one lower device."""

    children: int = 0
    """Number of children."""
    doubtful: int = 0
    """Children of which their own completion, or the parent's, is in doubt (`Bios.doubtful`)."""
    to_child: Distribution = field(default_factory=Distribution)
    """ns from the parent's Q to the child's Q."""
    child: Distribution = field(default_factory=Distribution)
    """ns from the child's Q to the child's C."""
    from_child: Distribution = field(default_factory=Distribution)
    """ns from the child's C to the parent's C."""


class Stacked:
    """Times of children by pair of devices and operation, window after window."""

    def __init__(self) -> None:
        self.by_pair: dict[tuple[int, int, int], Below] = {}
        """(upper dev_t, lower dev_t, the parent's operation as in Samples.place) → times."""
        self.unmatched = 0
        """Children whose parent did not end in the same window; they are in no pair."""

    def add(self, window: Lifecycles, context: Context) -> None:
        """Add the times of the window's children: bios that work for a bio of an upper device.

        A child whose parent did not end in the same window only counts in `unmatched`. A time that
        is not known, in doubt, or negative, is not counted, but the child is.
        """
        bios = window.bios
        child_row = np.flatnonzero(bios.parent != NEVER)
        if not len(child_row):
            return
        parent = bios.parent[child_row]
        parent_row = np.minimum(np.searchsorted(bios.number, parent), len(bios) - 1)
        here = bios.number[parent_row] == parent
        self.unmatched += int((~here).sum())
        child_row, parent_row = child_row[here], parent_row[here]
        operation = operations_of(bios, context)[parent_row]
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
            _add(below.to_child, bios.queue[parent], bios.queue[child])
            _add(below.child, bios.queue[child], complete[child])
            _add(below.from_child, complete[child], complete[parent])


def _add(into: Distribution, begin: I64, end: I64) -> None:
    """Count end - begin (ns) of the rows that have both times, unless it is negative."""
    known = (begin != NEVER) & (end != NEVER) & (end >= begin)
    into.add((end - begin)[known])


DISCARD = "discard"
_DISCARD = len(Purpose)
_BITS = 8
_NAMES = {**{int(one): name for one, name in PURPOSE_NAMES.items()}, _DISCARD: DISCARD}


@dataclass
class Purposes:
    """Number and time by device and purpose, window after window."""

    _sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    """dev_t << _BITS | purpose → bios, ns."""

    def add(self, window: Lifecycles, bios: Samples, context: Context) -> None:
        """Add the next window's bios. bios: samples of them, row by row; context: the log's."""
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
        """Return the figures of each device and purpose, most time first."""
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
class Pattern:
    """Distances between successive I/Os with data of one device, in time order."""

    sequential: int = 0
    """I/Os that began at the sector where the previous one ended."""
    forward: int = 0
    """I/Os that began after that sector."""
    backward: int = 0
    """I/Os that began before that sector."""
    seek: Distribution = field(default_factory=Distribution)
    """Bytes from the previous I/O's end to the beginning, in either direction; 0: sequential."""
    gap: Distribution = field(default_factory=Distribution)
    """ns from one beginning to the next."""
    _end: int = -1
    """Sector where the last I/O ended."""
    _at: int = -1
    """ns when the last I/O began; -1 before the first one."""

    @property
    def sequential_share(self) -> float:
        """Share of sequential I/Os among all but the first, 0 to 1; 0.0 without any."""
        return self.sequential / self.seek.count if self.seek.count else 0.0

    def merge(self, other: "Pattern") -> None:
        """Add the counts and distances of another device, which is not changed."""
        self.sequential += other.sequential
        self.forward += other.forward
        self.backward += other.backward
        self.seek.merge(other.seek)
        self.gap.merge(other.gap)

    def update(self, at: I64, sector: U64, size: I64) -> None:
        """Add I/Os that follow those added before; I/Os of 0 bytes are ignored.

        at: ns (n,), ascending. sector: first 512-byte sectors. size: bytes. The very first I/O only
        begins the comparison.
        """
        some = size > 0
        if not some.any():
            return
        at, first = at[some], sector[some].astype(np.int64)
        end = first + (size[some] >> SECTOR_SHIFT)
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
    """Depths and patterns of one device."""

    queue: Depth
    """Bios in flight, Q to C."""
    issued: Depth
    """Requests in flight, D to C."""
    queue_pattern: Pattern = field(default_factory=Pattern)
    """Bios in the order of Q."""
    issue_pattern: Pattern = field(default_factory=Pattern)
    """Requests in the order of D."""
    operations: dict[int, tuple[Depth, Depth]] = field(default_factory=dict)
    """Number of an operation (as in Samples.place) → (queue, issued) of that operation alone;
    without intervals."""


class Devices:
    """Depths and patterns of all devices of a log, window after window."""

    def __init__(self, interval: int = 0) -> None:
        """Start without devices.

        interval: ns of the intervals in which the depths of devices are also kept; 0: none.
        """
        self.by_dev: dict[int, Device] = {}
        """dev_t → device; of devices on which a bio or request began or ended."""
        self._interval = interval
        self._bios, self._requests = Flow(), Flow()
        self._origin = -1

    def add(self, window: Lifecycles, context: Context) -> None:
        """Add the log's next window to the depths and patterns of all devices in `by_dev`."""
        if self._origin < 0:
            self._origin = window.begin
        queue = self._bios.bios(window, context)
        issue = self._requests.requests(window, context)
        for dev in dict.fromkeys([*queue.devices(), *issue.devices()]):
            if dev not in self.by_dev:
                self.by_dev[dev] = Device(
                    self._depth(queue.begin, self._interval),
                    self._depth(issue.begin, self._interval),
                )
        for dev, device in self.by_dev.items():
            device.queue.add(queue.of(dev))
            device.issued.add(issue.of(dev))
            device.queue_pattern.update(*queue.seen_on(dev))
            device.issue_pattern.update(*issue.seen_on(dev))
            self._add_operations(dev, device, (queue, issue))

    def _add_operations(self, dev: int, device: Device, both: tuple[Steps, Steps]) -> None:
        """Add a window to the depths of each operation; one without a change gets its time, too."""
        for op in dict.fromkeys(op for steps in both for op in steps.operations(dev)):
            if op not in device.operations:
                queue, issued = (self._depth(steps.begin, 0) for steps in both)
                device.operations[op] = queue, issued
        for op, depths in device.operations.items():
            for steps, depth in zip(both, depths, strict=True):
                depth.add(steps.of(dev, op))

    def widen(self) -> None:
        """Double the interval: merge each two neighbouring intervals of all devices into one."""
        self._interval *= 2
        for device in self.by_dev.values():
            device.queue.widen()
            device.issued.widen()

    def get(self, dev: int) -> Device:
        """Return a device; if no beginning or end on it is known, a new one without figures."""
        return self.by_dev.get(dev) or Device(Depth(self._origin), Depth(self._origin))

    def _depth(self, now: int, interval: int) -> Depth:
        """Return a depth that was 0 from the first window's begin to `now` (ns)."""
        depth = Depth(self._origin, interval)
        nothing = np.zeros(0, dtype=np.int64)
        if now > self._origin:
            depth.update(self._origin, now, nothing, nothing)
        return depth
