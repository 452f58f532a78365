# SPDX-License-Identifier: Apache-2.0
"""The block layer's numbers by name, for records that were made without the kernel's BTF.

The text of tracepoints and blktrace give an operation and its flags as letters (RWBS) and an
error as its errno; a log made from these has `opf` and status in the numbers given here.
"""

OPS = {
    "READ": 0,
    "WRITE": 1,
    "FLUSH": 2,
    "DISCARD": 3,
    "SECURE_ERASE": 5,
    "ZONE_APPEND": 7,
    "WRITE_ZEROES": 9,
    "ZONE_OPEN": 11,
    "ZONE_CLOSE": 13,
    "ZONE_FINISH": 15,
    "ZONE_RESET": 17,
    "ZONE_RESET_ALL": 19,
    "DRV_IN": 34,
    "DRV_OUT": 35,
}
"""enum req_op, include/linux/blk_types.h of 6.18."""

_FLAG_NAMES = (
    "FAILFAST_DEV FAILFAST_TRANSPORT FAILFAST_DRIVER SYNC META PRIO NOMERGE IDLE INTEGRITY FUA "
    "PREFLUSH RAHEAD BACKGROUND NOWAIT POLLED"
)
FLAGS = {name: bit for bit, name in enumerate(_FLAG_NAMES.split(), start=8)}
"""enum req_flag_bits of the same file: bit numbers."""

RWBS_OPS = {
    "R": "READ",
    "W": "WRITE",
    "WZ": "WRITE_ZEROES",
    "D": "DISCARD",
    "DE": "SECURE_ERASE",
    "F": "FLUSH",
    "ZA": "ZONE_APPEND",
    "ZR": "ZONE_RESET",
    "ZRA": "ZONE_RESET_ALL",
    "ZF": "ZONE_FINISH",
    "ZO": "ZONE_OPEN",
    "ZC": "ZONE_CLOSE",
}
"""Operations by their letters (blk_fill_rwbs).

N stands for all others: WRITE_ZEROES on some kernels, DRV_IN and DRV_OUT, and before 6.18 the
zone operations.
"""

RWBS_FLAGS = {"F": "FUA", "A": "RAHEAD", "S": "SYNC", "M": "META"}
"""Flags by the letters behind the operation's; an F before the operation is PREFLUSH."""

_OLD_SECURE = "E"
"""Flag of a secure erase before 4.8, where all discards are "W", as they are a kind of writes."""

RWBS_OTHER = "N"
"""Letter of an operation that RWBS_OPS does not list."""

_ERRNOS = (95, 110, 28, 67, 121, 52, 61, 84, 12, 5, 78, 11, 16, 109, 75, 19, 62)
ERRNO = {**dict(enumerate(_ERRNOS, start=1)), 19: 22}
"""errno (positive) by blk_status_t: blk_errors of block/blk-core.c."""

IOERR = 10
"""blk_status_t of an I/O error: BLK_STS_IOERR."""


def opf_of(rwbs: str, other: str = "WRITE_ZEROES") -> int:
    """Return bi_opf or cmd_flags from RWBS letters, in the numbers of OPS and FLAGS (Linux 6.18).

    The letters are [F for PREFLUSH] operation [flags], as blk_fill_rwbs writes them: "FWFS" is a
    WRITE with PREFLUSH, FUA and SYNC; "FF" is a FLUSH with PREFLUSH, not with FUA. A first F is
    PREFLUSH only before one of R, W, D, F, Z, N, else it is FLUSH ("FS"). The longest operation
    counts: "ZRA" is ZONE_RESET_ALL, not ZONE_RESET with RAHEAD. `other`: the operation for N, and
    for letters that RWBS_OPS does not list, or none. Further letters that are no flag are ignored,
    but E behind the flags: kernels before 4.8 write a secure erase "WSE".
    """
    opf, rest = 0, rwbs
    if rest[:1] == "F" and rest[1:2] in {*"RWDFZ", RWBS_OTHER}:
        opf, rest = 1 << FLAGS["PREFLUSH"], rest[1:]
    letters = next((rest[:n] for n in (3, 2, 1) if rest[:n] in RWBS_OPS), "")
    flags = rest[len(letters) or 1 :]
    if letters in ("W", "D") and _OLD_SECURE in flags:
        letters = "DE"
    opf |= OPS[RWBS_OPS.get(letters, other)]
    for letter in flags:
        opf |= 1 << FLAGS[RWBS_FLAGS[letter]] if letter in RWBS_FLAGS else 0
    return opf
