# SPDX-License-Identifier: Apache-2.0
"""What kept threads from running beside each other: quotas of cgroups, and the hypervisor."""

import itertools
import os
import time
from pathlib import Path

from biotrail.recorder.host import cgroups
from biotrail.recorder.notes.hotplug import Schedule, Watch
from biotrail.recorder.schema.payloads import CpusNote

PERIOD_NS = 500_000_000
_WALK_NS = 10_000_000_000
_MOST = 256
"""Cgroups with a quota that are watched."""
_MOST_WALKED = 4096
_MOST_MEMBERS = 1024
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
_STEAL = 8
"""Word of the line `cpu` of /proc/stat (proc(5))."""


class CpuWatch(Watch):
    """Samples of /proc/stat and of cgroups' cpu.stat; used by the writer thread alone."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        super().__init__(PERIOD_NS)
        self._proc = proc
        self._walked = Schedule(_WALK_NS)
        self._root = hierarchy(proc)
        self._groups = self._find()
        self._since = time.monotonic_ns()
        self._steal = self._stolen()
        self._throttled = {group: _throttled(group) for group in self._groups}

    def changes(self) -> CpusNote | None:
        began = time.monotonic_ns()
        if self._walked.due(began):
            self._groups = self._find()
            self._walked.schedule_next(began)
        steal = self._stolen()
        now = {group: _throttled(group) for group in self._groups}
        grown = {
            "/" + str(group.relative_to(self._root)): ns - self._throttled.get(group, ns)
            for group, ns in now.items()
            if self._root is not None and ns > self._throttled.get(group, ns)
        }
        note: CpusNote = {
            "from": self._since,
            "to": began,
            "steal_ns": max(steal - self._steal, 0),
            "throttled_ns": grown,
            "pids": {name: _members(self._root / name[1:]) for name in grown if self._root},
        }
        self._since, self._steal, self._throttled = began, steal, now
        self.schedule_next(began)
        return note if note["steal_ns"] or grown else None

    def _stolen(self) -> int:
        """Return the ns for which the hypervisor ran others than this machine's CPUs, summed."""
        try:
            first = (self._proc / "stat").read_text().partition("\n")[0].split()
            return int(first[_STEAL]) * _TICK_NS
        except (OSError, ValueError, IndexError):
            return 0

    def _find(self) -> list[Path]:
        found: list[Path] = []
        walk = os.walk(self._root) if self._root is not None else ()
        for directory, below, _ in itertools.islice(walk, _MOST_WALKED):
            below.sort()
            group = Path(directory)
            second, first = _read(group / "cpu.max"), _read(group / "cpu.cfs_quota_us")
            has_quota = (second and not second.startswith("max")) or (first and int(first) > 0)
            if has_quota and len(found) < _MOST:
                found.append(group)
        return found


def hierarchy(proc: Path) -> Path | None:
    """Return where the cgroups with the controller cpu are mounted; None: nowhere."""
    for mount in cgroups.mounted(proc / "self" / "mountinfo"):
        point = Path(mount.point)
        v2 = mount.fstype == "cgroup2"
        if "cpu" in (_read(point / "cgroup.controllers").split() if v2 else mount.options):
            return point
    return None


def _members(group: Path) -> list[int]:
    found: list[int] = []
    for directory, _, _ in itertools.islice(os.walk(group), _MOST):
        found += [int(pid) for pid in _read(Path(directory) / "cgroup.procs").split()]
        if len(found) >= _MOST_MEMBERS:
            break
    return found[:_MOST_MEMBERS]


def _throttled(group: Path) -> int:
    """Return for how long a cgroup's quota held its threads, ns, summed over CPUs."""
    counts = dict(line.split() for line in _read(group / "cpu.stat").splitlines())
    if "throttled_usec" in counts:
        return int(counts["throttled_usec"]) * 1000
    return int(counts.get("throttled_time", 0))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
