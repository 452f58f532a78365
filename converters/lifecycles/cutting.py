# SPDX-License-Identifier: Apache-2.0
"""A part of a log's time: what a recording of that time alone would hold, and a little more.

What ended before it or began after it is not there. What was under way when it ends is open, as
at a log's end. What was under way when it begins is there from then on, marked by `cut` and
INCOMPLETE, with all that is known of it: who queued it, where, how much. Only its time from
queue to completion is not, so that no figure takes a part of an I/O for a whole one.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bios,
    Certainty,
    LossWindows,
    Requests,
    Stages,
)
from biotrail.converters.lifecycles.windows import FAR, T, first_seen, last_seen, restricted
from biotrail.recorder.schema.errors import ConversionError

MARGIN_NS = 5_000_000_000
"""Read before a cut: of what was queued longer ago, and is still under way, only what happens in
the cut is known."""

ENDLESS = 1 << 62
"""ns: an end that no log reaches."""

Table = TypeVar("Table", Bios, Requests)


@dataclass(frozen=True)
class Span:
    """From `begin` on, before `end`: ns of CLOCK_MONOTONIC."""

    begin: int
    end: int

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any of [start, end] (ns) lies in it."""
        return start < self.end and end >= self.begin


def outside(span: Span, first: int, last: int, context: Context) -> ConversionError:
    """What to say where the log, from `first` to `last` (ns), has nothing of the span."""

    def seconds(ns: int) -> str:
        return f"{(ns - first) / 1e9:.9g} s"

    walls = [context.wall_clock(ns) for ns in (first, last)]
    when = f" ({walls[0]} to {walls[1]})" if all(walls) else ""
    asked = f"between {seconds(span.begin)} and {seconds(span.end)}"
    if span.end >= ENDLESS:
        asked = f"from {seconds(span.begin)} on"
    return ConversionError(
        f"the log has nothing {asked}: it covers 0 s to {seconds(last)}{when}; "
        "choose a time within that"
    )


def events_within(events: Events, begin: int, end: int) -> Events:
    """Those of begin <= ts < end; sorted, as they came."""
    first, stop = np.searchsorted(events.ts, [begin, end]).tolist()
    if first == 0 and stop == len(events):
        return events
    return events.take(np.arange(first, max(stop, first)))


def clipped(window: T, begin: int) -> T:
    """The window without what ended before `begin` (ns), the rest of it from then on."""
    found = restricted(
        window,
        _over(window.bios) >= begin,
        _over(window.requests) >= begin,
        _over(window.open_bios) >= begin,
        _over(window.open_requests) >= begin,
    )
    bios, requests = _cut(found.bios, begin), _cut(found.requests, begin)
    return replace(
        found,
        bios=bios,
        requests=requests,
        bio_stages=_whole_stages(found.bio_stages, bios, begin),
        request_stages=_whole_stages(found.request_stages, requests, begin),
        open_bios=_cut(found.open_bios, begin),
        open_requests=_cut(found.open_requests, begin),
    )


def losses_within(loss: LossWindows, span: Span) -> LossWindows:
    """What of the loss windows lies in the span."""
    found = loss.take((loss.start < span.end) & (loss.end >= span.begin))
    return replace(
        found, start=np.maximum(found.start, span.begin), end=np.minimum(found.end, span.end)
    )


def _over(table: Bios | Requests) -> I64:
    """ns per row: when it was over; FAR: it goes on, as far as is known; NEVER: no time is."""
    first, last = first_seen(table), last_seen(table)
    gone = table.certainty == Certainty.LOST
    if isinstance(table, Bios):
        # Of what neither begin nor end was seen, nobody knows whether it goes on.
        gone |= table.queue == NEVER
    else:
        gone |= table.absorbed_by != NEVER
    over = np.where(table.complete != NEVER, table.complete, np.where(gone, last, FAR))
    return np.where(first == NEVER, NEVER, over)


def _cut(table: Table, begin: int) -> Table:
    crossing = first_seen(table) < begin
    if not crossing.any():
        return table

    def clamped(times: I64, before: int) -> I64:
        return np.where(crossing & (times != NEVER) & (times < begin), before, times)

    least = np.where(crossing, np.uint8(Certainty.INCOMPLETE), np.uint8(0))
    found = replace(
        table,
        insert=clamped(table.insert, begin),
        issue=clamped(table.issue, begin),
        certainty=np.maximum(table.certainty, least),
        cut=np.where(crossing, begin, table.cut),
    )
    if isinstance(found, Bios):
        found.queue = clamped(found.queue, NEVER)
        found.getrq, found.merge = clamped(found.getrq, begin), clamped(found.merge, begin)
    else:
        found.start = clamped(found.start, NEVER)
    return found


def _whole_stages(stages: Stages, owners: Bios | Requests, begin: int) -> Stages:
    """Without what began before `begin`, of those that are cut: a part of a stage is none."""
    if not (owners.cut != NEVER).any():
        return stages
    cut = np.isin(stages.owner, owners.number[owners.cut != NEVER])
    return stages.take(~cut | (stages.start >= begin))
