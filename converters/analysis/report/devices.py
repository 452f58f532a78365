# SPDX-License-Identifier: Apache-2.0
"""Figures of each device as a whole: queue depths with active time, and patterns."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.flow import Flow, Steps
from biotrail.converters.analysis.report.patterns import Pattern
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.tables import Bool, Lifecycles

Value = TypeVar("Value", bound=np.generic)


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
        seen = [
            s for steps in (queue, issue) for s in (steps.seen_dev, steps.start_dev, steps.stop_dev)
        ]
        for dev in np.unique(np.concatenate([names_of(devs) for devs in seen])).tolist():
            if dev not in self.by_dev:
                self.by_dev[dev] = self._new(window.begin)
        for dev, device in self.by_dev.items():
            _add(queue, dev, device.queue, device.queue_pattern)
            _add(issue, dev, device.issued, device.issue_pattern)
            self._add_operations(dev, device, (queue, issue))

    def _add_operations(self, dev: int, device: Device, both: tuple[Steps, Steps]) -> None:
        """Add a window's beginnings and ends to the depths of each operation of a device.

        both: those of bios and of requests, of all devices. dev: dev_t of `device`. New operations
        are added to `device.operations`, with depths that were 0 until the window; operations
        without a beginning or end in the window get its time, too.
        """
        ops = [_of(s.start_op, s.start_dev == dev) for s in both]
        ops += [_of(s.stop_op, s.stop_dev == dev) for s in both]
        for op in np.unique(np.concatenate([names_of(of) for of in ops])).tolist():
            if op not in device.operations:
                begin = both[0].begin
                device.operations[op] = self._depth(begin, 0), self._depth(begin, 0)
        for op, depths in device.operations.items():
            for steps, depth in zip(both, depths, strict=True):
                up = _of(steps.start, (steps.start_dev == dev) & (steps.start_op == op))
                down = _of(steps.stop, (steps.stop_dev == dev) & (steps.stop_op == op))
                depth.update(steps.begin, steps.end, up, down)

    def widen(self) -> None:
        """Double the interval: merge each two neighbouring intervals of all devices into one."""
        self._interval *= 2
        for device in self.by_dev.values():
            device.queue.widen()
            device.issued.widen()

    def get(self, dev: int) -> Device:
        """Return a device; if no beginning or end on it is known, a new one without figures."""
        return self.by_dev.get(dev) or Device(Depth(self._origin), Depth(self._origin))

    def _new(self, now: int) -> Device:
        """Return a device that was idle from the log's beginning to `now` (ns)."""
        return Device(self._depth(now, self._interval), self._depth(now, self._interval))

    def _depth(self, now: int, interval: int) -> Depth:
        """Return a depth that was 0 from the first window's begin to `now` (ns).

        interval: ns of the intervals in which it is kept; 0: none.
        """
        depth = Depth(self._origin, interval)
        nothing = np.zeros(0, dtype=np.int64)
        if now > self._origin:
            depth.update(self._origin, now, nothing, nothing)
        return depth


def _of(values: NDArray[Value], rows: Bool) -> NDArray[Value]:
    """Return the values (n,) of the rows of the mask (n,); themselves, if it has all."""
    return values if rows.all() else np.asarray(values[rows])


def _add(steps: Steps, dev: int, depth: Depth, pattern: Pattern) -> None:
    """Add a window's beginnings and ends on one device to its depth, and its I/Os to its pattern.

    steps: of all devices. dev: dev_t.
    """
    depth.update(
        steps.begin,
        steps.end,
        _of(steps.start, steps.start_dev == dev),
        _of(steps.stop, steps.stop_dev == dev),
    )
    seen = steps.seen_dev == dev
    pattern.update(_of(steps.seen, seen), _of(steps.sector, seen), _of(steps.bytes, seen))
