# SPDX-License-Identifier: Apache-2.0
"""Records that compressed recordings have twice.

`perf record -z` (seen with 6.1) now and then writes the last record of a ring again at the
beginning of the next round, byte for byte, so that `perf script` shows it twice as well.
"""

import numpy as np

from biotrail.converters.events.tables import Bool
from biotrail.converters.inputs.tracepoints.rows import TracepointRows

_Record = tuple[int, int, tuple[object, ...]]
"""Time, thread and fields of a record."""


class Repeats:
    """Finds repeated records: of one CPU, time (ns) and thread, and alike in all fields.

    count: number of records that were left out.
    """

    def __init__(self) -> None:
        self.count = 0
        self._newest: dict[tuple[str, int], _Record] = {}
        """The newest record of an event and CPU in the blocks before."""

    def without(self, rows: TracepointRows) -> TracepointRows:
        """Return a block's rows of one event without those that were there before."""
        repeated = _in_block(rows) | self._of_earlier(rows)
        for cpu in np.unique(rows.cpu).tolist():
            of_cpu = np.flatnonzero(rows.cpu == cpu)
            self._newest[rows.event, cpu] = _record(rows, int(of_cpu[-1]))
        found = int(np.count_nonzero(repeated))
        self.count += found
        return rows.without(repeated) if found else rows

    def _of_earlier(self, rows: TracepointRows) -> Bool:
        """Return which rows (n,) repeat the newest record of their CPU in an earlier block."""
        result = np.zeros(len(rows), np.bool_)
        for (event, cpu), newest in self._newest.items():
            if event != rows.event:
                continue
            for row in np.flatnonzero((rows.time == newest[0]) & (rows.cpu == cpu)).tolist():
                result[row] = _record(rows, row) == newest
        return result


def _in_block(rows: TracepointRows) -> Bool:
    """Return which rows (n,) repeat another one before them."""
    order = np.lexsort((rows.arrival, rows.pid, rows.cpu, rows.time))
    one, other = order[:-1], order[1:]
    alike = (rows.time[one] == rows.time[other]) & (rows.cpu[one] == rows.cpu[other])
    alike &= rows.pid[one] == rows.pid[other]
    pairs = np.flatnonzero(alike)
    for column in rows.columns.values():
        pairs = pairs[column[one[pairs]] == column[other[pairs]]]
    result = np.zeros(len(rows), np.bool_)
    result[other[pairs]] = True
    return result


def _record(rows: TracepointRows, row: int) -> _Record:
    """Return the record at a row."""
    fields = tuple(column[row].item() for column in rows.columns.values())
    return int(rows.time[row]), int(rows.pid[row]), fields
