# SPDX-License-Identifier: Apache-2.0
"""Operations and flags of many events at once, from the letters of blk_fill_rwbs()."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import U32, U64, Bool
from biotrail.recorder.schema.kernel_names import opf_of

RWBS_BYTES = 8
"""Letters of rwbs that are read; no combination that occurs is longer."""
_LOW_BITS = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)


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
    position: there N is passthrough (drv_in, whatever its direction), elsewhere write-zeroes.
    """
    names, _, of = distinct_values(letters.view(np.int64))
    texts = [_text(name) for name in names.view(np.uint64).tolist()]
    table = np.array([[opf_of(t), opf_of(t, "DRV_IN")] for t in texts] or [[0, 0]], np.uint32)
    return table[of, nowhere.astype(np.int64)] if len(of) else np.zeros(0, np.uint32)


def without_position(letters: U64, sector: U64, nr_sector: U64) -> Bool:
    """Return which request events, (n,), are of flush requests or passthrough.

    Their tracepoints report sector 0 (blk_rq_trace_sector). letters: as `packed_letters` returns
    them. sector: 2^64-1 or 0 and nr_sector 0 for N without a position. An F is a flush request if
    it stands for the operation: alone, behind PREFLUSH's F, or before flags.
    """
    names, _, of = distinct_values(letters.view(np.int64))
    texts = [_text(name) for name in names.view(np.uint64).tolist()]
    flush = np.array([_is_flush(t) for t in texts] or [False])
    other = np.array([t.startswith(("N", "FN")) for t in texts] or [False])
    if not len(of):
        return np.zeros(0, np.bool_)
    none = (sector == np.uint64(2**64 - 1)) | ((sector == 0) & (nr_sector == 0))
    result: Bool = flush[of] | (other[of] & none)
    return result


def _is_flush(text: str) -> bool:
    """Return whether rwbs is of a flush request: "F", "FF", "FS", not "FWS" or "FN"."""
    return text[:1] == "F" and text[1:2] in ("", "F", "S", "M", "A")


def _text(word: int) -> str:
    """Return packed letters as text."""
    return word.to_bytes(RWBS_BYTES, "little").rstrip(b"\0").decode("latin-1")
