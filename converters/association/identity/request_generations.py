# SPDX-License-Identifier: Apache-2.0
"""Requests told apart: where on a request's address another request begins.

docs/lifecycles.md lists the rules.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.generations import Generations, build
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in, stable_order
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U8, Bool
from biotrail.recorder.schema.records import Kind

_REQUEST_KINDS = (
    Kind.START,
    Kind.I,
    Kind.R,
    Kind.RQ_MERGE,
    Kind.D,
    Kind.C,
    Kind.E,
    Kind.DONE,
    Kind.RQ_REMAP,
    Kind.G,
    Kind.M,
    Kind.F,
)


@dataclass(frozen=True)
class Operations:
    """Numbers of operations whose requests have rules of their own; -1: there is none.

    zone_append: its completions tell another sector than its issues. discard: its requests may
    lie in several places. passthrough: a user's or driver's, which nothing joins.
    """

    zone_append: int = -1
    discard: int = -1
    passthrough: tuple[int, ...] = ()

    @classmethod
    def of(cls, context: Context) -> "Operations":
        """Those of the log's kernel."""
        own = tuple(context.op_number(name) for name in sorted(PASSTHROUGH_OPS))
        return cls(context.op_number("zone_append"), context.op_number("discard"), own)


def request_generations(events: Events, ops: Operations) -> Generations:
    """Generations of request pointers. A row's role is its record kind."""
    rows = events.rows(*_REQUEST_KINDS)
    rows = rows[events.rq[rows] != 0]
    rows = rows[stable_order(events.rq[rows])]
    pointer, kind = events.rq[rows], events.kind[rows]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = pointer[1:] != pointer[:-1]
    before = np.where(first, 0, np.roll(kind, 1)).astype(np.uint8)
    ended = is_in(before, Kind.C, Kind.E, Kind.DONE)
    begins = first | (kind == Kind.G) | (kind == Kind.RQ_REMAP)
    begins |= (kind == Kind.START) & ~is_in(before, Kind.G, Kind.RQ_REMAP)
    begins |= _started_another(events, rows, kind, before)
    begins |= _merged_before(events, rows, kind, before)
    begins |= (before == Kind.RQ_MERGE) & ~is_in(kind, Kind.E, Kind.DONE)
    begins |= ended & is_in(kind, Kind.D, Kind.I, Kind.M, Kind.F, Kind.RQ_MERGE, Kind.RQ_REMAP)
    begins |= _issued_another(events, rows, kind, before, ops)
    begins |= _left_out(events, rows, kind, before)
    begins |= _joined_another(events, rows, kind, before, ops.discard)
    begins |= _joined_within(events, rows, kind, before, ops.discard)
    waits = is_in(before, Kind.START, Kind.I)
    waits &= is_in(kind, Kind.M, Kind.F, Kind.I, Kind.D, Kind.C, Kind.RQ_MERGE)
    begins |= waits & _another_operation(events, rows, np.roll(rows, 1))
    begins |= _requeued_another(events, rows, kind, before)
    # Inserted again without a word of why, and elsewhere.
    elsewhere = events.sector[rows] != events.sector[np.roll(rows, 1)]
    begins |= (before == Kind.I) & (kind == Kind.I) & elsewhere
    begins |= _ended_another(events, rows, kind, ended & ~begins, begins)
    gen = np.cumsum(begins) - 1
    told = np.zeros(int(gen[-1]) + 1 if len(gen) else 0, dtype=np.bool_)
    told[gen[~is_in(kind, Kind.E, Kind.DONE)]] = True
    # What only comments on a request that is not here makes none.
    keep = told[gen]
    if not keep.all():
        rows, pointer, kind, begins = rows[keep], pointer[keep], kind[keep], begins[keep]
        first = np.append(True, pointer[1:] != pointer[:-1])[: len(rows)]
    return build(events, pointer, rows, kind, np.zeros(len(rows), np.int64), begins, first)


