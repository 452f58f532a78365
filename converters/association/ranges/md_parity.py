# SPDX-License-Identifier: Apache-2.0
"""Parity writes of raid4, raid5 and raid6, whose remap (A) does not report an array sector."""

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool
from biotrail.recorder.schema.records import Kind

_LEVELS = ("raid4", "raid5", "raid6")
_BLOCK = 4096
"""Largest bio, in bytes, that md sends for one block of a stripe (DEFAULT_STRIPE_SIZE).

A larger bio is a read that bypasses the stripe cache, with its real sector.
"""


def may_be_parity_write(events: Events, remaps: I64, context: Context) -> Bool:
    """Return, per A event, whether it may be a parity write of raid4, raid5 or raid6.

    md reports the array's sector 0 for every parity block (raid5_compute_blocknr), so its stripe is
    unknown. Marked is every A from such an array's sector 0 of at most 4 KiB, so also a read, or
    the data block there. remaps: events of kind A.
    """
    arrays = sorted(parity_arrays(context))
    fields = events.fields(Kind.A, remaps)
    at_zero = np.isin(fields["from_dev"], arrays) & (fields["from_sector"] == 0)
    return np.asarray(at_zero & (fields["bytes"] <= _BLOCK))


def parity_arrays(context: Context) -> set[int]:
    """Return the md arrays (dev_t) with parity: raid4, raid5 and raid6."""
    entries = context.devices.items()
    return {dev for dev, entry in entries if (entry.get("md") or {}).get("level") in _LEVELS}
