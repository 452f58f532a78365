# SPDX-License-Identifier: Apache-2.0
"""NVMe multipath: the hidden path disks that receive a disk's bios and have no node in /dev.

Every namespace that its controller could share has such paths, even if it is only one.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from biotrail.recorder.host.device_mounts import REAL, Roots
from biotrail.recorder.host.device_sysfs import read
from biotrail.recorder.schema.device_numbers import dev_number, dev_text

_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
"""nvme0c1n1 is the path to nvme0n1 through its controller 1 (nvme_mpath_set_disk_name)."""


def hidden(roots: Roots = REAL) -> dict[int, str]:
    """Return {kernel dev_t: sysfs directory} of all path disks (nvme0c1n1) with a dev_t."""
    directories = {name: os.path.realpath(path) for name, path in _paths(roots).items()}
    rows: list[list[str]] = []
    with suppress(OSError):
        if directories:
            with open(f"{roots.proc}/diskstats", encoding="utf-8") as lines:
                rows = [line.split() for line in lines]
    numbers = {row[2]: dev_number(f"{row[0]}:{row[1]}") for row in rows if len(row) > 2}
    return {dev: path for name, path in directories.items() if (dev := numbers.get(name))}


def _paths(roots: Roots) -> dict[str, str]:
    """Return {name: link in sysfs} of all path disks, also without a dev_t."""
    base = f"{roots.sys}/class/block"
    names: list[str] = []
    with suppress(OSError):
        names = [name for name in os.listdir(base) if _PATH.fullmatch(name)]
    return {n: f"{base}/{n}" for n in names if read(f"{base}/{n}/hidden") == "1"}


def by_disk(paths: dict[int, str]) -> dict[str, list[int]]:
    """Return {disk's name: sorted dev_t of its path disks}; `paths`: name or directory by dev_t."""
    found: dict[str, list[int]] = {}
    for dev, path in sorted(paths.items()):
        match = _PATH.fullmatch(os.path.basename(path))
        if match:
            found.setdefault(match[1] + match[2], []).append(dev)
    return found


def paths_of(disk: int, roots: Roots = REAL) -> list[int]:
    name = os.path.basename(os.path.realpath(f"{roots.sys}/dev/block/{dev_text(disk)}"))
    return by_disk(hidden(roots)).get(name, [])


def is_spread(disk: int, roots: Roots = REAL) -> bool:
    """Return whether a disk's bios may go to path disks that are not known while recording.

    True with several paths, which may come and go, and where a path's dev_t is not reported.
    """
    name = os.path.basename(os.path.realpath(f"{roots.sys}/dev/block/{dev_text(disk)}"))
    count = len(by_disk(dict(enumerate(_paths(roots)))).get(name, []))
    return count > 1 or count > len(paths_of(disk, roots))


def with_paths(chosen: Sequence[tuple[int, int]], roots: Roots = REAL) -> list[tuple[int, int]]:
    """Return `chosen` and the path disks of each whole disk in it, which have its requests."""
    more = [(path, 0) for disk, part in chosen if not part for path in paths_of(disk, roots)]
    return list(dict.fromkeys([*chosen, *more]))
