# SPDX-License-Identifier: Apache-2.0
"""Columns of requests that say what the driver did with each."""

import numpy as np
import pyarrow as pa

from biotrail.converters.events.drivers import DRIVERS
from biotrail.converters.events.path_tables import DriverSteps
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.lifecycles.arrow.columns import DRIVER_NAMES, REQUEST_SCHEMA

_NVME, _SCSI = DRIVERS.index("nvme"), DRIVERS.index("scsi")


def driver_columns(window: Lifecycles) -> dict[str, pa.Array]:
    """Return the columns DRIVER_NAMES with a value per request of the window, in their order.

    Null: the log was recorded without the part driver of the path, the request's driver is none of
    DRIVERS or its steps are not in the log, or that step is not known. Counts of errors and
    time-outs are SCSI's, the queue's head and tail NVMe's, where its answer was recorded.
    """
    numbers = window.requests.number
    steps = None if window.path is None else window.path.steps
    if steps is None or not len(steps):
        return {
            name: pa.nulls(len(numbers), REQUEST_SCHEMA.field(name).type) for name in DRIVER_NAMES
        }
    columns = _columns(steps)
    place = np.searchsorted(steps.number, numbers)
    known = steps.number[np.minimum(place, len(steps) - 1)] == numbers
    rows = pa.array(place, mask=~known)
    return {name: columns[name].take(rows) for name in DRIVER_NAMES}


def _columns(steps: DriverSteps) -> dict[str, pa.Array]:
    """Return the columns DRIVER_NAMES with a value per row of `steps`, by name.

    Null: the driver is none of DRIVERS, a time is not known, the counts of a driver that is not
    SCSI, and the queue's head and tail of one that is not NVMe or whose answer was not recorded.
    """
    names = pa.array([name or None for name in DRIVERS], pa.string())
    number = np.minimum(steps.driver, len(DRIVERS) - 1).astype(np.int32)
    other = steps.driver >= len(DRIVERS)
    scsi = steps.driver == _SCSI
    queue = (steps.driver == _NVME) & (steps.answered != NEVER)
    times = {"begun": steps.begun, "answered": steps.answered, "finished": steps.finished}
    return {
        "driver": pa.DictionaryArray.from_arrays(pa.array(number, mask=other), names),
        **{f"driver_{name}_ns": pa.array(t, mask=t == NEVER) for name, t in times.items()},
        "driver_errors": pa.array(steps.errors, mask=~scsi),
        "driver_timeouts": pa.array(steps.timeouts, mask=~scsi),
        "sq_head": pa.array(steps.sq_head, mask=~queue),
        "sq_tail": pa.array(steps.sq_tail, mask=~queue),
    }