def _issued_another(events: Events, rows: I64, kind: U8, before: U8, ops: Operations) -> Bool:
    """What follows D and cannot be of the request that D issued: its completion was lost.

    Nothing joins an issued request, so its head bio and sector stay until it completes.
    """
    result = (before == Kind.D) & is_in(kind, Kind.M, Kind.F, Kind.RQ_MERGE, Kind.RQ_REMAP)
    at = np.flatnonzero((before == Kind.D) & is_in(kind, Kind.D, Kind.I, Kind.R, Kind.C))
    now, then = rows[at], rows[at - 1]
    bio, old = events.bio[now], events.bio[then]
    other = (bio != old) & (bio != 0) & (old != 0)
    moved = events.sector[now] != events.sector[then]
    moved &= (kind[at] != Kind.C) | (
        (events.bytes[then] > 0) & ((events.opf[now] & 0xFF) != np.uint32(ops.zone_append % 256))
    )
    other |= moved | _another_operation(events, now, then)
    # Without a bio to tell, a second issue is another request's: the flush machinery's.
    other |= (kind[at] == Kind.D) & (bio == 0) & (old == 0)
    other |= (bio == 0) != (old == 0)
    other |= _queued_between(events, then, now)
    # A command that nothing joins stays as long as it is.
    grown = (kind[at] == Kind.D) & (events.bytes[now] != events.bytes[then])
    other |= grown & np.isin(events.opf[then] & 0xFF, ops.passthrough)
    result[at] |= other
    return np.asarray(result, dtype=np.bool_)


