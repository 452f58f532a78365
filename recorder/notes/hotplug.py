# SPDX-License-Identifier: Apache-2.0
"""Devices and cgroups that appear while recording, as notes for the log."""

import os
import time
from typing import Any

from biotrail.recorder.host import cgroups, devices

DEVICE_PERIOD_NS = 1_000_000_000
CGROUP_PERIOD_NS = 10_000_000_000
MANY_DEVICES = 512
COST_SHARE = 500
"""A look that takes t is not repeated before 500 t has passed: at most 0.2 % of a core."""
_BLOCK = "/sys/dev/block"


def fingerprint() -> dict[str, str]:
    """{major:minor: disk sequence number}; changes when a device comes, goes or is set anew.

    The sequence number (kernels 5.15 and later) tells a loop device with another file, or a
    changed medium, apart from what had its number before.
    """
    found = {}
    for name in os.listdir(_BLOCK):
        try:
            with open(f"{_BLOCK}/{name}/diskseq") as file:
                found[name] = file.read()
        except OSError:  # a partition, an old kernel, or gone by now
            found[name] = ""
    return found


def _changed(before: dict[str, str], now: dict[str, str]) -> set[int] | None:
    """Devices that came or were set anew; None, all: what stands on them may have changed too.

    A look at a device takes about a millisecond: with thousands, only these are looked at.
    """
    if len(now) <= MANY_DEVICES:
        return None
    numbers = (name.partition(":") for name, seen in now.items() if before.get(name) != seen)
    return {int(major) << 20 | int(minor) for major, _, minor in numbers}


class Periodic:
    """When to look again."""

    def __init__(self, period_ns: int) -> None:
        """Not at once: the header has what is there."""
        self._period = period_ns
        self._next = time.monotonic_ns() + period_ns

    def due(self, now_ns: int) -> bool:
        """Whether it is time to."""
        return now_ns >= self._next

    def looked(self, began_ns: int) -> None:
        """It was looked from `began_ns` until now."""
        now = time.monotonic_ns()
        self._next = now + max(self._period, (now - began_ns) * COST_SHARE)


class DeviceWatch(Periodic):
    """Tells device entries that are new or changed since the header, or since the last call."""

    def __init__(self, known: list[dict[str, Any]]) -> None:
        super().__init__(DEVICE_PERIOD_NS)
        self._known = {int(entry["dev"]): entry for entry in known}
        self._seen = fingerprint()

    def changes(self) -> dict[str, Any] | None:
        """A `devices` note with the new entries, None when nothing changed."""
        began = time.monotonic_ns()
        now = fingerprint()
        if now == self._seen:
            self.looked(began)
            return None
        before, self._seen = self._seen, now
        fresh = [
            e
            for e in devices.snapshot(only=_changed(before, now))
            if self._known.get(int(e["dev"])) != e
        ]
        self._known.update({int(entry["dev"]): entry for entry in fresh})
        self.looked(began)
        return {"devices": fresh} if fresh else None


class CgroupWatch(Periodic):
    """Tells cgroups that were not told before."""

    def __init__(self) -> None:
        super().__init__(CGROUP_PERIOD_NS)
        self._where = cgroups.hierarchy()
        self._known: dict[int, str] = {}

    def changes(self) -> dict[str, Any] | None:
        """A `cgroups` note {id: path} of what is new, None when nothing is."""
        began = time.monotonic_ns()
        now = cgroups.paths(self._where)
        fresh = {number: path for number, path in now.items() if self._known.get(number) != path}
        self._known = now  # what is gone is forgotten: ids do not come back
        self.looked(began)
        return {str(number): path for number, path in fresh.items()} or None
