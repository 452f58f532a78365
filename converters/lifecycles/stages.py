# SPDX-License-Identifier: Apache-2.0
"""Stages of bios and requests: gapless intervals that add up to the time from queue to completion.

A bio's boundaries are its `Milestones`, a request's its own times. docs/lifecycles.md tabulates
which stages each kind of I/O has.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds, times
from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, U8, Bool, Stage, Stages
from biotrail.converters.lifecycles.milestones import Milestones
from biotrail.recorder.schema.records import Kind

SLOTS = 5
"""Intervals between a row's six bounds: queue, allocated or merged, inserted, issued, data
completed, completed."""
_ABSENT = 255
"""In place of a Stage: none."""


def bio_stages(
    a: Association,
    context: Context,
    whole: Whole,
    m: Milestones,
    request_based: Bool,
    number: I64,
    rows: I64,
) -> Stages:
    """Return the stages of the queued bios in `rows` (of `whole`): in that order, then by time.

    m, request_based, number: per row of `whole`, its times, whether its device makes requests, and
    `Bios.number`, which becomes the stages' owner. A flush without data, and a bio of which no
    piece went to a request, have one stage from Q to completion (`_single`), none without both.
    Merged bios have Q2M, M2I, I2D, others Q2G, G2I, I2D. Without an insert that is M2D or G2D;
    a bio that merged into a request inserted before has I2D right after Q2M. With PREFLUSH
    PRE_FLUSH stands for G2I and G2D. D2C follows, divided at requeues, and in a flush sequence
    POST_FLUSH. Without a Q there are no stages up to the first known time; time over events that
    were not recorded is UNKNOWN or as `_stages_of_slot` has it. All stop at the last known time.
    """
    opf, size = a.facts.opf[whole.gen][rows], a.facts.bytes[whole.gen][rows]
    queue, merge = m.queue[rows], m.merge[rows]
    issue, complete = m.issue[rows], m.complete[rows]
    merged = merge >= 0
    preflush = (opf & context.flag_mask("PREFLUSH")) != 0
    flush = (preflush | ((opf & 0xFF) == context.op_number("flush"))) & (size == 0)
    joined = np.where(merged, merge, m.getrq[rows])
    insert = m.insert[rows]
    stage = np.full((len(rows), SLOTS), _ABSENT, dtype=np.uint8)
    failed = whole.status[rows] != 0
    single = _single(flush, whole.fragments[rows] == 0, failed, request_based[rows])
    # Only the flush machinery has work left after the data: the post-flush.
    after = m.sequence[rows] & (m.data_end[rows] != complete)
    last = np.where(after | (single != _ABSENT), complete, NEVER)
    bounds = np.stack([queue, joined, insert, issue, m.data_end[rows], last], axis=1)
    stage[:, 0] = np.where(merged, Stage.Q2M, Stage.Q2G)
    held = np.where(preflush, np.uint8(Stage.PRE_FLUSH), np.uint8(Stage.G2I))
    stage[:, 1] = np.where(merged, np.uint8(Stage.M2I), held)
    direct = np.where(preflush, np.uint8(Stage.PRE_FLUSH), np.uint8(Stage.G2D))
    direct = np.where(merged, np.uint8(Stage.M2D), direct)
    scheduled = (insert >= 0) | m.joined_inserted[rows]
    stage[:, 2] = np.where(scheduled, np.uint8(Stage.I2D), direct)
    stage[:, 3] = Stage.D2C
    stage[:, 4] = Stage.POST_FLUSH
    early = m.failed[rows] & (m.data_end[rows] == complete)
    unissued = _stage_without_issue(early, preflush & m.sequence[rows])
    flat = _flatten(number[rows], bounds, stage, single, unissued)
    return _divide_at_requeues(a, flat, m.request[rows])


def _stage_without_issue(failed: Bool, preflush: Bool) -> U8:
    """Return per row the Stage, uint8, of the time up to a completion without an issue.

    failed: ended in an error. preflush: the flush that precedes the data was running. PRE_FLUSH if
    both, FAILED for other errors, UNKNOWN without an error.
    """
    why = np.where(preflush, np.uint8(Stage.PRE_FLUSH), np.uint8(Stage.FAILED))
    return np.where(failed, why, np.uint8(Stage.UNKNOWN))


def _single(flush: Bool, unserved: Bool, failed: Bool, request_based: Bool) -> U8:
    """Return per bio its stage if it has only one, uint8, else _ABSENT.

    FLUSH: a flush without data (`flush`), some piece of which went to a request. BIO_BASED: any bio
    of which no piece did (`unserved`), also a flush; FAILED instead, if it ended in an error
    (`failed`) on a device that makes requests.
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

    number: (rows,) owners. bounds: (rows, SLOTS + 1) ns, NEVER unknown. stage: (rows, SLOTS) Stage
    of the interval that ends at bound slot + 1. single: (rows,) the row's only Stage, from bound 0
    to the last one (none if either is unknown), or _ABSENT. unissued: (rows,) Stage of the time up
    to a completion without an issue. `_stages_of_slot` names intervals over bounds that were not
    recorded. A bound earlier than one before it is moved up to that, so that intervals may be
    empty. Without bound 0 the stages begin at the first known bound.
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
        kind = _stages_of_slot(stage, slot, previous, one, single, unissued)
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


