# SPDX-License-Identifier: Apache-2.0
"""Since when each device of a log is known to make requests."""

import numpy as np

from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, U32, Bool

_NO_REQUEST = np.iinfo(np.int64).max
"""In place of a device's first request's number: no request of the device was recorded."""


class RequestDevices:
    """The first known request of each device, over the windows of one log."""

    def __init__(self, context: Context) -> None:
        """Take the devices that the header says make requests: known from the beginning.

        Those are of kind "loop", or have "nr_hw_queues" among the "queue" facts.
        """
        self._first: dict[int, int] = {
            dev: -1
            for dev, entry in context.devices.items()
            if entry.get("kind") == "loop" or "nr_hw_queues" in entry.get("queue", {})
        }

    def add(self, dev: U32, number: I64) -> None:
        """Take in requests by device (dev_t) and number, sorted by number."""
        seen, at, _ = distinct_values(dev)
        for device, first in zip(seen.tolist(), number[at].tolist(), strict=True):
            self._first[device] = min(first, self._first.get(device, first))

    def make_requests(self, a: Association, whole: Whole) -> Bool:
        """Return per queued bio (row of `whole`) whether its device is known to make requests.

        Known by the header, or by a request of the device whose first event, in this or an earlier
        window, is before the bio's end (before its first event, if it has no end). The requests of
        this window are added first.
        """
        births = a.requests.birth if len(a.requests) else np.zeros(0, np.int64)
        births = births[np.argsort(a.events.number[births])]
        self.add(a.events.dev[births], a.events.number[births])
        devices, of = np.unique(a.facts.dev[whole.gen], return_inverse=True)
        since = np.array([self._first.get(d, _NO_REQUEST) for d in devices.tolist()])
        if not len(devices):
            return np.zeros(0, dtype=np.bool_)
        last = np.where(whole.end >= 0, whole.end, a.bios.birth[whole.gen])
        known: Bool = since[of] < a.events.number[last]
        return known
