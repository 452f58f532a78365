# SPDX-License-Identifier: Apache-2.0
"""Requests of merged bios that no chain names, because the chain was cut or records were lost."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.identity.association import Association, Findings
from biotrail.converters.association.ranges.conditions import (
    CHAIN_CONDITIONS,
    CHAIN_REFUSALS,
    ChainAnswers,
    ChainCandidates,
)
from biotrail.converters.association.ranges.queries import (
    END_OF_TIME,
    Pending,
    about_piece,
    narrowed,
    only_candidates,
    pairs_of,
    sweep,
)
from biotrail.converters.association.rules import all_mark, any_marks
from biotrail.converters.events.array_steps import (
    first_known,
    is_first_of_run,
    ranges_overlap,
    take_or,
)
from biotrail.converters.events.tables import I64, SECTOR_BYTES, Bool, Certainty
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Kind


def cut_chain_members(a: Association, ends: RequestEnds) -> Findings:
    """Find, by range, the request of each bio that merged into a request which no chain reports.

    Bios in an absorbed request (m) of which the absorbing one is not known lose their `request`.
    Asked are those and bios with M or F but no request, if they have data. Candidates are the
    requests that cover the bio, were in flight at the merge, hold CHAIN_CONDITIONS, and have a D
    with a cut chain or ended without a D. Without any cut chain, nothing is asked.

    A bio gets its only candidate as `request`, and the absorbed request that it was in gets it as
    `absorbed_by`, unless one of CHAIN_REFUSALS holds or the bio overlaps another such bio of that
    candidate. `certainty` becomes AMBIGUOUS with several candidates or an overlap, else INTERVAL if
    it was surer; where refused or without candidate it is unchanged. All candidates, also of
    refused bios, are `rival_requests`.
    """
    absorbed_event = _unresolved_absorption(a)
    request = np.where(absorbed_event >= 0, -1, a.request).astype(np.int64)
    joined = np.maximum(a.bios.last(Kind.M, Kind.F), absorbed_event)
    bios = np.flatnonzero((request < 0) & (joined >= 0) & (a.facts.piece_bytes > 0))
    open_chains = _requests_with_open_chains(a, ends)
    if not len(bios) or not (ends.issue[open_chains.ids] >= 0).any():
        return Findings(request=request)
    questions = [about_piece(a, int(bio), int(a.events.ts[joined[bio]])) for bio in bios]
    covering = sweep(open_chains, questions)
    covering = {bio: list(dict.fromkeys(ids)) for bio, ids in covering.items()}
    asker, candidate = pairs_of(covering)
    pairs = ChainCandidates(a, asker, candidate, first_known(ends.issue, ends.end))
    fits = all_mark(CHAIN_CONDITIONS, pairs, len(asker))
    candidates = narrowed(covering, fits)
    places = _Places(a, request)
    refused = _refused(a, ends, places, candidates, joined)
    accepted = {bio: ids for bio, ids in candidates.items() if bio not in refused}
    claims, certainty = only_candidates(accepted, a.certainty)
    claimed = places.without_rivals(claims)
    absorbed_by = a.absorbed_by.copy()
    certainty[claimed.rivals] = Certainty.AMBIGUOUS
    request[claimed.bio] = claimed.request
    own = a.request[claimed.bio]
    absorbed_by[own[own >= 0]] = claimed.request[own >= 0]
    rivals = tuple(zip(asker[fits].tolist(), candidate[fits].tolist(), strict=True))
    return Findings(
        request=request, absorbed_by=absorbed_by, certainty=certainty, rival_requests=rivals
    )


@dataclass(frozen=True)
class _Claims:
    """Bios (k,) with the request that each is in; rivals: bios whose claims overlap another's."""

    bio: I64
    request: I64
    rivals: I64


