# SPDX-License-Identifier: Apache-2.0
"""Stages of bios and requests: gapless intervals that add up to the time from queue to completion.

A bio's boundaries are the times of the piece that completed last. docs/lifecycles.md tabulates
which stages each kind of I/O has.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds, times
from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.absorptions import request_before_merge
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, SECTOR_BYTES, U8, Bool, Stage, Stages
from biotrail.recorder.schema.records import Kind

SLOTS = 5
"""Intervals between a row's six bounds: queue, allocated or merged, inserted, issued, data
completed, completed."""
_ABSENT = 255
"""In place of a Stage: none."""


@dataclass
class Milestones:
    """Per whole bio (n,): times in ns (NEVER: none) of the piece that completed last.

    data_end: when the data completed, which the flush machinery may follow by a flush.
    """

    queue: I64
    getrq: I64
    merge: I64
    insert: I64
    issue: I64
    data_end: I64
    complete: I64
    sequence: Bool
    """Whether the kernel's flush machinery (blk-flush.c) handled that piece's request."""
    request: I64
    """Request generation of that piece, -1 none."""
    failed: Bool
    """Whether that request ended in an error with no byte completed."""


def milestones(a: Association, ends: RequestEnds, whole: Whole) -> Milestones:
    """Return the times of each whole bio, from its final piece and that piece's request."""
    final, has = np.maximum(whole.final, 0), whole.final >= 0
    bios = a.bios
    got = bios.first(Kind.G)
    got = np.where(got >= 0, got, bios.first(Kind.START))
    joined = bios.last(Kind.M, Kind.F)
    request = np.where(has, a.request[final], -1) if len(a.request) else whole.final
    merge = times(a, np.where(has, joined[final], -1) if len(joined) else whole.final)
    getrq = times(a, np.where(has, got[final], -1) if len(got) else whole.final)
    getrq = np.where(merge >= 0, NEVER, getrq)
    insert = times(a, _inserts(a, ends, request, final))
    issue = times(a, _issues(a, ends, request, final))
    # An insert before the merge or after the first issue is no boundary of this bio.
    insert = np.where((insert >= getrq) & (getrq >= 0), insert, NEVER)
    insert = np.where((issue >= 0) & (insert > issue), NEVER, insert)
    complete = times(a, whole.end)
    # Events after the bio's completion belong to other I/O at the same address, whose start was
    # not recorded.
    after = np.where(complete >= 0, complete, np.iinfo(np.int64).max)
    merge, getrq, insert, issue = (
        np.where(t > after, NEVER, t) for t in (merge, getrq, insert, issue)
    )
    data_end = _request_time(a, ends.data_end, request)
    sequence = _request_flag(ends.flush_sequence, request)
    return Milestones(
        queue=times(a, bios.first(Kind.Q)[whole.gen]),
        getrq=getrq,
        merge=merge,
        insert=insert,
        issue=issue,
        data_end=np.where(sequence, data_end, complete),
        complete=complete,
        sequence=sequence,
        request=request,
        failed=_failed_whole(ends, request),
    )


def _inserts(a: Association, ends: RequestEnds, request: I64, final: I64) -> I64:
    """Return per whole bio the event index of its I, -1 none.

    If the bio's request was merged into another one, that is the I of the absorbed request.
    request: per whole bio, -1 none. final: per whole bio, generation of its final piece.
    """
    if not len(a.requests):
        return np.full(len(request), -1, dtype=np.int64)
    insert = np.where(request >= 0, ends.insert[np.maximum(request, 0)], -1)
    if not (a.absorbed_by >= 0).any():
        return insert
    own = request_before_merge(a)[final]
    return np.where(own >= 0, ends.insert[np.maximum(own, 0)], insert)


