# SPDX-License-Identifier: Apache-2.0
"""Requests of a light log: the completions of each, gathered, and the times that they carry."""

from dataclasses import dataclass, fields

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I32, I64, NEVER, Bool, EventRows
from biotrail.recorder.schema.records import (
    LIGHT_COARSE,
    LIGHT_GOES_ON,
    LIGHT_NONE,
    LIGHT_UNIT,
    Kind,
)


@dataclass
class LightRequests:
    """Requests with a completion in a window, by number; (n,) each.

    Mostly a request has one completion. It has more if it was completed in parts, or by a flush
    sequence: its data, and then 0 bytes at the sequence's end.
    """

    number: I64
    """Number of the first completion's event."""
    first: EventRows
    """Event of the first completion, which has the whole request's place and bios."""
    last: EventRows
    """Event of the last completion that is there."""
    ended: Bool
    """Whether that is the request's last one."""
    superseded: Bool
    """Whether another request has the address afterwards: one without its last completion is
    lost."""
    start: I64
    """ns; NEVER: the kernel took no time."""
    issue: I64
    """ns of the last issue before the first completion; NEVER: not issued, or no time taken."""
    data_end: I64
    """ns of the last completion with bytes; without one that of the last completion."""
    complete: I64
    """ns; NEVER where it has not `ended`."""
    bytes: I64
    """Completed by all completions."""
    good: I64
    """Bytes completed without error."""
    status: I32
    """Of the last completion, or if that is 0 of the first."""

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: I64 | Bool) -> "LightRequests":
        """Return the given rows, copied."""
        return LightRequests(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def light_requests(events: Events) -> tuple[LightRequests, EventRows, I64]:
    """Return (requests, rows, request): the requests of the light records among the events.

    rows: the events that are light records, ascending; request: per such event, which request's.
    """
    rows = events.rows(Kind.LIGHT)
    start, issue = _times(events, rows)
    order, begin = _groups(events, rows, start)
    ends = np.append(begin, len(order))[1:] - 1
    address = events.field(Kind.LIGHT, "rq", rows)[order]
    first, last = order[begin], order[ends]
    ended = events.field(Kind.LIGHT, "flags", rows[last]) & LIGHT_GOES_ON == 0
    superseded = np.zeros(len(begin), np.bool_)
    superseded[:-1] = address[begin[1:]] == address[begin[:-1]]
    size, status = events.bytes[rows], events.status[rows]
    ts = events.ts[rows]
    with_data = np.where(size > 0, ts, NEVER)
    data_end = _of_groups(np.maximum, with_data[order], begin)
    found = LightRequests(
        number=events.number[rows[first]],
        first=rows[first],
        last=rows[last],
        ended=ended,
        superseded=superseded,
        start=start[first],
        issue=issue[first],
        data_end=np.where(data_end == NEVER, ts[last], data_end),
        complete=np.where(ended, ts[last], NEVER),
        bytes=_of_groups(np.add, size[order], begin),
        good=_of_groups(np.add, np.where(status == 0, size, 0)[order], begin),
        status=np.where(status[last] != 0, status[last], status[first]).astype(np.int32),
    )
    if len(found) == len(rows):  # of one completion each, and so in order
        return found, rows, order
    by_number = np.argsort(found.number, kind="stable")
    place = np.empty(len(found), np.int64)
    place[by_number] = np.arange(len(found))
    request = np.empty(len(rows), np.int64)
    request[order] = np.repeat(place, ends + 1 - begin)
    return found.take(by_number), rows, request


def _times(events: Events, rows: EventRows) -> tuple[I64, I64]:
    """Return (start, issue) of light records, ns; NEVER where the kernel took none.

    An issue's time may come from a clock that another task's plug has kept since before the
    request's start: then it is the start's.
    """
    flags = events.field(Kind.LIGHT, "flags", rows)
    unit = np.where(flags & LIGHT_COARSE, 1 << LIGHT_UNIT, 1).astype(np.int64)
    ts = events.ts[rows]
    times = []
    for name in ("since_start", "since_issue"):
        ago = events.field(Kind.LIGHT, name, rows)
        times.append(np.where(ago == LIGHT_NONE, NEVER, ts - ago.astype(np.int64) * unit))
    start, issue = times
    return start, np.where(issue == NEVER, NEVER, np.maximum(issue, start))


def _groups(events: Events, rows: EventRows, start: I64) -> tuple[I64, I64]:
    """Return (order, begin): indices into `rows`, a request's together, and where each begins.

    start: ns, per row. Requests with several completions are found by address and start.
    """
    flags = events.field(Kind.LIGHT, "flags", rows)
    goes_on = flags & LIGHT_GOES_ON != 0
    every = np.arange(len(rows))
    if not goes_on.any():
        return every, every
    address = events.field(Kind.LIGHT, "rq", rows)
    order = np.argsort(address, kind="stable")
    new = np.ones(len(rows), np.bool_)
    coarse = flags[order] & LIGHT_COARSE != 0
    off = np.where(coarse[1:] | coarse[:-1], 1 << LIGHT_UNIT, 0)
    near = np.abs(np.diff(start[order])) <= off
    new[1:] = (np.diff(address[order].view(np.int64)) != 0) | ~goes_on[order][:-1] | ~near
    return order, np.flatnonzero(new)


def _of_groups(function: np.ufunc, values: I64, begin: I64) -> I64:
    """Return the function over each group's values, int64. begin: where each group begins."""
    if not len(begin):
        return np.zeros(0, np.int64)
    return np.asarray(function.reduceat(values, begin), dtype=np.int64)
