# SPDX-License-Identifier: Apache-2.0
"""Beginnings and ends of bios and requests in time order, each reported once.

A bio that is under way at a window's end comes again in the next window. Flow remembers which
beginnings and ends it has reported, so that the result does not depend on how windows cut the log.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.analysis.distributions.samples import operations_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U8,
    U32,
    U64,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    Requests,
)

_BEGUN, _ENDED = 1, 2
"""Bits of a state: the beginning (end) of a bio or request is known, or has been reported."""


@dataclass
class Steps:
    """Beginnings and ends of bios (or requests) in one window, each list in time order.

    Of the `start` and `stop` times, those before the window's begin are set to `begin`: the event
    came late, or the completion was lost and its bio (request) counts as in flight until here.
    The lists are independent: (k,) starts, (l,) stops, (m,) seen.
    """

    begin: int
    """ns: the window's begin."""
    end: int
    """ns: the window's end."""
    start: I64
    """(k,): ns when a bio (request) began to be in flight. Those whose completion was lost are
    left out, unless an earlier window reported their beginning before that was known."""
    start_dev: U32
    """(k,): device of each start."""
    start_op: I64
    """(k,): number of the operation, as in Samples.place; 0 if Flow got no context."""
    stop: I64
    """(l,): ns when a bio (request) ended, or was given up."""
    stop_dev: U32
    """(l,): device of each stop."""
    stop_op: I64
    """(l,): operation of each stop, as `start_op`."""
    seen: I64
    """(m,): ns of each Q (of requests: first D) that is in the log."""
    seen_dev: U32
    """(m,): device of each bio (request) in `seen`."""
    sector: U64
    """(m,): first sector of each bio (request) in `seen`."""
    bytes: I64
    """(m,): length of each bio (request) in `seen`."""


@dataclass
class _Rows:
    """Bios or requests with the times between which they were in flight, shape (n,) each."""

    number: I64
    dev: U32
    op: I64
    sector: U64
    bytes: I64
    start: I64
    """ns; NEVER if not known, or if a request was not issued."""
    stop: I64
    """ns; NEVER if the completion is not in the log, or if a request was not issued."""
    seen: Bool
    """Whether `start` is the time of a Q (of requests: first D) in the log."""

    @classmethod
    def of_bios(cls, bios: Bios, context: Context | None) -> "_Rows":
        """Return bios as rows that are in flight from Q to C, in the order of the table.

        A bio without a Q in the log counts as in flight from the beginning of the cut if it was in
        flight then (`cut`), else from the first that it has of G, merge, I, D and C. context: the
        log's, for `op`; None: `op` is 0.
        """
        # Without a Q in the log, a bio counts as in flight from its first known time on.
        start = np.where(bios.queue == NEVER, bios.cut, bios.queue)
        for column in (bios.getrq, bios.merge, bios.insert, bios.issue, bios.complete):
            start = np.where(start == NEVER, column, start)
        size = bios.bytes.astype(np.int64)
        seen = bios.queue != NEVER
        op = _operations(bios, context)
        return cls(bios.number, bios.dev, op, bios.sector, size, start, bios.complete, seen)

    @classmethod
    def of_requests(cls, requests: Requests, context: Context | None) -> "_Rows":
        """Return requests as rows in flight from first D to C, in the order of the table.

        `start` and `stop` are NEVER without a D, `stop` also without a C; `seen` is False without a
        D and for one that lies before a cut. context: the log's, for `op`; None: `op` is 0.
        """
        size = requests.bytes.astype(np.int64)
        stop = np.where(requests.issue == NEVER, NEVER, requests.complete)
        seen = (requests.issue != NEVER) & (requests.issue != requests.cut)
        op, start = _operations(requests, context), requests.issue
        return cls(requests.number, requests.dev, op, requests.sector, size, start, stop, seen)

    def states(self) -> U8:
        """Return _BEGUN and _ENDED bits by whether `start` and `stop` are known, shape (n,)."""
        state = np.zeros(len(self.number), dtype=np.uint8)
        state[self.start != NEVER] |= _BEGUN
        state[self.stop != NEVER] |= _ENDED
        return state


