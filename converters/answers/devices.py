# SPDX-License-Identifier: Apache-2.0
"""What is told of a device as a whole: depth, active time, patterns, flushes shared."""

from dataclasses import dataclass, field

import numpy as np

from converters.model.tables import Lifecycles

from .depth import Depth
from .flow import Flow, Steps
from .patterns import Pattern


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


class Devices:
    """All devices of a log. interval: ns, 0 none."""

    def __init__(self, interval: int = 0) -> None:
        self.by_dev: dict[int, Device] = {}
        self._interval = interval
        self._bios, self._requests = Flow(), Flow()
        self._origin = -1

    def add(self, window: Lifecycles) -> None:
        """The next window."""
        if self._origin < 0:
            self._origin = window.begin
        queue, issue = self._bios.bios(window), self._requests.requests(window)
        seen = [
            s for steps in (queue, issue) for s in (steps.seen_dev, steps.start_dev, steps.stop_dev)
        ]
        for dev in np.unique(np.concatenate(seen)).tolist():
            if dev not in self.by_dev:
                self.by_dev[dev] = self._new(window.begin)
        for dev, device in self.by_dev.items():
            _add(queue, dev, device.queue, device.queue_pattern)
            _add(issue, dev, device.issued, device.issue_pattern)

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
        device = Device(Depth(self._origin, self._interval), Depth(self._origin, self._interval))
        nothing = np.zeros(0, dtype=np.int64)
        if now > self._origin:
            device.queue.update(self._origin, now, nothing, nothing)
            device.issued.update(self._origin, now, nothing, nothing)
        return device


def _add(steps: Steps, dev: int, depth: Depth, pattern: Pattern) -> None:
    depth.update(
        steps.begin,
        steps.end,
        steps.start[steps.start_dev == dev],
        steps.stop[steps.stop_dev == dev],
    )
    seen = steps.seen_dev == dev
    pattern.update(steps.seen[seen], steps.sector[seen], steps.bytes[seen])
