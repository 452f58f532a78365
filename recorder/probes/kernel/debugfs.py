# SPDX-License-Identifier: Apache-2.0
"""Looks into debugfs where it is mounted, else into a mount of its own that nobody else sees."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PLACE = Path("/sys/kernel/debug")
# These calls have the same numbers on all machines (include/uapi/asm-generic/unistd.h); since 5.2.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CREATE = 6
"""FSCONFIG_CMD_CREATE."""
_CLOEXEC = 1
_NO_EXEC_SUID_DEV = 2 | 4 | 8
"""MOUNT_ATTR_NOSUID, _NODEV, _NOEXEC."""


@contextmanager
def place(mounted: Path = _PLACE) -> Iterator[Path]:
    """Give the directory of debugfs, valid inside the block; `mounted` where it cannot be had.

    mounted: where it usually is. If nothing is there, a mount without a place in the tree of files
    is made, which ends with the block: nothing is left behind, and no other process sees it.
    """
    if (mounted / "kprobes").is_dir():
        yield mounted
        return
    mount = _mount()
    try:
        yield mounted if mount is None else Path(f"/proc/self/fd/{mount}")
    finally:
        if mount is not None:
            os.close(mount)


def _mount() -> int | None:
    """Return a descriptor of a new mount of debugfs; None: not permitted, or not there."""
    libc = ctypes.CDLL(None, use_errno=True)
    context = libc.syscall(_FSOPEN, b"debugfs", _CLOEXEC)
    if context < 0:
        return None
    try:
        if libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0) < 0:
            return None
        mount = libc.syscall(_FSMOUNT, context, _CLOEXEC, _NO_EXEC_SUID_DEV)
    finally:
        os.close(context)
    return None if mount < 0 else int(mount)