class Flow:
    """Steps of bios (Q to C) or of requests (D to C), window after window.

    An instance serves either bios or requests; call `bios` or `requests` once for each window of
    the log, in order.
    """

    def __init__(self) -> None:
        self._number = np.zeros(0, dtype=np.int64)
        self._state = np.zeros(0, dtype=np.uint8)

    def bios(self, window: Lifecycles, context: Context | None = None) -> Steps:
        """Return the beginnings and ends of the window's bios (Q, C), each once.

        Has those that earlier windows did not report, and remembers which of the window's open bios
        have been reported. Call it for each window, in the log's order. Without a recorded Q a bio
        begins at its first known time. A bio whose completion was lost ends at the window's begin
        if its beginning was reported before; else only its Q is reported, in `seen`. context: the
        log's, by which operations are numbered; None: `start_op` and `stop_op` are 0.
        """
        over = _Rows.of_bios(window.bios, context)
        under_way = _Rows.of_bios(window.open_bios, context)
        return self._steps(window, over, _given_up(window.bios, window), under_way)

    def requests(self, window: Lifecycles, context: Context | None = None) -> Steps:
        """Return the beginnings and ends of the window's requests (first D, C), each once.

        Requests that are never issued have none. Has those that earlier windows did not report, and
        remembers which of the window's open requests have been reported. Call it for each window,
        in the log's order. A request whose completion was lost ends at the window's begin if its
        beginning was reported before; else only its first D is reported, in `seen`. context: the
        log's, by which operations are numbered; None: `start_op` and `stop_op` are 0.
        """
        over = _Rows.of_requests(window.requests, context)
        under_way = _Rows.of_requests(window.open_requests, context)
        return self._steps(window, over, _given_up(window.requests, window), under_way)

    def _steps(self, window: Lifecycles, over: _Rows, given_up: Bool, open_: _Rows) -> Steps:
        """Return the beginnings and ends that earlier windows did not report.

        over: the window's `bios` (or `requests`), which have ended. given_up: mask over them, as of
        _given_up: those without a completion end at the window's begin if an earlier window
        reported that they began, and else have no start and no stop (a recorded Q or D is in `seen`
        all the same). open_: the window's `open_bios` (or `open_requests`). Replaces `_number` and
        `_state` by the states of the open rows.
        """
        begin = window.begin
        parts: list[tuple[_Rows, Bool, Bool, Bool, I64]] = []
        for rows, lost in ((over, given_up), (open_, np.zeros(len(open_.number), np.bool_))):
            reported = self._reported(rows.number)
            new = rows.states() & ~reported
            begun = new & _BEGUN > 0
            # The time of a lost completion is unknown: in flight until the window that gives it up.
            gone = lost & (reported & _BEGUN > 0) & (reported & _ENDED == 0)
            stops = ((new & _ENDED > 0) & (rows.start != NEVER)) | gone
            stop = np.where(gone, begin, rows.stop)
            parts.append((rows, begun & rows.seen, begun & ~lost, stops, stop))
        self._remember(open_)
        return _steps_of(parts, begin, window.end)

    def _reported(self, number: I64) -> U8:
        """Return the _BEGUN and _ENDED bits that earlier windows reported of each number (n,)."""
        if not len(self._number) or not len(number):
            return np.zeros(len(number), dtype=np.uint8)
        at = np.minimum(np.searchsorted(self._number, number), len(self._number) - 1)
        return np.where(self._number[at] == number, self._state[at], 0).astype(np.uint8)

    def _remember(self, open_: _Rows) -> None:
        """Replace the remembered states by the states of the open rows."""
        order = np.argsort(open_.number)
        self._number, self._state = open_.number[order], open_.states()[order]


def _steps_of(parts: list[tuple[_Rows, Bool, Bool, Bool, I64]], begin: int, end: int) -> Steps:
    """Return the Steps of a window from `begin` to `end` (ns), each kind of step sorted by time.

    parts: rows, masks of those that were seen, that start and that stop, and each row's stop time
    (ns). Starts and stops before `begin` are moved to it.
    """
    seen, seen_dev, sector, size = (
        np.concatenate([getattr(rows, name)[chosen] for rows, chosen, *_ in parts])
        for name in ("start", "dev", "sector", "bytes")
    )
    start, start_dev, start_op = (
        np.concatenate([getattr(rows, name)[starts] for rows, _, starts, *_ in parts])
        for name in ("start", "dev", "op")
    )
    stop = np.concatenate([times[stops] for *_, stops, times in parts])
    stop_dev, stop_op = (
        np.concatenate([getattr(rows, name)[stops] for rows, *_, stops, _ in parts])
        for name in ("dev", "op")
    )
    start, stop = np.maximum(start, begin), np.maximum(stop, begin)
    first = np.argsort(seen, kind="stable")
    up, down = np.argsort(start, kind="stable"), np.argsort(stop, kind="stable")
    return Steps(
        begin=begin,
        end=end,
        start=start[up],
        start_dev=start_dev[up],
        start_op=start_op[up],
        stop=stop[down],
        stop_dev=stop_dev[down],
        stop_op=stop_op[down],
        seen=seen[first],
        seen_dev=seen_dev[first],
        sector=sector[first],
        bytes=size[first],
    )


def _operations(table: Bios | Requests, context: Context | None) -> I64:
    """Return each row's operation (n,); zeros without a context."""
    if context is None:
        return np.zeros(len(table), dtype=np.int64)
    return operations_of(table, context)


def _given_up(table: Bios | Requests, window: Lifecycles) -> Bool:
    """Mark rows of a window's bios (requests) whose completion was lost: bool (n,).

    table: `window.bios` or `window.requests`, all of which are over: without a completion, it was
    lost. In the log's last window (begin == end) a row of Certainty.INCOMPLETE is not marked,
    because it is still in flight when the log ends.
    """
    final = window.begin == window.end
    given = table.complete == NEVER
    if final:
        given &= table.certainty != Certainty.INCOMPLETE
    return np.asarray(given, dtype=np.bool_)
