# SPDX-License-Identifier: Apache-2.0
"""Merges of requests (m): which request absorbed which, and whose the absorbed bios are."""

import numpy as np

from biotrail.converters.association.identity.association import Association, Findings
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.tables import I64, SECTOR_BYTES, Bool
from biotrail.recorder.schema.records import Kind


def named_absorptions(a: Association) -> Findings:
    """Find `absorbed_by` where an m names the absorbing request.

    The kernel's m does not; `without_pointers` writes the request's identity into the record. The
    absorbing one is the last generation with this identity that began before the m. Where there is
    none, or the m has no name, `absorbed_by` stays.
    """
    rows = np.flatnonzero(a.requests.row_role == Kind.RQ_MERGE)
    taker_pointer = a.events.raw[a.requests.row_event[rows], 6]
    rows, taker_pointer = rows[taker_pointer != 0], taker_pointer[taker_pointer != 0]
    if not len(rows):
        return Findings()
    # An identity can be reused: take its last generation that began before the m.
    request = a.requests.at(taker_pointer, a.requests.row_event[rows])
    known = request >= 0
    absorbed_by = a.absorbed_by.copy()
    absorbed_by[a.requests.row_gen[rows[known]]] = request[known]
    return Findings(absorbed_by=absorbed_by)


def absorptions(a: Association) -> Findings:
    """Find `absorbed_by`, and move the bios of absorbed requests to the request that was issued.

    An absorbed request merged into the request of its head bio (`a.request`: mostly that of a D,
    for attempt_merge links the two bio lists, so that bio is in the chain). An m that was lost is
    recognised by a bio whose request is another one at its D. Both columns have the last request of
    a chain of merges (`last_absorbers`). Finds nothing where there is neither m nor such a bio.
    """
    rows = np.flatnonzero(a.bios.row_role == Kind.RQ_MERGE)
    rows = np.concatenate([rows, _rows_before_lost_merges(a)])
    if not len(rows) or not len(a.requests):
        return Findings()
    source, taker = a.row_request[rows], a.request[a.bios.row_gen[rows]]
    known = (taker >= 0) & (taker != source)
    absorbed_by = a.absorbed_by.copy()
    absorbed_by[source[known]] = taker[known]
    absorbed_by = last_absorbers(absorbed_by, len(rows))
    taker = take_or(absorbed_by, a.request, -1)
    return Findings(
        absorbed_by=absorbed_by, request=np.where(taker >= 0, taker, a.request).astype(np.int64)
    )


def last_absorbers(absorbed_by: I64, merges: int) -> I64:
    """Return, per request (q,), the last request of its chain of merges, or -1: not absorbed.

    absorbed_by: (q,) request that each one was merged into, or -1; not changed, but returned itself
    where no chain is longer than one merge. merges: number of merges, or more; bounds the passes.
    C merged into B, and B into A, gives A for C. Pointer jumping doubles the path length in each
    pass, so a cycle of merges terminates too: its requests get any request of the cycle.
    """
    for _ in range(merges.bit_length()):
        further = take_or(absorbed_by, absorbed_by, -1)
        if not (further >= 0).any():
            break
        absorbed_by = np.where(further >= 0, further, absorbed_by)
    return absorbed_by


def _rows_before_lost_merges(a: Association) -> I64:
    """Return the bio rows that a D of another request follows: the m between them was lost.

    Indices (k,) into the rows of `a.bios`, ascending. The D is the next row of the same bio
    generation. Left out are pairs of which one names no request, and rows whose request has an m.
    """
    after = np.flatnonzero(a.bios.row_role == Kind.D)
    after = after[after != a.bios.start[a.bios.row_gen[after]]]
    before = after - 1
    own, taker = a.row_request[before], a.row_request[after]
    changed = (own >= 0) & (taker >= 0) & (own != taker)
    before, own = before[changed], own[changed]
    without_m: I64 = before[a.requests.first(Kind.RQ_MERGE)[own] < 0]
    return without_m


