# SPDX-License-Identifier: Apache-2.0
"""NOWAIT tries that failed at once. Their submitter repeats them, so they do not count as I/Os."""

import errno

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Bios, Bool, Requests
from biotrail.recorder.schema.records import BLK_STATUS

_AGAIN = np.array(
    [*(number for number, name in BLK_STATUS.items() if name == "AGAIN"), -errno.EAGAIN]
)
"""BLK_STS_AGAIN, and -EAGAIN for kernels that report an errno."""


def tries(context: Context, table: Bios | Requests) -> Bool:
    """Mark bios (requests) that were NOWAIT tries: bool (n,), by row of the table.

    A try has REQ_NOWAIT and ended with BLK_STS_AGAIN, or -EAGAIN on kernels that report an errno.
    The kernel ends a REQ_NOWAIT bio so (bio_wouldblock_error) if it cannot get a request or room in
    the queue without waiting; io_uring then submits the same I/O again, without REQ_NOWAIT. All
    False if the recording kernel has no REQ_NOWAIT.
    """
    asked: Bool = (table.opf & np.uint32(context.flag_mask("NOWAIT"))) != 0
    if not asked.any():
        return asked
    return np.asarray(asked & np.isin(table.status, _AGAIN), dtype=np.bool_)
