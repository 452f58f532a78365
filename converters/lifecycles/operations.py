# SPDX-License-Identifier: Apache-2.0
"""Operation names as users know them: an empty write with PREFLUSH is a flush; requests' kinds."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.tables import (
    I64,
    OP_MASK,
    U8,
    U32,
    U64,
    Bios,
    Bool,
    RequestKind,
    Requests,
)
from biotrail.recorder.schema.records import NO_SECTOR

FLUSH = "flush"
CLEARED = {
    "discard": "discarded_bytes",
    "write_zeroes": "zeroed_bytes",
    "secure_erase": "erased_bytes",
}
"""Operations that act on a range without moving data → name of the sum of their lengths."""


def asks_flush(context: Context, opf: U32, size: U32) -> Bool:
    """Return per bio or request whether it has no data and REQ_PREFLUSH set, as fsync sends it.

    REQ_OP_FLUSH without the flag does not count. opf: bi_opf or cmd_flags. size: bytes.
    """
    preflush = np.uint32(context.flag_mask("PREFLUSH"))
    return np.asarray((size == 0) & ((opf & preflush) != 0), dtype=np.bool_)


def operation_numbers(context: Context, table: Bios | Requests) -> I64:
    """Return each REQ_OP_*, int64 (n,): of what `asks_flush` that of a flush."""
    op = (table.opf & OP_MASK).astype(np.int64)
    flush = context.op_number("flush")
    return np.where(asks_flush(context, table.opf, table.bytes), flush, op) if flush >= 0 else op


def operations(context: Context, opf: U32, size: U32) -> tuple[NDArray[np.intp], list[str]]:
    """Return (codes, names): per bio or request (n,) the index of its operation's name in `names`.

    opf: bi_opf or cmd_flags. size: bytes. A flush is also what `asks_flush`. Names are distinct;
    some may have no row.
    """
    codes, names = context.op_codes(opf)
    flush = asks_flush(context, opf, size)
    if flush.any():
        names = names if FLUSH in names else [*names, FLUSH]
        codes = np.where(flush, names.index(FLUSH), codes)
    return codes, names


def transferred(context: Context, opf: U32, size: U32) -> I64:
    """Return the bytes that each bio or request moves: int64 (n,), 0 for operations of CLEARED."""
    codes, names = context.op_codes(opf)
    moves = np.array([name not in CLEARED for name in names], dtype=np.bool_)
    return np.where(moves[codes], size, 0).astype(np.int64)


def request_kinds(opf: U32, sector: U64, context: Context) -> U8:
    """Return the RequestKind of each request, by its cmd_flags and first sector.

    FLUSH: REQ_OP_FLUSH without a sector (2^64-1). NORMAL: also REQ_OP_FLUSH with a sector.
    """
    kind = np.zeros(len(opf), dtype=np.uint8)
    flush = (opf & OP_MASK) == context.op_number("flush")
    kind[flush & (sector == NO_SECTOR)] = RequestKind.FLUSH
    codes, names = context.op_codes(opf)
    through = np.array([n in PASSTHROUGH_OPS for n in names], dtype=np.bool_)
    if through.any():
        kind[through[codes]] = RequestKind.PASSTHROUGH
    return kind
