# SPDX-License-Identifier: Apache-2.0
"""Identifies the recorder's own I/O: by its pid namespace and the files that it writes."""

import fcntl
import os
import stat
import struct
from typing import NamedTuple

from biotrail.recorder.host.device_mounts import mount_id, read_lines
from biotrail.recorder.schema.device_numbers import dev_number, kernel_dev

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO (include/linux/proc_ns.h)."""
_GETVERSION = 0x80087601
"""FS_IOC_GETVERSION (include/uapi/linux/fs.h)."""


class OwnFile(NamedTuple):
    """The kernel's identity of a file.

    dev: s_dev of its file system's super block, kernel dev_t. generation: i_generation of the
    inode, which differs when an inode number is reused; None: the file system does not report it.
    """

    inode: int
    dev: int
    generation: int | None


def pid_namespace() -> tuple[int, int] | None:
    """Return (dev, inode) of this process's pid namespace; None where it is the initial one.

    dev: kernel dev_t of the file system of namespaces, inode: the namespace's number there.
    """
    try:
        status = os.stat("/proc/self/ns/pid")
    except OSError:
        return None  # without /proc, assume that this is no container
    if status.st_ino == _INITIAL_PID_NAMESPACE:
        return None
    return kernel_dev(status.st_dev), status.st_ino


def own_file(fd: int) -> OwnFile | None:
    """Return the identity of the file open as `fd`; None: no regular file, or not open."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    dev = _super_block(fd)
    return OwnFile(
        status.st_ino, kernel_dev(status.st_dev) if dev is None else dev, read_generation(fd)
    )


def read_generation(fd: int) -> int | None:
    """Return the generation (FS_IOC_GETVERSION) of an inode; None: it is not reported."""
    try:
        answer = fcntl.ioctl(fd, _GETVERSION, bytes(8))
    except OSError:
        return None
    return int(struct.unpack_from("=I", answer)[0])


def _super_block(fd: int) -> int | None:
    """Return the dev_t of a file's super block, by its mount; None: /proc does not say."""
    try:
        mount = mount_id(fd)
        rows = (line.split(" ") for line in read_lines("/proc/self/mountinfo"))
        return dev_number(next(row[2] for row in rows if row[0] == mount))
    except (OSError, StopIteration, IndexError):
        return None
