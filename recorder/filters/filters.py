# SPDX-License-Identifier: Apache-2.0
"""Which I/O to record, as the user says it, and what this machine makes of it.

The kernel side (`bpf/filters.h`) judges every bio when it is queued. Of one kind of filter any
may match; every kind that is given must.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from biotrail.recorder.host import cgroups, device_paths, devices
from biotrail.recorder.host.own_io import pid_namespace
from biotrail.recorder.rights import rights
from biotrail.recorder.schema.errors import ProbeError

REASONS = ("device", "op", "flags", "min_size", "sectors", "pid", "tid", "comm", "cgroup", "no_bio")
"""Why a bio was left out, in the order of enum bt_reason (bpf/filters.h)."""

TABLE_FULL = len(REASONS)
"""The reason after them: wanted, but there was no room to follow it."""

OWN = "own"
BY_OWN = TABLE_FULL + 1
"""The reason after that: wanted, but the recorder's own I/O."""

MAX_FOLLOWED = 65536
"""Bios in flight that can be followed, unless told otherwise."""

_ALIASES = {"ra": "RAHEAD", "readahead": "RAHEAD"}


@dataclass(frozen=True)
class Filters:
    """Filters by I/O, but for the devices. Empty: everything is recorded.

    flags: sets of request flags by name, such as ("sync", "meta") for bios that have both.
    sectors: (first, last) 512-byte sector of the disk, both included. min_bytes: of a bio.
    """

    pids: tuple[int, ...] = ()
    children: bool = False
    """The processes that those of `pids` start are recorded too."""
    tids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    """Task names; a star at the end stands for any rest."""
    cgroups: tuple[str, ...] = ()
    """Paths of cgroups, with all below them."""
    ops: tuple[str, ...] = ()
    flags: tuple[tuple[str, ...], ...] = ()
    min_bytes: int = 0
    sectors: tuple[tuple[int, int], ...] = ()
    below: bool = False
    """The devices under the named ones are recorded too."""
    own_io: bool = False
    """The recorder's own I/O is not left out where anything else is filtered by I/O."""
    max_followed: int = MAX_FOLLOWED

    @property
    def judge_bios(self) -> bool:
        """Whether anything but the device decides."""
        return bool(
            self.pids
            or self.tids
            or self.comms
            or self.cgroups
            or self.ops
            or self.flags
            or self.min_bytes
            or self.sectors
        )

    def header(self) -> dict[str, Any]:
        """What was asked for, for the log's header: an absent key is a filter not given."""
        given: dict[str, Any] = {
            "pids": list(self.pids),
            "children": self.children,
            "tids": list(self.tids),
            "comms": list(self.comms),
            "cgroups": list(self.cgroups),
            "ops": list(self.ops),
            "flags": ["+".join(names) for names in self.flags],
            "min_bytes": self.min_bytes,
            "sectors": [list(pair) for pair in self.sectors],
            "below": self.below,
            "own_io": self.own_io,
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class LeftOut:
    """What the filters left out: bios by the filter that did not want them, events by kind.

    unfollowed: bios that were wanted and found no room in the table of bios in flight.
    """

    bios: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[int, int] = field(default_factory=dict)
    unfollowed: int = 0

    def account(self) -> dict[str, Any]:
        """For the log's end."""
        return {
            "bios": dict(self.bios),
            "events": {str(kind): count for kind, count in self.events.items()},
            "unfollowed": self.unfollowed,
        }


@runtime_checkable
class Filtering(Protocol):
    """A backend that filters, and counts what it left out."""

    def left_out(self) -> LeftOut:
        """Running totals."""


def left_out(probes: object) -> LeftOut:
    """What a backend's filters left out so far; nothing where it does not filter."""
    return probes.left_out() if isinstance(probes, Filtering) else LeftOut()


def read_left_out(bios: Sequence[int], events: Sequence[int]) -> LeftOut:
    """From the counters of `bpf/ring.h`: by reason, by record kind."""
    by_reason = {**dict(zip(REASONS, bios, strict=False)), OWN: bios[BY_OWN]}
    return LeftOut(
        {name: count for name, count in by_reason.items() if count},
        {kind: count for kind, count in enumerate(events) if count},
        bios[TABLE_FULL],
    )


def check_tasks(filters: Filters) -> None:
    """Raises ProbeError where a process or thread is not there, or is numbered otherwise here."""
    if not filters.pids and not filters.tids:
        return
    if pid_namespace() is not None:
        raise ProbeError(
            "--pid and --tid are the host's numbers, and this is a container with numbers of its "
            "own: run biotrail on the host (or with its process namespace), or use --cgroup"
        )
    for number in filters.pids:
        if not os.path.exists(f"/proc/{number}/task/{number}"):
            raise ProbeError(f"--pid {number}: there is no such process{_seen()}")
    for number in filters.tids:
        if not os.path.exists(f"/proc/{number}"):
            raise ProbeError(f"--tid {number}: there is no such thread{_seen()}")


def _seen() -> str:
    if rights.sees_all_processes():
        return ""
    return ", or it is another user's: /proc hides those here (hidepid=), so run as root"


def descendants(pids: Sequence[int], proc: Path = Path("/proc")) -> set[int]:
    """Processes that descend from `pids`, as they are now; those themselves are not included."""
    parents = {}
    for name in os.listdir(proc):
        if name.isdecimal() and (parent := _parent(proc / name / "stat")) is not None:
            parents[int(name)] = parent
    found: set[int] = set()
    while True:
        more = {c for c, p in parents.items() if p in found or p in pids} - found
        if not more:
            return found - set(pids)
        found |= more


def _parent(stat: Path) -> int | None:
    try:
        # The name, in parentheses, may hold anything.
        return int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):  # it has ended
        return None