def _issues(a: Association, ends: RequestEnds, request: I64, final: I64) -> I64:
    """Return per whole bio the event index of the first D that carried its final piece, -1 none.

    That is not the first D of its request if the bio was merged after a requeue.
    """
    if not len(a.requests):
        return np.full(len(request), -1, dtype=np.int64)
    named = a.bios.first(Kind.D)[final]
    # D does not name the bio if the recorded bio chain was cut short, or without pointers: take
    # the request's first D after the bio joined.
    joined = np.maximum(a.bios.last(Kind.M, Kind.F, Kind.G, Kind.START)[final], a.bios.birth[final])
    own = request_before_merge(a)[final]
    moved = np.where(own >= 0, a.requests.first(Kind.RQ_MERGE)[np.maximum(own, 0)], -1)
    joined = np.maximum(joined, np.maximum(moved, _last_moves(a, request, final)))
    width = np.int64(len(a.events) + 1)
    issues = np.flatnonzero(a.requests.row_role == Kind.D)
    keys = a.requests.row_gen[issues] * width + a.requests.row_event[issues]
    at = np.searchsorted(keys, request * width + joined)
    found = np.append(issues, 0)[at]
    unnamed = np.where(
        (at < len(issues)) & (a.requests.row_gen[found] == request),
        a.requests.row_event[found],
        -1,
    )
    return np.where(request < 0, -1, np.where(named >= 0, named, unnamed))


def _last_moves(a: Association, request: I64, final: I64) -> I64:
    """Return per whole bio the last merge event (m) that moved it into its request, -1 none.

    Matched by the merge's sector range; only merges into requests that were requeued matter.
    """
    result = np.full(len(request), -1, dtype=np.int64)
    absorbed = np.flatnonzero(a.absorbed_by >= 0)
    absorbed = absorbed[
        a.requests.count(a.requests.row_role == Kind.R)[a.absorbed_by[absorbed]] > 0
    ]
    event = a.requests.first(Kind.RQ_MERGE)[absorbed]
    sector = a.facts.piece_sector[final]
    for row in np.argsort(event).tolist():
        m = int(event[row])
        begin = int(a.events.sector[m])
        end = begin + int(a.events.bytes[m]) // SECTOR_BYTES
        inside = (request == a.absorbed_by[absorbed[row]]) & (sector >= begin) & (sector < end)
        result[inside & (a.bios.birth[final] < m)] = m
    return result


def _request_time(a: Association, per_request: I64, request: I64) -> I64:
    """Return per bio the time (ns) of its request's event in `per_request`; NEVER where -1."""
    if not len(per_request):
        return np.full(len(request), NEVER, dtype=np.int64)
    return times(a, np.where(request >= 0, per_request[np.maximum(request, 0)], -1))


def _request_flag(per_request: Bool, request: I64) -> Bool:
    """Return per bio the flag of its request; False where `request` is -1."""
    if not len(per_request):
        return np.zeros(len(request), dtype=np.bool_)
    return (request >= 0) & per_request[np.maximum(request, 0)]


def bio_stages(
    a: Association,
    context: Context,
    whole: Whole,
    m: Milestones,
    request_based: Bool,
    number: I64,
    rows: I64,
) -> Stages:
    """Return the stages of the whole bios in `rows`, in that order, then by time.

    request_based: per whole bio, whether its device is request-based. number: per whole bio,
    `Bios.number`, which becomes the stages' owner.
    """
    opf, size = a.facts.opf[whole.gen][rows], a.facts.bytes[whole.gen][rows]
    queue, merge = m.queue[rows], m.merge[rows]
    issue, complete = m.issue[rows], m.complete[rows]
    merged = merge >= 0
    preflush = (opf & context.flag_mask("PREFLUSH")) != 0
    flush = (preflush | ((opf & 0xFF) == context.op_number("flush"))) & (size == 0)
    joined = np.where(merged, merge, m.getrq[rows])
    insert = np.where(merged, NEVER, m.insert[rows])
    stage = np.full((len(rows), SLOTS), _ABSENT, dtype=np.uint8)
    failed = whole.status[rows] != 0
    single = _single(flush, whole.fragments[rows] == 0, failed, request_based[rows])
    # Only the flush machinery has work left after the data: the post-flush.
    after = m.sequence[rows] & (m.data_end[rows] != complete)
    last = np.where(after | (single != _ABSENT), complete, NEVER)
    bounds = np.stack([queue, joined, insert, issue, m.data_end[rows], last], axis=1)
    stage[:, 0] = np.where(merged, Stage.Q2M, Stage.Q2G)
    held = np.where(preflush, np.uint8(Stage.PRE_FLUSH), np.uint8(Stage.G2I))
    stage[:, 1] = held
    direct = np.where(preflush, np.uint8(Stage.PRE_FLUSH), np.uint8(Stage.G2D))
    stage[:, 2] = np.where(merged, Stage.M2D, np.where(insert >= 0, Stage.I2D, direct))
    stage[:, 3] = Stage.D2C
    stage[:, 4] = Stage.POST_FLUSH
    early = m.failed[rows] & (m.data_end[rows] == complete)
    unissued = _unissued(early, preflush & m.sequence[rows])
    flat = _flatten(number[rows], bounds, stage, single, unissued)
    return _cut_requeues(a, flat, m.request[rows], rows)


