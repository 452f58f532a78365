# SPDX-License-Identifier: Apache-2.0
"""The path beside the block layer: call and dirtying task of each Q, interrupt of each C.

CALL, DIRTIED, HELD, BEHALF, BACKING and SUBMISSION records follow their Q, INTERRUPT and DRIVER
records their C, each with the same head time. They are joined to it once, so that later steps can
pass the Q or C on without them.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.events import Events
from biotrail.converters.events.path_column import PATH, REQUEST, PathColumn, unknown
from biotrail.converters.events.queued import queued_of
from biotrail.converters.events.tables import I32, I64, NEVER
from biotrail.recorder.log.names import NO_CPU
from biotrail.recorder.schema.records import CALL_REPEAT_NS, Q_TURN_SHIFT, TIMESTAMP_BITS, Kind

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


# Calls that queue several bios: their one CALL record, joined to the Q of all of them.

_KNOWN = np.dtype([("tid", "<i8"), ("turn", "u1"), ("time", "<i8"), ("row", "<i8")])
"""A CALL that bios may refer to. row: in `events`; -1: it came in an earlier window."""
_ROW_BITS = 32


class RunningCalls:
    """The newest CALL record of each thread, while later bios may refer to it.

    Such a bio's Q has the CALL's turn, so that a CALL which is not in the log is noticed. As turns
    come again, no Q is joined to a CALL from before a damaged part of the log either.
    """

    def __init__(self) -> None:
        self._known = np.empty(0, _KNOWN)
        self._values: NDArray[np.void] | None = None

    def __bool__(self) -> bool:
        """Return whether any bio that comes may refer to a call."""
        return bool(len(self._known))

    def join(
        self,
        events: Events,
        rows: I64,
        queued: I64,
        values: NDArray[np.void],
        path: PathColumn,
        damaged: Sequence[Mapping[str, int]],
    ) -> None:
        """Write the call of Qs that refer to a CALL record to their row of `path`.

        rows: of CALL records in `events` (n,); queued: of the Q that each follows, -1: not there;
        values: fields of PATH that each says. A Q whose CALL is not found keeps its row. damaged:
        windows of time that could not be read, as a log's reader has them. `events` come in the
        log's order, window by window.
        """
        known, values = self._with_fresh(events, rows, queued, values)
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
        for name in values.dtype.names or ():
            path.rows[name][path.at[queues[found]]] = values[name][place[found]]
        last = np.append(known["tid"][1:] != known["tid"][:-1], True)
        last &= known["time"] > (int(events.ts[-1]) if len(events) else 0) - CALL_REPEAT_NS
        self._known, self._values = known[last], values[last]
        self._known["row"] = -1

    def _with_fresh(
        self, events: Events, rows: I64, queued: I64, values: NDArray[np.void]
    ) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return (calls, their values): earlier ones and the window's, by thread and row.

        At the beginning of a file the CALLs of calls that go on are repeated, with the thread as
        `bio`. Any other CALL without its Q is left out.
        """
        turn, repeated = events.field(Kind.CALL, "turn", rows), events.cpu[rows] == NO_CPU
        fresh = (turn > 0) & ((queued >= 0) | repeated)
        rows, queued, turn, repeated = rows[fresh], queued[fresh], turn[fresh], repeated[fresh]
        known = np.empty(len(rows), _KNOWN)
        thread = events.field(Kind.CALL, "bio", rows).astype(np.int64)
        own = np.flatnonzero(~repeated)
        thread[own] = events.field(Kind.Q, "tid", queued[own])
        known["tid"], known["turn"] = thread, turn
        known["time"], known["row"] = events.ts[rows], rows
        values = values[fresh]
        if self._values is not None:
            known = np.concatenate([self._known, known])
            values = np.concatenate([self._values, values])
        order = np.argsort(_place(known["tid"], known["row"]))
        return known[order], values[order]


def _place(tid: I64, row: I64) -> I64:
    """Return numbers (n,) that sort by thread, then by row."""
    return tid << _ROW_BITS | (row + 1)


