# SPDX-License-Identifier: Apache-2.0
"""NVMe multipath: the hidden disks that one disk's bios go on to, which have no node in /dev.

Every disk whose controller could share it has such paths, be it only one.
"""

import os
import re
from collections.abc import Sequence

from biotrail.recorder.host.device_sysfs import REAL, Roots, dev_number, read

_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
"""nvme0c1n1 is a path of nvme0n1, by its controller 1 (nvme_mpath_set_disk_name)."""


def hidden(roots: Roots = REAL) -> dict[int, str]:
    """Sysfs directory of every path by kernel dev_t, which /proc/diskstats alone tells."""
    directories = _directories(roots)
    numbers = _numbers(roots) if directories else {}
    return {numbers[name]: path for name, path in directories.items() if name in numbers}


def _directories(roots: Roots) -> dict[str, str]:
    """Sysfs directory of every path by its name."""
    base = f"{roots.sys}/class/block"
    try:
        names = [name for name in os.listdir(base) if _PATH.fullmatch(name)]
    except OSError:
        return {}
    hidden = [name for name in names if read(f"{base}/{name}/hidden") == "1"]
    return {name: os.path.realpath(f"{base}/{name}") for name in hidden}


def _numbers(roots: Roots) -> dict[str, int]:
    """Kernel dev_t by name, of all disks; old kernels say 0 for a path's."""
    try:
        with open(f"{roots.proc}/diskstats", encoding="utf-8") as lines:
            rows = [line.split() for line in lines]
    except OSError:
        return {}
    found = {row[2]: dev_number(f"{row[0]}:{row[1]}") for row in rows if len(row) > 2}
    return {name: dev for name, dev in found.items() if dev}


def by_disk(paths: dict[int, str]) -> dict[str, list[int]]:
    """The numbers of each disk's paths, in order, by the disk's name."""
    found: dict[str, list[int]] = {}
    for dev, path in sorted(paths.items()):
        match = _PATH.fullmatch(os.path.basename(path))
        if match:
            found.setdefault(match[1] + match[2], []).append(dev)
    return found


def paths_of(disk: int, roots: Roots = REAL) -> list[int]:
    """Kernel dev_t of the paths to a disk, in order; none where it is not of NVMe multipath."""
    return by_disk(hidden(roots)).get(_name(disk, roots), [])


def _name(disk: int, roots: Roots) -> str:
    path = os.path.realpath(f"{roots.sys}/dev/block/{disk >> 20}:{disk & 0xFFFFF}")
    return os.path.basename(path)


def is_spread(disk: int, roots: Roots = REAL) -> bool:
    """Whether a disk's bios go on to paths that are not known for the whole recording.

    Several come and go; of one alone the number may not be told.
    """
    name = _name(disk, roots)
    count = len(by_disk(dict(enumerate(_directories(roots)))).get(name, []))
    return count > 1 or count > len(paths_of(disk, roots))


def with_paths(chosen: Sequence[tuple[int, int]], roots: Roots = REAL) -> list[tuple[int, int]]:
    """`chosen`, and the paths to each whole disk, by which its requests go.

    Pairs of (dev_t of the disk, dev_t of the partition or 0).
    """
    more = [(path, 0) for disk, part in chosen if not part for path in paths_of(disk, roots)]
    return list(dict.fromkeys([*chosen, *more]))
