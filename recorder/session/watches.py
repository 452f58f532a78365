# SPDX-License-Identifier: Apache-2.0
"""Triggers that no event fires: pressure, which the kernel measures, and a device that hangs."""

import errno
import os
import select
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.filters.triggers import Hit, Pressure
from biotrail.recorder.host import cgroups
from biotrail.recorder.host.device_mounts import listed
from biotrail.recorder.schema.device_numbers import dev_number
from biotrail.recorder.schema.errors import ProbeError

_MACHINE = "/proc/pressure/io"
_BLOCK = Path("/sys/block")
_LOOK_NS = 500_000_000
_UNPRIVILEGED_US = 2_000_000  # psi_trigger_create, since Linux 6.4; before, it needed the right
_WITHOUT = "leave out --trigger pressure"
# Fields of /sys/block/DISK/stat (Documentation/block/stat.rst), completed I/Os of each operation.
_COMPLETED, _IN_FLIGHT = (0, 4, 11, 15), 8


class PressureWatch:
    """Thresholds of pressure, registered with the kernel, which wakes their descriptors."""

    def __init__(self, wanted: Collection[Pressure], machine: str = _MACHINE) -> None:
        """Register the thresholds. `machine`: as /proc/pressure/io. Raises ProbeError."""
        self._poll = select.poll()
        self._by_descriptor: dict[int, Pressure] = {}
        try:
            for one in wanted:
                descriptor = _register(one, machine)
                self._by_descriptor[descriptor] = one
                self._poll.register(descriptor, select.POLLPRI)
        except ProbeError:
            self.close()
            raise

    def hits(self, now_ns: int, messages: list[str]) -> list[Hit]:
        """Return what was exceeded since the last call; a cgroup that is gone becomes a message."""
        found = []
        for descriptor, what in self._poll.poll(0):
            pressure = self._by_descriptor[descriptor]
            if what & select.POLLPRI:
                stall_ns = pressure.stall_us * 1000
                found.append(Hit("pressure", now_ns, 0, -1, stall_ns, what=str(pressure)))
            if what & (select.POLLERR | select.POLLHUP) and not what & select.POLLPRI:
                messages.append(f"--trigger pressure={pressure}: the cgroup is gone")
                self._poll.unregister(descriptor)
                del self._by_descriptor[descriptor]
                os.close(descriptor)
        return found

    def close(self) -> None:
        for descriptor in self._by_descriptor:
            os.close(descriptor)
        self._by_descriptor.clear()


def _register(pressure: Pressure, machine: str) -> int:
    """Return a descriptor that POLLPRI wakes when `pressure` is exceeded. Raises ProbeError."""
    path = machine
    if cgroup := pressure.cgroup:
        where = cgroups.unified()
        if where is None:
            raise ProbeError(
                f"--trigger pressure of {cgroup}: cgroup v2, which alone has pressure, is not "
                "mounted"
            )
        inside = cgroup.removeprefix(where.point).strip("/")
        if ".." in inside.split("/"):
            raise ProbeError(f"--trigger pressure of {cgroup}: give the cgroup's path without ..")
        path = os.path.join(where.point, inside, "io.pressure")
    kind = "full" if pressure.full else "some"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = f"{path}: {error.strerror}"
        if isinstance(error, FileNotFoundError) and not pressure.cgroup:
            why = f"this kernel measures no pressure (CONFIG_PSI; boot with psi=1): {why}"
        raise ProbeError(f"--trigger pressure={pressure}: {why}; {_WITHOUT}") from error
    try:
        os.write(descriptor, f"{kind} {pressure.stall_us} {pressure.window_us}\0".encode())
    except OSError as error:
        os.close(descriptor)
        why = f"{path}: the kernel refuses the threshold: {error.strerror}"
        if error.errno == errno.EINVAL and pressure.window_us % _UNPRIVILEGED_US:
            why += " (without CAP_SYS_RESOURCE windows are 2, 4, 6, 8 or 10 s)"
        elif error.errno in (errno.EPERM, errno.EACCES):
            why += " (this kernel asks for CAP_SYS_RESOURCE)"
        elif error.errno == errno.EOPNOTSUPP:
            why += " (pressure is off; boot with psi=1)"
        raise ProbeError(f"--trigger pressure={pressure}: {why}; {_WITHOUT}") from error
    return descriptor


@dataclass
class _Disk:
    """What a disk's counters said when looked at last."""

    dev: int
    completed: int
    since_ns: int
    """When it was first seen with I/O in flight and this number completed; CLOCK_MONOTONIC."""
    fired: bool = False


class StuckWatch:
    """Disks that have I/O in flight and complete none, by the kernel's counters in sysfs."""

    def __init__(
        self, stuck_ns: int, disks: Collection[int], now_ns: int, block: Path = _BLOCK
    ) -> None:
        """Begin. disks: dev_t of those to watch; empty: all. block: as /sys/block."""
        self._stuck_ns, self._disks, self._block = stuck_ns, frozenset(disks), block
        self._seen: dict[str, _Disk] = {}
        self._period_ns = min(_LOOK_NS, stuck_ns // 8)
        self._next_ns = now_ns

    def hits(self, now_ns: int) -> list[Hit]:
        """Return the disks that are stuck since the last call: each until it completes again."""
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + self._period_ns
        found = []
        stalled: dict[str, _Disk] = {}
        for name in listed(str(self._block)):
            try:
                dev = dev_number((self._block / name / "dev").read_text().strip())
                counts = [int(word) for word in (self._block / name / "stat").read_text().split()]
                in_flight = counts[_IN_FLIGHT]
            except (OSError, ValueError, IndexError):
                continue  # it went away
            if dev is None or (self._disks and dev not in self._disks) or not in_flight:
                continue
            completed = sum(counts[n] for n in _COMPLETED if n < len(counts))
            disk = self._seen.get(name)
            if disk is None or (disk.dev, disk.completed) != (dev, completed):
                disk = _Disk(dev, completed, now_ns)
            stalled[name] = disk
            if now_ns - disk.since_ns >= self._stuck_ns and not disk.fired:
                disk.fired = True
                what = f"{in_flight} in flight"
                found.append(Hit("stuck", now_ns, dev, -1, now_ns - disk.since_ns, what=what))
        self._seen = stalled
        return found

    def hold_from(self) -> int | None:
        """Return from when on records must be kept to show what hangs now; None: nothing does.

        What was in flight at a disk's last completion is held to have begun no longer before that
        than the trigger's time. CLOCK_MONOTONIC, ns.
        """
        waiting = [disk.since_ns for disk in self._seen.values() if not disk.fired]
        return min(waiting) - self._stuck_ns if waiting else None
