# SPDX-License-Identifier: Apache-2.0
"""Requests of merged bios that no chain names, because the chain was cut or records were lost."""

from collections.abc import Iterator

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.ranges.queries import (
    END_OF_TIME,
    Pending,
    about_piece,
    mark,
    sweep,
)
from biotrail.converters.events.array_steps import first_known, ranges_overlap, same_operation
from biotrail.converters.events.tables import I64, SECTOR_BYTES, Certainty
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Kind


def unnamed_members(a: Association, ends: RequestEnds) -> None:
    """Find, by range, the request of each bio that merged into a request which no chain reports.

    Asked are bios with data and an M, F or m, without a request by identity. Candidates are the
    requests that cover the bio and were in flight at the merge, whose D has a cut chain or that
    failed before a D. Without any cut chain, nothing is asked.

    Sets `a.request`, and `a.absorbed_by` of the bio's own request, where there is one candidate,
    unless it failed before a D, its chain has another bio at these sectors, or a request that waits
    for its D may be another candidate. Sets `a.certainty`; appends all candidates to
    `a.rival_requests`; first resets `a.request` of bios in an absorbed request if the absorbing one
    is not known.
    """
    own = a.request.copy()
    joined = np.maximum(a.bios.last(Kind.M, Kind.F), _unresolved_absorption(a))
    rows = np.flatnonzero((a.request < 0) & (joined >= 0) & (a.facts.piece_bytes > 0))
    open_chains = _requests_with_open_chains(a, ends)
    if not len(rows) or not (ends.issue[open_chains.ids] >= 0).any():
        return
    questions = [about_piece(a, int(bio), int(a.events.ts[joined[bio]])) for bio in rows]
    waiting, merges = _not_issued(a, ends), _unresolved_merges(a)
    range_event = _issued_or_failed(ends)
    places = _Places(a)
    for bio, covering in sweep(open_chains, questions).items():
        same = [
            r
            for r in dict.fromkeys(covering)
            if same_operation(a.events.opf[range_event[r]], a.facts.opf[bio])
        ]
        a.rival_requests += [(bio, r) for r in same]
        # A request not issued yet has no final range: it may turn out to cover the bio too.
        dev = int(a.facts.dev[bio])
        # A request that failed before its issue has no chain at all: never the only answer.
        failed = len(same) == 1 and ends.issue[same[0]] < 0
        waits = waiting.get(dev, END_OF_TIME) < max(joined[bio], merges.get(dev, -1))
        if waits or failed or (len(same) == 1 and places.is_named(same[0], bio)):
            continue
        places.claim(mark(a, bio, same), bio)
    for bio, request in places.claims():
        a.request[bio] = request
        if own[bio] >= 0:
            a.absorbed_by[own[bio]] = request


class _Places:
    """The sectors that each request's bios occupy: a request serves no sector twice."""

    def __init__(self, a: Association) -> None:
        self._a = a
        self._begin = a.facts.piece_sector.astype(np.int64)
        self._end = self._begin + np.maximum(a.facts.piece_bytes, 0) // SECTOR_BYTES
        self._named = np.argsort(a.request, kind="stable")
        self._request = a.request[self._named]
        self._claims: dict[int, list[int]] = {}

    def is_named(self, request: int, bio: int) -> bool:
        """Return whether a bio that is known to be of this request overlaps the given bio."""
        first, last = np.searchsorted(self._request, [request, request + 1])
        named = self._named[first:last]
        begin, end = self._begin[bio], self._end[bio]
        return bool(ranges_overlap(self._begin[named], self._end[named], begin, end).any())

    def claim(self, request: int, bio: int) -> None:
        """Note that this request, unless it is -1, is the only candidate for the bio."""
        if request >= 0:
            self._claims.setdefault(request, []).append(bio)

    def claims(self) -> Iterator[tuple[int, int]]:
        """Yield (bio, request) for each claim that overlaps no other claim of its request.

        Sets `a.certainty` of bios whose claims overlap to AMBIGUOUS; these are not yielded.
        """
        for request, claimed in self._claims.items():
            bios = np.array(sorted(claimed, key=lambda bio: self._begin[bio]), dtype=np.int64)
            begin, end = self._begin[bios], np.maximum.accumulate(self._end[bios])
            onto_before = np.append(False, begin[1:] < end[:-1])
            onto_next = np.append(self._end[bios][:-1] > begin[1:], False)
            rivals = onto_before | onto_next
            self._a.certainty[bios[rivals]] = Certainty.AMBIGUOUS
            yield from ((bio, request) for bio in bios[~rivals].tolist())


