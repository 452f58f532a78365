# SPDX-License-Identifier: Apache-2.0
"""Filters by I/O: the user's options, and the ids and numbers that this machine has for them.

The kernel side (`bpf/filters.h`) judges every bio when it is queued (Q). A bio is recorded if it
matches every kind of filter that is given, and for each kind any of the values given.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from biotrail.recorder.host import cgroups, device_paths, devices
from biotrail.recorder.host.own_io import pid_namespace
from biotrail.recorder.rights import rights
from biotrail.recorder.schema.cgroup_names import NamedCgroups
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import FilterFacts

MAX_FOLLOWED = 65536
"""Default size of the kernel's table of bios in flight that matched (bpf/follow.h)."""

_ALIASES = {"ra": "RAHEAD", "readahead": "RAHEAD"}


@dataclass(frozen=True)
class Filters:
    """The filters by I/O that the user gave, except for the devices. Empty: no filter.

    pids, tids: processes and threads, by the host's numbers. ops: operations by name.
    flags: sets of request flags by name, such as ("sync", "meta") for bios that have both.
    sectors: (first, last) 512-byte sector of the disk, both inclusive.
    min_bytes: smallest length of a bio that is recorded; 0: any.
    """

    pids: tuple[int, ...] = ()
    children: bool = False
    """Record the descendants of `pids` too."""
    tids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    """Thread names (comm); a star at the end matches any rest."""
    cgroups: tuple[str, ...] = ()
    """Paths of cgroups, each of which includes its descendants. With the next three one filter:
    a bio of any of these cgroups matches."""
    units: tuple[str, ...] = ()
    """Units of systemd, wherever their cgroups are; these three as in NamedCgroups."""
    containers: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths of files. With `dirs` one filter: a bio of any of these files matches."""
    dirs: tuple[str, ...] = ()
    """Paths of directories, each of which includes all files below it."""
    ops: tuple[str, ...] = ()
    flags: tuple[tuple[str, ...], ...] = ()
    min_bytes: int = 0
    sectors: tuple[tuple[int, int], ...] = ()
    below: bool = False
    """Record the devices below the named ones too: those that they are stacked on."""
    own_io: bool = False
    """Record the recorder's own I/O also where there is a filter by I/O, which else excludes it."""
    max_followed: int = MAX_FOLLOWED
    """Entries in the kernel's table of bios in flight that matched."""

    @property
    def named(self) -> NamedCgroups:
        return NamedCgroups(self.units, self.containers, self.pods)

    @property
    def by_cgroup(self) -> bool:
        """Whether cgroups are given, by path or by what they are."""
        return bool(self.cgroups or self.named)

    @property
    def judge_bios(self) -> bool:
        """Whether each bio has to be judged, by its properties or its task."""
        by_task = self.pids or self.tids or self.comms or self.by_cgroup
        by_itself = self.ops or self.flags or self.min_bytes or self.sectors
        return bool(by_task or by_itself or self.files or self.dirs)

    def header(self) -> FilterFacts:
        """Return the filters as JSON for the log's header; one that is not given has no key.

        Each is under its attribute's name: tuples as lists, a set of flags as their names joined by
        "+". `max_followed` is not included.
        """
        given: dict[str, Any] = {
            **vars(self),
            "flags": ["+".join(names) for names in self.flags],
            "sectors": [list(pair) for pair in self.sectors],
        }
        del given["max_followed"]
        facts = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value
        }
        return cast(FilterFacts, facts)


def check_tasks(filters: Filters) -> None:
    """Raise ProbeError where a process or thread of `filters` (pids, tids) does not exist.

    Also for one that /proc hides (hidepid=), for a pid that is no process's (tgid) but a thread's,
    and, first, where this is a container with a pid namespace of its own: the kernel side compares
    the host's numbers.
    """
    if not filters.pids and not filters.tids:
        return
    if pid_namespace() is not None:
        raise ProbeError(
            "--pid and --tid are the host's numbers, and this is a container with numbers of its "
            "own: run biotrail on the host (or with its process namespace), or use --cgroup"
        )
    for number in filters.pids:
        try:
            with open(f"/proc/{number}/status", errors="replace") as status:
                tgid = next(line for line in status if line.startswith("Tgid:"))
        except (OSError, StopIteration):  # it has ended
            raise ProbeError(f"--pid {number}: there is no such process{_seen()}") from None
        process = int(tgid.split()[1])
        if process != number:
            raise ProbeError(
                f"--pid {number}: this is a thread of process {process}: give --pid {process} for "
                f"all its threads, or --tid {number}"
            )
    for number in filters.tids:
        if not os.path.exists(f"/proc/{number}"):
            raise ProbeError(f"--tid {number}: there is no such thread{_seen()}")


