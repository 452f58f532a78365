# SPDX-License-Identifier: Apache-2.0
"""What identities do not settle, by intervals: cut chains, implicit splits, upper bios.

Each question is "which of those pending here at that time covers these sectors": one
candidate is taken and marked as known by interval, several are ambiguous, none stays open.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from recorder.records import D_FLAG_CHAIN_CUT, Kind

from .association import Association, partition_remaps
from .completion import BioEnds, RequestEnds
from .context import OP_MASK, Context
from .intervals import PendingRanges
from .parity import of_parity
from .tables import I64, SECTOR_BYTES, U32, U64, Certainty

_END_OF_TIME = np.iinfo(np.int64).max


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


def repair(a: Association, ends: RequestEnds, context: Context) -> None:
    """Fills `a.request`, `a.root`, `a.upper` and `a.certainty` where intervals can."""
    _implicit_splits(a)
    _unnamed_members(a, ends)
    _upper_bios(a, context)


def _bio_lives(a: Association) -> tuple[I64, I64]:
    """First and last event time of every bio generation; open ones end never."""
    ts = a.events.ts
    if not len(a.bios):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    since, until = ts[a.bios.birth], ts[a.bios.last_event]
    over = a.bios.last(Kind.BIO_COMPLETE) >= 0
    if len(a.requests):
        request = np.maximum(a.request, 0)
        done = (a.request >= 0) & (a.requests.last(Kind.C)[request] >= 0)
        last = ts[a.requests.last_event[request]]
        until = np.where(done, np.maximum(until, last), until)
        over |= done
    return since, np.where(over, until, _END_OF_TIME)


def _queued_bios(a: Association, since: I64, until: I64) -> Pending:
    rows = np.flatnonzero((a.queued >= 0) & (a.facts.bytes > 0))
    return _pending(a, rows, since, until)


def _pending(a: Association, rows: I64, since: I64, until: I64) -> Pending:
    sector = a.facts.sector[rows]
    end = sector + (a.facts.bytes[rows] // SECTOR_BYTES).astype(np.uint64)
    return Pending(rows, a.facts.dev[rows], sector, end, since[rows], until[rows])


def _mark(a: Association, bio: int, candidates: list[int]) -> int:
    """The only candidate, -1 otherwise; marks how the bio's edge is known."""
    if len(candidates) == 1:
        a.certainty[bio] = max(int(a.certainty[bio]), Certainty.INTERVAL)
        return candidates[0]
    if candidates:
        a.certainty[bio] = Certainty.AMBIGUOUS
    return -1


def _implicit_splits(a: Association) -> None:
    """A G, s or D strictly inside a queued bio: md on 5.10 and 6.1 splits without X."""
    born = (Kind.G, Kind.START, Kind.M, Kind.F)
    rows = np.flatnonzero(np.isin(a.bios.birth_role, born) & (a.facts.piece_bytes > 0))
    if not len(rows):
        return
    since, until = _bio_lives(a)
    questions = [
        Question(
            int(g),
            int(a.facts.dev[g]),
            int(a.facts.piece_sector[g]),
            int(a.facts.piece_sector[g]) + int(a.facts.piece_bytes[g]) // SECTOR_BYTES,
            int(since[g]),
        )
        for g in rows
    ]
    # A bio that itself went to a request with some of the sectors was not split there.
    sent = a.is_piece
    for bio, found in sweep(_queued_bios(a, since, until), questions).items():
        larger = [
            c
            for c in found
            if a.facts.bytes[c] > a.facts.piece_bytes[bio]
            and not (sent[c] and _overlap(a, c, bio))
            and (a.facts.opf[c] & 0xFF) == (a.facts.opf[bio] & 0xFF)
        ]
        a.rival_bios += [(bio, c) for c in larger]
        parent = _mark(a, bio, larger)
        if parent >= 0:
            a.root[bio] = a.root[parent]


def _overlap(a: Association, one: int, other: int) -> bool:
    """Whether what two bios sent to their requests shares a sector."""
    begin, start = int(a.facts.piece_sector[one]), int(a.facts.piece_sector[other])
    end = begin + int(a.facts.piece_bytes[one]) // SECTOR_BYTES
    stop = start + int(a.facts.piece_bytes[other]) // SECTOR_BYTES
    return begin < stop and start < end


