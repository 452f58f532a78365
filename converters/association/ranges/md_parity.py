# SPDX-License-Identifier: Apache-2.0
"""raid4, raid5 and raid6: bios to the disks that carry no sector of the array's own."""

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, Bool
from biotrail.recorder.schema.records import Kind

_LEVELS = ("raid4", "raid5", "raid6")
_BLOCK = 4096
"""What such an array sends to its disks at once (DEFAULT_STRIPE_SIZE); larger are whole reads."""


def of_parity(events: Events, remaps: I64, context: Context) -> Bool:
    """Of each A, whether it is what such an array tells of parity.

    md calls every block of parity the array's sector 0 (raid5_compute_blocknr), whichever stripe
    it is of: so of an A that names this sector, nobody can say whose it is.
    """
    arrays = [
        dev
        for dev, entry in context.devices.items()
        if (entry.get("md") or {}).get("level") in _LEVELS
    ]
    told = events.fields(Kind.A, remaps)
    named = np.isin(told["from_dev"], arrays) & (told["from_sector"] == 0)
    return np.asarray(named & (told["bytes"] <= _BLOCK))