def _unresolved_absorption(a: Association) -> I64:
    """Return, per bio, the m of its request, if the absorbing request is not known, or -1.

    Resets `a.request` of the bios that have one to -1.
    """
    lost = np.full(len(a.bios), -1, dtype=np.int64)
    if not len(a.requests):
        return lost
    merged = np.where(a.absorbed_by < 0, a.requests.first(Kind.RQ_MERGE), -1)
    held = np.flatnonzero(a.request >= 0)
    lost[held] = merged[a.request[held]]
    a.request[lost >= 0] = -1
    return lost


def _unresolved_merges(a: Association) -> dict[int, int]:
    """Return, per device, the last m of a request whose absorbing request is not known.

    {dev: index into `a.events`}; a device without such an m is left out. Any request that waited
    for its D at that event may have absorbed the merged request, with its bios.
    """
    if not len(a.requests):
        return {}
    event = np.where(a.absorbed_by < 0, a.requests.first(Kind.RQ_MERGE), -1)
    event = np.sort(event[event >= 0])
    return dict(zip(a.events.dev[event].tolist(), event.tolist(), strict=True))


def _not_issued(a: Association, ends: RequestEnds) -> dict[int, int]:
    """Return, per device, the first event of the oldest request with data that waits for a D.

    {dev: index into `a.events`, or -1 where that request's start was not recorded: it may be older
    than the log}; a device without such a request is left out.
    """
    waits = (ends.issue < 0) & (ends.end < 0) & ~a.requests.superseded
    waits &= a.requests.first(Kind.RQ_MERGE) < 0
    births = a.requests.birth[waits] if len(a.requests) else np.zeros(0, np.int64)
    since = np.where(ends.started[waits] >= 0, births, -1)
    sized = a.events.bytes[births] > 0
    births, since = births[sized], since[sized]
    order = np.argsort(since)
    devices, first = np.unique(a.events.dev[births[order]], return_index=True)
    return dict(zip(devices.tolist(), since[order][first].tolist(), strict=True))


def _issued_or_failed(ends: RequestEnds) -> I64:
    """Return, per request, the event with its final range: first D, else last C, or -1."""
    return first_known(ends.issue, ends.end)


def _requests_with_open_chains(a: Association, ends: RequestEnds) -> Pending:
    """Return requests whose chain is not fully known, each in flight from its start to its issue.

    They are requests with a cut chain, one row per D, and those that failed before a D, until their
    C.
    """
    failed = np.flatnonzero((ends.issue < 0) & (ends.end >= 0) & ends.finished)
    issues = np.flatnonzero(a.requests.row_role == Kind.D)
    flags = a.events.field(Kind.D, "flags", a.requests.row_event[issues])
    issues = issues[(flags & D_FLAG_CHAIN_CUT) != 0]
    rows = np.concatenate([a.requests.row_gen[issues], failed])
    issue = np.concatenate([a.requests.row_event[issues], ends.end[failed]])
    end = a.events.end(issue)
    since = a.events.ts[a.requests.birth[rows]] if len(rows) else np.zeros(0, np.int64)
    # Without a recorded start, the request may be older than the log.
    has_start = ends.started[rows] >= 0
    since = np.where(has_start, since, np.iinfo(np.int64).min)
    return Pending(
        rows, a.events.dev[issue], a.events.sector[issue], end, since, a.events.ts[issue]
    )
