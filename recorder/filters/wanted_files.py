# SPDX-License-Identifier: Apache-2.0
"""The files and directories of --file and --dir, as the kernel side knows them by their inodes."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host.device_mounts import Mount, parse_mount, read_lines
from biotrail.recorder.host.own_io import read_generation
from biotrail.recorder.schema.device_numbers import kernel_dev
from biotrail.recorder.schema.errors import ProbeError

_SUBVOLUMES = "btrfs"


class Wanted(NamedTuple):
    """A file whose bios are recorded, or a directory with all files below it.

    dev: st_dev of stat(), as kernel dev_t; on btrfs that of the subvolume. generation: of the
    inode; None: its file system does not report it, or the file may not be opened for reading.
    """

    inode: int
    dev: int
    directory: bool
    generation: int | None


def wanted_files(filters: Filters, subvolumes: bool, proc: Path = Path("/proc")) -> list[Wanted]:
    """Return what `filters.files` and `filters.dirs` name, each once, in the order given.

    Links are followed. A directory stands for what is mounted below it too, as it is now: mounts
    are returned as directories of their own (or files, where a file is mounted). `subvolumes`:
    whether the kernel side can tell subvolumes of btrfs apart; `proc`: where procfs is mounted.

    Raises ProbeError: a path that does not exist or cannot be looked at; a file that is no regular
    one, a directory that is none; a path on a file system without a block device (overlay, tmpfs,
    NFS), unless it is a directory with mounts that have one below; btrfs, where subvolumes cannot
    be told apart.
    """
    mounts = _mounts(proc)
    found = [_file(path, mounts, subvolumes, proc) for path in filters.files]
    for path in filters.dirs:
        found += _directory(path, mounts, subvolumes, proc)
    return list(dict.fromkeys(found))


class _Place(NamedTuple):
    """What a path names. fstype: of its file system, "" where that is not known."""

    wanted: Wanted
    fstype: str


def _file(path: str, mounts: "_Mounts", subvolumes: bool, proc: Path) -> Wanted:
    place = _look(path, "--file", False, mounts, proc)
    if place.fstype in mounts.without_device:
        raise ProbeError(f"--file {path}: {_elsewhere(place.fstype)}")
    _refuse_subvolumes(f"--file {path}", place.fstype, subvolumes)
    return place.wanted


def _directory(path: str, mounts: "_Mounts", subvolumes: bool, proc: Path) -> list[Wanted]:
    """Return a directory, unless its file system has no block device, and what is mounted below it.

    Mounts that are hidden by another or gone are left out.
    """
    place = _look(path, "--dir", True, mounts, proc)
    found = [] if place.fstype in mounts.without_device else [place]
    above = os.path.realpath(path).rstrip("/") + "/"
    for mount in mounts.by_id.values():
        if mount.point.startswith(above) and mount.fstype not in mounts.without_device:
            with suppress(ProbeError):  # hidden by another mount, or gone
                inside = _look(mount.point, "--dir", None, mounts, proc)
                found += [] if inside.fstype in mounts.without_device else [inside]
    if not found:
        raise ProbeError(f"--dir {path}: {_elsewhere(place.fstype)}")
    for one in found:
        _refuse_subvolumes(f"--dir {path}", one.fstype, subvolumes)
    return [one.wanted for one in found]


def _elsewhere(fstype: str) -> str:
    return (
        f"its file system ({fstype}) has no block device of its own: name the files or the "
        "directory of the file system that does the I/O"
    )


def _refuse_subvolumes(option: str, fstype: str, subvolumes: bool) -> None:
    if fstype == _SUBVOLUMES and not subvolumes:
        raise ProbeError(
            f"{option}: it is on btrfs, whose subvolumes this kernel does not let programs tell "
            "apart (it has no types of the module btrfs: they are there since Linux 5.11)"
        )


def _look(path: str, option: str, directory: bool | None, mounts: "_Mounts", proc: Path) -> _Place:
    """Return what is at `path`, links followed; its `fstype` is "" where its mount is not known.

    directory: whether it shall be a directory, else a regular file; None: either.
    """
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        pattern = "; it takes a path, no pattern" if set(path) & set("*?[") else ""
        raise ProbeError(f"{option} {path}: {error.strerror}{pattern}") from error
    try:
        status = os.fstat(handle)
        is_directory = stat.S_ISDIR(status.st_mode)
        if directory is False and is_directory:
            raise ProbeError(f"--file {path}: it is a directory: use --dir")
        if directory and not is_directory:
            raise ProbeError(f"--dir {path}: it is not a directory: use --file")
        if stat.S_ISBLK(status.st_mode):
            raise ProbeError(f"{option} {path}: it is a block device: use -d")
        if not is_directory and not stat.S_ISREG(status.st_mode):
            raise ProbeError(f"{option} {path}: it is no regular file, so it has no I/O on a disk")
        mount = mounts.by_id.get(_mount_id(handle, proc))
    finally:
        os.close(handle)
    dev = kernel_dev(status.st_dev)
    wanted = Wanted(status.st_ino, dev, is_directory, _generation(path, status.st_ino))
    return _Place(wanted, mount.fstype if mount else "")


def _generation(path: str, inode: int) -> int | None:
    """Return the generation of `inode`; None: not known, or another inode is at `path` by now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return read_generation(fd) if os.fstat(fd).st_ino == inode else None
    finally:
        os.close(fd)


def _mount_id(handle: int, proc: Path) -> str:
    for line in read_lines(str(proc / "self" / "fdinfo" / str(handle))):
        if line.startswith("mnt_id:"):
            return line.split()[1]
    return ""


class _Mounts(NamedTuple):
    """This process's mounts by their number, and types of file systems without a device."""

    by_id: dict[str, Mount]
    without_device: frozenset[str]


def _mounts(proc: Path) -> _Mounts:
    kinds = read_lines(str(proc / "filesystems"))
    by_id = {}
    for line in read_lines(str(proc / "self" / "mountinfo")):
        if (mount := parse_mount(line)) is not None:
            by_id[line.split(" ", 1)[0]] = mount
    return _Mounts(by_id, frozenset(k.split()[-1] for k in kinds if k.startswith("nodev")))
