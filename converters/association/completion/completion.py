# SPDX-License-Identifier: Apache-2.0
"""When requests and bios ended, how much of them was good, and whether more is to come.

C's bytes are consumed by the request's bios in order. A request of the flush machinery
ends with a C of no bytes, and only that one ends its bio.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.partial_completion import (
    BioEnds,
    Parts,
    consume_parts,
)
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.identity.generations import Generations, chain_others
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I32, I64, NEVER, U32, Bool
from biotrail.recorder.schema.records import Kind


@dataclass
class RequestEnds:
    """Per request generation. Events are indices, -1 none.

    issue, last_issue, insert, started: first D, last D, first I, s. completions: how many
    C. data_end: the C that ended the data; end: the last C. total: bytes at first issue,
    -1 unknown. done, good: bytes completed, bytes completed without error. finished:
    nothing more is to come. unissued: event that shows that an issue before it was not
    seen, -1 none.
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


def _opf_at(a: Association, index: I64) -> U32:
    if not len(a.events):
        return np.zeros(len(index), np.uint32)
    return np.where(index >= 0, a.events.opf[np.maximum(index, 0)], np.uint32(0))


def request_ends(a: Association, context: Context) -> RequestEnds:
    """Ends of every request generation of the window."""
    r, events = a.requests, a.events
    kind = r.row_role
    is_c = kind == Kind.C
    size = events.bytes[r.row_event]
    status = np.where(is_c, events.status[r.row_event], 0)
    bad = is_c & (status != 0)
    issue, started, end = r.first(Kind.D), r.first(Kind.START), r.last(Kind.C)
    begun = np.where(issue >= 0, issue, np.where(started >= 0, started, r.first(Kind.I)))
    total = _take(events.bytes, begun, -1)
    bad_row = r.last_where(bad)
    sequence = _flush_sequence(a, context, begun, np.where(issue >= 0, issue, end))
    ended_empty = (end >= 0) & (_take(events.bytes, end, 0) == 0)
    # A first flush that fails ends the request before it is issued.
    ended_empty |= (issue < 0) & (bad_row >= 0)
    last_issue = r.last(Kind.D)
    finished = (end >= 0) & (
        _done_since(r, size, last_issue)
        >= _take(events.bytes, np.where(last_issue >= 0, last_issue, begun), -1)
    )
    finished &= ~sequence | ended_empty
    data_end = r.last_where(is_c & (size > 0))
    return RequestEnds(
        started=started,
        insert=r.first(Kind.I),
        issue=issue,
        last_issue=last_issue,
        completions=r.count(is_c),
        data_end=np.where(data_end >= 0, data_end, end),
        end=end,
        total=total,
        done=r.total(np.where(is_c, size, 0)),
        good=r.total(np.where(is_c & ~bad, size, 0)),
        status=_take(events.status.astype(np.int64), bad_row, 0).astype(np.int32),
        requeues=r.count(kind == Kind.R),
        finished=finished,
        flush_sequence=sequence,
        unissued=_unissued(r, issue, is_c & ~bad & (size > 0), context.tells_losses),
    )


def _unissued(r: Generations, issue: I64, good: Bool, told: bool) -> I64:
    """Of each request the first event that an issue must have preceded and none did, or -1.

    That is an R or C before the first issue, or data (`good` rows) after R without another. Where
    all losses are `told`, an R before the first issue is a driver's that was too busy to begin:
    it gave the request back, and the kernel tells a requeue.
    """
    first = r.first(Kind.C) if told else r.first(Kind.R, Kind.C)
    early = np.where((first >= 0) & (issue > first), first, -1)
    again = r.row_role == Kind.R
    if not again.any():
        return early
    index = np.arange(len(again))
    last = np.maximum.accumulate(np.where(again | (r.row_role == Kind.D), index, 0))
    after = good & again[last] & (r.row_gen[last] == r.row_gen)
    return np.maximum(early, r.first_where(after))


def _take(column: I64, index: I64, default: int) -> I64:
    if not len(column):
        return np.full(len(index), default, dtype=np.int64)
    return np.where(index >= 0, column[np.maximum(index, 0)], default)


def _done_since(r: Generations, size: I64, issue: I64) -> I64:
    """Bytes that every request completed after an event: a requeued one can grow."""
    after = r.row_event > issue[r.row_gen]
    return r.total(np.where((r.row_role == Kind.C) & after, size, 0))


def _flush_sequence(a: Association, context: Context, begun: I64, told: I64) -> Bool:
    """Whether the flush machinery runs a request that has data (block/blk-flush.c).

    It does when the bio wants a flush first, or FUA from a device without it: the bit is
    then gone from the request that is issued. begun: event with the request's length;
    told: its issue, or its completion where that was not seen.
    """
    preflush, fua = context.flag_mask("PREFLUSH"), context.flag_mask("FUA")
    wanted = np.zeros(len(a.requests), dtype=np.uint32)
    held = np.flatnonzero(a.request >= 0)
    np.bitwise_or.at(wanted, a.request[held], a.facts.opf[held] & np.uint32(preflush | fua))
    with_data = _take(a.events.bytes, np.where(begun >= 0, begun, told), 0) > 0
    by_fua = ((wanted & fua) != 0) & ((_opf_at(a, told) & fua) == 0) & (told >= 0)
    by_preflush = (wanted & preflush) != 0
    return np.asarray(with_data & (by_preflush | by_fua), dtype=np.bool_)


def bio_ends(a: Association, ends: RequestEnds, context: Context) -> BioEnds:
    """Ends of every bio generation that went to a request."""
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
    # The flush machinery's requests have one bio; its data can be good, its flush not.
    sequence = ends.flush_sequence[request]
    result.good[served[sequence]] = np.minimum(size, ends.good[request])[sequence]
    consume_parts(a, _parts_of(a, ends, context), result)
    _outlived(a, result)
    return result


def _outlived(a: Association, result: BioEnds) -> None:
    """A bio whose address was queued again before its request ended had ended, unseen."""
    rows = np.flatnonzero(a.bios.superseded & (result.end >= 0))
    rows = rows[a.events.number[result.end[rows]] > a.bios.again[rows]]
    result.end[rows], result.good[rows], result.status[rows] = -1, 0, 0
    a.gone[rows] = True


def _parts_of(a: Association, ends: RequestEnds, context: Context) -> Parts:
    partly = (ends.completions > 1) | ((ends.completions == 1) & ~ends.finished)
    return Parts(
        partly & ~ends.flush_sequence,
        others(a, ends.last_issue) > 0,
        _opf_at(a, a.requests.birth) & 0xFF == np.uint32(context.op_number("discard") % 256),
        ends.finished,
        ends.end,
        ends.status,
    )


def others(a: Association, issue: I64) -> U32:
    """Per request: bios that the recording's filters left out, at its event `issue`."""
    counts = np.zeros(len(a.events) + 1, dtype=np.int64)
    np.add.at(counts, *chain_others(a.events))
    return counts[issue].astype(np.uint32)  # -1, no issue: the one past the events


def times(a: Association, index: I64) -> I64:
    """Time of events by index, NEVER where it is -1."""
    return _take(a.events.ts, index, NEVER)
