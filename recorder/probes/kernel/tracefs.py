# SPDX-License-Identifier: Apache-2.0
"""Finds or mounts tracefs and debugfs, and reads the format files of tracepoints."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.formats import Format, parse

PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
REMEDY = "mount -t tracefs tracefs /sys/kernel/tracing"


def mounted() -> Path | None:
    """Return where tracefs is mounted; None: nowhere, or not accessible to this process."""
    return next((place for place in PLACES if os.path.isdir(place / "events")), None)


def absence() -> str:
    """Return why `mounted` returns None: "not mounted", or that access is denied."""
    if any(os.path.isdir(place) and not os.access(place, os.X_OK) for place in PLACES):
        return "this user may not look into it"
    return "not mounted"


def remedy() -> str:
    """Return what to do where `mounted` returns None, for the user."""
    return "run as root" if absence() != "not mounted" else f"as root: {REMEDY}"


def find() -> Path:
    """Return the directory of tracefs, after mounting it at PLACES[0] if it is not mounted."""
    place = mounted()
    if place is not None:
        return place
    if absence() != "not mounted":
        raise ProbeError(
            f"tracefs, which describes the tracepoints, is closed to this user ({PLACES[0]}): "
            "run as root, or take --backend core"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tracefs", os.fsencode(PLACES[0]), b"tracefs", 0, None) < 0:
        reason = os.strerror(ctypes.get_errno())
        raise ProbeError(
            f"tracefs, which describes the tracepoints, is not there and cannot be mounted at "
            f"{PLACES[0]}: {reason}; as root: {REMEDY}"
        )
    place = mounted()
    if place is None:
        raise ProbeError(f"tracefs is mounted at {PLACES[0]} and lists no events: {REMEDY}")
    return place


def read(tracefs: Path, system: str, names: list[str]) -> dict[str, Format]:
    """Return the formats of a system's tracepoints by name, without those that do not exist."""
    formats = {}
    for name in names:
        try:
            text = (tracefs / "events" / system / name / "format").read_text()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ProbeError(
                f"{error.filename} cannot be read: {error.strerror}; run as root"
            ) from error
        formats[name] = parse(name, text)
    return formats


_DEBUGFS = Path("/sys/kernel/debug")
# These calls have the same numbers on all machines (include/uapi/asm-generic/unistd.h); since 5.2.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CREATE = 6
"""FSCONFIG_CMD_CREATE."""
_CLOEXEC = 1
_NO_EXEC_SUID_DEV = 2 | 4 | 8
"""MOUNT_ATTR_NOSUID, _NODEV, _NOEXEC."""


@contextmanager
def debugfs(mounted: Path = _DEBUGFS) -> Iterator[Path]:
    """Yield the directory of debugfs, valid inside the block; `mounted` where it cannot be had.

    mounted: where it usually is. If nothing is there, a mount without a place in the tree of files
    is made, which ends with the block: nothing is left behind, and no other process sees it.
    """
    if (mounted / "kprobes").is_dir():
        yield mounted
        return
    mount = -1  # where it is not permitted, or the kernel has none
    libc = ctypes.CDLL(None, use_errno=True)
    context = libc.syscall(_FSOPEN, b"debugfs", _CLOEXEC)
    if context >= 0:
        if libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0) >= 0:
            mount = libc.syscall(_FSMOUNT, context, _CLOEXEC, _NO_EXEC_SUID_DEV)
        os.close(context)
    try:
        yield mounted if mount < 0 else Path(f"/proc/self/fd/{mount}")
    finally:
        if mount >= 0:
            os.close(mount)
