# SPDX-License-Identifier: Apache-2.0
"""The path beside the block layer: call and dirtying task of each Q, interrupt of each C.

CALL and DIRTIED records follow their Q, INTERRUPT records their C, each with the same head time.
They are joined to it once, so that later steps can pass the Q or C on without them.
"""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.events import Events
from biotrail.converters.events.path_tables import NO_PATH, PATH
from biotrail.converters.events.queued import queued_of
from biotrail.converters.events.tables import (
    I64,
    NEVER,
)
from biotrail.recorder.schema.records import TIMESTAMP_BITS, Kind

_NEVER_AGO = np.uint32(0xFFFFFFFF)
_FIELDS = ("number", "foreign", "entry", "arg0", "arg1", "arg2", "arg3")


def attach_path(events: Events) -> None:
    """Set `events.path`: a row of PATH per event, by the CALL, DIRTIED and INTERRUPT records.

    `events.path` is left as it is (None) if there are no such records. `events` must hold all
    events of each time, so that a Q or C and its records are together.
    """
    calls, dirtied = events.rows(Kind.CALL), events.rows(Kind.DIRTIED)
    interrupts = events.rows(Kind.INTERRUPT)
    if not len(calls) and not len(dirtied) and not len(interrupts):
        return
    path = np.full(len(events), NO_PATH, PATH)
    _join_calls(events, calls, path)
    _join_dirtied(events, dirtied, path)
    _join_interrupts(events, interrupts, path)
    events.path = path


def full_time(events: Events, rows: I64, time: NDArray[np.uint64]) -> I64:
    """Return times of CLOCK_MONOTONIC in ns from their low 56 bits, NEVER where these are 0.

    time: per event of `rows`, a time before that event's own, which has the upper bits.
    """
    now = events.ts[rows].astype(np.uint64)
    ago = (now - time) & np.uint64((1 << TIMESTAMP_BITS) - 1)
    return np.where(time == 0, NEVER, (now - ago).astype(np.int64))


def _join_calls(events: Events, rows: I64, path: NDArray[np.void]) -> None:
    """Write call, foreign, entry and args of the CALL records at `rows` to their Q's row."""
    queued = queued_of(events, rows)
    rows, queued = rows[queued >= 0], queued[queued >= 0]
    number, foreign, entry, *args = (events.field(Kind.CALL, name, rows) for name in _FIELDS)
    path["call"][queued] = number
    path["foreign"][queued] = foreign
    path["entry"][queued] = full_time(events, rows, entry)
    path["args"][queued] = np.stack(args, axis=1) if len(rows) else 0


def _join_dirtied(events: Events, rows: I64, path: NDArray[np.void]) -> None:
    """Write dirtied, tid, pid, comm, cgroup of the DIRTIED records at `rows` to their Q's row."""
    queued = queued_of(events, rows)
    rows, queued = rows[queued >= 0], queued[queued >= 0]
    records = events.fields(Kind.DIRTIED, rows)
    path["dirtied"][queued] = events.ts[rows] - records["ago"].astype(np.int64)
    path["tid"][queued] = records["tid"]
    path["pid"][queued] = records["tgid"]
    path["comm"][queued] = records["comm"]
    path["cgroup"][queued] = records["cgroup"]


def _join_interrupts(events: Events, rows: I64, path: NDArray[np.void]) -> None:
    """Write context, irq, hard, raised and soft of the INTERRUPT records to their C's row."""
    completed = _completion_of(events, rows)
    rows, completed = rows[completed >= 0], completed[completed >= 0]
    records = events.fields(Kind.INTERRUPT, rows)
    path["context"][completed] = records["context"].astype(np.int8)
    path["irq"][completed] = records["irq"]
    for name in ("hard", "raised", "soft"):
        ago = records[name]
        time = events.ts[rows] - ago.astype(np.int64)
        path[name][completed] = np.where(ago == _NEVER_AGO, NEVER, time)


def _completion_of(events: Events, rows: I64) -> I64:
    """Return per INTERRUPT record at `rows` the event of its C, -1 where it is not in the log.

    The C of the same request and time; both leave the kernel together.
    """
    completions = events.rows(Kind.C)
    if not len(completions) or not len(rows):
        return np.full(len(rows), -1, dtype=np.int64)
    # C is the row just before, unless another CPU's record of that nanosecond came between.
    before = np.maximum(rows - 1, 0)
    near = (events.kind[before] == Kind.C) & (events.raw[before, 1] == events.raw[rows, 1])
    near &= (events.ts[before] == events.ts[rows]) & (rows > 0)
    completed = np.where(near, before, -1)
    far = np.flatnonzero(~near)
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
