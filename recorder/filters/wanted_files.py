# SPDX-License-Identifier: Apache-2.0
"""The files and directories of --file and --dir, as the kernel side knows them by their inodes."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host.device_mounts import Mount, mount_id, parse_mount, read_lines
from biotrail.recorder.host.own_io import read_generation
from biotrail.recorder.schema.device_numbers import kernel_dev
from biotrail.recorder.schema.errors import ProbeError


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
    whether the kernel side can tell subvolumes of btrfs apart.

    Raises ProbeError, also for a path on a file system without a block device (overlay, tmpfs,
    NFS), unless it is a directory with mounts that have one below.
    """
    kinds = read_lines(str(proc / "filesystems"))
    without_device = {kind.split()[-1] for kind in kinds if kind.startswith("nodev")}
    mounts: dict[str, Mount] = {}
    for line in read_lines(str(proc / "self" / "mountinfo")):
        if (mount := parse_mount(line)) is not None:
            mounts[line.split(" ", 1)[0]] = mount
    given = [("--file", path) for path in filters.files]
    given += [("--dir", path) for path in filters.dirs]
    wanted: dict[Wanted, None] = {}
    for option, path in given:
        first = _look(path, option, option == "--dir", mounts, proc)
        found = [first]
        if option == "--dir":
            above = os.path.realpath(path).rstrip("/") + "/"
            for mount in mounts.values():
                if mount.point.startswith(above) and mount.fstype not in without_device:
                    with suppress(ProbeError):  # hidden by another mount, or gone
                        found.append(_look(mount.point, option, None, mounts, proc))
        found = [one for one in found if one[1] not in without_device]
        if not found:
            raise ProbeError(
                f"{option} {path}: its file system ({first[1]}) has no block device of its own: "
                "name the files or the directory of the file system that does the I/O"
            )
        for one, fstype in found:
            if fstype == "btrfs" and not subvolumes:
                raise ProbeError(
                    f"{option} {path}: it is on btrfs, whose subvolumes this kernel does not let "
                    "programs tell apart (it has no types of the module btrfs: they are there "
                    "since Linux 5.11)"
                )
            wanted[one] = None
    return list(wanted)


def _look(
    path: str, option: str, directory: bool | None, mounts: Mapping[str, Mount], proc: Path
) -> tuple[Wanted, str]:
    """Return what is at `path`, links followed, and its type of file system ("": not known).

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
        mount = mounts.get(mount_id(handle, str(proc)))
    finally:
        os.close(handle)
    dev = kernel_dev(status.st_dev)
    wanted = Wanted(status.st_ino, dev, is_directory, _generation(path, status.st_ino))
    return wanted, mount.fstype if mount else ""


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
