# SPDX-License-Identifier: Apache-2.0
"""Threads' names from tracepoints' fields, as TASK events, one per new name.

A thread whose id is not recorded has its name instead: threads are told apart by it, by an id that
stands for "not known, of this name" (`records.FIRST_UNKNOWN_TID`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from biotrail.converters.events.events import RAW_WORDS
from biotrail.converters.events.tables import I64, U16, U64
from biotrail.converters.inputs.foreign import head_words
from biotrail.converters.inputs.tracepoints.rows import Column, TracepointRows
from biotrail.recorder.schema.records import FIRST_UNKNOWN_TID, Kind

COMM_BYTES = 16
_MOST_THREADS = 1 << 20
"""Threads whose names are remembered; with more, all are named anew."""


@dataclass
class NameRows:
    """TASK events: time (ns), cpu and arrival (n,), raw (8, n), as `translate` takes them."""

    time: I64
    cpu: U16
    arrival: I64
    raw: U64


class ThreadNames:
    """The names that threads had last, so that only new ones become events."""

    def __init__(self) -> None:
        self._last: dict[int, bytes] = {}
        self._nameless: dict[bytes, int] = {}
        """By name: the id that stands for the threads of that name whose ids are not known."""

    def identified(self, rows: TracepointRows) -> TracepointRows:
        """Return the rows with ids that stand for those that are not known, one for each name.

        FIRST_UNKNOWN_TID itself stands for threads of which not even the name is known.
        """
        tid = np.asarray(rows.pid).astype(np.int64)
        unknown = np.flatnonzero(tid < 0)
        if not len(unknown):
            return rows
        comm, tgid = _comm(rows), rows.tgid
        tid[unknown] = FIRST_UNKNOWN_TID
        if comm is not None:
            names, of = np.unique(comm[unknown], return_inverse=True)
            tid[unknown] = np.array([self._id_of(name) for name in names.tolist()])[of]
        if tgid is not None:
            tgid = tgid.astype(np.int64)
            tgid[unknown] = tid[unknown]
        return replace(rows, pid=tid, tgid=tgid)

    def _id_of(self, name: bytes) -> int:
        name = name.split(b"\0")[0][: COMM_BYTES - 1]
        if not name or (len(self._nameless) >= _MOST_THREADS and name not in self._nameless):
            return FIRST_UNKNOWN_TID
        return self._nameless.setdefault(name, FIRST_UNKNOWN_TID + 1 + len(self._nameless))

    def rows(self, batch: Sequence[TracepointRows]) -> list[NameRows]:
        """Return a TASK event for each row whose thread's name is not the last one's of its thread.

        Of thread 0, each CPU's idle thread, only the first name counts. A process that is not known
        is the thread itself. Names are taken from `TracepointRows.comm`, else column "comm".
        """
        named = [(rows, comm) for rows in batch if (comm := _comm(rows)) is not None and len(rows)]
        if not named:
            return []
        time = np.concatenate([rows.time for rows, _ in named])
        arrival = np.concatenate([rows.arrival for rows, _ in named])
        words = np.concatenate([_words(comm) for _, comm in named], axis=1)
        pid = np.concatenate([np.asarray(rows.pid).astype(np.int64) for rows, _ in named])
        tgid = np.concatenate([_tgid(rows) for rows, _ in named])
        cpu = np.concatenate([np.asarray(rows.cpu).astype(np.uint16) for rows, _ in named])
        at = self._new(_changes(pid, words, time, arrival), pid, words)
        if not len(at):
            return []
        raw = np.zeros((RAW_WORDS, len(at)), np.uint64)
        raw[0] = head_words(Kind.TASK, time[at])
        low = np.uint64(0xFFFFFFFF)
        raw[1] = pid[at].view(np.uint64) & low | tgid[at].view(np.uint64) << np.uint64(32)
        raw[2:4] = words[:, at]
        return [NameRows(time[at], cpu[at], arrival[at], raw)]

    def _new(self, candidates: I64, pid: I64, words: U64) -> I64:
        """Return the rows among `candidates` whose name differs from their thread's last one.

        Takes these names over into `_last`.
        """
        if len(self._last) > _MOST_THREADS:
            self._last.clear()
        new = []
        for row in candidates.tolist():
            thread, name = int(pid[row]), words[:, row].tobytes()
            last = self._last.get(thread)
            if name != last and not (thread == 0 and last is not None):
                self._last[thread] = name
                new.append(row)
        return np.array(new, dtype=np.int64)


def _changes(pid: I64, words: U64, time: I64, arrival: I64) -> I64:
    """Return the rows, by time, whose name differs from the one before of the thread, or is first.

    words: (2, n), the names.
    """
    order = np.lexsort((arrival, time, pid))
    differs = np.ones(len(order), dtype=np.bool_)
    thread, name = pid[order], words[:, order]
    differs[1:] = (thread[1:] != thread[:-1]) | (name[:, 1:] != name[:, :-1]).any(axis=0)
    rows = order[differs]
    return rows[np.lexsort((arrival[rows], time[rows]))]


def _comm(rows: TracepointRows) -> Column | None:
    return rows.comm if rows.comm is not None else rows.columns.get("comm")


def _tgid(rows: TracepointRows) -> I64:
    tid = np.asarray(rows.pid).astype(np.int64)
    if rows.tgid is None:
        return tid
    tgid = np.asarray(rows.tgid).astype(np.int64)
    return np.where(tgid < 0, tid, tgid)


def _words(comm: Column) -> U64:
    """Return names as two words each, (2, n) uint64: NUL-padded to 16 bytes, 15 letters at most.

    What is behind a NUL, which may be anything in a kernel's buffer, becomes 0.
    """
    letters = np.ascontiguousarray(comm, dtype=f"S{COMM_BYTES}").view(np.uint8)
    letters = letters.reshape(len(comm), COMM_BYTES).copy()
    letters[:, COMM_BYTES - 1] = 0
    letters[np.maximum.accumulate(letters == 0, axis=1)] = 0
    return np.ascontiguousarray(letters.view("<u8").astype(np.uint64).T)
