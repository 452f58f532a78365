# SPDX-License-Identifier: Apache-2.0
"""Names of threads over time, from TASK records: tids are reused and names change."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I32, I64, U32, Tasks
from biotrail.recorder.schema.records import Kind


class TaskNames:
    """Every name seen so far. Rows are never renumbered, so tables may point to them."""

    def __init__(self) -> None:
        self._tid: list[int] = []
        self._since: list[int] = []
        self._tgid: list[int] = []
        self._comm: list[str] = []
        self._known: dict[int, tuple[int, bytes]] = {}

    def learn(self, events: Events) -> None:
        """Takes in the TASK records of a window; only changes are kept."""
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
        """Row of each thread's name at its time: int32, -1 when it never had one.

        A name that came later than the event is taken when there is no earlier one: its
        first record may have been lost.
        """
        result = np.full(len(tid), -1, dtype=np.int32)
        if not self._tid or not len(tid):
            return result
        known = np.array(self._tid, dtype=np.int64)
        since = np.array(self._since, dtype=np.int64)
        order = np.lexsort((since, known))
        known, since = known[order], since[order]
        wanted = tid.astype(np.int64)
        first = np.searchsorted(known, wanted, side="left")
        stop = np.searchsorted(known, wanted, side="right")
        # All of one thread's names are neighbours: search the time inside its run.
        rank = np.searchsorted(
            _packed(known, since, since), _packed(wanted, ts, since), side="right"
        )
        at = np.clip(rank - 1, first, np.maximum(stop - 1, first))
        found = stop > first
        result[found] = order[at[found]]
        return result

    def table(self) -> Tasks:
        """All names so far, by row."""
        return Tasks(
            np.array(self._tid, dtype=np.uint32),
            np.array(self._tgid, dtype=np.uint32),
            np.array(self._comm, dtype=np.object_),
        )

    def tgid(self, rows: I32) -> U32:
        """Process of each row; 0 for -1."""
        if not self._tgid:
            return np.zeros(len(rows), np.uint32)
        known = np.array(self._tgid, dtype=np.uint32)
        return np.where(rows >= 0, known[np.maximum(rows, 0)], np.uint32(0)).astype(np.uint32)


def _packed(tid: I64, ts: I64, since: I64) -> I64:
    """(tid, rank of ts among the known times) as one sortable number."""
    times = np.unique(since)
    rank = np.searchsorted(times, ts, side="right")
    return tid * (len(times) + 1) + rank
