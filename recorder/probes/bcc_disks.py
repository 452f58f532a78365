# SPDX-License-Identifier: Apache-2.0
"""Which disk a device is on, for the bcc backend's programs: tracepoints of bios name partitions.

A hash table in a mapped map (`struct bt_disks`, bpf/bcc_ring.h), written in place: a slot's
disk before its device, so that a program never meets a device with another's disk.
"""

import os
import time

import numpy as np

from recorder import device_sysfs

SLOTS = 16384
TRIES = 8
BYTES = SLOTS * 8
_FACTOR = 2654435761
_BLOCK = "/sys/dev/block"
_PERIOD_NS = 1_000_000_000
_SOON_NS = 100_000_000
_COST_SHARE = 200
"""A look that takes t is not repeated before 200 t has passed."""


def disks() -> dict[int, int]:
    """{device: its disk} of all devices, by kernel dev_t."""
    found = {}
    for name in os.listdir(_BLOCK):
        dev = device_sysfs.dev_number(name)
        if dev is None:
            continue
        path = os.path.realpath(f"{_BLOCK}/{name}")
        disk = None
        if os.path.exists(f"{path}/partition"):
            disk = device_sysfs.dev_number(device_sysfs.read(f"{os.path.dirname(path)}/dev"))
        found[dev] = dev if disk is None else disk
    return found


class DiskTable:
    """Keeps the table in a writable buffer of BYTES bytes up to date."""

    def __init__(self, buffer: memoryview) -> None:
        """Fills the table."""
        self._slots = np.ndarray((SLOTS, 2), np.dtype("<u4"), buffer)
        self._unknown = 0
        self._names: list[str] = []
        self._look()

    def refresh(self, unknown: int) -> None:
        """Looks again, if it is time: now and then, sooner when `unknown` devices were met."""
        now = time.monotonic_ns()
        if now < (self._soon if unknown != self._unknown else self._next):
            return
        self._unknown = unknown
        self._look()

    def _look(self) -> None:
        began = time.monotonic_ns()
        names = os.listdir(_BLOCK)
        if names != self._names:
            self._names = names
            for dev, disk in disks().items():
                self._put(dev, disk)
        now = time.monotonic_ns()
        wait = (now - began) * _COST_SHARE
        self._next, self._soon = now + max(_PERIOD_NS, wait), now + max(_SOON_NS, wait)

    def _put(self, dev: int, disk: int) -> None:
        """Beyond TRIES collisions a device is left out and stands for itself."""
        start = (dev * _FACTOR & 0xFFFFFFFF) >> 16
        for i in range(TRIES):
            slot = self._slots[(start + i) % SLOTS]
            if slot[0] in (0, dev):
                slot[1] = disk
                slot[0] = dev
                return

    def close(self) -> None:
        """Gives the buffer back."""
        del self._slots
