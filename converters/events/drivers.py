# SPDX-License-Identifier: Apache-2.0
"""What drivers did with requests: the DRIVER records, joined to their C."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.path_column import PathColumn
from biotrail.converters.events.tables import I64, NEVER
from biotrail.recorder.schema.records import Kind

DRIVERS = ("", "nvme", "scsi", "loop")
"""Names of drivers by the number in a DRIVER record; 0: no record."""
_TOO_LONG_AGO = np.uint32(0xFFFFFFFE)
"""At this value and above a time is not known: none, or 4.29 s and more before C."""


def join_steps(events: Events, rows: I64, completed: I64, path: PathColumn) -> None:
    """Write driver, counts and times of the DRIVER records at `rows` to their C's row of `path`.

    completed: per record the row of its C in `events`, -1 where that is not there; such records are
    left out. `answered` and `finished` are NEVER where the record does not have them, or they were
    4.29 s or more before C; `begun` is as recorded, however long before C.
    """
    rows, completed = rows[completed >= 0], completed[completed >= 0]
    records, place = events.fields(Kind.DRIVER, rows), path.at[completed]
    for name in ("driver", "errors", "timeouts", "sq_head", "sq_tail"):
        path.rows[name][place] = records[name]
    path.rows["begun"][place] = events.ts[rows] - records["begun"].astype(np.int64)
    for name in ("answered", "finished"):
        ago = records[name]
        time = events.ts[rows] - ago.astype(np.int64)
        path.rows[name][place] = np.where(ago >= _TOO_LONG_AGO, NEVER, time)
