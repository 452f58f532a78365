# SPDX-License-Identifier: Apache-2.0
"""The times of each queued bio: those of the piece that completed last, and of its request."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds, times
from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.absorptions import request_before_merge
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.tables import I64, NEVER, SECTOR_BYTES, Bool
from biotrail.recorder.schema.records import Kind


@dataclass
class Milestones:
    """Per whole bio (n,): times in ns (NEVER: none) of the piece that completed last.

    data_end: when the data completed, which the flush machinery may follow by a flush.
    """

    queue: I64
    getrq: I64
    merge: I64
    insert: I64
    joined_inserted: Bool
    """Whether the piece merged into a request that had been inserted before."""
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
    """Return the times of each queued bio (row of `whole`): of its final piece, and its request.

    The final piece is the one that completed last, or has no end yet; without one (no piece was in
    a request) all times but queue, data_end and complete are NEVER. getrq is the piece's first G,
    else its s; a piece that was merged has none. Insert is kept if not before getrq or merge,
    and not after issue. Getrq, merge, insert and issue after the completion are dropped, as events
    of other I/O at the same address whose start was not recorded. complete is that of the whole
    bio. data_end is the last C with bytes in a flush sequence, else `complete`.
    """
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
    begun = np.maximum(merge, getrq)
    joined_inserted = (merge >= 0) & (insert >= 0) & (insert < merge)
    # An insert before the merge or after the first issue is no boundary of this bio.
    insert = np.where((insert >= begun) & (begun >= 0), insert, NEVER)
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
        joined_inserted=joined_inserted,
        issue=issue,
        data_end=np.where(sequence, data_end, complete),
        complete=complete,
        sequence=sequence,
        request=request,
        failed=_failed_at_once(ends, request),
    )


def _inserts(a: Association, ends: RequestEnds, request: I64, final: I64) -> I64:
    """Return per queued bio the row of its I in the window's events, int64, -1 none.

    That is its request's first I; if the bio came with a request that was absorbed, the first I of
    the absorbed one, -1 if that has none. request: per bio, index of its request in `a.requests`,
    -1 none. final: per bio, index in `a.bios` of its piece that completed last; where there is no
    such piece it must be any valid index, and the result may mean nothing.
    """
    if not len(a.requests):
        return np.full(len(request), -1, dtype=np.int64)
    insert = take_or(ends.insert, request, -1)
    if not (a.absorbed_by >= 0).any():
        return insert
    own = request_before_merge(a)[final]
    return np.where(own >= 0, ends.insert[np.maximum(own, 0)], insert)


def _issues(a: Association, ends: RequestEnds, request: I64, final: I64) -> I64:
    """Return per queued bio the row of the first D that carried its final piece, int64, -1 none.

    That is the first D that names the piece or, if none does, the request's first D after the piece
    joined it: a merge after a requeue is later than the request's first D. The piece joined at the
    last of its first event, G, s, M, F, and the merge (m) of the request that brought it. request:
    per bio, index of its request in `a.requests`; -1 (none) gives -1. final: per bio, index in
    `a.bios` of its final piece, the one that completed last.
    """
    if not len(a.requests):
        return np.full(len(request), -1, dtype=np.int64)
    named = a.bios.first(Kind.D)[final]
    # D does not name the bio if the recorded bio chain was cut short, or without pointers: take
    # the request's first D after the bio joined.
    joined = np.maximum(a.bios.last(Kind.M, Kind.F, Kind.G, Kind.START)[final], a.bios.birth[final])
    own = request_before_merge(a)[final]
    moved = take_or(a.requests.first(Kind.RQ_MERGE), own, -1)
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
    """Return per queued bio the row of the last merge (m) that moved it into its request; -1 none.

    Found by range: the m is into the bio's request, covers its piece's first sector, and came after
    the piece began. Only requests that were requeued are looked at: others have one D to choose.
    request: per bio, index of its request in `a.requests`, -1 none. final: per bio, index in
    `a.bios` of its piece that completed last.
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
    """Return per bio the time (ns) of one event of its request; NEVER where there is none.

    per_request: row of the event in `a.events` per request, -1 none. request: per bio, index into
    `per_request`, -1 none.
    """
    return times(a, take_or(per_request, request, -1))


def _request_flag(per_request: Bool, request: I64) -> Bool:
    """Return per bio the flag of its request; False where `request` is -1."""
    return take_or(per_request, request, False)


def _failed_at_once(ends: RequestEnds, request: I64) -> Bool:
    """Return per bio whether its request ended in an error with no byte completed.

    request: per bio, index of its request in `ends`; False for -1.
    """
    if not len(ends.status):
        return np.zeros(len(request), dtype=np.bool_)
    held = np.maximum(request, 0)
    return np.asarray(
        (request >= 0) & (ends.status[held] != 0) & (ends.good[held] == 0), dtype=np.bool_
    )
