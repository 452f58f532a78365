# SPDX-License-Identifier: Apache-2.0
"""When requests and bios ended, how many bytes were good, and whether more C are to come.

A request ends when the C since its last D add up to that D's bytes. A flush sequence (blk-flush.c:
a request with data and PREFLUSH, or FUA that the device lacks) ends with a C of no bytes instead,
which alone ends its bio.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.partial_completion import (
    BioEnds,
    Parts,
    consume_parts,
)
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.identity.chains import chain_others
from biotrail.converters.association.identity.generations import Generations
from biotrail.converters.events.array_steps import (
    first_known,
    is_operation,
    latest_marked,
    take_or,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I32, I64, NEVER, U32, Bool
from biotrail.recorder.schema.records import Kind


@dataclass
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
    """Return how each request generation of the window was issued and ended."""
    r, events = a.requests, a.events
    kind = r.row_role
    is_c = kind == Kind.C
    size = events.bytes[r.row_event]
    status = np.where(is_c, events.status[r.row_event], 0)
    bad = is_c & (status != 0)
    issue, started, end = r.first(Kind.D), r.first(Kind.START), r.last(Kind.C)
    sized = first_known(issue, started, r.first(Kind.I))
    total = take_or(events.bytes, sized, -1)
    bad_row = r.last_where(bad)
    sequence = _flush_sequence(a, context, sized, first_known(issue, end))
    ended_empty = (end >= 0) & (take_or(events.bytes, end, 0) == 0)
    # A pre-flush that fails ends the request before its own D (blk_flush_complete_seq).
    ended_empty |= (issue < 0) & (bad_row >= 0)
    last_issue = r.last(Kind.D)
    finished = (end >= 0) & (
        _done_since(r, size, last_issue)
        >= take_or(events.bytes, first_known(last_issue, sized), -1)
    )
    finished &= ~sequence | ended_empty
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
        status=take_or(events.status, bad_row, 0),
        requeues=r.count(kind == Kind.R),
        finished=finished,
        flush_sequence=sequence,
        unissued=_unissued(r, issue, is_c & ~bad & (size > 0), context.tells_losses),
    )


def _unissued(r: Generations, issue: I64, good: Bool, losses_counted: bool) -> I64:
    """Return, per request, an event that implies a D that was not recorded, or -1.

    That is the first R or C, if it is before the first D (a request without any D has none), or the
    first good C after an R with no D between; the later one if there are both.
    good: mask of rows that are C with data and no error.
    losses_counted: whether the log counts every loss (`Context.tells_losses`). Then an R before the
    first D implies no D: a busy driver returned the request (BLK_STS_RESOURCE) before it called
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
    """Return, per request, the bytes completed after event `issue` (-1: all bytes)."""
    after = r.row_event > issue[r.row_gen]
    return r.total(np.where((r.row_role == Kind.C) & after, size, 0))


def _flush_sequence(a: Association, context: Context, sized: I64, issued: I64) -> Bool:
    """Return, per request with data, whether blk-flush.c runs it as a flush sequence.

    It does for a bio with PREFLUSH, and for one with FUA if the device lacks FUA: blk_insert_flush
    then clears REQ_FUA, so the request is issued without the bit.
    sized: event with the request's length, or -1.
    issued: first D, or where that was not recorded the last C, or -1.
    """
    preflush, fua = context.flag_mask("PREFLUSH"), context.flag_mask("FUA")
    wanted = np.zeros(len(a.requests), dtype=np.uint32)
    held = np.flatnonzero(a.request >= 0)
    np.bitwise_or.at(wanted, a.request[held], a.facts.opf[held] & np.uint32(preflush | fua))
    with_data = take_or(a.events.bytes, first_known(sized, issued), 0) > 0
    by_fua = ((wanted & fua) != 0) & ((take_or(a.events.opf, issued, 0) & fua) == 0) & (issued >= 0)
    by_preflush = (wanted & preflush) != 0
    return np.asarray(with_data & (by_preflush | by_fua), dtype=np.bool_)


def bio_ends(a: Association, ends: RequestEnds, context: Context) -> BioEnds:
    """Return how each bio generation that was in a request ended.

    Sets `a.gone` of bios whose address was reused before their request's end, and `a.certainty` of
    bios whose share of a partial completion is in doubt.
    """
    count = len(a.bios)
    result = BioEnds(
        np.full(count, -1, np.int64), np.zeros(count, np.int32), np.zeros(count, np.int64)
    )
    served = np.flatnonzero(a.request >= 0)
    request = a.request[served]
    served, request = served[ends.finished[request]], request[ends.finished[request]]
    size = np.maximum(a.facts.piece_bytes[served], 0)
    result.end[served] = ends.end[request]
    result.status[served] = ends.status[request]
    result.good[served] = np.where(ends.status[request] == 0, size, 0)
    # A flush sequence has one bio (nothing merges into it); its data can be good, its flush not.
    sequence = ends.flush_sequence[request]
    result.good[served[sequence]] = np.minimum(size, ends.good[request])[sequence]
    consume_parts(a, _parts_of(a, ends, context), result)
    _outlived(a, result)
    return result


def _outlived(a: Association, result: BioEnds) -> None:
    """Reset the end of bios whose address was reused before their request's end, and set `a.gone`.

    These bios completed earlier, with a C that was not recorded.
    """
    rows = np.flatnonzero(a.bios.superseded & (result.end >= 0))
    rows = rows[a.events.number[result.end[rows]] > a.bios.again[rows]]
    result.end[rows], result.good[rows], result.status[rows] = -1, 0, 0
    a.gone[rows] = True


def _parts_of(a: Association, ends: RequestEnds, context: Context) -> Parts:
    """Return which requests completed in parts, and what `consume_parts` needs to know of them."""
    partly = (ends.completions > 1) | ((ends.completions == 1) & ~ends.finished)
    return Parts(
        partly & ~ends.flush_sequence,
        others(a, ends.last_issue) > 0,
        is_operation(take_or(a.events.opf, a.requests.birth, 0), context.op_number("discard")),
        ends.finished,
        ends.end,
        ends.status,
    )


def others(a: Association, issue: I64) -> U32:
    """Return, per request, how many of its bios at the D `issue` the recording's filters left out.

    issue: event per request, or -1, which gives 0.
    """
    counts = np.zeros(len(a.events) + 1, dtype=np.int64)
    np.add.at(counts, *chain_others(a.events))
    return counts[issue].astype(np.uint32)  # -1, no issue: the one past the events


def times(a: Association, index: I64) -> I64:
    """Return the times of events (ns), NEVER where the index is -1."""
    return take_or(a.events.ts, index, NEVER)