ROWS = (Kind.RETURN, Kind.WAIT, Kind.COMMIT, Kind.RING_COMPLETE)
"""Kinds of records that are rows of the path's tables."""
_OF_CALLS = (Kind.CALL, Kind.DIRTIED, Kind.SUBMISSION)
_OF_QUEUED = (*_OF_CALLS, Kind.HELD, Kind.BEHALF, Kind.BACKING)
_JOINED = (*_OF_QUEUED, Kind.INTERRUPT, Kind.DRIVER)
KINDS = (*_JOINED, *ROWS, Kind.WAIT_STACK, Kind.WAIT_CALL)
"""Kinds of the path's records."""
_NEVER_AGO = np.uint32(0xFFFFFFFF)
_SAID = np.dtype([(name, PATH[name]) for name in ("call", "foreign", "entry", "args")])
"""What a CALL record says: fields of PATH."""
_FIELDS = ("number", "foreign", "entry", "arg0", "arg1", "arg2", "arg3")


def attach_path(
    events: Events,
    running: RunningCalls | None = None,
    damaged: Sequence[Mapping[str, int]] = (),
) -> None:
    """Set `events.path`: a row of PATH per Q and C, by the records that follow them.

    These are CALL, DIRTIED, HELD, BEHALF, BACKING and SUBMISSION records (of a Q), INTERRUPT and
    DRIVER records (of a C). What is not recorded is as in NO_PATH. A record whose Q or C is not in
    `events` is ignored. `events.path` is left as it is if there are no such records. `events` must
    hold all events of each time, so that a Q or C and its records are together. The records stay
    among the events. running: the calls of earlier events, to which Qs may refer; those of `events`
    are added. damaged: windows of time that could not be read, as of a log's reader.
    """
    if running is None:
        running = RunningCalls()
    calls, dirtied = events.rows(Kind.CALL), events.rows(Kind.DIRTIED)
    interrupts, submissions = events.rows(Kind.INTERRUPT), events.rows(Kind.SUBMISSION)
    steps, held = events.rows(Kind.DRIVER), events.rows(Kind.HELD)
    waited, backing = events.rows(Kind.BEHALF), events.rows(Kind.BACKING)
    parts = (calls, dirtied, interrupts, submissions, steps, held, waited, backing)
    if not any(map(len, parts)) and not running:
        return
    known = events.rows(Kind.Q, Kind.C)
    at = np.full(len(events), -1, np.int32)
    at[known] = np.arange(len(known))
    path = PathColumn(at, unknown(len(known)))
    _join_calls(events, calls, path, running, damaged)
    _join_dirtied(events, dirtied, path)
    _join_held(events, held, path)
    _join_field(events, waited, Kind.BEHALF, "waiter", path.rows["waiter"], path.at)
    _join_field(events, backing, Kind.BACKING, "rq", path.rows["backing"], path.at)
    _join_interrupts(events, interrupts, path)
    _join_submissions(events, submissions, path)
    join_steps(events, steps, completion_of(events, steps), path)
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


def _join_calls(
    events: Events,
    rows: I64,
    path: PathColumn,
    running: RunningCalls,
    damaged: Sequence[Mapping[str, int]],
) -> None:
    """Write call, foreign, entry and args of the CALL records at `rows` to their Q's row of `path`.

    And to those of Qs that refer to them (`RunningCalls`). An entry of 0 becomes NEVER. Records
    whose Q is not in `events` are ignored.
    """
    queued = queued_of(events, rows)
    number, foreign, entry, *args = (events.field(Kind.CALL, name, rows) for name in _FIELDS)
    said = np.empty(len(rows), _SAID)
    said["call"], said["foreign"] = number, foreign
    said["entry"] = full_time(events, rows, entry)
    said["args"] = np.stack(args, axis=1)
    known = queued >= 0
    for name in _SAID.names or ():
        path.rows[name][path.at[queued[known]]] = said[name][known]
    running.join(events, rows, queued, said, path, damaged)


