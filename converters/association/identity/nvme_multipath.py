# SPDX-License-Identifier: Apache-2.0
"""NVMe multipath: the driver tells a bio's end just before the block layer tells its request's."""

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.recorder.schema.records import Kind


def foretells(events: Events, event: I64, role: U8, before: U8, context: Context) -> Bool:
    """Which c are of a bio in an issued request, whose C follows and ends both.

    Some kernels have such c (nvme_trace_bio_complete), only of a request's first bio. Any other c
    after an issue is of another bio at that address: request-based I/O has none. role, before: of
    rows sorted by bio, then time; before is the role of the row before.
    """
    result = np.zeros(len(event), dtype=np.bool_)
    by_path = np.uint32(context.flag_mask("DRV"))  # REQ_NVME_MPATH
    rows = np.flatnonzero((role == Kind.BIO_COMPLETE) & (before == Kind.D))
    ended, issued = event[rows], event[rows - 1]
    same = (events.dev[ended] == events.dev[issued]) & (events.bytes[ended] > 0)
    same &= (events.sector[ended] == events.sector[issued]) & (
        events.bytes[ended] <= events.bytes[issued]
    )
    result[rows] = same & (events.opf[ended] & events.opf[issued] & by_path != 0)
    return result
