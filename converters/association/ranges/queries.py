# SPDX-License-Identifier: Apache-2.0
"""Range queries over time: which bios or requests in flight at some time cover some sectors.

A single candidate is taken, with certainty INTERVAL. Of several none is taken, and the asking bio
becomes AMBIGUOUS (`only_candidates`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.ranges.intervals import PendingRanges
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U8, U32, U64, Bool, Certainty

END_OF_TIME = np.iinfo(np.int64).max
"""ns: still in flight."""


@dataclass(frozen=True)
class Pending:
    """Candidates of a query, one row each (n,); one id may have several rows.

    ids: bio or request generation. dev: dev_t. sector, end: range in 512-byte sectors, half open.
    since, until: first and last time in flight (ns), both included.
    """

    ids: I64
    dev: U32
    sector: U64
    end: U64
    since: I64
    until: I64


@dataclass(frozen=True)
class Question:
    """A query: who covers `[sector, end)` of device `dev` at time `ts` (ns).

    asker: generation of the bio that the query is about.
    """

    asker: int
    dev: int
    sector: int
    end: int
    ts: int


def about_piece(a: Association, bio: int, ts: int) -> Question:
    """Return the query for who covers, at `ts` (ns), the range of this bio's own piece."""
    begin = int(a.facts.piece_sector[bio])
    end = begin + int(a.facts.piece_bytes[bio]) // SECTOR_BYTES
    return Question(bio, int(a.facts.dev[bio]), begin, end, ts)


def sweep(pending: Pending, questions: Iterable[Question]) -> dict[int, list[int]]:
    """Return, by asker, the ids of the candidates that cover its range at its time.

    A candidate covers a range if it is in flight at the query's time, on its device, and its own
    range contains all of it, so that an empty one is never found; an id with several rows can come
    several times, in no order. One pass over time: candidates enter and leave the trees as the
    queries, sorted by `ts`, pass them. Every asker, with one query each, has an entry, an empty
    list where nothing covers its range.
    """
    asked = sorted(questions, key=lambda q: q.ts)
    devices = {q.dev for q in asked}
    rows = np.flatnonzero(np.isin(pending.dev, list(devices)))
    by_since = rows[np.argsort(pending.since[rows], kind="stable")].tolist()
    by_until = rows[np.argsort(pending.until[rows], kind="stable")].tolist()
    ranges: dict[int, PendingRanges[int]] = {dev: PendingRanges() for dev in devices}
    answers: dict[int, list[int]] = {}
    entered = left = 0
    for question in asked:
        while entered < len(by_since) and pending.since[by_since[entered]] <= question.ts:
            row = by_since[entered]
            tree = ranges[int(pending.dev[row])]
            tree.add(row, int(pending.sector[row]), int(pending.end[row]))
            entered += 1
        while left < len(by_until) and pending.until[by_until[left]] < question.ts:
            ranges[int(pending.dev[by_until[left]])].remove(by_until[left])
            left += 1
        covering = ranges[question.dev].covering(question.sector, question.end)
        answers[question.asker] = [int(pending.ids[row]) for row in covering]
    return answers


def only_candidates(candidates: dict[int, list[int]], certainty: U8) -> tuple[dict[int, int], U8]:
    """Return the candidate of each bio that has one alone, and the certainty of all bios.

    candidates: by asking bio. certainty: (b,) so far; a copy is returned, in which bios with one
    candidate are at least INTERVAL, and those with several are AMBIGUOUS; others stay.
    """
    result = certainty.copy()
    one = {bio: ids[0] for bio, ids in candidates.items() if len(ids) == 1}
    several = [bio for bio, ids in candidates.items() if len(ids) > 1]
    asked = np.fromiter(one, dtype=np.int64, count=len(one))
    result[asked] = np.maximum(result[asked], Certainty.INTERVAL)
    result[np.array(several, dtype=np.int64)] = Certainty.AMBIGUOUS
    return one, result


def pairs_of(candidates: dict[int, list[int]]) -> tuple[I64, I64]:
    """Return every (asking bio, candidate) pair as two arrays (k,), in the order of the dict."""
    counts = [len(ids) for ids in candidates.values()]
    asker = np.repeat(np.array(list(candidates), dtype=np.int64), counts)
    ids = [candidate for ids in candidates.values() for candidate in ids]
    return asker, np.array(ids, dtype=np.int64)


def narrowed(candidates: dict[int, list[int]], fits: Bool) -> dict[int, list[int]]:
    """Return the candidates of each asking bio that fit; every bio keeps an entry, maybe empty.

    fits: (k,) mask of the pairs, in the order of `pairs_of`.
    """
    remaining = iter(fits.tolist())
    return {bio: [c for c in ids if next(remaining)] for bio, ids in candidates.items()}
