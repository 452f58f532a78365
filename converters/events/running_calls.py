# SPDX-License-Identifier: Apache-2.0
"""Calls that queue several bios: their one CALL record, joined to the Q of all of them."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.events import Events
from biotrail.converters.events.path_column import PathColumn
from biotrail.converters.events.tables import I64
from biotrail.recorder.log.names import NO_CPU
from biotrail.recorder.schema.records import CALL_REPEAT_NS, Q_TURN_SHIFT, Kind

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
