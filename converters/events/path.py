# SPDX-License-Identifier: Apache-2.0
"""The path beside the block layer: call and dirtying task of each Q, interrupt of each C.

CALL, DIRTIED, HELD, BEHALF, BACKING and SUBMISSION records follow their Q, INTERRUPT and DRIVER
records their C, each with the same head time. They are joined to it once, so that later steps can
pass the Q or C on without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.events import Events
from biotrail.converters.events.path_column import PATH, REQUEST, PathColumn, unknown
from biotrail.converters.events.tables import I64, NEVER
from biotrail.recorder.log.names import NO_CPU
from biotrail.recorder.schema.records import CALL_REPEAT_NS, Q_TURN_SHIFT, TIMESTAMP_BITS, Kind

DRIVERS = ("", "nvme", "scsi", "loop")
"""Names of drivers by the number in a DRIVER record; 0: no record."""
# Calls that queue several bios: their one CALL record, joined to the Q of all of them.

_KNOWN = np.dtype([("tid", "<i8"), ("turn", "u1"), ("time", "<i8"), ("row", "<i8")])
"""A CALL that bios may refer to. row: in `events`; -1: it came in an earlier window."""
_ROW_BITS = 32
_SAID = np.dtype([(name, PATH[name]) for name in ("call", "foreign", "entry", "args")])
"""What a CALL record says: fields of PATH."""
_FIELDS = ("number", "foreign", "entry", "arg0", "arg1", "arg2", "arg3")


@dataclass
class RunningCalls:
    """The newest CALL record of each thread, while later bios may refer to it.

    Such a bio's Q has the CALL's turn, so that a CALL which is not in the log is noticed. As turns
    come again, no Q is joined to a CALL from before a damaged part of the log either.
    """

    known: NDArray[np.void] = field(default_factory=lambda: np.empty(0, _KNOWN))
    _said: NDArray[np.void] = field(default_factory=lambda: np.empty(0, _SAID))
    """What each says."""

    def join(self, events: Events, path: PathColumn, damaged: Sequence[Mapping[str, int]]) -> None:
        """Write what CALL records say to their Q's row, and to those of Qs that refer to them.

        An entry of 0 becomes NEVER. A Q whose CALL is not found keeps its row. damaged: windows of
        time that could not be read, as a log's reader has them. `events` come in the log's order,
        window by window.
        """
        rows = events.rows(Kind.CALL)
        queued = events.followed(Kind.Q, rows)
        number, foreign, entry, *args = (events.field(Kind.CALL, name, rows) for name in _FIELDS)
        said = np.empty(len(rows), _SAID)
        said["call"], said["foreign"] = number, foreign
        said["entry"] = full_time(events, rows, entry)
        said["args"] = np.stack(args, axis=1)
        own = queued >= 0
        for name in _SAID.names or ():
            path.rows[name][path.at[queued[own]]] = said[name][own]
        known, said = self._with_fresh(events, rows, queued, said)
        if not len(known):
            return
        queues = events.rows(Kind.Q)
        turn = events.field(Kind.Q, "flags", queues) >> Q_TURN_SHIFT
        queues, turn = queues[turn > 0], turn[turn > 0]
        tid = events.field(Kind.Q, "tid", queues).astype(np.int64)
        place = np.searchsorted(_place(known["tid"], known["row"]), _place(tid, queues)) - 1
        before, time = known[place], events.ts[queues]
        found = (place >= 0) & (before["tid"] == tid) & (before["turn"] == turn)
        found &= time - before["time"] < CALL_REPEAT_NS
        for window in damaged:
            found &= (before["time"] > window["end"]) | (time < window["start"])
        for name in _SAID.names or ():
            path.rows[name][path.at[queues[found]]] = said[name][place[found]]
        last = np.append(known["tid"][1:] != known["tid"][:-1], True)
        last &= known["time"] > (int(events.ts[-1]) if len(events) else 0) - CALL_REPEAT_NS
        self.known, self._said = known[last], said[last]
        self.known["row"] = -1

    def _with_fresh(
        self, events: Events, rows: I64, queued: I64, said: NDArray[np.void]
    ) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return (calls, what they say): earlier ones and the window's, by thread and row."""
        turn, repeated = events.field(Kind.CALL, "turn", rows), events.cpu[rows] == NO_CPU
        fresh = (turn > 0) & ((queued >= 0) | repeated)
        # At a file's beginning CALLs of calls that go on are repeated, with the thread as `bio`.
        rows, queued, turn, repeated = rows[fresh], queued[fresh], turn[fresh], repeated[fresh]
        known = np.empty(len(rows), _KNOWN)
        thread = events.field(Kind.CALL, "bio", rows).astype(np.int64)
        own = np.flatnonzero(~repeated)
        thread[own] = events.field(Kind.Q, "tid", queued[own])
        known["tid"], known["turn"] = thread, turn
        known["time"], known["row"] = events.ts[rows], rows
        known = np.concatenate([self.known, known])
        said = np.concatenate([self._said, said[fresh]])
        order = np.argsort(_place(known["tid"], known["row"]))
        return known[order], said[order]


