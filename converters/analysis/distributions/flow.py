# SPDX-License-Identifier: Apache-2.0
"""When bios and requests begin and end, each told once, whatever the windows are.

A bio that is under way at a window's end comes again in the next one: what was told of it
is remembered, so that only the difference is given.
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


@dataclass
class Steps:
    """Beginnings and ends between a window's `begin` and `end` (ns), each in the order of time.

    A time before the window's begin (its event came late, or it was given up) counts as that.
    """

    begin: int
    end: int
    start: I64
    """ns. What has no end, and is not in flight at the log's end, is not among these."""
    start_dev: U32
    start_op: I64
    """Number of the operation, as in Samples.place; 0 where operations were not asked for."""
    stop: I64
    stop_dev: U32
    stop_op: I64
    seen: I64
    """ns of each Q (or first D) in the log."""
    seen_dev: U32
    sector: U64
    """First sector of what is `seen`."""
    bytes: I64
    """Length of what is `seen`."""


@dataclass
class _Rows:
    """Bios or requests: when they began and ended (NEVER: not), shape (n,)."""

    number: I64
    dev: U32
    op: I64
    sector: U64
    bytes: I64
    start: I64
    stop: I64
    seen: Bool
    """Whether `start` is its Q's (first D's)."""

    @classmethod
    def of_bios(cls, bios: Bios, context: Context | None) -> "_Rows":
        # Where its Q is not in the log, it was there from the first that is known of it.
        start = np.where(bios.queue == NEVER, bios.cut, bios.queue)
        for column in (bios.getrq, bios.merge, bios.insert, bios.issue, bios.complete):
            start = np.where(start == NEVER, column, start)
        size = bios.bytes.astype(np.int64)
        seen = bios.queue != NEVER
        op = _operations(bios, context)
        return cls(bios.number, bios.dev, op, bios.sector, size, start, bios.complete, seen)

    @classmethod
    def of_requests(cls, requests: Requests, context: Context | None) -> "_Rows":
        size = requests.bytes.astype(np.int64)
        stop = np.where(requests.issue == NEVER, NEVER, requests.complete)
        seen = (requests.issue != NEVER) & (requests.issue != requests.cut)
        op, start = _operations(requests, context), requests.issue
        return cls(requests.number, requests.dev, op, requests.sector, size, start, stop, seen)

    def states(self) -> U8:
        state = np.zeros(len(self.number), dtype=np.uint8)
        state[self.start != NEVER] |= _BEGUN
        state[self.stop != NEVER] |= _ENDED
        return state


class Flow:
    """Steps of bios (Q to C) or of requests (D to C), window after window."""

    def __init__(self) -> None:
        self._number = np.zeros(0, dtype=np.int64)
        self._state = np.zeros(0, dtype=np.uint8)

    def bios(self, window: Lifecycles, context: Context | None = None) -> Steps:
        """From Q to C. context: by it steps say their operations; None: they do not."""
        over = _Rows.of_bios(window.bios, context)
        under_way = _Rows.of_bios(window.open_bios, context)
        return self._steps(window, over, _given_up(window.bios, window), under_way)

    def requests(self, window: Lifecycles, context: Context | None = None) -> Steps:
        """From the first D to C; what is never issued is left out. context: as of `bios`."""
        over = _Rows.of_requests(window.requests, context)
        under_way = _Rows.of_requests(window.open_requests, context)
        return self._steps(window, over, _given_up(window.requests, window), under_way)

    def _steps(self, window: Lifecycles, over: _Rows, given_up: Bool, open_: _Rows) -> Steps:
        begin = window.begin
        parts: list[tuple[_Rows, Bool, Bool, Bool, I64]] = []
        for rows, lost in ((over, given_up), (open_, np.zeros(len(open_.number), np.bool_))):
            told = self._told(rows.number)
            new = rows.states() & ~told
            begun = new & _BEGUN > 0
            # Nobody knows when it ended: it counts as in flight until it was given up.
            gone = lost & (told & _BEGUN > 0) & (told & _ENDED == 0)
            stops = ((new & _ENDED > 0) & (rows.start != NEVER)) | gone
            stop = np.where(gone, begin, rows.stop)
            parts.append((rows, begun & rows.seen, begun & ~lost, stops, stop))
        self._remember(open_)
        seen, seen_dev, sector, size = (
            np.concatenate([getattr(rows, name)[chosen] for rows, chosen, *_ in parts])
            for name in ("start", "dev", "sector", "bytes")
        )
        start, start_dev, start_op = (
            np.concatenate([getattr(rows, name)[starts] for rows, _, starts, *_ in parts])
            for name in ("start", "dev", "op")
        )
        stop = np.concatenate([at[stops] for *_, stops, at in parts])
        stop_dev, stop_op = (
            np.concatenate([getattr(rows, name)[stops] for rows, *_, stops, _ in parts])
            for name in ("dev", "op")
        )
        start, stop = np.maximum(start, begin), np.maximum(stop, begin)
        first = np.argsort(seen, kind="stable")
        up, down = np.argsort(start, kind="stable"), np.argsort(stop, kind="stable")
        return Steps(
            begin=begin,
            end=window.end,
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

    def _told(self, number: I64) -> U8:
        """What earlier windows said of each."""
        if not len(self._number) or not len(number):
            return np.zeros(len(number), dtype=np.uint8)
        at = np.minimum(np.searchsorted(self._number, number), len(self._number) - 1)
        return np.where(self._number[at] == number, self._state[at], 0).astype(np.uint8)

    def _remember(self, open_: _Rows) -> None:
        order = np.argsort(open_.number)
        self._number, self._state = open_.number[order], open_.states()[order]


def _operations(table: Bios | Requests, context: Context | None) -> I64:
    if context is None:
        return np.zeros(len(table), dtype=np.int64)
    return operations_of(table, context)


def _given_up(table: Bios | Requests, window: Lifecycles) -> Bool:
    """What has no end though the log goes on: its completion was lost.

    At the log's end, what is only incomplete is still in flight.
    """
    final = window.begin == window.end
    given = table.complete == NEVER
    if final:
        given &= table.certainty != Certainty.INCOMPLETE
    return np.asarray(given, dtype=np.bool_)
