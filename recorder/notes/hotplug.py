# SPDX-License-Identifier: Apache-2.0
"""Finds devices and mounts that appear or change while recording, for notes in the log."""

import os
import time
from abc import ABC, abstractmethod
from pathlib import Path

from biotrail.recorder.host import devices
from biotrail.recorder.host.device_mounts import host_mounts, parse_mount, read_lines
from biotrail.recorder.schema.device_numbers import dev_number
from biotrail.recorder.schema.payloads import Device, DevicesNote, MountsNote, Note

DEVICE_PERIOD_NS = 1_000_000_000
MANY_DEVICES = 512
"""With more devices, a look reads only changed devices, not the stacked devices above them."""
COST_SHARE = 500
"""A look that takes t is not repeated before 500 t has passed: at most 0.2 % of a core."""
MOUNT_PERIOD_NS = 500_000_000
MOUNTS_PER_DEVICE = 64
"""Mounts of parts of one file system (bind mounts, subvolumes) that are recorded."""
_BLOCK = "/sys/dev/block"


def fingerprint() -> dict[str, str]:
    """Return {"major:minor": disk sequence number as text, "" if unknown} of all block devices.

    The number (since 5.15) grows when a loop device gets another file, or a drive another medium.
    It is unknown for partitions. Raises OSError: no sysfs.
    """
    sequence_numbers = {}
    for name in os.listdir(_BLOCK):
        try:
            with open(f"{_BLOCK}/{name}/diskseq") as file:
                sequence_numbers[name] = file.read()
        except OSError:  # a partition, an old kernel, or just removed
            sequence_numbers[name] = ""
    return sequence_numbers


class Schedule:
    """When to look at something again. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, period_ns: int, *, at_once: bool = False) -> None:
        """`at_once`: first due now; else after a period, as the log's header has the state."""
        self._period = period_ns
        self._next = time.monotonic_ns() + (0 if at_once else period_ns)

    def due(self, now_ns: int, /) -> bool:
        return now_ns >= self._next

    def schedule_next(self, began_ns: int) -> None:
        """Set the time of the next look, after one that took from `began_ns` until now."""
        now = time.monotonic_ns()
        self._next = now + max(self._period, (now - began_ns) * COST_SHARE)


class Watch(Schedule, ABC):
    """Something that is looked at again and again, for notes."""

    @abstractmethod
    def changes(self) -> Note | None:
        """Look, plan the next look, and return a note of what is new or changed. Raises OSError."""


class DeviceWatch(Watch):
    """Finds devices that are new or changed since the header, or since the last look."""

    def __init__(self, entries: list[Device], seen: dict[str, str]) -> None:
        """entries: the header's. seen: `fingerprint` before these were looked up."""
        super().__init__(DEVICE_PERIOD_NS)
        self._known = {int(entry["dev"]): entry for entry in entries}
        self._seen = seen

    def changes(self) -> DevicesNote | None:
        """Return what is new or changed, if `fingerprint` shows any change of devices."""
        began = time.monotonic_ns()
        now = fingerprint()
        fresh: list[Device] = []
        if now != self._seen:
            only = None
            if len(now) > MANY_DEVICES:
                # A change may also concern devices above the changed one, but reading a device's
                # entries takes about a millisecond, too long for thousands.
                changed = [name for name, seen in now.items() if self._seen.get(name) != seen]
                only = {dev for name in changed if (dev := dev_number(name)) is not None}
            self._seen = now
            entries = devices.snapshot(only=only)
            fresh = [one for one in entries if self._known.get(int(one["dev"])) != one]
            self._known.update({int(entry["dev"]): entry for entry in fresh})
        self.schedule_next(began)
        return {"devices": fresh} if fresh else None


class MountWatch(Watch):
    """Finds mounts that are new or changed; readers put them before paths of FILE_NAME records."""

    def __init__(self, proc: Path = Path("/proc"), *, of_calls: bool = False) -> None:
        """`of_calls`: files of calls are recorded, too, also on proc, tmpfs, devpts, nfs."""
        super().__init__(MOUNT_PERIOD_NS)
        self._proc, self._of_calls = proc, of_calls
        self._lines: list[str] = []
        self._known: MountsNote = {}

    def changes(self) -> MountsNote | None:
        """Return file systems that are new or changed; one that went and came back is new."""
        began = time.monotonic_ns()
        lines = host_mounts(str(self._proc))
        fresh: MountsNote = {}
        if lines != self._lines:
            self._lines = lines
            left_out: set[str] = set()
            if not self._of_calls:
                kinds = read_lines(str(self._proc / "filesystems"))
                left_out = {kind.split()[-1] for kind in kinds if kind.startswith("nodev")}
            # Of each directory in a file system the first mount point; if the whole file system is
            # mounted anywhere, its first such mount alone.
            now: MountsNote = {}
            for mount in filter(None, map(parse_mount, lines)):
                if mount.fstype in left_out:
                    continue
                pairs = now.setdefault(str(mount.st_dev), [])
                roots = {root for root, _ in pairs}
                if mount.root == "/" and "/" not in roots:
                    pairs[:] = [["/", mount.point]]  # covers every path, so mounts of parts go
                elif not roots & {"/", mount.root} and len(pairs) < MOUNTS_PER_DEVICE:
                    pairs.append([mount.root, mount.point])
            fresh = {dev: pairs for dev, pairs in now.items() if self._known.get(dev) != pairs}
            self._known = now
        self.schedule_next(began)
        return fresh or None
