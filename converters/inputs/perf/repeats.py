# SPDX-License-Identifier: Apache-2.0
"""Records that a recording has twice.

`perf record` (seen with 6.1, mostly with -z) now and then writes the last records of a ring again
at the beginning of the next round, byte for byte, so that `perf script` shows them twice as well.
Two records of one CPU, time (ns), thread and event with the same fields are one: the kernel does
not get through two of them in a nanosecond.
"""

import numpy as np

from biotrail.converters.events.tables import Bool
from biotrail.converters.inputs.tracepoints.rows import TracepointRows

_KEPT = 256
"""Records of an event and CPU that are remembered from earlier blocks."""
_Record = tuple[int, int, int, tuple[object, ...]]
"""Time, CPU, thread and fields of a record."""


class Repeats:
    """Finds repeated records, block after block.

    count: number of records that were left out.
    """

    def __init__(self) -> None:
        self.count = 0
        self._newest: dict[tuple[str, int], TracepointRows] = {}
        """The last _KEPT records of an event and CPU in the blocks before."""

    def without(self, rows: TracepointRows) -> TracepointRows:
        """Return a block's rows of one event without those that were there before."""
        repeated = _in_block(rows) | self._of_earlier(rows)
        found = int(np.count_nonzero(repeated))
        self.count += found
        kept = rows.without(repeated) if found else rows
        for cpu in np.unique(kept.cpu).tolist():
            older = np.ones(len(kept), np.bool_)
            older[np.flatnonzero(kept.cpu == cpu)[-_KEPT:]] = False
            self._newest[rows.event, cpu] = kept.without(older)
        return kept

    def _of_earlier(self, rows: TracepointRows) -> Bool:
        """Return which rows (n,) repeat one of the newest records of their CPU before."""
        result = np.zeros(len(rows), np.bool_)
        for (event, cpu), newest in self._newest.items():
            if event != rows.event:
                continue
            late = (rows.cpu == cpu) & (rows.time <= newest.time.max())
            at = np.flatnonzero(late)
            at = at[np.isin(rows.time[at], newest.time)]
            known = {_record(newest, row) for row in range(len(newest))} if len(at) else set()
            result[at] = [_record(rows, row) in known for row in at.tolist()]
        return result


def _in_block(rows: TracepointRows) -> Bool:
    """Return which rows (n,) repeat another one before them."""
    result = np.zeros(len(rows), np.bool_)
    times = np.sort(rows.time)
    twice = times[1:][times[1:] == times[:-1]]
    if not len(twice):
        return result
    among = np.flatnonzero(np.isin(rows.time, twice))
    keys = [column[among] for column in (rows.arrival, rows.pid, rows.cpu, rows.time)]
    order = among[np.lexsort(keys)]
    one, other = order[:-1], order[1:]
    alike = (rows.time[one] == rows.time[other]) & (rows.cpu[one] == rows.cpu[other])
    alike &= rows.pid[one] == rows.pid[other]
    pairs = np.flatnonzero(alike)
    for column in rows.columns.values():
        pairs = pairs[column[one[pairs]] == column[other[pairs]]]
    result[other[pairs]] = True
    return result


def _record(rows: TracepointRows, row: int) -> _Record:
    """Return the record at a row."""
    fields = tuple(column[row].item() for column in rows.columns.values())
    return int(rows.time[row]), int(rows.cpu[row]), int(rows.pid[row]), fields
