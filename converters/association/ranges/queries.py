# SPDX-License-Identifier: Apache-2.0
"""Range queries over time: which bios or requests in flight at some time cover some sectors.

A single candidate is taken, with certainty INTERVAL. Of several none is taken, and the asking bio
becomes AMBIGUOUS.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.ranges.intervals import PendingRanges
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U32, U64, Certainty

END_OF_TIME = np.iinfo(np.int64).max
"""ns: still in flight."""


@dataclass
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


@dataclass
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
    """Return, per asker, the ids of the candidates that cover its range at its time.

    One pass over time: candidates enter and leave the trees as the queries, sorted by `ts`, pass
    them. Every asker has an entry, an empty list where nothing covers its range.
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


def mark(a: Association, bio: int, candidates: list[int]) -> int:
    """Return the only candidate, or -1 where there are none or several; set the bio's certainty.

    `a.certainty[bio]` becomes INTERVAL (unless it is larger) for one, AMBIGUOUS for several
    candidates.
    """
    if len(candidates) == 1:
        a.certainty[bio] = max(int(a.certainty[bio]), Certainty.INTERVAL)
        return candidates[0]
    if candidates:
        a.certainty[bio] = Certainty.AMBIGUOUS
    return -1
