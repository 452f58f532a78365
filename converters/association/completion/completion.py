# SPDX-License-Identifier: Apache-2.0
"""When requests and bios ended, how many bytes were good, and whether more C are to come.

A request ends when the C since its last D add up to that D's bytes. A flush sequence (blk-flush.c:
a request with data and PREFLUSH, or FUA that the device lacks) ends with a C of no bytes instead,
which alone ends its bio.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.end_rules import (
    REQUEST_END_RULES,
    RequestProgress,
)
from biotrail.converters.association.completion.partial_completion import (
    BioEnds,
    Parts,
    complete_in_parts,
)
from biotrail.converters.association.identity.association import Association, Findings
from biotrail.converters.association.identity.chains import filtered_bios
from biotrail.converters.association.identity.generations import Generations
from biotrail.converters.association.rules import any_marks
from biotrail.converters.events.array_steps import (
    first_known,
    is_operation,
    latest_marked,
    take_or,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I32, I64, NEVER, U32, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class RequestEnds:
    """How each request generation was issued and ended; arrays by request generation.

    Events are indices into the window, -1: none recorded.
    started, insert: s, first I.
    issue, last_issue: first D, last D.
    completions: number of C.
    data_end: last C with bytes; without one, the last C.
    end: last C, also where more are to come.
    total: bytes at the first D, without one at s or the first I; -1: none of them recorded.
    done, good: bytes completed; bytes completed without error.
    status: blk_status_t of the last C with an error, or 0.
    requeues: number of R.
    finished: whether no more C is to come.
    flush_sequence: whether blk-flush.c runs the request as a sequence of flushes and data.
    unissued: event that implies a D that was not recorded.
    """

    started: I64
    insert: I64
    issue: I64
    last_issue: I64
    completions: I64
    data_end: I64
    end: I64
    total: I64
    done: I64
    good: I64
    status: I32
    requeues: I64
    finished: Bool
    flush_sequence: Bool
    unissued: I64


def request_ends(a: Association, context: Context) -> RequestEnds:
    """Return how each request generation of the window was issued and ended; see RequestEnds.

    Whether it has ended is decided by REQUEST_END_RULES. context: operations and flags of the log,
    and whether it counts every loss.
    """
    r, events = a.requests, a.events
    kind = r.row_role
    is_c = kind == Kind.C
    size = events.bytes[r.row_event]
    status = np.where(is_c, events.status[r.row_event], 0)
    bad = is_c & (status != 0)
    issue, started, end = r.first(Kind.D), r.first(Kind.START), r.last(Kind.C)
    sized = first_known(issue, started, r.first(Kind.I))
    total = take_or(events.bytes, sized, -1)
    bad_event = r.last_where(bad)
    sequence = _flush_sequence(a, context, sized, first_known(issue, end))
    last_issue = r.last(Kind.D)
    completed = (end >= 0) & (
        _done_since(r, size, last_issue)
        >= take_or(events.bytes, first_known(last_issue, sized), -1)
    )
    ended_empty = (end >= 0) & (take_or(events.bytes, end, 0) == 0)
    progress = RequestProgress(completed, sequence, ended_empty, bad_event >= 0, issue >= 0)
    data_end = r.last_where(is_c & (size > 0))
    return RequestEnds(
        started=started,
        insert=r.first(Kind.I),
        issue=issue,
        last_issue=last_issue,
        completions=r.count(is_c),
        data_end=first_known(data_end, end),
        end=end,
        total=total,
        done=r.total(np.where(is_c, size, 0)),
        good=r.total(np.where(is_c & ~bad, size, 0)),
        status=take_or(events.status, bad_event, 0),
        requeues=r.count(kind == Kind.R),
        finished=any_marks(REQUEST_END_RULES, progress, len(r)),
        flush_sequence=sequence,
        unissued=_unissued(r, issue, is_c & ~bad & (size > 0), context.counts_losses),
    )


def _unissued(r: Generations, issue: I64, good: Bool, losses_counted: bool) -> I64:
    """Return, per request (q,), an event that implies a D that was not recorded, or -1.

    That is the first R or C, if a D follows and none came before; or, also in a request without
    any D, the first good C after an R with no D between; the later one if there are both.
    issue: (q,) first D, or -1. good: mask of the rows of `r` that are C with data and no error.
    losses_counted: whether the log counts every loss (`Context.counts_losses`). Then an R before
    the first D implies no D: a busy driver returned the request (BLK_STS_RESOURCE) before it called
    blk_mq_start_request, and the kernel reports a requeue.
    """
    first = r.first(Kind.C) if losses_counted else r.first(Kind.R, Kind.C)
    early = np.where((first >= 0) & (issue > first), first, -1)
    again = r.row_role == Kind.R
    if not again.any():
        return early
    last = np.maximum(latest_marked(again | (r.row_role == Kind.D)), 0)
    after = good & again[last] & (r.row_gen[last] == r.row_gen)
    return np.maximum(early, r.first_where(after))


def _done_since(r: Generations, size: I64, issue: I64) -> I64:
    """Return, per request (q,), the bytes of its C after event `issue` (q,); -1: of all its C."""
    after = r.row_event > issue[r.row_gen]
    return r.total(np.where((r.row_role == Kind.C) & after, size, 0))


def _flush_sequence(a: Association, context: Context, sized: I64, issued: I64) -> Bool:
    """Return, per request (q,), whether it has data and blk-flush.c runs it as a flush sequence.

    It does if any of its bios has PREFLUSH, or has FUA and the device lacks it: blk_insert_flush
    then clears REQ_FUA, so the request is issued without the bit, which alone shows it here.
    Without a known bio or a known length: False. context: for the flags' bits. sized: (q,) event
    with the request's length, or -1: then that of `issued` counts. issued: (q,) first D, or where
    that was not recorded the last C; -1: neither, so that FUA does not count.
    """
    preflush, fua = context.flag_mask("PREFLUSH"), context.flag_mask("FUA")
    bio_flags = np.zeros(len(a.requests), dtype=np.uint32)
    bio = np.flatnonzero(a.request >= 0)
    np.bitwise_or.at(bio_flags, a.request[bio], a.facts.opf[bio] & np.uint32(preflush | fua))
    with_data = take_or(a.events.bytes, first_known(sized, issued), 0) > 0
    by_fua = (
        ((bio_flags & fua) != 0) & ((take_or(a.events.opf, issued, 0) & fua) == 0) & (issued >= 0)
    )
    by_preflush = (bio_flags & preflush) != 0
    return np.asarray(with_data & (by_preflush | by_fua), dtype=np.bool_)


def bio_ends(a: Association, ends: RequestEnds, context: Context) -> tuple[BioEnds, Findings]:
    """Return how each bio generation that was in a request ended, and what that shows.

    A bio ends with its finished request, with that one's status, and is good to its size if that is
    0 (in a flush sequence, to the request's good bytes). Where a request completed in parts,
    finished or not, a bio ends with the part that covers its last byte. All others have end -1, and
    good bytes and a status only from parts that covered some of their bytes. The findings are
    `completion_lost` of bios whose address was reused before their request's end, which get no end,
    status and good bytes, and `certainty` of bios whose share of a partial completion is in doubt.
    """
    count = len(a.bios)
    end = np.full(count, -1, np.int64)
    status, good = np.zeros(count, np.int32), np.zeros(count, np.int64)
    served = np.flatnonzero(a.request >= 0)
    request = a.request[served]
    served, request = served[ends.finished[request]], request[ends.finished[request]]
    size = np.maximum(a.facts.piece_bytes[served], 0)
    end[served] = ends.end[request]
    status[served] = ends.status[request]
    good[served] = np.where(ends.status[request] == 0, size, 0)
    # A flush sequence has one bio (nothing merges into it); its data can be good, its flush not.
    sequence = ends.flush_sequence[request]
    good[served[sequence]] = np.minimum(size, ends.good[request])[sequence]
    whole_ends = BioEnds(end, status, good)
    ended, certainty = complete_in_parts(a, _parts_of(a, ends, context), whole_ends)
    lost = _reused_before_end(a, ended)
    ended = BioEnds(
        np.where(lost, -1, ended.end),
        np.where(lost, np.int32(0), ended.status),
        np.where(lost, 0, ended.good),
    )
    return ended, Findings(certainty=certainty, completion_lost=a.completion_lost | lost)


def _reused_before_end(a: Association, ends: BioEnds) -> Bool:
    """Return, per bio (b,), whether its address was reused before its request's end.

    Such a bio completed earlier, with a C that was not recorded.
    """
    rows = np.flatnonzero(a.bios.superseded & (ends.end >= 0))
    reused = np.zeros(len(a.bios), dtype=np.bool_)
    reused[rows] = a.events.number[ends.end[rows]] > a.bios.again[rows]
    return reused


def _parts_of(a: Association, ends: RequestEnds, context: Context) -> Parts:
    """Return which requests completed in parts, and what `complete_in_parts` needs of them.

    In parts: with several C, or with one that does not end the request; flush sequences do not.
    """
    partly = (ends.completions > 1) | ((ends.completions == 1) & ~ends.finished)
    return Parts(
        partly & ~ends.flush_sequence,
        bios_left_out(a, ends.last_issue) > 0,
        is_operation(take_or(a.events.opf, a.requests.birth, 0), context.op_number("discard")),
        ends.finished,
        ends.end,
        ends.status,
    )


def bios_left_out(a: Association, issue: I64) -> U32:
    """Return, per request (q,), how many of its bios the recording's filters left out at its D.

    issue: (q,) event of a D, or -1, which gives 0.
    """
    counts = np.zeros(len(a.events) + 1, dtype=np.int64)
    np.add.at(counts, *filtered_bios(a.events))
    return counts[issue].astype(np.uint32)  # -1, no issue: the one past the events


def times(a: Association, index: I64) -> I64:
    """Return the times of events (ns), NEVER where the index is -1."""
    return take_or(a.events.ts, index, NEVER)
