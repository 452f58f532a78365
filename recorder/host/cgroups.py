# SPDX-License-Identifier: Apache-2.0
"""Maps cgroup ids to paths: the id in a Q record is the inode of the cgroup's directory."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from biotrail.recorder.host.device_mounts import Mount, parse_mount, read_lines

_MOUNTINFO = Path("/proc/self/mountinfo")
MAX_CGROUPS = 100_000
"""Most cgroups that one walk reads."""


def hierarchy(mountinfo: Path = _MOUNTINFO) -> Mount | None:
    """Return the hierarchy that block I/O is charged in; None: none is mounted.

    That is the v1 hierarchy with the blkio controller or, where none is mounted, cgroup2; of
    several mounts the first. Ids are unique within one hierarchy only, so the two are never mixed.
    """
    for mount in mounted(mountinfo):
        if mount.fstype == "cgroup" and "blkio" in mount.options:
            return mount
    return unified(mountinfo)


def unified(mountinfo: Path = _MOUNTINFO) -> Mount | None:
    """Return the mounted hierarchy of cgroup v2; None: none is mounted."""
    return next((mount for mount in mounted(mountinfo) if mount.fstype == "cgroup2"), None)


def mounted(mountinfo: Path = _MOUNTINFO) -> Iterator[Mount]:
    """Yield the mounts of cgroup hierarchies of both versions."""
    for line in read_lines(str(mountinfo)):
        mount = parse_mount(line)
        if mount is not None and mount.fstype in ("cgroup", "cgroup2"):
            yield mount


def number(own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the kernel's number of the hierarchy that block I/O is charged in; 0: of cgroup2."""
    for line in read_lines(str(own)):
        hierarchy_number, _, rest = line.partition(":")
        if "blkio" in rest.partition(":")[0].split(",") and hierarchy_number.isdecimal():
            return int(hierarchy_number)
    return 0


def paths(where: Mount | None, limit: int = MAX_CGROUPS) -> dict[int, str]:
    """Return {cgroup id: path from the hierarchy's root}, by walking the directories.

    The id is the inode number of the cgroup's directory; there is no stat() of each. The walk stops
    after the directory with which at least `limit` cgroups are found.
    """
    if where is None:
        return {}
    found: dict[int, str] = {}
    try:
        found[os.stat(where.point).st_ino] = where.root
    except OSError:
        return {}
    pending = [(where.point, where.root.rstrip("/"))]
    while pending and len(found) < limit:
        directory, name = pending.pop()
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found[entry.inode()] = f"{name}/{entry.name}"
                    pending.append((entry.path, f"{name}/{entry.name}"))
    return found
