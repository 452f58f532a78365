# SPDX-License-Identifier: Apache-2.0
"""Names of system calls and of their errors, and which calls return a number of bytes."""

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.events.tables import I32, I64, U32, U64
from biotrail.recorder.schema.syscalls import numbers, shown_name, with_command

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import BioPaths, Calls, PathTables

LARGEST_ERRNO = 4095
"""MAX_ERRNO (include/linux/err.h): results from -4095 to -1 are errors."""

WAIT_ONLY = " (wait)"
"""End of the name of a call of which only a wait is known."""

MOVES_BYTES = frozenset(
    (
        *("read", "pread64", "readv", "preadv", "preadv2"),
        *("write", "pwrite64", "writev", "pwritev", "pwritev2"),
        *("sendfile", "splice", "vmsplice", "tee", "copy_file_range"),
    )
)
"""Calls whose result is the number of bytes that they read, wrote or copied."""

_KERNEL_ERRNO = {
    512: "ERESTARTSYS",
    513: "ERESTARTNOINTR",
    514: "ERESTARTNOHAND",
    516: "ERESTART_RESTARTBLOCK",
    529: "EIOCBQUEUED",
}
"""Errors that the kernel turns into others before a program sees them (include/linux/errno.h)."""


def name_of_call(number: int, foreign: bool, machine: str, timed: bool = True) -> str:
    """Return the name of a call: "pread64", "page fault", "syscall 600", "pread64 (wait)".

    timed: else only a wait of the call is known, and its name says so, but for page faults and
    kernel threads, which are never timed. foreign: whether a 32-bit program called; its numbers are
    not looked up.
    """
    return shown_name(number, foreign, machine) + ("" if timed or number < 0 else WAIT_ONLY)


def name_of_error(result: int) -> str | None:
    """Return the name of the error that a call returned, such as "ENOSPC"; None: it is no error."""
    if not -LARGEST_ERRNO <= result < 0:
        return None
    return _KERNEL_ERRNO.get(-result) or errno.errorcode.get(-result, f"errno {-result}")


def with_ioctl_commands(path: "PathTables | None", machine: str) -> "PathTables | None":
    """Return the tables with commands of ioctl in the numbers of calls: `ioctl FITRIM`.

    Logs in which a RETURN record of ioctl has another argument there name no command.
    """
    ioctl = next(iter(numbers(frozenset({"ioctl"}), machine)), None)
    if path is None or ioctl is None:
        return path

    def calls(table: "Calls") -> "Calls":
        rows = np.flatnonzero((table.number == ioctl) & ~table.foreign)
        return replace(table, number=_numbered(table.number, rows, table.arg2[rows], ioctl))

    def bios(table: "BioPaths") -> "BioPaths":
        rows = np.flatnonzero((table.call == ioctl) & ~table.foreign)
        return replace(table, call=_numbered(table.call, rows, table.args[rows, 1], ioctl))

    return replace(
        path, calls=calls(path.calls), bios=bios(path.bios), open_bios=bios(path.open_bios)
    )


def _numbered(number: I32, rows: I64, commands: U32 | U64, ioctl: int) -> I32:
    """Return the numbers of calls, with the commands (32 bits) of those in `rows`."""
    if not len(rows):
        return number
    found, place = np.unique(commands.astype(np.uint32), return_inverse=True)
    told = [with_command(ioctl, command) for command in found.tolist()]
    number = number.copy()
    number[rows] = np.array(told, dtype=np.int32)[place]
    return number