def _failed_whole(ends: RequestEnds, request: I64) -> Bool:
    """Return whether each request ended in an error with no byte completed; False for -1."""
    if not len(ends.status):
        return np.zeros(len(request), dtype=np.bool_)
    held = np.maximum(request, 0)
    return np.asarray(
        (request >= 0) & (ends.status[held] != 0) & (ends.good[held] == 0), dtype=np.bool_
    )


def _unissued(failed: Bool, preflush: Bool) -> U8:
    """Return per row the stage that stands for the time up to a completion without an issue.

    FAILED for an error, PRE_FLUSH for an error of the flush that precedes the data, else UNKNOWN.
    """
    why = np.where(preflush, np.uint8(Stage.PRE_FLUSH), np.uint8(Stage.FAILED))
    return np.where(failed, why, np.uint8(Stage.UNKNOWN))


def _single(flush: Bool, unserved: Bool, failed: Bool, request_based: Bool) -> U8:
    """Return per bio its stage if it has only one (see `Stage`), else _ABSENT.

    flush: a flush without data. unserved: no piece went to a request. failed: ended in an error.
    """
    one = np.full(len(flush), _ABSENT, dtype=np.uint8)
    one[flush] = Stage.FLUSH
    one[unserved] = Stage.BIO_BASED
    one[unserved & failed & request_based] = Stage.FAILED
    return one


@dataclass
class _Flat:
    """Rows of Stages; `place` is the owner's position among the rows that were asked for."""

    owner: I64
    place: I64
    stage: U8
    start: I64
    end: I64


def _flatten(number: I64, bounds: I64, stage: U8, single: U8, unissued: U8) -> _Flat:
    """Return one stage per interval between successive known bounds, by row, then by time.

    number: (rows,) owners. bounds: (rows, SLOTS + 1) ns, NEVER unknown. stage: (rows, SLOTS)
    Stage of the interval that ends at bound slot + 1. single: (rows,) the row's only Stage, or
    _ABSENT. An interval over bounds that were not recorded is UNKNOWN, or `unissued` (rows,) if
    the row completed without an issue. A bound earlier than one before it is moved up to that.
    """
    one = single != _ABSENT
    bounds = bounds.copy()
    bounds[one, 1:-1] = NEVER
    seen = bounds >= 0
    seen[:, 0] |= True
    forward = np.maximum.accumulate(bounds, axis=1)
    owners, starts, stops, kinds = [], [], [], []
    previous = np.zeros(len(bounds), dtype=np.int64)
    begin = forward[:, 0]
    for slot in range(SLOTS):
        here = seen[:, slot + 1] & (begin >= 0)
        kind = _name(stage, slot, previous, one, single, unissued)
        rows = np.flatnonzero(here)
        owners.append(rows)
        starts.append(begin[rows])
        stops.append(forward[rows, slot + 1])
        kinds.append(kind[rows])
        begin = np.where(seen[:, slot + 1], forward[:, slot + 1], begin)
        previous = np.where(seen[:, slot + 1], slot + 1, previous)
    owner = np.concatenate(owners)
    place = np.repeat(np.arange(SLOTS), [len(o) for o in owners])
    order = np.lexsort((place, owner))
    owner = owner[order]
    return _Flat(
        number[owner],
        owner,
        np.concatenate(kinds)[order],
        np.concatenate(starts)[order],
        np.concatenate(stops)[order],
    )


def _name(stage: U8, slot: int, previous: I64, one: Bool, single: U8, unissued: U8) -> U8:
    """Return per row the stage of the interval from bound `previous` (rows,) to bound slot + 1."""
    named = stage[:, slot].copy()
    # The interval runs from the queue to a later bound, or to the end without an issue.
    skipped = (previous == 0) & (slot > 0)
    skipped |= (slot == 4) & (previous < 3)
    named[skipped] = Stage.UNKNOWN
    if slot == 3:
        named = np.where(previous < 3, unissued, named)
    # The event by which the bio joined its request is missing: discards are merged without one.
    named[(previous == 0) & (slot == 2)] = Stage.Q2D
    named[one] = single[one]
    return named