def _unnamed_members(a: Association, ends: RequestEnds) -> None:
    """Bios that joined a request that no chain names: the chain was cut or lost."""
    own = a.request.copy()
    joined = np.maximum(a.bios.last(Kind.M, Kind.F), _absorbed_unseen(a))
    rows = np.flatnonzero((a.request < 0) & (joined >= 0) & (a.facts.piece_bytes > 0))
    whole = _requests_with_open_chains(a, ends)
    if not len(rows) or not (ends.issue[whole.ids] >= 0).any():
        return
    questions = [
        Question(
            int(g),
            int(a.facts.dev[g]),
            int(a.facts.piece_sector[g]),
            int(a.facts.piece_sector[g]) + int(a.facts.piece_bytes[g]) // SECTOR_BYTES,
            int(a.events.ts[joined[g]]),
        )
        for g in rows
    ]
    waiting, merges = _not_issued(a, ends), _untold_merges(a)
    told = _issued_or_failed(ends)
    for bio, found in sweep(whole, questions).items():
        same = [
            r
            for r in dict.fromkeys(found)
            if (a.events.opf[told[r]] & 0xFF) == (a.facts.opf[bio] & 0xFF)
        ]
        a.rival_requests += [(bio, r) for r in same]
        # A request that is yet to be issued may turn out to cover it too.
        dev = int(a.facts.dev[bio])
        # One that failed before its issue tells too little to be the only answer.
        failed = len(same) == 1 and ends.issue[same[0]] < 0
        waits = waiting.get(dev, _END_OF_TIME) < max(joined[bio], merges.get(dev, -1))
        if not waits and not failed:
            a.request[bio] = _mark(a, bio, same)
            if own[bio] >= 0:
                a.absorbed_by[own[bio]] = a.request[bio]


def _absorbed_unseen(a: Association) -> I64:
    """Per bio: m of its request, where no issue shows who took it; -1 otherwise. Frees it."""
    lost = np.full(len(a.bios), -1, dtype=np.int64)
    if not len(a.requests):
        return lost
    merged = np.where(a.absorbed_by < 0, a.requests.first(Kind.RQ_MERGE), -1)
    held = np.flatnonzero(a.request >= 0)
    lost[held] = merged[a.request[held]]
    a.request[lost >= 0] = -1
    return lost


def _untold_merges(a: Association) -> dict[int, int]:
    """The last m of each device that no issue explains: any request may have what it moved."""
    if not len(a.requests):
        return {}
    event = np.where(a.absorbed_by < 0, a.requests.first(Kind.RQ_MERGE), -1)
    event = np.sort(event[event >= 0])
    return dict(zip(a.events.dev[event].tolist(), event.tolist(), strict=True))


def _not_issued(a: Association, ends: RequestEnds) -> dict[int, int]:
    """First event of the oldest request of each device that waits for its issue."""
    waits = (ends.issue < 0) & (ends.end < 0) & ~a.requests.superseded
    waits &= a.requests.first(Kind.RQ_MERGE) < 0
    births = np.sort(a.requests.birth[waits]) if len(a.requests) else np.zeros(0, np.int64)
    births = births[a.events.bytes[births] > 0]
    devices, first = np.unique(a.events.dev[births], return_index=True)
    return dict(zip(devices.tolist(), births[first].tolist(), strict=True))


def _issued_or_failed(ends: RequestEnds) -> I64:
    """Per request its first issue, or what ended it without one; -1 neither."""
    return np.where(ends.issue >= 0, ends.issue, ends.end)