def request_before_merge(a: Association) -> I64:
    """Return, per bio (b,), the absorbed request that it was in before the m, or -1.

    That is the request of the bio's first G, s, M, F, I or m (before its D) that names one; for a
    bio with a G, M or F and none of these, that of the first m whose range has the bio's sector,
    after the bio began, of a request absorbed by the bio's request. -1 where that is the bio's
    request itself. An I after a requeue does not count: its request may have taken the bio before.
    """
    before = (Kind.G, Kind.START, Kind.M, Kind.F, Kind.I, Kind.RQ_MERGE)
    issue = a.bios.first(Kind.D)
    early = (a.bios.row_event < issue[a.bios.row_gen]) | (issue[a.bios.row_gen] < 0)
    early &= ~((a.bios.row_role == Kind.I) & _after_issue(a))
    named = np.flatnonzero((a.row_request >= 0) & np.isin(a.bios.row_role, before) & early)[::-1]
    own = np.full(len(a.bios), -1, dtype=np.int64)
    own[a.bios.row_gen[named]] = a.row_request[named]
    joined = a.bios.first(Kind.G, Kind.M, Kind.F) >= 0
    own = _in_range_of_merges(a, np.flatnonzero(joined & (a.request >= 0) & (own < 0)), own)
    return np.where((own >= 0) & (own != a.request), own, -1)


def _after_issue(a: Association) -> Bool:
    """Return, per row of `bios` (r,), whether the request that it names was issued before."""
    if not len(a.requests):
        return np.zeros(len(a.row_request), np.bool_)
    issue = np.where(a.row_request >= 0, a.requests.first(Kind.D)[a.row_request], -1)
    return np.asarray((issue >= 0) & (a.bios.row_event > issue), np.bool_)


def _in_range_of_merges(a: Association, bios: I64, own: I64) -> I64:
    """Return a copy of `own` (b,) in which `bios` have the request of the m that moved them.

    bios: (k,) bio generations whose request is known. own: (b,) request before the m, or -1. The m
    is the first one after the bio's first event whose range has the first sector of the bio's
    piece, of a request absorbed by the one that served the bio; without one `own` stays. Cost grows
    with the bios that lie in ranges of m, not with bios times m.
    """
    merged = np.flatnonzero(a.requests.row_role == Kind.RQ_MERGE)
    merged = merged[np.isin(a.absorbed_by[a.requests.row_gen[merged]], a.request[bios])]
    merged = merged[np.argsort(a.requests.row_event[merged], kind="stable")]
    event, absorbed = a.requests.row_event[merged], a.requests.row_gen[merged]
    sectors, place = np.unique(a.facts.piece_sector[bios], return_inverse=True)
    begin, length = a.events.sector[event], a.events.bytes[event] // SECTOR_BYTES
    end = begin + np.maximum(length, 0).astype(np.uint64)
    first = np.searchsorted(sectors, begin)
    behind = np.where(end < begin, len(sectors), np.searchsorted(sectors, end))
    # Bios by their request and sector: those of one merge's range stand side by side.
    width = len(sectors) + 1
    order = np.argsort(a.request[bios] * width + place, kind="stable")
    keys = (a.request[bios] * width + place)[order]
    low = np.searchsorted(keys, a.absorbed_by[absorbed] * width + first)
    count = np.searchsorted(keys, a.absorbed_by[absorbed] * width + behind) - low
    count = np.maximum(count, 0)
    merge = np.repeat(np.arange(len(merged)), count)
    # Position in `keys` of each (merge, bio in its range) pair: low[merge], low[merge] + 1, …
    position = np.arange(len(merge)) - np.repeat(np.cumsum(count) - count, count) + low[merge]
    bio = bios[order[position]]
    later = a.bios.birth[bio] < event[merge]
    bio, merge = bio[later][::-1], merge[later][::-1]
    result = own.copy()
    result[bio] = absorbed[merge]  # the first merge is assigned last
    return result