class _Places:
    """The sectors that each request's bios occupy: a request serves no sector twice."""

    def __init__(self, a: Association, request: I64) -> None:
        """Take the sectors of each bio's piece. request: (b,) request of each bio, or -1."""
        self._begin = a.facts.piece_sector.astype(np.int64)
        self._end = self._begin + np.maximum(a.facts.piece_bytes, 0) // SECTOR_BYTES
        self._served_bio = np.argsort(request, kind="stable")
        self._request = request[self._served_bio]

    def is_taken(self, request: int, bio: int) -> bool:
        """Return whether a bio that is known to be of this request overlaps the given bio."""
        first, last = np.searchsorted(self._request, [request, request + 1])
        served = self._served_bio[first:last]
        begin, end = self._begin[bio], self._end[bio]
        return bool(ranges_overlap(self._begin[served], self._end[served], begin, end).any())

    def without_rivals(self, claims: dict[int, int]) -> _Claims:
        """Return the claims that overlap no other claim of their request.

        claims: request by bio, each the only candidate. The others are returned as rivals.
        """
        bio = np.fromiter(claims, dtype=np.int64, count=len(claims))
        request = np.fromiter(claims.values(), dtype=np.int64, count=len(claims))
        order = np.lexsort((self._begin[bio], request))
        bio, request = bio[order], request[order]
        rival = np.zeros(len(bio), dtype=np.bool_)
        bounds = np.append(np.flatnonzero(is_first_of_run(request)), len(bio))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rival[first:last] = self._overlapping(bio[first:last])
        return _Claims(bio[~rival], request[~rival], bio[rival])

    def _overlapping(self, bios: I64) -> Bool:
        """Return, per bio (k,), whether it overlaps another one; bios ascend by first sector."""
        begin, own_end = self._begin[bios], self._end[bios]
        end = np.maximum.accumulate(own_end)
        onto_before = np.append(False, begin[1:] < end[:-1])
        onto_next = np.append(own_end[:-1] > begin[1:], False)
        return np.asarray(onto_before | onto_next, dtype=np.bool_)


def _refused(
    a: Association,
    ends: RequestEnds,
    places: _Places,
    candidates: dict[int, list[int]],
    joined: I64,
) -> set[int]:
    """Return the asking bios that one of CHAIN_REFUSALS marks.

    These hold where a request of the device waits for its D since before the bio's merge, or before
    the device's last m of which the absorbing request is not known (whatever the candidates); and
    where the only candidate failed before its D, or has another bio at these sectors (`places`).
    candidates: requests by asking bio. joined: (b,) event of each bio's merge, or -1.
    """
    asker = np.array(list(candidates), dtype=np.int64)
    only = np.array([ids[0] if len(ids) == 1 else -1 for ids in candidates.values()], np.int64)
    pairs = zip(asker.tolist(), only.tolist(), strict=True)
    taken = [request >= 0 and places.is_taken(request, bio) for bio, request in pairs]
    waiting, merges = _not_issued(a, ends), _unresolved_merges(a)
    devices = a.facts.dev[asker].tolist()
    answers = ChainAnswers(
        ends,
        only,
        np.array(taken, dtype=np.bool_),
        joined[asker],
        np.array([waiting.get(dev, END_OF_TIME) for dev in devices], dtype=np.int64),
        np.array([merges.get(dev, -1) for dev in devices], dtype=np.int64),
    )
    return set(asker[any_marks(CHAIN_REFUSALS, answers, len(asker))].tolist())


def _unresolved_absorption(a: Association) -> I64:
    """Return, per bio (b,), the m of its request, if the absorbing request is not known, or -1."""
    merged = np.where(a.absorbed_by < 0, a.requests.first(Kind.RQ_MERGE), -1)
    return take_or(merged, a.request, -1)


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
    """Return, per device, the first event of the oldest request with data that still waits for a D.

    Still: after the last of `a.events`, without a D, C or m, and its address was not reused. {dev:
    index into `a.events`, or -1 if any such request's start was not recorded: it may be older than
    the log, and counts as the oldest}; a device without such a request is left out.
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


def _requests_with_open_chains(a: Association, ends: RequestEnds) -> Pending:
    """Return requests whose chain is not fully known, as candidates in flight until their issue.

    One row per D with a cut chain, with the D's range, from the request's first event to the D; and
    one per request that finished without a D, with the range of its last C, up to that C. A request
    whose s was not recorded is in flight since ever.
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
