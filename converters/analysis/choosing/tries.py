# SPDX-License-Identifier: Apache-2.0
"""NOWAIT tries that failed at once: repeated by who sent them, so no I/Os of their own."""

import errno

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Bios, Bool, Requests
from biotrail.recorder.schema.records import BLK_STATUS

_AGAIN = np.array(
    [*(number for number, name in BLK_STATUS.items() if name == "AGAIN"), -errno.EAGAIN]
)
"""BLK_STS_AGAIN; kernels that report an errno give -EAGAIN."""


def tries(context: Context, table: Bios | Requests) -> Bool:
    """Return which bios (requests) were tries, shape (n,): REQ_NOWAIT, ended in BLK_STS_AGAIN.

    The kernel ends them so where a request or a queue's room is not to be had without waiting
    (bio_wouldblock_error), and io_uring then sends the same I/O again, which may wait. All False
    where the recording kernel has no REQ_NOWAIT.
    """
    asked = (table.opf & np.uint32(context.flag_mask("NOWAIT"))) != 0
    return np.asarray(asked & np.isin(table.status, _AGAIN), dtype=np.bool_)
