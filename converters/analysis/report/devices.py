# SPDX-License-Identifier: Apache-2.0
"""What is told of a device as a whole: depth, active time, patterns, flushes shared."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.flow import Flow, Steps
from biotrail.converters.analysis.report.patterns import Pattern
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, U32, Bool, Lifecycles


@dataclass
class Device:
    """One device: bios from Q to C, requests from D to C."""

    queue: Depth
    """Bios."""
    issued: Depth
    """Requests."""
    queue_pattern: Pattern = field(default_factory=Pattern)
    """Q2Q."""
    issue_pattern: Pattern = field(default_factory=Pattern)
    """D2D."""
    operations: dict[int, tuple[Depth, Depth]] = field(default_factory=dict)
    """Bios and requests of one operation, by its number as in Samples.place; of the whole only."""


class Devices:
    """All devices of a log. interval: ns, 0 none."""

    def __init__(self, interval: int = 0) -> None:
        self.by_dev: dict[int, Device] = {}
        self._interval = interval
        self._bios, self._requests = Flow(), Flow()
        self._origin = -1

    def add(self, window: Lifecycles, context: Context) -> None:
        """Take in the next window of the log that `context` is of."""
        if self._origin < 0:
            self._origin = window.begin
        queue = self._bios.bios(window, context)
        issue = self._requests.requests(window, context)
        seen = [
            s for steps in (queue, issue) for s in (steps.seen_dev, steps.start_dev, steps.stop_dev)
        ]
        for dev in np.unique(np.concatenate(seen)).tolist():
            if dev not in self.by_dev:
                self.by_dev[dev] = self._new(window.begin)
        for dev, device in self.by_dev.items():
            _add(queue, dev, device.queue, device.queue_pattern)
            _add(issue, dev, device.issued, device.issue_pattern)
            self._add_operations(dev, device, (queue, issue))

    def _add_operations(self, dev: int, device: Device, told: tuple[Steps, Steps]) -> None:
        """Add a window's bios and requests to the depths of the device's operations."""
        ops = [_of(s.start_op, s.start_dev, dev) for s in told]
        ops += [_of(s.stop_op, s.stop_dev, dev) for s in told]
        for op in np.unique(np.concatenate(ops)).tolist():
            if op not in device.operations:
                now = told[0].begin
                device.operations[op] = self._depth(now, 0), self._depth(now, 0)
        for op, depths in device.operations.items():
            for steps, depth in zip(told, depths, strict=True):
                up = _of(steps.start, steps.start_dev, dev, steps.start_op == op)
                down = _of(steps.stop, steps.stop_dev, dev, steps.stop_op == op)
                depth.update(steps.begin, steps.end, up, down)

    def widen(self) -> None:
        """Two intervals become one."""
        self._interval *= 2
        for device in self.by_dev.values():
            device.queue.widen()
            device.issued.widen()

    def get(self, dev: int) -> Device:
        """A device; one on which nothing was seen to begin or end is an empty one."""
        return self.by_dev.get(dev) or Device(Depth(self._origin), Depth(self._origin))

    def _new(self, now: int) -> Device:
        """A device that was idle from the beginning to now."""
        return Device(self._depth(now, self._interval), self._depth(now, self._interval))

    def _depth(self, now: int, interval: int) -> Depth:
        """A depth that was 0 from the beginning to now."""
        depth = Depth(self._origin, interval)
        nothing = np.zeros(0, dtype=np.int64)
        if now > self._origin:
            depth.update(self._origin, now, nothing, nothing)
        return depth


def _of(values: I64, devs: U32, dev: int, rows: Bool | None = None) -> I64:
    """Return the values on one device, of the rows given by a mask."""
    mine = devs == dev
    return np.asarray(values[mine if rows is None else mine & rows])


def _add(steps: Steps, dev: int, depth: Depth, pattern: Pattern) -> None:
    depth.update(
        steps.begin,
        steps.end,
        steps.start[steps.start_dev == dev],
        steps.stop[steps.stop_dev == dev],
    )
    seen = steps.seen_dev == dev
    pattern.update(steps.seen[seen], steps.sector[seen], steps.bytes[seen])
