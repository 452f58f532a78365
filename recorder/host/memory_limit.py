# SPDX-License-Identifier: Apache-2.0
"""How much memory this process may still take, maps of its BPF programs included."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.host.cgroups import mounted
from biotrail.recorder.host.device_mounts import read_lines

_UNLIMITED = 1 << 62
"""From here on a limit of cgroup v1 is none: it is the largest number of whole pages."""

_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_V2 = ("memory.max", "memory.current")


class Room(NamedTuple):
    """How many bytes may still be taken, and what limits them, for messages. May be negative."""

    bytes: int
    limit: str


def room(
    mountinfo: str = "/proc/self/mountinfo",
    own: str = "/proc/self/cgroup",
    meminfo: str = "/proc/meminfo",
) -> Room | None:
    """Return how much is left below the tightest memory limit; None: there is none that is known.

    Of this process's cgroup, those above it, and the machine. Pages of files count as free, for the
    kernel drops them first.
    """
    found = [_left(group, v2) for group, v2 in _groups(mountinfo, own)]
    for line in read_lines(meminfo):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            bytes_ = int(value.split()[0]) << 10
            found.append(Room(bytes_, "of this machine's memory are available"))
    return min((left for left in found if left is not None), default=None)


def _groups(mountinfo: str, own: str) -> Iterator[tuple[Path, bool]]:
    """Yield (directory, whether of cgroup v2) of this process's groups, the innermost first."""
    paths: dict[str, str] = {}
    for line in read_lines(own):
        _, controllers, group = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), group))
    for mount in mounted(Path(mountinfo)):
        v2 = mount.fstype == "cgroup2"
        path = paths.get("" if v2 else "memory")
        if path is None or not (v2 or "memory" in mount.options):
            continue
        root = mount.root.rstrip("/")
        if path == mount.root or path.startswith(f"{root}/"):
            directory = Path(mount.point, path[len(root) :].lstrip("/"))
            while directory.is_relative_to(mount.point):
                yield directory, v2
                directory = directory.parent


def _left(group: Path, v2: bool) -> Room | None:
    """Return how much a group may still take; None: it has no limit, or no such files."""
    names = _V2 if v2 else _V1
    try:
        limit, used = ((group / name).read_text().strip() for name in names)
        text = (group / "memory.stat").read_text()
    except OSError:
        return None
    if limit == "max" or int(limit) >= _UNLIMITED:
        return None
    sizes = dict(line.split() for line in text.splitlines())
    whole = "" if v2 else "total_"  # v1: with the groups below
    files = sum(int(sizes.get(f"{whole}{kind}_file", 0)) for kind in ("active", "inactive"))
    size = f"{int(limit) >> 20} MiB"
    return Room(int(limit) - int(used) + files, f"are left below the limit of {group}, {size}")
