# SPDX-License-Identifier: Apache-2.0
"""Split the events of each request address into generations: one per request that had the address.

blk-mq allocates requests from a fixed pool (blk_mq_tag_set), so an address is reused at once. A new
generation begins where a kernel event says so (s, a), or where an event cannot be of the request
that the events before it describe, because records in between were lost. The table in
docs/lifecycles.md lists the rules.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.generations import Generations, build
from biotrail.converters.events.array_steps import (
    is_first_of_run,
    is_operation,
    latest_marked,
    same_operation,
    value_before,
)
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
    """Numbers of the operations (REQ_OP_*) that have their own rules; -1: not in this kernel.

    zone_append: its C reports the sector that was written, not D's. discard: a request can hold
    several ranges that do not touch. passthrough: SCSI and driver commands, to which no bio is ever
    merged.
    """

    zone_append: int = -1
    discard: int = -1
    passthrough: tuple[int, ...] = ()

    @classmethod
    def of(cls, context: Context) -> "Operations":
        """Return the numbers that these operations have in the kernel that made the log."""
        own = tuple(context.op_number(name) for name in sorted(PASSTHROUGH_OPS))
        return cls(context.op_number("zone_append"), context.op_number("discard"), own)


def request_generations(events: Events, ops: Operations) -> Generations:
    """Return the generations of request pointers; a row's role is its record kind (Kind).

    Rows are the request events with a request pointer (`_REQUEST_KINDS`), sorted by pointer, then
    time; events without one, and generations of nothing but E and d, get no row. In the helpers
    below, `rows`, `kind` and `before` stand for these rows: (n,) index into `events`, record kind,
    and record kind of the row before, 0 at the first row of a pointer. A helper that marks rows
    returns a mask (n,), True for rows that begin a generation.
    """
    rows = events.rows(*_REQUEST_KINDS)
    rows = rows[events.rq[rows] != 0]
    rows = rows[stable_order(events.rq[rows])]
    pointer, kind = events.rq[rows], events.kind[rows]
    first = is_first_of_run(pointer)
    before = value_before(kind, first)
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
    begins |= waits & ~same_operation(events.opf[rows], events.opf[np.roll(rows, 1)])
    begins |= _requeued_another(events, rows, kind, before)
    # A request is inserted again only after R: I, I at another sector are two requests'.
    elsewhere = events.sector[rows] != events.sector[np.roll(rows, 1)]
    begins |= (before == Kind.I) & (kind == Kind.I) & elsewhere
    begins |= _ended_another(events, rows, kind, ended & ~begins, begins)
    gen = np.cumsum(begins) - 1
    has_more = np.zeros(int(gen[-1]) + 1 if len(gen) else 0, dtype=np.bool_)
    has_more[gen[~is_in(kind, Kind.E, Kind.DONE)]] = True
    # E and d only comment on a request; alone, they are no evidence of one.
    keep = has_more[gen]
    if not keep.all():
        rows, pointer, kind, begins = rows[keep], pointer[keep], kind[keep], begins[keep]
        first = is_first_of_run(pointer)
    return build(events, pointer, rows, kind, np.zeros(len(rows), np.int64), begins, first)


def _issued_another(events: Events, rows: I64, kind: U8, before: U8, ops: Operations) -> Bool:
    """Mark rows after a D that cannot be of the request that D issued, whose C or R was lost.

    Merges go only into requests that wait in a plug or scheduler, so M, F and m after D begin a new
    request, and so does an `a`. A D, I, R or C does where it has another head bio, sector or
    operation than that D, or where its bio was queued after it. A zone append's C has another
    sector.
    """
    result = (before == Kind.D) & is_in(kind, Kind.M, Kind.F, Kind.RQ_MERGE, Kind.RQ_REMAP)
    at = np.flatnonzero((before == Kind.D) & is_in(kind, Kind.D, Kind.I, Kind.R, Kind.C))
    this, prev = rows[at], rows[at - 1]
    bio, old = events.bio[this], events.bio[prev]
    other = (bio != old) & (bio != 0) & (old != 0)
    moved = events.sector[this] != events.sector[prev]
    moved &= (kind[at] != Kind.C) | (
        (events.bytes[prev] > 0) & ~is_operation(events.opf[this], ops.zone_append)
    )
    other |= moved | ~same_operation(events.opf[this], events.opf[prev])
    # Flush requests (blk-flush.c) have no bio, and one flush request is issued time after time.
    other |= (kind[at] == Kind.D) & (bio == 0) & (old == 0)
    other |= (bio == 0) != (old == 0)
    other |= _queued_between(events, prev, this)
    # No bio merges into a passthrough request, so a D of another size is of another command.
    grown = (kind[at] == Kind.D) & (events.bytes[this] != events.bytes[prev])
    other |= grown & np.isin(events.opf[prev] & 0xFF, ops.passthrough)
    result[at] |= other
    return np.asarray(result, dtype=np.bool_)


def _started_another(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """Mark s after an `a` with another sector or operation.

    dm's block_rq_remap comes just before its clone's s and has the same range. Where the ranges
    differ, the s of that clone and its C were lost, and this s is of another request.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    at = np.flatnonzero((kind == Kind.START) & (before == Kind.RQ_REMAP))
    this, prev = rows[at], rows[at - 1]
    result[at] = ~same_operation(events.opf[this], events.opf[prev])
    result[at] |= events.sector[this] != events.sector[prev]
    return result


