# SPDX-License-Identifier: Apache-2.0
"""What the recording's own I/O is known by: the recorder's process, and the files it writes."""

import fcntl
import os
import stat
import struct
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO (include/linux/proc_ns.h)."""
_GETVERSION = 0x80087601
"""FS_IOC_GETVERSION (include/uapi/linux/fs.h)."""
_MAJOR_MINOR = 20


class OwnFile(NamedTuple):
    """A file as the kernel knows it. dev: of its file system's super block, kernel encoding.

    generation: of the inode, so that its number can be used again; None: not told.
    """

    inode: int
    dev: int
    generation: int | None


@runtime_checkable
class KnowsFiles(Protocol):
    """A backend that recognizes the pages of files that it was told of."""

    def own_file(self, file: OwnFile) -> None:
        """The recorder writes this file from now on. Any thread may call."""


def tell_files(probes: object) -> Callable[[BinaryIO], None]:
    """What to call with every file that the recorder opens to write to."""

    def tell(stream: BinaryIO) -> None:
        if isinstance(probes, KnowsFiles) and (file := own_file(stream.fileno())):
            probes.own_file(file)

    return tell


def pid_namespace() -> tuple[int, int] | None:
    """(dev, inode) of this process's pid namespace; None where it is the initial one."""
    try:
        status = os.stat("/proc/self/ns/pid")
    except OSError:
        return None  # without /proc there is no container either, as far as anyone can tell
    if status.st_ino == _INITIAL_PID_NAMESPACE:
        return None
    return _kernel_dev(status.st_dev), status.st_ino


def own_file(fd: int) -> OwnFile | None:
    """The file of a descriptor; None for a pipe and whatever else has no pages of its own."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    dev = _super_block(fd)
    return OwnFile(
        status.st_ino, _kernel_dev(status.st_dev) if dev is None else dev, _generation(fd)
    )


def _kernel_dev(dev: int) -> int:
    return os.major(dev) << _MAJOR_MINOR | os.minor(dev)


def _generation(fd: int) -> int | None:
    try:
        told = fcntl.ioctl(fd, _GETVERSION, bytes(8))
    except OSError:
        return None
    return int(struct.unpack_from("=I", told)[0])


def _super_block(fd: int) -> int | None:
    """Device of the file's mount. Where fstat names a subvolume's (btrfs), this is the whole's."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii", errors="replace") as info:
            mount = next(line.split()[1] for line in info if line.startswith("mnt_id:"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            pair = next(row[2] for row in map(str.split, mounts) if row[0] == mount)
        major, minor = map(int, pair.split(":"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
    return major << _MAJOR_MINOR | minor
