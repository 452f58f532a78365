# SPDX-License-Identifier: Apache-2.0
"""cgroup ids to paths: the id in a Q record is the inode number of the cgroup's directory."""

import os
from dataclasses import dataclass
from pathlib import Path

_MOUNTINFO = Path("/proc/self/mountinfo")
MAX_CGROUPS = 100_000
"""No more than so many directories are read in one walk."""


@dataclass(frozen=True)
class Hierarchy:
    """Where the cgroups that block I/O is charged to can be read."""

    mount: str
    """Mount point."""
    root: str
    """Path of the hierarchy's directory that is mounted there, `/` for all of it."""


def _unescape(field: str) -> str:
    """mountinfo writes blanks, tabs, newlines and backslashes in octal."""
    return field.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")


def hierarchy(mountinfo: Path = _MOUNTINFO) -> Hierarchy | None:
    """The v1 hierarchy that has the blkio controller, else cgroup2; None when neither is mounted.

    Ids are unique in their hierarchy only, and a bio is charged in the one that holds the
    controller, so the two are never mixed.
    """
    unified: Hierarchy | None = None
    for line in mountinfo.read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind == "cgroup" and "blkio" in options.split(","):
            return Hierarchy(_unescape(fields[4]), _unescape(fields[3]))
        if kind == "cgroup2" and unified is None:
            unified = Hierarchy(_unescape(fields[4]), _unescape(fields[3]))
    return unified


def paths(where: Hierarchy | None, limit: int = MAX_CGROUPS) -> dict[int, str]:
    """{id: path from the hierarchy's root}, read from directory entries without a stat each.

    A cgroup that vanishes during the walk is left out; so is what lies beyond `limit`.
    """
    if where is None:
        return {}
    found: dict[int, str] = {}
    try:
        found[os.stat(where.mount).st_ino] = where.root
    except OSError:
        return {}
    pending = [(where.mount, where.root.rstrip("/"))]
    while pending and len(found) < limit:
        directory, name = pending.pop()
        for entry_name, inode in _directories(directory):
            found[inode] = f"{name}/{entry_name}"
            pending.append((f"{directory}/{entry_name}", f"{name}/{entry_name}"))
    return found


def _directories(directory: str) -> list[tuple[str, int]]:
    try:
        with os.scandir(directory) as entries:
            return [(e.name, e.inode()) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