def _merged_before(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """Mark rows whose bio was queued after the row before: a later request's at this address.

    Compared are I, D, C, R and m with an M or F before that names the request (5.10, or identities
    by interval), and C of no bytes with an s or I before that has data. A bio queued since and
    merged into that request would show in an M or F of its own.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    later = is_in(kind, Kind.I, Kind.D, Kind.C, Kind.R, Kind.RQ_MERGE)
    at = np.flatnonzero(is_in(before, Kind.M, Kind.F) & later)
    result[at] = _queued_between(events, rows[at - 1], rows[at])
    # A C of no bytes after s or I with data: a later request's, a flush without data.
    at = np.flatnonzero(is_in(before, Kind.START, Kind.I) & (kind == Kind.C))
    at = at[(events.bytes[rows[at]] == 0) & (events.bytes[rows[at - 1]] > 0)]
    result[at] = _queued_between(events, rows[at - 1], rows[at])
    return result


def _requeued_another(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """Mark C after R that cannot be of the requeued request, whose next D and C were lost.

    A requeued request keeps its operation. A C of no bytes, for a bio that was queued after the R,
    is the end of a flush without data, which got this address later.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    at = np.flatnonzero((before == Kind.R) & (kind == Kind.C))
    this, prev = rows[at], rows[at - 1]
    empty = (events.bytes[this] == 0) & (events.bytes[prev] > 0)
    result[at] = ~same_operation(events.opf[this], events.opf[prev])
    result[at] |= empty & _queued_between(events, prev, this)
    return result


def _left_out(events: Events, rows: I64, kind: U8, before: U8) -> Bool:
    """Mark I and D that do not cover the sectors of the row before, or have another operation.

    Until it is issued, a request only grows: bios and requests are merged at its ends, and sectors
    leave it only by completion. Also marks an I or D at the same sector with another head bio,
    since only a front merge changes the head, and it moves the sector.
    """
    waits = is_in(before, Kind.START, Kind.I, Kind.R, Kind.M, Kind.F)
    at = np.flatnonzero(waits & is_in(kind, Kind.I, Kind.D))
    this, prev = rows[at], rows[at - 1]
    begin, old = events.sector[this], events.sector[prev]
    result = np.zeros(len(rows), dtype=np.bool_)
    result[at] = ~events.lie_within(prev, this) | ~same_operation(
        events.opf[this], events.opf[prev]
    )
    # rq->bio changes by a front merge alone, which moves the sector as well. M and F name the bio
    # that joined, not the head: not compared.
    bio, head = events.bio[this], events.bio[prev]
    result[at] |= (
        (begin == old)
        & is_in(before[at], Kind.START, Kind.I, Kind.R)
        & ((bio != head) & (bio != 0) & (head != 0))
    )
    return result


def _joined_another(events: Events, rows: I64, kind: U8, before: U8, discard: int) -> Bool:
    """Mark M and F of a new request: the address's next I, D or m excludes the row before.

    rows, kind, before: (n,) each, as in `request_generations`; returns a mask (n,). The row before
    is the one right before the M or F, of the same address: a G, s, I, M or F. The next I, D or m
    is the row right behind the run of M and F; it has the request's whole range. If the M or F lies
    within it, and the row before does not, one request ended and another began between these two,
    in records that were lost.

    discard: number of the operation discard, -1: there is none. Where the next I, D or m is a
    discard's, nothing is marked, because the ranges of a discard need not touch.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    joins = is_in(kind, Kind.M, Kind.F)
    waits = is_in(before, Kind.G, Kind.START, Kind.I, Kind.M, Kind.F)
    at = np.flatnonzero(joins & waits)
    # The first row after a run of consecutive M and F.
    index = np.arange(len(rows))
    after = np.minimum.accumulate(np.where(joins, len(rows), index)[::-1])[::-1][at]
    at, after = at[after < len(rows)], after[after < len(rows)]
    same = events.rq[rows[after]] == events.rq[rows[at]]
    same &= is_in(kind[after], Kind.I, Kind.D, Kind.RQ_MERGE)
    same &= ~is_operation(events.opf[rows[after]], discard)
    at, full = at[same], rows[after[same]]
    result[at] = events.lie_within(rows[at], full) & ~events.lie_within(rows[at - 1], full)
    return result


def _joined_within(events: Events, rows: I64, kind: U8, before: U8, discard: int) -> Bool:
    """Mark M that begins before the end, and F that ends behind the beginning, of the row before.

    Before its issue a request only grows at its ends, so such an M or F is of a new request at the
    address. Not of discards, whose ranges need not touch. discard: as in `_joined_another`.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    waits = is_in(before, Kind.G, Kind.START, Kind.I, Kind.R, Kind.M, Kind.F)
    at = np.flatnonzero(is_in(kind, Kind.M, Kind.F) & waits)
    at = at[~is_operation(events.opf[rows[at]], discard)]
    this, prev = rows[at], rows[at - 1]
    back = (kind[at] == Kind.M) & (events.end(prev) > events.sector[this])
    result[at] = back | ((kind[at] == Kind.F) & (events.sector[prev] < events.end(this)))
    return result


def _ended_another(events: Events, rows: I64, kind: U8, ended: Bool, begins: Bool) -> Bool:
    """Mark C and R that follow a C and are of a new request, whose start was not recorded.

    blk_update_request reports each part of a partial completion by a C, so more C follow until the
    bytes of the last D (without one, s or I) are through; a flush sequence (blk-flush.c) adds a C
    of no bytes for the same bio. A C or R is of a new request where those bytes were through
    already, where it does not begin where the last C ended, or where its bio was queued after that
    C.

    ended: (n,) rows that follow C, E or d and do not begin a generation yet.
    begins: (n,) rows already known to begin a generation.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    at = np.flatnonzero(ended & is_in(kind, Kind.C, Kind.R))
    if not len(at):
        return result
    start = latest_marked(begins)[at]
    # The row with the length to complete: the last D of the generation, else its last s or I.
    sized = latest_marked(is_in(kind, Kind.D, Kind.START, Kind.I))[at]
    issue = latest_marked(kind == Kind.D)[at]
    sized = np.where(issue >= start, issue, sized)
    last_c = latest_marked(kind == Kind.C)[at - 1]
    size, bio = events.bytes[rows], events.bio[rows]
    done = np.cumsum(np.where(kind == Kind.C, size, 0))
    sized_row = np.maximum(sized, 0)
    full = (sized >= start) & (done[at - 1] - done[sized_row] >= size[sized_row])
    old = np.maximum(last_c, 0)
    other = (bio[at] != bio[old]) & (bio[at] != 0) & (bio[old] != 0)
    empty = (kind[at] == Kind.C) & (size[at] == 0)
    # blk_update_request advances the request by the bytes of C: the rest begins at the C's end.
    stops = events.sector[rows[old]] + (size[old] // SECTOR_BYTES).astype(np.uint64)
    elsewhere = (events.sector[rows[at]] != stops) & (last_c >= start)
    other |= ~same_operation(events.opf[rows[at]], events.opf[rows[old]])
    other |= elsewhere & (events.sector[rows[at]] != events.sector[rows[old]])
    another = np.where(empty, other | (size[old] == 0), full | elsewhere)
    another |= _queued_between(events, rows[old], rows[at])
    result[at] = another | (last_c < start)
    return result


def _queued_between(events: Events, after: I64, until: I64) -> Bool:
    """Return, per pair of events, whether the bio of `until` was queued after event `after`.

    after, until: (m,) event indices. Queued means a Q, A, X or G of the bio's address between the
    two.
    """
    if not len(until):
        return np.zeros(0, dtype=np.bool_)
    wanted = np.unique(events.bio[until])
    queued = events.rows(Kind.Q, Kind.A, Kind.X, Kind.G)
    queued = queued[np.isin(events.bio[queued], wanted[wanted != 0])]
    if not len(queued):
        return np.zeros(len(until), dtype=np.bool_)
    # One sortable integer for each (pointer, event) pair, so that one searchsorted finds the last
    # queue event of that pointer before `until`.
    width = len(events) + 1
    keys = np.sort(np.searchsorted(wanted, events.bio[queued]) * width + queued)
    base = np.searchsorted(wanted, events.bio[until]) * width
    latest = np.searchsorted(keys, base + until) - 1
    return np.asarray((latest >= 0) & (keys[np.maximum(latest, 0)] > base + after), dtype=np.bool_)