def _requests_with_open_chains(a: Association, ends: RequestEnds) -> Pending:
    """Requests whose chain was cut, alive from their start to their issue.

    Also those that failed before it: nothing tells their chain.
    """
    failed = np.flatnonzero((ends.issue < 0) & (ends.end >= 0) & ends.finished)
    issues = np.flatnonzero(a.requests.row_role == Kind.D)
    flags = a.events.field(Kind.D, "flags", a.requests.row_event[issues])
    issues = issues[(flags & D_FLAG_CHAIN_CUT) != 0]
    rows = np.concatenate([a.requests.row_gen[issues], failed])
    issue = np.concatenate([a.requests.row_event[issues], ends.end[failed]])
    end = a.events.sector[issue] + (a.events.bytes[issue] // SECTOR_BYTES).astype(np.uint64)
    since = a.events.ts[a.requests.birth[rows]] if len(rows) else np.zeros(0, np.int64)
    # Without a start, the request may have been there for as long as the log.
    told = ends.started[rows] >= 0
    since = np.where(told, since, np.iinfo(np.int64).min)
    return Pending(
        rows, a.events.dev[issue], a.events.sector[issue], end, since, a.events.ts[issue]
    )


def _upper_bios(a: Association, context: Context) -> None:
    """Clones of dm and md: A names the upper device and sector, the upper bio covers it."""
    rows, of_partition = partition_remaps(a, context)
    # A bio that was queued before is no clone: it is itself sent on.
    rows = rows[~of_partition & (rows == a.bios.start[a.bios.row_gen[rows]])]
    rows = rows[~of_parity(a.events, a.bios.row_event[rows], context)]
    if not len(rows):
        return
    since, until = _bio_lives(a)
    sized = a.facts.bytes > 0
    remaps = a.events.fields(Kind.A, a.bios.row_event[rows])
    for with_data in (True, False):
        upper = np.flatnonzero((a.queued >= 0) & (sized if with_data else a.facts.bytes == 0))
        pending = _pending(a, upper, since, until)
        if not with_data:  # flushes have no sectors: any that is pending there
            pending.sector, pending.end = np.zeros_like(pending.sector), np.ones_like(pending.end)
        here = (remaps["bytes"] > 0) == with_data
        questions = _remapped_from(a, rows[here], remaps[here])
        for bio, found in sweep(pending, questions).items():
            others = [c for c in found if c != bio and a.root[c] == c and _same_op(a, c, bio)]
            a.rival_bios += [(bio, c) for c in others]
            if len(others) == 1:
                a.upper[bio] = others[0]
        if with_data:
            _without_twice_sent(a, questions)


def _without_twice_sent(a: Association, questions: list[Question]) -> None:
    """A bio sends no sector to one device twice: another, from before the log, was there too."""
    sent = sorted(
        (int(a.upper[q.asker]), int(a.facts.dev[q.asker]), q.sector, q.end, q.asker)
        for q in questions
        if a.upper[q.asker] >= 0
    )
    for at, (upper, dev, _, end, bio) in enumerate(sent):
        for other in sent[at + 1 :]:
            if other[:2] != (upper, dev) or other[2] >= end:
                break
            a.upper[bio] = a.upper[other[4]] = -1


def _remapped_from(a: Association, rows: I64, remaps: np.ndarray) -> list[Question]:
    """Who covers what each A names; a flush, which has no sectors, asks for the first."""
    size = remaps["bytes"] // SECTOR_BYTES
    begin = np.where(size > 0, remaps["from_sector"], 0)
    stop = begin + np.maximum(size, 1)
    columns = (
        a.bios.row_gen[rows],
        remaps["from_dev"],
        begin,
        stop,
        a.events.ts[a.bios.row_event[rows]],
    )
    return [Question(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]


def _same_op(a: Association, one: int, other: int) -> bool:
    return bool((a.facts.opf[one] ^ a.facts.opf[other]) & OP_MASK == 0)


def loop_parents(a: Association, ends: RequestEnds, pieces: BioEnds, context: Context) -> None:
    """Direct-io loop: the lower bio carries the upper one's pages; the first one links them."""
    stacked = {dev: _backing(context, dev) for dev in np.unique(a.facts.dev).tolist()}
    if not any(stacked.values()) or not len(a.requests):
        return
    queued = a.bios.first(Kind.Q)
    rows = np.flatnonzero(queued >= 0)
    page = a.events.field(Kind.Q, "page", queued[rows])
    rows, page = rows[page != 0], page[page != 0]
    order = np.lexsort((queued[rows], page))
    rows, page = rows[order], page[order]
    at = np.arange(len(rows))
    group = np.maximum.accumulate(np.where(np.append(True, page[1:] != page[:-1]), at, 0))
    stands = np.array([bool(stacked[dev]) for dev in a.facts.dev[rows].tolist()], dtype=np.bool_)
    latest = np.append(-1, np.maximum.accumulate(np.where(stands, at, -1))[:-1])
    low = np.flatnonzero(latest >= group)
    upper, lower = rows[latest[low]], rows[low]
    first = _first_pieces(a)[upper]
    request, end = a.request[first], pieces.end[first]
    issue = ends.issue[np.maximum(request, 0)]
    asked = queued[lower]
    live = (request >= 0) & (issue >= 0) & (issue < asked) & ((end < 0) | (end > asked))
    live &= a.facts.dev[upper] != a.facts.dev[lower]
    live &= (a.facts.opf[upper] ^ a.facts.opf[lower]) & OP_MASK == 0
    for up, low in zip(upper[live].tolist(), lower[live].tolist(), strict=True):
        if int(a.facts.dev[low]) in stacked[int(a.facts.dev[up])]:
            a.upper[low] = up


def _first_pieces(a: Association) -> I64:
    """Per bio: the piece of it that has its first sector, and so its first page."""
    first = np.arange(len(a.bios))
    fronts = np.flatnonzero(a.root != first)
    starts = a.facts.piece_sector[fronts] == a.facts.sector[a.root[fronts]]
    first[a.root[fronts[starts]]] = fronts[starts]
    return first


def _backing(context: Context, dev: int) -> set[int]:
    return {context.disk_of(d) for d in context.lower_devices(dev)}
