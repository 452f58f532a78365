# SPDX-License-Identifier: Apache-2.0
"""NVMe multipath: a c that the driver reports for a bio just before the C of the bio's request."""

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.recorder.schema.records import Kind


def early_completions(events: Events, event: I64, role: U8, before: U8, context: Context) -> Bool:
    """Return the mask (n,) of c that NVMe multipath reports for a bio in an issued request.

    The C of that request follows, and ends both. Some kernels report such a c (5.10, 6.12:
    nvme_trace_bio_complete), for a request's first bio alone: right after the D at the bio's
    address, at the D's device and sector, with data, not longer than the D, and with REQ_NVME_MPATH
    in both. Request-based I/O has no other c on success, so any other c after a D is of a later bio
    at the address.

    event, role, before: (n,) rows sorted by bio pointer, then time: index into `events`, role, role
    of the row before at the same pointer (0: none).
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
