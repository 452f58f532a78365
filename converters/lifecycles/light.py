# SPDX-License-Identifier: Apache-2.0
"""Builds the tables of a light log, where one record says all that is known of a request.

Bios are not recorded. One row of `Bios` stands for all bios of a request (`standing`), from its
start to its end. Requests without bios (the flush machinery's, passthrough) have no such row, as in
other logs.
"""

from dataclasses import dataclass, replace

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import (
    I32,
    I64,
    NEVER,
    OP_MASK,
    Bios,
    Bool,
    Certainty,
    Edges,
    EventRows,
    RequestKind,
    Requests,
    Stage,
    Stages,
    Table,
)
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.account import kind_counts
from biotrail.converters.lifecycles.operations import request_kinds
from biotrail.converters.lifecycles.path import rows_of_path
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.lifecycles.standing import standing_bios
from biotrail.recorder.schema.records import (
    LIGHT_COARSE,
    LIGHT_GOES_ON,
    LIGHT_MANY,
    LIGHT_NONE,
    LIGHT_UNIT,
    NO_TAG,
    Kind,
)

# Requests of a light log: the completions of each, gathered, and the times that they carry.


@dataclass
class LightRequests(Table):
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

    Requests with several completions are found by address and start.
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
    """Return the function over each group's values. begin: where each group begins."""
    if not len(begin):
        return np.zeros(0, np.int64)
    return np.asarray(function.reduceat(values, begin), dtype=np.int64)


LAG_NS = 1_000_000_000
"""A window ends so long before its newest record: what completes in that time, and had begun
before, is known to be in flight at the window's end."""
MOST_AHEAD = 60_000
"""Records behind a window's end at most, which the next window reads again."""
GIVE_UP_NS = 600_000_000_000
"""Time after which a request that was completed in part is taken for lost: longer than the block
layer's time limits."""
MOST_PARTIAL = 10_000
"""Requests completed in part that wait for their end at most; older ones are taken for lost."""
_MANY = 128
"""Bios that stand for LIGHT_MANY: at least."""


class LightBuilder:
    """Builder of a light log's windows, which end before the newest events that were read."""

    def __init__(self, context: Context, tasks: TaskNames, begin: int) -> None:
        """tasks: the trace's, which names are added to before events are taken in.

        begin: time (ns) before which events are not counted.
        """
        self._context, self._tasks, self._begin = context, tasks, begin
        self._kept = Events.empty()
        self._told = np.zeros(0, np.int64)
        """Numbers of kept events that a window had."""

    def take(self, fresh: Events, end: int) -> int:
        """Take in events; return where a window of all may end (ns), as those before `end` were."""
        self._kept = Events.join([self._kept, fresh])
        ahead = len(self._kept) > MOST_AHEAD
        return max(end - LAG_NS, int(self._kept.ts[-MOST_AHEAD])) if ahead else end - LAG_NS

    def build(self, until: int, *, final: bool) -> tuple[Events, Result]:
        """Return a window's events, each in one window, and its tables. until: its end (ns).

        Closed are requests that completed before it; the open ones are those that began before it
        and have not. final: no window follows, and all are closed.
        """
        events = self._kept
        found, rows, request = light_requests(events)
        last = events.ts[found.last]
        found.superseded |= ~found.ended & (last < until - GIVE_UP_NS)
        waiting = np.flatnonzero(~found.ended & (last < until))
        if len(waiting) > MOST_PARTIAL:
            oldest = np.argsort(last[waiting], kind="stable")[:-MOST_PARTIAL]
            found.superseded[waiting[oldest]] = True
        over = found.ended & (found.complete < until)
        over |= found.superseded & ~found.ended & (last < until)
        over |= final
        own, _ = events.split(int(np.searchsorted(events.ts, until)))
        if len(self._told):
            own = own.take(~np.isin(own.number, self._told))
        goes_on = events.ts >= until
        goes_on[rows[~over[request]]] = True
        goes_on[rows[over[request]]] = False
        closed, still = found.take(over), found.take(~over & (_begun(events, found) < until))
        requests = _requests(events, closed, self._context)
        stages = _stages(closed, self._context, requests)
        bios = _bios(events, closed, requests, self._context)
        known = replace(
            still,
            issue=np.where(still.issue < until, still.issue, NEVER),
            complete=np.full(len(still), NEVER, np.int64),
            good=np.zeros(len(still), np.int64),
            status=np.zeros(len(still), np.int32),
        )
        in_flight = _requests(events, known, self._context)
        self._kept = events.take(goes_on)
        self._told = self._kept.number[self._kept.ts < until]
        counted = own.take(slice(int(np.searchsorted(own.ts, self._begin)), None))
        codes, numbers = np.unique(
            counted.dev.astype(np.int64) << 8 | counted.kind, return_counts=True
        )
        on_devices = zip(codes.tolist(), numbers.tolist(), strict=True)
        result = Result(
            bios=bios,
            requests=requests,
            edges=Edges(bios.number, bios.request, bios.sector, bios.bytes, bios.certainty),
            open_bios=_bios(events, known, in_flight, self._context),
            open_requests=in_flight,
            bio_stages=stages.take(np.isin(stages.owner, bios.number)),
            request_stages=stages,
            path=rows_of_path(own, self._tasks),
            span=(int(counted.ts[0]), int(counted.ts[-1])) if len(counted) else (NEVER, NEVER),
            counts=kind_counts(counted, counted.kind == Kind.LIGHT),
            device_counts={(code >> 8, code & 0xFF): number for code, number in on_devices},
        )
        return own, result


