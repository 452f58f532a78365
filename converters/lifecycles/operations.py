# SPDX-License-Identifier: Apache-2.0
"""Operation names as users know them: an empty write with PREFLUSH is a flush."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import U32, Bool

FLUSH = "flush"


def asks_flush(context: Context, opf: U32, size: U32) -> Bool:
    """Return per bio or request whether it has no data and REQ_PREFLUSH set, as fsync sends it.

    The operation is not looked at: REQ_OP_FLUSH without the flag does not count. opf: bi_opf or
    cmd_flags (n,). size: bytes (n,). context: gives the flag's bit.
    """
    preflush = np.uint32(context.flag_mask("PREFLUSH"))
    return np.asarray((size == 0) & ((opf & preflush) != 0), dtype=np.bool_)


def operations(context: Context, opf: U32, size: U32) -> tuple[NDArray[np.intp], list[str]]:
    """Return (codes, names): per bio or request (n,) the index of its operation's name in `names`.

    opf: bi_opf or cmd_flags. size: bytes. Without data and with REQ_PREFLUSH (an empty write, as
    fsync sends it) the name is "flush", whatever the operation; else the kernel's, such as "write".
    Names are distinct; some may have no row.
    """
    codes, names = context.op_codes(opf)
    flush = asks_flush(context, opf, size)
    if flush.any():
        names = names if FLUSH in names else [*names, FLUSH]
        codes = np.where(flush, names.index(FLUSH), codes)
    return codes, names