def _started_another(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """s after a that is not of the request which was handed on: that one's end was lost."""
    result = np.zeros(len(rows), dtype=np.bool_)
    at = np.flatnonzero((kind == Kind.START) & (before == Kind.RQ_REMAP))
    now, then = rows[at], rows[at - 1]
    result[at] = _another_operation(events, now, then)
    result[at] |= events.sector[now] != events.sector[then]
    return result


def _merged_before(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """What follows M or F, where they name the request, for a bio that was queued after them.

    It would have joined with an event of its own.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    later = is_in(kind, Kind.I, Kind.D, Kind.C, Kind.R, Kind.RQ_MERGE)
    at = np.flatnonzero(is_in(before, Kind.M, Kind.F) & later)
    result[at] = _queued_between(events, rows[at - 1], rows[at])
    # A flush, where what was there had data.
    at = np.flatnonzero(is_in(before, Kind.START, Kind.I) & (kind == Kind.C))
    at = at[(events.bytes[rows[at]] == 0) & (events.bytes[rows[at - 1]] > 0)]
    result[at] = _queued_between(events, rows[at - 1], rows[at])
    return result


def _requeued_another(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """C after R that cannot be of the request that went back: its end was lost.

    What is issued again keeps its operation; what completes without data for a bio that was
    queued since is a flush's.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    at = np.flatnonzero((before == Kind.R) & (kind == Kind.C))
    now, then = rows[at], rows[at - 1]
    empty = (events.bytes[now] == 0) & (events.bytes[then] > 0)
    result[at] = _another_operation(events, now, then)
    result[at] |= empty & _queued_between(events, then, now)
    return result


def _left_out(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """I and D without the sectors that the request had at the event before.

    A request grows by merging at both ends; it never leaves a sector out before it is issued,
    and it never changes its operation.
    """
    had = is_in(before, Kind.START, Kind.I, Kind.R, Kind.M, Kind.F)
    at = np.flatnonzero(had & is_in(kind, Kind.I, Kind.D))
    now, then = rows[at], rows[at - 1]
    begin, old = events.sector[now], events.sector[then]
    result = np.zeros(len(rows), dtype=np.bool_)
    result[at] = ~events.lie_within(then, now) | _another_operation(events, now, then)
    # What joins in front moves the sector; where it stays, so does the first bio.
    bio, head = events.bio[now], events.bio[then]
    result[at] |= (
        (begin == old)
        & is_in(before[at], Kind.START, Kind.I, Kind.R)
        & ((bio != head) & (bio != 0) & (head != 0))
    )
    return result


def _joined_another(events: Events, rows: I64, kind: U8, before: U8, discard: int) -> Bool:
    """M and F whose request was told whole later, without what the event before them had.

    Between the two the end of one request and the beginning of another were lost. Discards of
    several ranges lie anywhere.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    joins = is_in(kind, Kind.M, Kind.F)
    had = is_in(before, Kind.G, Kind.START, Kind.I, Kind.M, Kind.F)
    at = np.flatnonzero(joins & had)
    # What comes after the last of the merges in a row.
    index = np.arange(len(rows))
    after = np.minimum.accumulate(np.where(joins, len(rows), index)[::-1])[::-1][at]
    at, after = at[after < len(rows)], after[after < len(rows)]
    same = events.rq[rows[after]] == events.rq[rows[at]]
    same &= is_in(kind[after], Kind.I, Kind.D, Kind.RQ_MERGE)
    same &= (events.opf[rows[after]] & 0xFF) != np.uint32(discard % 256)
    at, whole = at[same], rows[after[same]]
    result[at] = events.lie_within(rows[at], whole) & ~events.lie_within(rows[at - 1], whole)
    return result


def _joined_within(events: Events, rows: I64, kind: U8, before: U8, discard: int) -> Bool:
    """M before the end, F behind the beginning of what the request has: a request only grows."""
    result = np.zeros(len(rows), dtype=np.bool_)
    had = is_in(before, Kind.G, Kind.START, Kind.I, Kind.R, Kind.M, Kind.F)
    at = np.flatnonzero(is_in(kind, Kind.M, Kind.F) & had)
    at = at[(events.opf[rows[at]] & 0xFF) != np.uint32(discard % 256)]
    now, then = rows[at], rows[at - 1]
    back = (kind[at] == Kind.M) & (events.end(then) > events.sector[now])
    result[at] = back | ((kind[at] == Kind.F) & (events.sector[then] < events.end(now)))
    return result


def _another_operation(events: Events, now: I64, then: I64) -> Bool:
    return np.asarray((events.opf[now] ^ events.opf[then]) & np.uint32(0xFF) != 0, np.bool_)


def _ended_another(events: Events, rows: I64, kind: U8, ended: Bool, begins: Bool) -> Bool:
    """C and R after a C that are a new request's, whose start was not seen.

    A partial completion goes on until the bytes of the issue are through, and a flush
    sequence ends in a second C, of no bytes, for the same bio. Anything else is another
    request, and so is what completes a bio that was queued after the C before.
    ended: rows that follow an end. begins: rows that are known to begin a generation.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    at = np.flatnonzero(ended & is_in(kind, Kind.C, Kind.R))
    if not len(at):
        return result
    index = np.arange(len(rows))
    start = np.maximum.accumulate(np.where(begins, index, 0))[at]
    begun = np.where(is_in(kind, Kind.D, Kind.START, Kind.I), index, -1)
    begun = np.maximum.accumulate(begun)[at]
    issue = np.maximum.accumulate(np.where(kind == Kind.D, index, -1))[at]
    begun = np.where(issue >= start, issue, begun)
    last = np.maximum.accumulate(np.where(kind == Kind.C, index, -1))[at - 1]
    size, bio = events.bytes[rows], events.bio[rows]
    done = np.cumsum(np.where(kind == Kind.C, size, 0))
    had = np.maximum(begun, 0)
    full = (begun >= start) & (done[at - 1] - done[had] >= size[had])
    old = np.maximum(last, 0)
    other = (bio[at] != bio[old]) & (bio[at] != 0) & (bio[old] != 0)
    empty = (kind[at] == Kind.C) & (size[at] == 0)
    # What is left of a request begins where the part that completed ended.
    stops = events.sector[rows[old]] + (size[old] // SECTOR_BYTES).astype(np.uint64)
    elsewhere = (events.sector[rows[at]] != stops) & (last >= start)
    other |= _another_operation(events, rows[at], rows[old])
    other |= elsewhere & (events.sector[rows[at]] != events.sector[rows[old]])
    another = np.where(empty, other | (size[old] == 0), full | elsewhere)
    another |= _queued_between(events, rows[old], rows[at])
    result[at] = another | (last < start)
    return result


def _queued_between(events: Events, after: I64, until: I64) -> Bool:
    """Whether the bio of event `until` was queued after event `after`."""
    if not len(until):
        return np.zeros(0, dtype=np.bool_)
    wanted = np.unique(events.bio[until])
    queued = events.rows(Kind.Q, Kind.A, Kind.X, Kind.G)
    queued = queued[np.isin(events.bio[queued], wanted[wanted != 0])]
    if not len(queued):
        return np.zeros(len(until), dtype=np.bool_)
    # One sortable number for (pointer, event).
    width = len(events) + 1
    keys = np.sort(np.searchsorted(wanted, events.bio[queued]) * width + queued)
    base = np.searchsorted(wanted, events.bio[until]) * width
    latest = np.searchsorted(keys, base + until) - 1
    return np.asarray((latest >= 0) & (keys[np.maximum(latest, 0)] > base + after), dtype=np.bool_)
