# SPDX-License-Identifier: Apache-2.0
"""Builds the tables of a light log, where one record says all that is known of a request.

Bios are not recorded. One row of `Bios` stands for all bios of a request (`standing`), from its
start to its end. Requests without bios (the flush machinery's, passthrough) have no such row, as in
other logs.
"""

from dataclasses import replace

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.plain_events import PlainEvents
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    OP_MASK,
    U8,
    Bios,
    Bool,
    Certainty,
    EventRows,
    RequestKind,
    Requests,
    Stage,
    Stages,
)
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.lifecycles import Builder, Modelled
from biotrail.converters.lifecycles.operations import request_kinds
from biotrail.converters.settling.light_requests import LightRequests, light_requests
from biotrail.converters.settling.standing import standing_bios, standing_edges
from biotrail.recorder.schema.records import LIGHT_MANY, NO_TAG, Kind

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
    """A `Builder` of a light log's windows; it keeps nothing between them."""

    def __init__(self, context: Context, tasks: TaskNames, stacks: StackNames) -> None:
        """As `Builder`, which gets all events but those of requests that are closed."""
        self._builder = Builder(context, tasks, stacks)
        self._context = context

    def window_end(self, events: Events, end: int) -> int:
        """Return where the window of these events ends (ns); all before `end` (ns) were read."""
        ahead = len(events) > MOST_AHEAD
        return max(end - LAG_NS, int(events.ts[-MOST_AHEAD])) if ahead else end - LAG_NS

    def build(self, events: Events, *, settled: int, final: bool) -> Modelled:
        """As `Builder.build`; closed are requests that completed before `settled` (ns).

        The open ones are those that began before it and have not. final: all are closed.
        """
        found, rows, request = light_requests(events)
        found.superseded |= _given_up(events, found, settled)
        over = found.ended & (found.complete < settled)
        over |= found.superseded & ~found.ended & (events.ts[found.last] < settled)
        over |= final
        closed = found.take(over)
        begun = _begun(events, found)
        still = found.take(~over & (begun < settled))
        rest = np.delete(np.arange(len(events)), rows[over[request]])
        result = self._builder.build(events.take(rest), settled=settled, final=final)
        waiting = result.association.events.kind == Kind.LIGHT
        requests = _requests(events, closed, self._context)
        shown = _has_bios(events, closed, requests)
        stages = _stages(closed, self._context, requests)
        bios = _bios(events, closed, requests, shown, self._context)
        in_flight = _in_flight(events, still, settled, self._context)
        return replace(
            result,
            kept=replace(result.kept, events=result.kept.events | waiting),
            bios=bios,
            requests=requests,
            edges=standing_edges(bios),
            open_bios=in_flight[0],
            open_requests=in_flight[1],
            bio_stages=stages.take(np.isin(stages.owner, bios.number)),
            request_stages=stages,
            plain=_plain(events, rest, rows[over[request]]),
        )


def _given_up(events: Events, found: LightRequests, settled: int) -> Bool:
    """Return which requests were completed in part too long ago, or too many others since."""
    last = events.ts[found.last]
    given_up = ~found.ended & (last < settled - GIVE_UP_NS)
    waiting = np.flatnonzero(~found.ended & (last < settled))
    if len(waiting) > MOST_PARTIAL:
        given_up[waiting[np.argsort(last[waiting], kind="stable")[:-MOST_PARTIAL]]] = True
    return np.asarray(given_up, np.bool_)


def _begun(events: Events, found: LightRequests) -> I64:
    """Return when each request began (ns): its start, else its issue, else its first completion."""
    begun = np.where(found.start == NEVER, found.issue, found.start)
    return np.where(begun == NEVER, events.ts[found.first], begun)


def _certainty(found: LightRequests) -> U8:
    """Return the Certainty of each request, uint8."""
    certainty = np.full(len(found), Certainty.EXACT, np.uint8)
    certainty[(found.start == NEVER) | ~found.ended] = Certainty.INCOMPLETE
    certainty[found.superseded & ~found.ended] = Certainty.LOST
    return certainty


def _requests(events: Events, found: LightRequests, context: Context) -> Requests:
    """Return a row per request. `bios` is 1 for the row that stands for all, `others` the rest."""
    first = found.first
    opf, sector = events.opf[first], events.sector[first]
    bios = events.field(Kind.LIGHT, "nr_bios", first).astype(np.uint32)
    bios = np.where(bios == LIGHT_MANY, np.uint32(_MANY), bios)
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
        certainty=_certainty(found),
        doubtful=np.zeros(len(found), np.bool_),
        own=np.zeros(len(found), np.bool_),
        cut=nothing.copy(),
    )


def _has_bios(events: Events, found: LightRequests, requests: Requests) -> Bool:
    """Return per request whether a row of `Bios` stands for its bios."""
    return np.asarray((requests.bios > 0) & (requests.kind == RequestKind.NORMAL), np.bool_)


def _bios(
    events: Events, found: LightRequests, requests: Requests, shown: Bool, context: Context
) -> Bios:
    """Return a row for all bios of each request that `shown` marks."""
    found, requests = found.take(shown), requests.take(shown)
    cgroup = events.field(Kind.LIGHT, "cgroup", found.first)
    return standing_bios(
        requests, context, queue=found.start, getrq=found.start.copy(), cgroup=cgroup
    )


def _in_flight(
    events: Events, still: LightRequests, now: int, context: Context
) -> tuple[Bios, Requests]:
    """Return the rows of requests in flight at `now` (ns), as far as they were known by then."""
    known = replace(
        still,
        issue=np.where(still.issue < now, still.issue, NEVER),
        complete=np.full(len(still), NEVER, np.int64),
        good=np.zeros(len(still), np.int64),
        status=np.zeros(len(still), np.int32),
    )
    requests = _requests(events, known, context)
    shown = _has_bios(events, known, requests)
    return _bios(events, known, requests, shown, context), requests


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


def _plain(events: Events, rest: EventRows, closed: EventRows) -> PlainEvents | None:
    """Return the events of closed requests as settled ones; None: there are none."""
    if not len(closed):
        return None
    devices, counts = np.unique(events.dev[closed], return_counts=True)
    keys = ((dev, int(Kind.LIGHT)) for dev in devices.tolist())
    return PlainEvents(events, rest, dict(zip(keys, counts.tolist(), strict=True)))