def cgroup_id(path: str, where: cgroups.Hierarchy | None) -> int:
    """Id of the cgroup at `path`: of the hierarchy (`/a/b`, `a/b`) or of its directory.

    Raises ProbeError where there is none, or block I/O is not charged to it.
    """
    if where is None:
        raise ProbeError(f"--cgroup {path}: no cgroup hierarchy is mounted here")
    directory = _cgroup_directory(path, where)
    if directory is None:
        raise ProbeError(
            f"--cgroup {path}: there is no such cgroup below {where.mount}; "
            "name it as /proc/PID/cgroup does, or by its directory"
        )
    controllers = directory / "cgroup.controllers"
    root = os.path.realpath(directory) == os.path.realpath(where.mount)
    if not root and controllers.exists() and "io" not in controllers.read_text().split():
        raise ProbeError(
            f"--cgroup {path}: its I/O is charged to a cgroup above it, for it has no io "
            f"controller: echo +io > {directory.parent}/cgroup.subtree_control"
        )
    return directory.stat().st_ino


def _cgroup_directory(path: str, where: cgroups.Hierarchy) -> Path | None:
    mount = os.path.realpath(where.mount)
    inside = path
    if where.root != "/" and (path + "/").startswith(where.root.rstrip("/") + "/"):
        inside = path[len(where.root) :]
    for candidate in (path, f"{mount}/{inside.lstrip('/')}"):
        real = os.path.realpath(candidate)
        if os.path.isdir(real) and (real + "/").startswith(mount + "/"):
            return Path(real)
    return None


def masks(names: Sequence[str], known: Mapping[str, int], option: str) -> list[int]:
    """Numbers of operations or flags by name, as this kernel has them. Raises ProbeError."""
    found = []
    for name in names:
        wanted = _ALIASES.get(name.lower(), name.upper().replace("-", "_"))
        if wanted not in known:
            have = ", ".join(sorted(n.lower() for n in known))
            raise ProbeError(f"{option} {name}: this kernel knows {have}")
        found.append(known[wanted])
    return found


def with_below(chosen: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """`chosen` and every device under them: what they stand on, and the disk below a loop's file.

    Pairs of (dev_t of the disk, dev_t of the partition or 0).
    """
    entries = {int(e["dev"]): e for e in devices.snapshot()}
    pending, found = list(chosen), []
    while pending:
        pair = pending.pop(0)
        if pair in found:
            continue
        found.append(pair)
        entry = entries.get(pair[0], {})
        backing = entry.get("loop", {}).get("backing_dev")
        below = [*entry.get("stacked_on", []), *([backing] if backing is not None else [])]
        for dev in below:
            disk = int(entries.get(dev, {}).get("disk", dev))
            pending.append((disk, 0 if disk == dev else dev))
    return found


def is_stacked(disk: int) -> bool:
    """Whether a disk stands on others, so that its bios may end on one of those.

    The only path of an NVMe disk is recorded with it.
    """
    try:
        below = os.listdir(f"/sys/dev/block/{disk >> 20}:{disk & 0xFFFFF}/slaves")
    except OSError:
        below = []
    return bool(below) or device_paths.is_spread(disk)
