# SPDX-License-Identifier: Apache-2.0
"""Names of threads over time, from TASK records: tids are reused and names change."""

import numpy as np

from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I32, I64, U32, Bool, Tasks
from biotrail.recorder.schema.records import Kind


class TaskNames:
    """All thread names recorded so far. Row numbers never change, so tables may hold them."""

    def __init__(self) -> None:
        self._tid: list[int] = []
        self._since: list[int] = []
        self._tgid: list[int] = []
        self._comm: list[str] = []
        self._known: dict[int, tuple[int, bytes]] = {}

    def add_records(self, events: Events) -> None:
        """Add a row for each TASK record of a window that changes its tid's tgid or name."""
        rows = events.rows(Kind.TASK)
        fields = events.fields(Kind.TASK, rows)
        for ts, tid, tgid, comm in zip(
            events.ts[rows].tolist(),
            fields["tid"].tolist(),
            fields["tgid"].tolist(),
            fields["comm"].tolist(),
            strict=True,
        ):
            if self._known.get(tid) == (tgid, comm):
                continue
            self._known[tid] = (tgid, comm)
            self._tid.append(tid)
            self._since.append(ts)
            self._tgid.append(tgid)
            self._comm.append(comm.decode("utf-8", "replace"))

    def rows(self, tid: U32, ts: I64) -> I32:
        """Return the row of each thread's name at a time, int32 (n,); -1 if the thread has no name.

        That is the last one recorded at `ts` or before. tid: (n,). ts: (n,) ns. If the thread's
        names are all later, the first is used: the record of an earlier one may have been lost.
        """
        result = np.full(len(tid), -1, dtype=np.int32)
        if not self._tid or not len(tid):
            return result
        tids = np.array(self._tid, dtype=np.int64)
        since = np.array(self._since, dtype=np.int64)
        order = np.lexsort((since, tids))
        tids, since = tids[order], since[order]
        threads, _, of = distinct_values(tid)
        begin = np.searchsorted(tids, threads, side="left")
        names = np.searchsorted(tids, threads, side="right") - begin
        if (names <= 1).all():  # no thread that is asked for has changed its name
            row = order[np.minimum(begin, len(order) - 1)]
            return np.where(names == 1, row, -1).astype(np.int32)[of]
        wanted = tid.astype(np.int64)
        first = np.searchsorted(tids, wanted, side="left")
        stop = np.searchsorted(tids, wanted, side="right")
        # The names of one thread are adjacent: search for the time within its run, by keys that
        # sort by thread, then by the rank of the time among all.
        times = np.unique(since)
        keys = tids * (len(times) + 1) + np.searchsorted(times, since, side="right")
        asked = wanted * (len(times) + 1) + np.searchsorted(times, ts, side="right")
        rank = np.searchsorted(keys, asked, side="right")
        at = np.clip(rank - 1, first, np.maximum(stop - 1, first))
        found = stop > first
        result[found] = order[at[found]]
        return result

    def table(self) -> Tasks:
        return Tasks(
            np.array(self._tid, dtype=np.uint32),
            np.array(self._tgid, dtype=np.uint32),
            np.array(self._comm, dtype=np.object_),
        )

    def tgid(self, rows: I32) -> U32:
        """Return the process id (tgid) of each row, uint32; 0 for row -1."""
        return take_or(np.array(self._tgid, dtype=np.uint32), rows, 0)


def by_threads(beginning: str, task: I32, tasks: Tasks) -> Bool:
    """Mark the rows (n,) whose thread's name begins so. task: row in `tasks`; -1: not known."""
    named = np.array([str(comm).startswith(beginning) for comm in tasks.comm], np.bool_)
    return np.append(named, False)[task]
