# SPDX-License-Identifier: Apache-2.0
"""What a bio or request asks for, as people name it: an empty write with PREFLUSH is a flush."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import U32, Bool

FLUSH = "flush"


def asks_flush(context: Context, opf: U32, size: U32) -> Bool:
    """Which are flushes: without data, they ask for one (fsync). opf: bi_opf; size: bytes."""
    preflush = np.uint32(context.flag_mask("PREFLUSH"))
    return np.asarray((size == 0) & ((opf & preflush) != 0), dtype=np.bool_)


def operations(context: Context, opf: U32, size: U32) -> tuple[NDArray[np.intp], list[str]]:
    """Operation of each bio as (codes into names, names), shape (n,).

    opf: bi_opf; size: bytes. A bio of nothing that asks for a flush (fsync) is one.
    """
    codes, names = context.op_codes(opf)
    flush = asks_flush(context, opf, size)
    if flush.any():
        names = names if FLUSH in names else [*names, FLUSH]
        codes = np.where(flush, names.index(FLUSH), codes)
    return codes, names
