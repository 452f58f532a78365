# SPDX-License-Identifier: Apache-2.0
"""Finds devices that appear or change while recording, for notes in the log."""

import os
import time

from biotrail.recorder.host import devices
from biotrail.recorder.schema.payloads import Device, DevicesNote

DEVICE_PERIOD_NS = 1_000_000_000
MANY_DEVICES = 512
"""With more devices, a look reads only changed devices, not the stacked devices above them."""
COST_SHARE = 500
"""A look that takes t is not repeated before 500 t has passed: at most 0.2 % of a core."""
_BLOCK = "/sys/dev/block"


def fingerprint() -> dict[str, str]:
    """Return {"major:minor": disk sequence number as text, "" if unknown} of all block devices.

    The sequence number (since 5.15) grows when a loop device gets another file, or a drive another
    medium. It is unknown for partitions, and on older kernels. Raises OSError: no sysfs.
    """
    sequence_numbers = {}
    for name in os.listdir(_BLOCK):
        try:
            with open(f"{_BLOCK}/{name}/diskseq") as file:
                sequence_numbers[name] = file.read()
        except OSError:  # a partition, an old kernel, or just removed
            sequence_numbers[name] = ""
    return sequence_numbers


def _changed(before: dict[str, str], now: dict[str, str]) -> set[int] | None:
    """Return the dev_t of devices that are new or changed; None: look at all devices.

    None with at most MANY_DEVICES, as a change may also concern devices above the changed one.
    Reading a device's sysfs entries takes about a millisecond, too long for thousands.
    """
    if len(now) <= MANY_DEVICES:
        return None
    numbers = (name.partition(":") for name, seen in now.items() if before.get(name) != seen)
    return {int(major) << 20 | int(minor) for major, _, minor in numbers}


class Periodic:
    """When something is to be looked at again."""

    def __init__(self, period_ns: int) -> None:
        """First due after one period, as the log's header has the present state."""
        self._period = period_ns
        self._next = time.monotonic_ns() + period_ns

    def due(self, now_ns: int) -> bool:
        """Return whether a look is due at `now_ns` (CLOCK_MONOTONIC)."""
        return now_ns >= self._next

    def schedule_next(self, began_ns: int) -> None:
        """Set the time of the next look, after one that took from `began_ns` until now."""
        now = time.monotonic_ns()
        self._next = now + max(self._period, (now - began_ns) * COST_SHARE)


class DeviceWatch(Periodic):
    """Finds devices that are new or changed since the header, or since the last look."""

    def __init__(self, entries: list[Device], seen: dict[str, str]) -> None:
        """entries: the header's. seen: `fingerprint` before these were looked up."""
        super().__init__(DEVICE_PERIOD_NS)
        self._known = {int(entry["dev"]): entry for entry in entries}
        self._seen = seen

    def changes(self) -> DevicesNote | None:
        """Return a `devices` note with the new and changed entries, and plan the next look.

        They are read again only if `fingerprint` differs from the last look's: a change of another
        fact, such as the scheduler, does not count by itself. Removed devices are not reported.
        Raises OSError: no sysfs.
        """
        began = time.monotonic_ns()
        now = fingerprint()
        if now == self._seen:
            self.schedule_next(began)
            return None
        before, self._seen = self._seen, now
        fresh = [
            e
            for e in devices.snapshot(only=_changed(before, now))
            if self._known.get(int(e["dev"])) != e
        ]
        self._known.update({int(entry["dev"]): entry for entry in fresh})
        self.schedule_next(began)
        return {"devices": fresh} if fresh else None
