# SPDX-License-Identifier: Apache-2.0
"""Operations and flags of many events at once, from the letters of blk_fill_rwbs().

What the letters mean changed with the kernel; docs/inputs.md has the table.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, U32, U64, Bool
from biotrail.recorder.schema.kernel_names import opf_of
from biotrail.recorder.schema.records import NO_SECTOR

RWBS_BYTES = 8
"""Letters of rwbs that are read; no combination that occurs is longer."""
_LOW_BITS = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_NO_SECTOR_32 = 0xFFFFFFFF
"""Sector -1 of a kernel whose sectors have 32 bits."""


def packed_letters(rwbs: NDArray[np.bytes_]) -> U64:
    """Return the first 8 letters of each rwbs, (n,), as a uint64, the first lowest.

    What is behind the first NUL, which may be anything in a kernel's buffer, becomes 0.
    """
    wide = np.ascontiguousarray(rwbs, dtype=f"S{RWBS_BYTES}")
    words = wide.view("<u8").astype(np.uint64)
    zero = (words - _LOW_BITS) & ~words & _HIGH_BITS
    first = zero & (~zero + _ONE)
    # The bits below the first NUL's; all where there is no NUL.
    return words & ((first >> np.uint64(7)) - _ONE)


def opfs(letters: U64, nowhere: Bool) -> U32:
    """Return bi_opf or cmd_flags of each event, (n,), in the numbers of Linux 6.18 (kernel_names).

    letters: as `packed_letters` returns them. nowhere: which events are of requests without a
    position, whose letters mean something else: there N is passthrough (drv_in, whatever its
    direction), elsewhere write-zeroes; and of kernels before 4.8 "FW…" is a flush, which is
    the write of a bio elsewhere, and R and W are passthrough.
    """
    table, of = _by_letters(letters, lambda text: (opf_of(text), _opf_nowhere(text)))
    return table[of, nowhere.astype(np.int64)].astype(np.uint32)


def _opf_nowhere(text: str) -> int:
    if text[:2] == "FW":
        return opf_of("FF" + text[2:])
    if text[:1] == "W" and text[1:2] != "Z":
        return opf_of("N" + text[1:], "DRV_OUT")
    return opf_of("N" + text[1:] if text[:1] == "R" else text, "DRV_IN")


def without_position(letters: U64, sector: U64, nr_sector: U64, size: U64) -> Bool:
    """Return which request events, (n,), are of flush requests or passthrough.

    letters: as `packed_letters` returns them. size: bytes; nr_sector is 0 of passthrough when it is
    inserted and issued, whatever its size. An F is a flush request if it stands for the operation:
    alone, behind PREFLUSH's F, or before flags. Others have no position if the kernel says so, by
    sector -1 or, of passthrough, 0 with no sectors (blk_rq_trace_sector): N; and R and W, which
    kernels before 4.8 write for flushes and passthrough, too. There W at sector 0 with no sectors
    and no bytes is the write of a bio that only flushes.
    """
    table, of = _by_letters(letters, _kinds)
    flush, other, read, write = table[of].T != 0
    none = nr_sector == 0
    nowhere = (sector == np.uint64(NO_SECTOR)) | ((sector == np.uint64(_NO_SECTOR_32)) & none)
    start = (sector == 0) & none
    either = (other | read) & (nowhere | start)
    result: Bool = flush | either | (write & (nowhere | (start & (size != 0))))
    return result


def _kinds(text: str) -> tuple[bool, bool, bool, bool]:
    """Return whether rwbs is of a flush request ("F", "FF", "FS"; not "FWS" or "FN"), N, R, W."""
    flush = text[:1] == "F" and text[1:2] in ("", "F", "S", "M", "A")
    write = text.removeprefix("F").startswith("W") and "Z" not in text
    return flush, text.startswith(("N", "FN")), text[:1] == "R", write


def _by_letters(letters: U64, meant: Callable[[str], tuple[int, ...]]) -> tuple[I64, I64]:
    """Return (what `meant` returns of each different rwbs, a row each; each event's row (n,))."""
    names, _, of = distinct_values(letters.view(np.int64))
    packed = (name.to_bytes(RWBS_BYTES, "little") for name in names.view(np.uint64).tolist())
    texts = [word.rstrip(b"\0").decode("latin-1") for word in packed]
    return np.array([meant(text) for text in texts] or [meant("")], np.int64), of
