# SPDX-License-Identifier: Apache-2.0
"""Reads mount points of block devices from mountinfo, swaps and btrfs's lists of devices."""

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass

from biotrail.recorder.schema.device_numbers import dev_number, kernel_dev

_ESCAPE = re.compile(r"\\([0-7]{3})")


def block_number(path: str) -> int | None:
    """Return the kernel dev_t of the block device node at `path`; None: it is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return kernel_dev(status.st_rdev) if stat.S_ISBLK(status.st_mode) else None


@dataclass(frozen=True)
class Roots:
    """Where sysfs, /dev and procfs are mounted; tests use other directories."""

    sys: str = "/sys"
    dev: str = "/dev"
    proc: str = "/proc"
    number: Callable[[str], int | None] = block_number


REAL = Roots()


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo(5).

    st_dev: kernel dev_t (major << 20 | minor) that stat() reports for files of the mount.
    root: directory of the file system that is mounted at `point`. source: usually the device.
    options: those of the super block, such as "rw", and the controllers of a cgroup hierarchy.
    """

    st_dev: int
    point: str
    fstype: str
    source: str
    root: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mounts:
    """Mount points by device, and devices by file system; devices are kernel dev_t."""

    points: dict[int, list[str]]
    """Device → mount points, in the order of mounting; "[SWAP]" for swap space."""
    devices: dict[int, list[int]]
    """st_dev → the file system's block devices."""
    st_devs: dict[str, int]
    """Mount point → st_dev of the newest mount there."""


def read_mounts(roots: Roots, block_devices: set[int]) -> Mounts:
    """Return the host's mounts, and the swap space in use as the mount point "[SWAP]".

    `block_devices`: dev_t of all.
    """
    points: dict[int, dict[str, None]] = {}  # dicts as sets in order
    devices: dict[int, dict[int, None]] = {}
    st_devs: dict[str, int] = {}
    pools = _btrfs_pools(roots.sys)
    for mount in filter(None, map(parse_mount, host_mounts(roots.proc))):
        st_devs[mount.point] = mount.st_dev
        for dev in _devices(mount, block_devices, roots, pools):
            devices.setdefault(mount.st_dev, {})[dev] = None
            points.setdefault(dev, {})[mount.point] = None
    for line in read_lines(f"{roots.proc}/swaps")[1:]:
        swap = roots.number(unescape(re.split("[ \t]", line)[0])) if line else None
        if swap is not None:
            points.setdefault(swap, {})["[SWAP]"] = None
    return Mounts(
        {dev: list(there) for dev, there in points.items()},
        {st_dev: list(below) for st_dev, below in devices.items()},
        st_devs,
    )


def host_mounts(proc: str) -> list[str]:
    """Return lines of mountinfo(5): the first process's, then this one's of other file systems.

    In a container with the host's process numbers the first process's are the host's.
    """
    first, own = (read_lines(f"{proc}/{who}/mountinfo") for who in ("1", "self"))
    known = {line.split(" ")[2] for line in first if line.count(" ") > 2}
    return first + [line for line in own if line.count(" ") <= 2 or line.split(" ")[2] not in known]


def parse_mount(line: str) -> Mount | None:
    """Return the mount of a line of mountinfo(5); None where the line is malformed."""
    left, dash, right = line.partition(" - ")
    fields, rest = left.split(" "), right.split(" ")
    if not dash or len(fields) < 5 or len(rest) < 2:
        return None
    st_dev = dev_number(fields[2])
    if st_dev is None:
        return None
    point, root = unescape(fields[4]), unescape(fields[3])
    options = tuple(rest[2].split(",")) if len(rest) > 2 else ()
    return Mount(st_dev, point, rest[0], unescape(rest[1]), root, options)


def mount_id(fd: int, proc: str = "/proc") -> str:
    """Return the number, as in mountinfo, of the mount that an open file is on; "": not known."""
    lines = read_lines(f"{proc}/self/fdinfo/{fd}")
    return next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")


def unescape(text: str) -> str:
    r"""Return a path with the kernel's octal escapes (\040 for a space) decoded."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _devices(
    mount: Mount, block_devices: set[int], roots: Roots, pools: list[set[int]]
) -> list[int]:
    """Return the block devices (dev_t) of a mounted file system; empty where it has none."""
    if mount.st_dev in block_devices:
        return [mount.st_dev]
    # The st_dev of btrfs and bcachefs belongs to no device; their source is one of their devices,
    # or all of them with colons between.
    if not mount.source.startswith("/"):
        return []
    parts = map(roots.number, mount.source.split(":"))
    named = [dev for dev in parts if dev is not None]
    for pool in pools:
        if not pool.isdisjoint(named):
            return sorted(pool)
    return named


def _btrfs_pools(sys: str) -> list[set[int]]:
    """Return the devices (dev_t) of each mounted btrfs that has any."""
    pools = []
    root = f"{sys}/fs/btrfs"
    for uuid in listed(root):
        pool = set[int]()
        for name in listed(f"{root}/{uuid}/devices"):
            text = "".join(read_lines(f"{root}/{uuid}/devices/{name}/dev")).strip()
            if (dev := dev_number(text)) is not None:
                pool.add(dev)
        if pool:
            pools.append(pool)
    return pools


def listed(directory: str) -> list[str]:
    """Return the sorted names in a directory; none where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def read_lines(path: str) -> list[str]:
    """Return the lines of the file at `path`, without line feeds; none where it cannot be read.

    Only a line feed ends a line: the kernel escapes it in paths, but not the other characters that
    Python takes for ends of lines. Bytes that are no UTF-8 become surrogate escapes.
    """
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
            return text.removesuffix("\n").split("\n") if text else []
    except OSError:
        return []
