# SPDX-License-Identifier: Apache-2.0
"""Which block devices are mounted where, from mountinfo, swaps and btrfs's list of devices."""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo(5). `st_dev`: kernel dev_t that stat shows for files in it.

    `root`: the directory of the file system that is mounted at `point`.
    """

    st_dev: int
    point: str
    fstype: str
    source: str
    root: str


@dataclass
class Mounts:
    """Mount points by device and devices by file system, as kernel dev_t."""

    points: dict[int, list[str]] = field(default_factory=dict)
    """Device → mount points, in the order of mounting; "[SWAP]" where it is swapped to."""
    devices: dict[int, list[int]] = field(default_factory=dict)
    """st_dev → the file system's block devices."""
    at: dict[str, int] = field(default_factory=dict)
    """Mount point → st_dev of what is mounted there last."""

    def devices_of(self, st_dev: int) -> list[int]:
        """Block devices of the file system whose files show `st_dev`; none: no block device."""
        return self.devices.get(st_dev, [])

    def add(self, mount: Mount, devices: Iterable[int]) -> None:
        """Take in one mount of a file system on `devices`."""
        self.at[mount.point] = mount.st_dev
        for dev in devices:
            known = self.devices.setdefault(mount.st_dev, [])
            if dev not in known:
                known.append(dev)
            self.add_point(dev, mount.point)

    def add_point(self, dev: int, point: str) -> None:
        """Note that `dev` is used at `point`."""
        points = self.points.setdefault(dev, [])
        if point not in points:
            points.append(point)


def read_mounts(
    sys: str, proc: str, known: set[int], number: Callable[[str], int | None]
) -> Mounts:
    """Read the mounts of this process's namespace.

    `known`: dev_t of all block devices; `number`: gives the dev_t of a block device's node.
    """
    found = Mounts()
    pools = _btrfs_pools(sys)
    for line in _lines(f"{proc}/self/mountinfo"):
        mount = parse_mount(line)
        if mount is not None:
            found.add(mount, _devices(mount, known, number, pools))
    for line in _lines(f"{proc}/swaps")[1:]:
        dev = number(unescape(line.split()[0])) if line.strip() else None
        if dev is not None:
            found.add_point(dev, "[SWAP]")
    return found


def parse_mount(line: str) -> Mount | None:
    """Parse one line of mountinfo(5); None where it has not its form."""
    left, dash, right = line.partition(" - ")
    fields, rest = left.split(), right.split(" ")
    if not dash or len(fields) < 5 or len(rest) < 2:
        return None
    major, _, minor = fields[2].partition(":")
    if not (major.isdecimal() and minor.isdecimal()):
        return None
    st_dev = int(major) << 20 | int(minor)
    point, root = unescape(fields[4]), unescape(fields[3])
    return Mount(st_dev, point, rest[0], unescape(rest[1]), root)


def unescape(text: str) -> str:
    r"""Decode the \040 and the like that the kernel writes for white space in paths."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _devices(
    mount: Mount,
    known: set[int],
    number: Callable[[str], int | None],
    pools: list[set[int]],
) -> list[int]:
    if mount.st_dev in known:
        return [mount.st_dev]
    # btrfs and bcachefs show a number that belongs to no device; their source names one of
    # their devices, or all with colons between.
    if not mount.source.startswith("/"):
        return []
    named = [dev for part in mount.source.split(":") if (dev := number(part)) is not None]
    for pool in pools:
        if not pool.isdisjoint(named):
            return sorted(pool)
    return named


def _btrfs_pools(sys: str) -> list[set[int]]:
    """Devices of each mounted btrfs (/sys/fs/btrfs/UUID/devices)."""
    pools = []
    root = f"{sys}/fs/btrfs"
    for uuid in _names(root):
        pool = set[int]()
        for name in _names(f"{root}/{uuid}/devices"):
            text = "".join(_lines(f"{root}/{uuid}/devices/{name}/dev")).strip()
            major, _, minor = text.partition(":")
            if major.isdecimal() and minor.isdecimal():
                pool.add(int(major) << 20 | int(minor))
        if pool:
            pools.append(pool)
    return pools


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []
