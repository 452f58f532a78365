# SPDX-License-Identifier: Apache-2.0
"""Which argument of a system call is its file descriptor, its offset and its length."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.path_tables import Calls
from biotrail.converters.events.tables import I32, I64, U64, Bool
from biotrail.recorder.schema.syscalls import call_name, plain_number

What = Literal["fd", "offset", "length"]
WHATS: tuple[What, ...] = ("fd", "offset", "length")


@dataclass(frozen=True)
class Places:
    """Positions of a call's arguments, 0 to 3; None: the call has no such argument there."""

    fd: int | None = None
    """Descriptor of the file that the call reads, writes, syncs or asks about."""
    offset: int | None = None
    """Place in that file, bytes."""
    length: int | None = None
    """How much of that file is meant, bytes."""


_OF_FILE = (
    "readv writev fsync fdatasync syncfs fstat ioctl close splice tee vmsplice copy_file_range "
    "fchmod fchown fgetxattr fsetxattr flistxattr fremovexattr fstatfs ftruncate lseek flock"
)
PLACES = {
    **dict.fromkeys(_OF_FILE.split(), Places(fd=0)),
    **dict.fromkeys(("read", "write", "getdents", "getdents64"), Places(fd=0, length=2)),
    **dict.fromkeys(("pread64", "pwrite64"), Places(fd=0, offset=3, length=2)),
    **dict.fromkeys(("preadv", "pwritev", "preadv2", "pwritev2"), Places(fd=0, offset=3)),
    **dict.fromkeys(("sync_file_range", "fadvise64", "readahead"), Places(0, 1, 2)),
    "fallocate": Places(fd=0, offset=2, length=3),
    "sendfile": Places(fd=1, length=3),
    "msync": Places(length=1),
    "madvise": Places(length=1),
}
"""Name → positions, for 64-bit programs. The offset of preadv and its like is one register there;
readv's and writev's lengths are in memory; sendfile's descriptor is that which it reads."""

_NO_PLACES = Places()
CURRENT = 2**64 - 1
"""Offset of preadv2 and pwritev2 that means the file's own position."""


def _places(number: int, machine: str) -> Places:
    """Return the positions of the arguments of a call, of ioctl whatever its command is."""
    return PLACES.get(call_name(plain_number(number), machine), _NO_PLACES)


def argument(
    args: U64, number: I32, foreign: Bool, machine: str, what: What
) -> tuple[NDArray[np.int64], Bool]:
    """Return (values, known) of one argument of each call, (n,) each: int64, bool.

    A value is as the call was given, and means nothing where `known` is False: of calls without
    such an argument (among the k of `args`, (n, k)), of 32-bit programs' calls, of page faults, and
    of offsets that mean the file's own position (CURRENT). A descriptor is its low 32 bits, signed.
    """
    values, known = np.zeros(len(number), dtype=np.int64), np.zeros(len(number), dtype=np.bool_)
    for one in np.unique(number).tolist():
        place = getattr(_places(one, machine), what)
        if place is None or place >= args.shape[1]:
            continue
        rows = np.flatnonzero((number == one) & ~foreign)
        given = args[rows, place]
        values[rows] = given.astype(np.uint32).view(np.int32) if what == "fd" else given.view("i8")
        known[rows] = given != CURRENT if what == "offset" else True
    return values, known


def argument_of_calls(calls: Calls, machine: str, what: What) -> tuple[I64, Bool]:
    """Return (values, known) of one argument of each timed call, as `argument`; the value 0 else.

    Records of calls have the arguments 0 (low 32 bits), 2 (low 32 bits) and 3 alone: not known are
    argument 1, and an offset that is argument 2.
    """
    args = np.zeros((len(calls), 4), dtype=np.uint64)
    args[:, 0], args[:, 2], args[:, 3] = calls.arg0, calls.arg2, calls.arg3
    values, known = argument(args, calls.number, calls.foreign, machine, what)
    lacking = {1, 2} if what == "offset" else {1}
    for one in np.unique(calls.number).tolist():
        if getattr(_places(one, machine), what) in lacking:
            known &= calls.number != one
    return np.where(known, values, 0), known
