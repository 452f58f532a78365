# SPDX-License-Identifier: Apache-2.0
"""Figures of each device as a whole: queue depths with active time, and patterns."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.flow import Flow, Steps
from biotrail.converters.analysis.report.devices.patterns import Pattern
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles


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
