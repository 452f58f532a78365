# SPDX-License-Identifier: Apache-2.0
"""Figures of each device as a whole: queue depths with active time, and access patterns."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.flow import Flow, Steps
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, U64, Lifecycles

# Where each I/O begins relative to the previous one's end: sequential share, seeks, gaps.

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
        """Add the counts and distances of another device, which is not changed.

        Each device's I/Os are compared with its own alone.
        """
        self.sequential += other.sequential
        self.forward += other.forward
        self.backward += other.backward
        self.seek.merge(other.seek)
        self.gap.merge(other.gap)

    def update(self, at: I64, sector: U64, size: I64) -> None:
        """Add I/Os of the device that follow those added before; I/Os of 0 bytes are ignored.

        at: ns (n,) at which each began, ascending. sector: its first 512-byte sector (n,). size:
        bytes (n,). Each is compared with the one before it, the first with the last one of the call
        before; the very first I/O only begins the comparison. Each comparison adds 1 to
        `sequential`, `forward` or `backward`, the distance to `seek` and the time between the
        beginnings to `gap`.
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
        """Add the log's next window to the depths and patterns of all devices in `by_dev`.

        A device on which a bio or request begins or ends for the first time is added, with depths
        that were 0 from the first window's begin to this window. So are the operations of each
        device, whose depths have no intervals. context: the log's, for operations.
        """
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
        """Add a window's beginnings and ends to the depths of each operation of a device.

        both: those of bios and of requests, of all devices. dev: dev_t of `device`. New operations
        are added to `device.operations`, with depths that were 0 until the window; operations
        without a beginning or end in the window get its time, too.
        """
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
        """Return a depth that was 0 from the first window's begin to `now` (ns).

        interval: ns of the intervals in which it is kept; 0: none.
        """
        depth = Depth(self._origin, interval)
        nothing = np.zeros(0, dtype=np.int64)
        if now > self._origin:
            depth.update(self._origin, now, nothing, nothing)
        return depth