def _seen() -> str:
    if rights.sees_all_processes():
        return ""
    return ", or it is another user's: /proc hides those here (hidepid=), so run as root"


def descendants(pids: Sequence[int], proc: Path = Path("/proc")) -> set[int]:
    """Return the pids of all running descendants of `pids`, without `pids` themselves.

    In one pass over /proc: those started meanwhile may be missing. A pid that has ended is no
    error, but its children then have another parent.
    """
    parents = {}
    for name in os.listdir(proc):
        # In `stat` the name, in parentheses, may hold blanks and parentheses itself.
        with suppress(OSError, IndexError, ValueError):  # it has ended
            text = (proc / name / "stat").read_text(errors="replace")
            parents[int(name)] = int(text.rpartition(")")[2].split()[1])
    children: set[int] = set()
    while True:
        more = {c for c, p in parents.items() if p in children or p in pids} - children
        if not more:
            return children - set(pids)
        children |= more


def cgroup_id(path: str, where: cgroups.Hierarchy | None) -> int:
    """Return a cgroup's id: its directory's inode. path: in the hierarchy, or of the directory."""
    if where is None:
        raise ProbeError(f"--cgroup {path}: no cgroup hierarchy is mounted here")
    directory = _cgroup_directory(path, where)
    if directory is None:
        raise ProbeError(
            f"--cgroup {path}: there is no such cgroup below {where.mount}; "
            "name it as /proc/PID/cgroup does, or by its directory"
        )
    try:
        number = directory.stat().st_ino
        refuse_uncharged(f"--cgroup {path}", directory, where)
    except OSError as error:
        raise ProbeError(
            f"--cgroup {path}: {directory} cannot be read: {error.strerror}; "
            "name a cgroup that exists for as long as the recording"
        ) from error
    return number


def refuse_uncharged(option: str, directory: Path, where: cgroups.Hierarchy) -> None:
    """Raise ProbeError where I/O is not charged to the cgroup of `option`; raises OSError."""
    root = os.path.realpath(directory) == os.path.realpath(where.mount)
    controllers = directory / "cgroup.controllers"
    if not root and controllers.exists() and "io" not in controllers.read_text().split():
        raise ProbeError(
            f"{option}: its I/O is charged to a cgroup above it, for it has no io "
            f"controller: echo +io > {directory.parent}/cgroup.subtree_control"
        )


def _cgroup_directory(path: str, where: cgroups.Hierarchy) -> Path | None:
    """Return a cgroup's directory below the mount point; path: also with `where.root` in front."""
    mount = os.path.realpath(where.mount)
    inside = path
    if where.root != "/" and (path + "/").startswith(where.root.rstrip("/") + "/"):
        inside = path[len(where.root) :]
    for candidate in (path, f"{mount}/{inside.lstrip('/')}"):
        real = os.path.realpath(candidate)
        if os.path.isdir(real) and (real + "/").startswith(mount + "/"):
            return Path(real)
    return None


def masks(names: Sequence[str], kernel_numbers: Mapping[str, int], option: str) -> list[int]:
    """Return numbers of operations or flags, in any case, with "-" or "_". Raises ProbeError."""
    numbers = []
    for name in names:
        wanted = _ALIASES.get(name.lower(), name.upper().replace("-", "_"))
        if wanted not in kernel_numbers:
            have = ", ".join(sorted(n.lower() for n in kernel_numbers))
            raise ProbeError(f"{option} {name}: this kernel knows {have}")
        numbers.append(kernel_numbers[wanted])
    return numbers


def with_below(chosen: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return `chosen`, then every device below them level by level; each pair once.

    Below a device are those it is stacked on (dm, md, the paths of NVMe multipath) and, for a loop
    device, the device with its file. Devices are pairs (dev_t of the disk, dev_t of the partition
    or 0 for the whole disk); what a partition's disk is stacked on counts as below the partition,
    but the disk itself does not.
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
    """Return whether the disk is stacked on others, so that its bios may end on those.

    A loop device is not. An NVMe multipath disk counts only if `device_paths.is_spread`.
    """
    try:
        below = os.listdir(f"/sys/dev/block/{dev_text(disk)}/slaves")
    except OSError:
        below = []
    return bool(below) or device_paths.is_spread(disk)