def _begun(events: Events, found: LightRequests) -> I64:
    """Return when each request began (ns): its start, else its issue, else its first completion."""
    begun = np.where(found.start == NEVER, found.issue, found.start)
    return np.where(begun == NEVER, events.ts[found.first], begun)


def _requests(events: Events, found: LightRequests, context: Context) -> Requests:
    """Return a row per request. `bios` is 1 for the row that stands for all, `others` the rest."""
    first = found.first
    opf, sector = events.opf[first], events.sector[first]
    bios = events.field(Kind.LIGHT, "nr_bios", first).astype(np.uint32)
    bios = np.where(bios == LIGHT_MANY, np.uint32(_MANY), bios)
    certainty = np.full(len(found), Certainty.EXACT, np.uint8)
    certainty[(found.start == NEVER) | ~found.ended] = Certainty.INCOMPLETE
    certainty[found.superseded & ~found.ended] = Certainty.LOST
    nothing = np.full(len(found), NEVER, np.int64)
    return Requests(
        number=found.number,
        dev=events.dev[first],
        sector=sector,
        bytes=found.bytes.astype(np.uint32),
        opf=opf,
        tag=events.field(Kind.LIGHT, "tag", first),
        sched_tag=np.full(len(found), NO_TAG, np.uint16),
        hctx=events.field(Kind.LIGHT, "hctx", first),
        start=_begun(events, found),
        insert=nothing,
        issue=found.issue,
        complete=found.complete,
        gone=nothing.copy(),
        bios=np.minimum(bios, 1).astype(np.uint32),
        others=(bios - np.minimum(bios, 1)).astype(np.uint32),
        requeues=np.zeros(len(found), np.uint32),
        status=found.status,
        done_bytes=found.good.astype(np.uint32),
        kind=request_kinds(opf, sector, context),
        absorbed_by=nothing.copy(),
        parent=nothing.copy(),
        family=found.number.copy(),
        certainty=certainty,
        doubtful=np.zeros(len(found), np.bool_),
        own=np.zeros(len(found), np.bool_),
        cut=nothing.copy(),
    )


def _bios(events: Events, found: LightRequests, requests: Requests, context: Context) -> Bios:
    """Return the rows that stand for the bios of each request that has any."""
    shown = (requests.bios > 0) & (requests.kind == RequestKind.NORMAL)
    found, requests = found.take(shown), requests.take(shown)
    cgroup = events.field(Kind.LIGHT, "cgroup", found.first)
    return standing_bios(
        requests, context, queue=found.start, getrq=found.start.copy(), cgroup=cgroup
    )


def _stages(found: LightRequests, context: Context, requests: Requests) -> Stages:
    """Return the stages of the requests, by number, then by time.

    G2D up to the issue, D2C up to the data's end, in a flush sequence PRE_FLUSH and POST_FLUSH.
    Without an issue there is one stage: FLUSH of a flush without data, else UNKNOWN.
    """
    opf, empty = requests.opf, requests.bytes == 0
    preflush = (opf & context.flag_mask("PREFLUSH")) != 0
    flush = empty & (preflush | ((opf & OP_MASK) == context.op_number("flush")))
    begun, issued, ended = found.start != NEVER, found.issue != NEVER, found.complete != NEVER
    after = ended & issued & (found.data_end < found.complete)
    kinds = np.empty((len(found), 3), np.uint8)
    kinds[:, 0] = np.where(preflush & ~empty, np.uint8(Stage.PRE_FLUSH), np.uint8(Stage.G2D))
    kinds[~issued, 0] = np.where(flush, np.uint8(Stage.FLUSH), np.uint8(Stage.UNKNOWN))[~issued]
    kinds[:, 1], kinds[:, 2] = Stage.D2C, Stage.POST_FLUSH
    starts = np.stack([found.start, found.issue, found.data_end], axis=1)
    ends = np.stack([found.issue, found.data_end, found.complete], axis=1)
    ends[:, 0] = np.where(issued, found.issue, found.complete)
    there = np.stack([begun & (issued | ended), issued & ended, after], axis=1)
    owner = np.repeat(found.number, 3).reshape(-1, 3)
    return Stages(owner[there], kinds[there], starts[there], ends[there])