def _cut_requeues(a: Association, flat: _Flat, request: I64, rows: I64) -> Stages:
    """Return the stages with D2C divided at requeues: D2C from D to R, R2D from R to the next D.

    request: request generation (-1 none), indexed by `flat.place`.
    """
    requeues = a.requests.count(a.requests.row_role == Kind.R)
    if not len(requeues) or not requeues.any():
        return Stages(flat.owner, flat.stage, flat.start, flat.end)
    of = request[flat.place]
    hit = np.flatnonzero((of >= 0) & (requeues[np.maximum(of, 0)] > 0) & (flat.stage == Stage.D2C))
    extra = [_requeue_rows(a, int(of[h]), int(flat.start[h]), int(flat.end[h])) for h in hit]
    counts = np.ones(len(flat.owner), dtype=np.int64)
    counts[hit] = [len(e) for e in extra]
    source = np.repeat(np.arange(len(counts)), counts)
    result = Stages(flat.owner[source], flat.stage[source], flat.start[source], flat.end[source])
    at = np.cumsum(counts) - counts
    for h, rows_of in zip(hit.tolist(), extra, strict=True):
        for offset, (kind, start, end) in enumerate(rows_of):
            result.stage[at[h] + offset] = kind
            result.start[at[h] + offset] = start
            result.end[at[h] + offset] = end
    return result


def _requeue_rows(a: Association, request: int, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return the parts of one D2C as (stage, start, end), gapless from `start` to `end` (ns)."""
    rows = slice(a.requests.start[request], a.requests.ends[request])
    kinds, at = a.requests.row_role[rows], a.events.ts[a.requests.row_event[rows]]
    parts: list[tuple[int, int, int]] = []
    state, since = Stage.D2C, start
    for kind, ts in zip(kinds.tolist(), at.tolist(), strict=True):
        turn = Stage.R2D if kind == Kind.R else Stage.D2C if kind == Kind.D else state
        if turn != state and start <= ts <= end:
            parts.append((int(state), since, ts))
            state, since = turn, ts
    parts.append((int(state), since, end))
    return parts


def request_stages(
    a: Association, ends: RequestEnds, start: I64, flush_bio: Bool, number: I64, rows: I64
) -> Stages:
    """Return the stages of the requests in `rows`, in that order, then by time.

    start, flush_bio, number: per request generation, its start (ns), whether it is a flush without
    data, and `Requests.number`, which becomes the stages' owner.
    """
    insert, issue = times(a, ends.insert[rows]), times(a, ends.issue[rows])
    insert = np.where((issue >= 0) & (insert > issue), NEVER, insert)
    data, done = times(a, ends.data_end[rows]), times(a, ends.end[rows])
    # The flush machinery completes the data, flushes, and then completes the request again.
    data = np.where(ends.flush_sequence[rows], data, done)
    begin = start[rows]
    alone = flush_bio[rows] & (issue == NEVER)
    last = np.where((ends.flush_sequence[rows] & (data != done)) | alone, done, NEVER)
    bounds = np.stack([begin, begin, insert, issue, data, last], axis=1)
    stage = np.full((len(rows), SLOTS), _ABSENT, dtype=np.uint8)
    pre = ends.flush_sequence[rows] & (insert >= 0)
    stage[:, 1] = np.where(pre, Stage.PRE_FLUSH, Stage.G2I)
    stage[:, 2] = np.where(insert >= 0, Stage.I2D, Stage.G2D)
    stage[:, 3], stage[:, 4] = Stage.D2C, Stage.POST_FLUSH
    single = np.full(len(rows), _ABSENT, dtype=np.uint8)
    single[alone] = Stage.FLUSH
    failed = (ends.status[rows] != 0) & (ends.good[rows] == 0) & (data == done)
    unissued = _unissued(failed, ends.flush_sequence[rows])
    flat = _flatten(number[rows], bounds, stage, single, unissued)
    return _cut_requeues(a, _without_empty_first(flat), rows, rows)


def _without_empty_first(flat: _Flat) -> _Flat:
    """Return the rows, each an interval, without those whose stage is _ABSENT; the order stays.

    Those are the empty intervals between the first two bounds: requests have no queue stage, so
    that `request_stages` puts their start into both bounds.
    """
    keep = flat.stage != _ABSENT
    return _Flat(
        flat.owner[keep], flat.place[keep], flat.stage[keep], flat.start[keep], flat.end[keep]
    )