def _place(tid: I64, row: I64) -> I64:
    """Return numbers (n,) that sort by thread, then by row."""
    return tid << _ROW_BITS | (row + 1)


ROWS = (Kind.RETURN, Kind.WAIT, Kind.COMMIT, Kind.RING_COMPLETE)
"""Kinds of records that are rows of the path's tables."""
_OF_QUEUED = (
    *(Kind.CALL, Kind.DIRTIED, Kind.SUBMISSION),
    *(Kind.HELD, Kind.BEHALF, Kind.BACKING),
)
_OF_COMPLETED = (Kind.INTERRUPT, Kind.DRIVER)
KINDS = (*_OF_QUEUED, *_OF_COMPLETED, *ROWS, Kind.WAIT_STACK, Kind.WAIT_CALL)
_TAKEN: dict[Kind, dict[str, str]] = {
    Kind.DIRTIED: {"tid": "tid", "pid": "tgid", "comm": "comm", "cgroup": "cgroup"},
    Kind.HELD: {"limit": "cgroup", "bps": "bps", "iops": "iops", "limits": "limits"},
    Kind.BEHALF: {"waiter": "waiter"},
    Kind.BACKING: {"backing": "rq"},
    Kind.INTERRUPT: {"context": "context", "irq": "irq"},
    Kind.DRIVER: {n: n for n in ("driver", "errors", "timeouts", "sq_head", "sq_tail")},
}
"""By kind of record: fields of PATH, and those of the record that they are taken from."""
_AGO = {
    Kind.INTERRUPT: (("hard", "raised", "soft"), np.uint32(0xFFFFFFFF)),
    Kind.DRIVER: (("answered", "finished"), np.uint32(0xFFFFFFFE)),
}
"""Fields that say how long before the C (ns), and from which value on that is not known: of DRIVER
none is recorded, or it was 4.29 s and more."""


def attach_path(
    events: Events, running: RunningCalls, damaged: Sequence[Mapping[str, int]] = ()
) -> None:
    """Set `events.path`: a row of PATH per Q and C, by the records that follow them.

    What is not recorded is as in NO_PATH. A record whose Q or C is not in `events` is ignored.
    `events.path` is left as it is if there are no such records. `events` must hold all events of
    each time, so that a Q or C and its records are together. The records stay among the events.
    running: the calls of earlier events, to which Qs may refer; those of `events` are added.
    damaged: windows of time that could not be read, as of a log's reader.
    """
    if not len(events.rows(*_OF_QUEUED, *_OF_COMPLETED)) and not len(running.known):
        return
    known = events.rows(Kind.Q, Kind.C)
    at = np.full(len(events), -1, np.int32)
    at[known] = np.arange(len(known))
    path = PathColumn(at, unknown(len(known)))
    running.join(events, path, damaged)
    for kind in (*_OF_QUEUED[1:], *_OF_COMPLETED):
        rows = events.rows(kind)
        if not len(rows):
            continue
        followed = events.followed(Kind.Q if kind in _OF_QUEUED else Kind.C, rows)
        rows, place = rows[followed >= 0], at[followed[followed >= 0]]
        records, time = events.fields(kind, rows), events.ts[rows]
        for to, name in _TAKEN.get(kind, {}).items():
            path.rows[to][place] = records[name]
        names, unknown_ago = _AGO.get(kind, ((), np.uint32(0)))
        for name in names:
            ago = records[name]
            then = time - ago.astype(np.int64)
            path.rows[name][place] = np.where(ago >= unknown_ago, NEVER, then)
        if kind == Kind.SUBMISSION:
            for name in REQUEST.names or ():
                path.rows["request"][name][place] = records[name]
        elif kind == Kind.DIRTIED:
            path.rows["dirtied"][place] = time - records["ago"].astype(np.int64)
        elif kind == Kind.HELD:
            path.rows["held"][place] = 1
        elif kind == Kind.DRIVER:  # however long before C
            path.rows["begun"][place] = time - records["begun"].astype(np.int64)
    events.path = path


def full_time(events: Events, rows: I64, time: NDArray[np.uint64]) -> I64:
    """Return times of CLOCK_MONOTONIC (ns, int64) from their low 56 bits, NEVER where these are 0.

    time: per event of `rows`, a time at most 2^56 ns before that event's own, from which the upper
    bits are taken. One before the clock began, as only a damaged record has it, is NEVER too.
    """
    now = events.ts[rows].astype(np.uint64)
    ago = (now - time) & np.uint64((1 << TIMESTAMP_BITS) - 1)
    known = (time != 0) & (ago <= now)
    return np.where(known, (now - ago).astype(np.int64), NEVER)
