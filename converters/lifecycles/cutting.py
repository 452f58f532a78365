# SPDX-License-Identifier: Apache-2.0
"""A cut: the part of a log between two times, much as if only that time had been recorded.

Bios and requests that ended before the cut or began after it are left out. Those in flight when
it ends are open, as at a log's end. Those in flight when it begins are included from its
beginning on, marked by `cut` and as INCOMPLETE, with their submitter, place and size. Their queue
(or start) time is removed, so that no latency is computed from a part of an I/O.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import FAR, I64, NEVER, Bios, Certainty, Requests, Stages
from biotrail.converters.lifecycles.windows import T, first_seen, last_seen, restricted
from biotrail.recorder.schema.errors import ConversionError

MARGIN_NS = 5_000_000_000
"""Time that is read before a cut, so that I/O in flight at its beginning is known. Of I/O queued
earlier than that, only the events within the cut are known."""

ENDLESS = 1 << 62
"""ns: end of a span that has none; no log reaches this time."""

Table = TypeVar("Table", Bios, Requests)


@dataclass(frozen=True)
class Span:
    """The time begin <= t < end, ns of CLOCK_MONOTONIC."""

    begin: int
    end: int


def outside(span: Span, first: int, last: int, context: Context) -> ConversionError:
    """Return the error to raise if a log from `first` to `last` (ns) has nothing of the span.

    The message gives times as offsets from `first`.
    """

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
    """Return the time-sorted events with begin <= ts < end (ns); `events` itself if that is all."""
    first, stop = np.searchsorted(events.ts, [begin, end]).tolist()
    if first == 0 and stop == len(events):
        return events
    return events.take(np.arange(first, max(stop, first)))


def clipped(window: T, begin: int) -> T:
    """Return a copy of the window without rows that ended before `begin` (ns), or without any time.

    Rows in flight at `begin` get `cut` = `begin`, are INCOMPLETE at least (LOST stays), and lose
    their queue (or start) time and the stages that began before; their other earlier times become
    `begin`. Edges stay with their bios. Left out of the path and of sites is what a recording that
    began then would not have: calls entered before (or at a time not known, as the entry makes its
    programs follow a call) with their waits, earlier pairs, hits and commits, and submissions whose
    first bio was queued before.
    """
    found = restricted(
        window,
        _ended_at(window.bios) >= begin,
        _ended_at(window.requests) >= begin,
        _ended_at(window.open_bios) >= begin,
        _ended_at(window.open_requests) >= begin,
    )
    bios, requests = _cut(found.bios, begin), _cut(found.requests, begin)
    path, sites = found.path, found.sites
    if path is not None:
        path = replace(
            path,
            calls=path.calls.take(path.calls.entry >= begin),
            waits=path.waits.take(path.waits.entry >= begin),
            commits=path.commits.take(path.commits.end >= begin),
            submissions=path.submissions.take(path.submissions.queued >= begin),
        )
    if sites is not None:
        pairs, hits = sites.pairs, sites.hits
        pairs, hits = pairs.take(pairs.began >= begin), hits.take(hits.time >= begin)
        sites = replace(sites, pairs=pairs, hits=hits)
    return replace(
        found,
        bios=bios,
        requests=requests,
        bio_stages=_whole_stages(found.bio_stages, bios, begin),
        request_stages=_whole_stages(found.request_stages, requests, begin),
        open_bios=_cut(found.open_bios, begin),
        open_requests=_cut(found.open_requests, begin),
        path=path,
        sites=sites,
    )


def _ended_at(table: Bios | Requests) -> I64:
    """Return when each row ended (ns): its completion or, if it is gone, its last event.

    FAR: it may still be in flight. NEVER: no time is known.
    """
    first, last = first_seen(table), last_seen(table)
    gone = table.certainty == Certainty.LOST
    if isinstance(table, Bios):
        # If neither Q nor completion was recorded, nothing shows that the bio is still in flight.
        gone |= table.queue == NEVER
    else:
        gone |= table.absorbed_by != NEVER
    end = np.where(table.complete != NEVER, table.complete, np.where(gone, last, FAR))
    return np.where(first == NEVER, NEVER, end)


def _cut(table: Table, begin: int) -> Table:
    """Return the table with rows whose earliest known time is before `begin` (ns) marked.

    The table itself if there is no such row.
    """
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
    """Return the stages without those of cut owners that began before `begin` (ns).

    Also the part of such a stage after `begin` is left out: its duration would be wrong.
    """
    if not (owners.cut != NEVER).any():
        return stages
    cut = np.isin(stages.owner, owners.number[owners.cut != NEVER])
    return stages.take(~cut | (stages.start >= begin))