def _join_dirtied(events: Events, rows: I64, path: PathColumn) -> None:
    """Write dirtied, tid, pid, comm, cgroup of the DIRTIED records at `rows` to their Q's row."""
    queued = queued_of(events, rows)
    rows, queued = rows[queued >= 0], queued[queued >= 0]
    records = events.fields(Kind.DIRTIED, rows)
    path.rows["dirtied"][path.at[queued]] = events.ts[rows] - records["ago"].astype(np.int64)
    path.rows["tid"][path.at[queued]] = records["tid"]
    path.rows["pid"][path.at[queued]] = records["tgid"]
    path.rows["comm"][path.at[queued]] = records["comm"]
    path.rows["cgroup"][path.at[queued]] = records["cgroup"]


def _join_held(events: Events, rows: I64, path: PathColumn) -> None:
    """Write limit, bps, iops, limits and `held` of the HELD records at `rows` to their Q's row."""
    queued = queued_of(events, rows)
    rows, queued = rows[queued >= 0], queued[queued >= 0]
    records = events.fields(Kind.HELD, rows)
    path.rows["held"][path.at[queued]] = 1
    path.rows["limit"][path.at[queued]] = records["cgroup"]
    for name in ("bps", "iops", "limits"):
        path.rows[name][path.at[queued]] = records[name]


def _join_field(
    events: Events, rows: I64, kind: Kind, name: str, column: NDArray[np.void], at: I32
) -> None:
    """Write a field of records of this kind, at `rows`, to their Q's row of a column of PATH."""
    queued = queued_of(events, rows)
    rows, queued = rows[queued >= 0], queued[queued >= 0]
    column[at[queued]] = events.field(kind, name, rows)


def _join_submissions(events: Events, rows: I64, path: PathColumn) -> None:
    """Write all fields of REQUEST of the SUBMISSION records at `rows` to their Q's `request`."""
    queued = queued_of(events, rows)
    rows, queued = rows[queued >= 0], queued[queued >= 0]
    records = events.fields(Kind.SUBMISSION, rows)
    for name in REQUEST.names or ():
        path.rows["request"][name][path.at[queued]] = records[name]


def _join_interrupts(events: Events, rows: I64, path: PathColumn) -> None:
    """Write context, irq, hard, raised and soft of INTERRUPT records to their C's row of `path`."""
    completed = completion_of(events, rows)
    rows, completed = rows[completed >= 0], completed[completed >= 0]
    records = events.fields(Kind.INTERRUPT, rows)
    path.rows["context"][path.at[completed]] = records["context"].astype(np.int8)
    path.rows["irq"][path.at[completed]] = records["irq"]
    for name in ("hard", "raised", "soft"):
        ago = records[name]
        time = events.ts[rows] - ago.astype(np.int64)
        path.rows[name][path.at[completed]] = np.where(ago == _NEVER_AGO, NEVER, time)


def completion_of(events: Events, rows: I64) -> I64:
    """Return per record at `rows` that follows a C the row of that C in `events`, -1: not there.

    Int64 (n,). That is the C with the record's request and time (all leave the kernel together):
    one of the two rows just before it, the nearer first, else the last such row of all `events`.
    rows: of records whose first field is the request's address (INTERRUPT, DRIVER).
    """
    completions = events.rows(Kind.C)
    if not len(completions) or not len(rows):
        return np.full(len(rows), -1, dtype=np.int64)
    # C is one of the two rows before, unless another CPU's record of that nanosecond came between.
    completed = np.full(len(rows), -1, dtype=np.int64)
    for back in (1, 2):
        before = np.maximum(rows - back, 0)
        near = (events.kind[before] == Kind.C) & (events.raw[before, 1] == events.raw[rows, 1])
        near &= (events.ts[before] == events.ts[rows]) & (rows >= back) & (completed < 0)
        completed[near] = before[near]
    far = np.flatnonzero(completed < 0)
    if len(far):
        keys = zip(
            events.ts[completions].tolist(), events.raw[completions, 1].tolist(), strict=True
        )
        row_of = dict(zip(keys, completions.tolist(), strict=True))
        for place in far.tolist():
            row = int(rows[place])
            key = int(events.ts[row]), int(events.raw[row, 1])
            completed[place] = row_of.get(key, -1)
    return completed