def _stages_of_slot(stage: U8, slot: int, previous: I64, one: Bool, single: U8, unissued: U8) -> U8:
    """Return per row the Stage, uint8, of the interval that ends at bound `slot` + 1.

    previous: (rows,) index of the bound at which the interval begins (0 queue, 1 allocated or
    merged, 2 inserted, 3 issued, 4 data completed). stage: (rows, SLOTS) Stage if no bound was left
    out. one, single: (rows,) whether the row has one stage only, and which, which wins. unissued:
    (rows,) Stage of all that ends with the data's completion (slot 3) and begins before an issue.
    Else from the queue (0) over other bounds it is Q2D up to the issue, UNKNOWN up to others; from
    before an issue to the completion (slot 4) UNKNOWN; and stage[:, slot] everywhere else.
    """
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


def _divide_at_requeues(a: Association, flat: _Flat, request: I64) -> Stages:
    """Return the rows of `flat` with D2C divided at requeues: D2C from D to R, R2D from R to D.

    request: request generation (-1 none), indexed by `flat.place`. Other stages are unchanged, and
    the order stays.
    """
    requeues = a.requests.count(a.requests.row_role == Kind.R)
    if not len(requeues) or not requeues.any():
        return Stages(flat.owner, flat.stage, flat.start, flat.end)
    of = request[flat.place]
    hit = np.flatnonzero((of >= 0) & (requeues[np.maximum(of, 0)] > 0) & (flat.stage == Stage.D2C))
    extra = [
        _parts_between_requeues(a, int(of[h]), int(flat.start[h]), int(flat.end[h])) for h in hit
    ]
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


def _parts_between_requeues(
    a: Association, request: int, start: int, end: int
) -> list[tuple[int, int, int]]:
    """Return the parts of one D2C as (stage, start, end), gapless from `start` to `end` (ns).

    R2D from each R of the request to its next D, else D2C; R and D outside [start, end] are
    ignored. request: its index in `a.requests`.
    """
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

    rows: indices of requests. start, flush_bio, number: per request, its start (ns), whether it is
    a flush without data, and `Requests.number`, which becomes the stages' owner. The stages are
    G2I, I2D (without an insert: G2D) and D2C, which is divided at requeues. A flush without an
    issue is one FLUSH. An insert after the first issue is ignored. In a flush sequence
    (`ends.flush_sequence`) the time up to the insert is PRE_FLUSH, that after the data POST_FLUSH.
    Without an issue the time from insert (or start) to the data's completion is PRE_FLUSH (in such
    a sequence) or FAILED if the request failed with no byte completed, else UNKNOWN.
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
    unissued = _stage_without_issue(failed, ends.flush_sequence[rows])
    flat = _flatten(number[rows], bounds, stage, single, unissued)
    return _divide_at_requeues(a, _drop_absent(flat), rows)


def _drop_absent(flat: _Flat) -> _Flat:
    """Return the rows of `flat` without those whose stage is _ABSENT; the order stays.

    Those are the empty intervals between the first two bounds: requests have no queue stage, so
    that `request_stages` puts their start into both bounds.
    """
    keep = flat.stage != _ABSENT
    return _Flat(
        flat.owner[keep], flat.place[keep], flat.stage[keep], flat.start[keep], flat.end[keep]
    )
