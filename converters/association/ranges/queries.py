# SPDX-License-Identifier: Apache-2.0
"""Questions to the interval trees: which of those pending here at that time covers these sectors.

One candidate is taken and marked as known by interval, several are ambiguous, none stays open.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.ranges.intervals import PendingRanges
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U32, U64, Certainty

END_OF_TIME = np.iinfo(np.int64).max


@dataclass
class Pending:
    """Who could be the answer: ids with a device, a range in sectors and a life in ns."""

    ids: I64
    dev: U32
    sector: U64
    end: U64
    since: I64
    until: I64


@dataclass
class Question:
    """Who covers `[sector, end)` of a device at time `ts`."""

    asker: int
    dev: int
    sector: int
    end: int
    ts: int


def about_piece(a: Association, bio: int, ts: int) -> Question:
    """Who covers, at a time, what this bio sends to its request."""
    begin = int(a.facts.piece_sector[bio])
    end = begin + int(a.facts.piece_bytes[bio]) // SECTOR_BYTES
    return Question(bio, int(a.facts.dev[bio]), begin, end, ts)


def sweep(pending: Pending, questions: Iterable[Question]) -> dict[int, list[int]]:
    """Answers all questions in one pass over time: asker to ids that cover its range."""
    asked = sorted(questions, key=lambda q: q.ts)
    devices = {q.dev for q in asked}
    rows = np.flatnonzero(np.isin(pending.dev, list(devices)))
    comings = rows[np.argsort(pending.since[rows], kind="stable")].tolist()
    goings = rows[np.argsort(pending.until[rows], kind="stable")].tolist()
    ranges: dict[int, PendingRanges[int]] = {dev: PendingRanges() for dev in devices}
    answers: dict[int, list[int]] = {}
    come = gone = 0
    for question in asked:
        while come < len(comings) and pending.since[comings[come]] <= question.ts:
            row = comings[come]
            tree = ranges[int(pending.dev[row])]
            tree.add(row, int(pending.sector[row]), int(pending.end[row]))
            come += 1
        while gone < len(goings) and pending.until[goings[gone]] < question.ts:
            ranges[int(pending.dev[goings[gone]])].remove(goings[gone])
            gone += 1
        found = ranges[question.dev].covering(question.sector, question.end)
        answers[question.asker] = [int(pending.ids[row]) for row in found]
    return answers


def mark(a: Association, bio: int, candidates: list[int]) -> int:
    """The only candidate, -1 otherwise; marks how the bio's edge is known."""
    if len(candidates) == 1:
        a.certainty[bio] = max(int(a.certainty[bio]), Certainty.INTERVAL)
        return candidates[0]
    if candidates:
        a.certainty[bio] = Certainty.AMBIGUOUS
    return -1
