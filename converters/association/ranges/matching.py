# SPDX-License-Identifier: Apache-2.0
"""Links that identities leave open, found by range: implicit splits, upper bios of clones."""

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.association.identity.association import (
    Association,
    Findings,
    Rivals,
    partition_remaps,
)
from biotrail.converters.association.ranges.conditions import (
    SPLIT_CONDITIONS,
    UPPER_CONDITIONS,
    BioCandidates,
)
from biotrail.converters.association.ranges.md_parity import may_be_parity_write
from biotrail.converters.association.ranges.queries import (
    END_OF_TIME,
    Pending,
    Question,
    about_piece,
    narrowed,
    only_candidates,
    pairs_of,
    sweep,
)
from biotrail.converters.association.rules import Rule, all_mark
from biotrail.converters.events.array_steps import same_operation
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, SECTOR_BYTES, Certainty
from biotrail.recorder.schema.records import Kind


def _in_flight(a: Association) -> tuple[I64, I64]:
    """Return (first time, last time) of every bio generation, ns (b,) each.

    The last time is that of its last event, or of its request's last one if that is later and the
    request has a C; END_OF_TIME where neither the bio has a c nor its request a C.
    """
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
    return since, np.where(over, until, END_OF_TIME)


def _pending(a: Association, rows: I64, since: I64, until: I64) -> Pending:
    """Return these bios with their whole ranges, in flight from `since` to `until` (ns)."""
    sector = a.facts.sector[rows]
    end = sector + (a.facts.bytes[rows] // SECTOR_BYTES).astype(np.uint64)
    return Pending(rows, a.facts.dev[rows], sector, end, since[rows], until[rows])


def _fitting(
    a: Association,
    conditions: tuple[Rule[BioCandidates], ...],
    covering: dict[int, list[int]],
    context: Context,
) -> tuple[dict[int, list[int]], Rivals]:
    """Return the candidates of each asking bio that hold all conditions; and all these pairs.

    covering: candidates (bio generations) by asking bio, as `sweep` returns them. The pairs are
    (asking bio, candidate).
    """
    bio, candidate = pairs_of(covering)
    pairs = BioCandidates(a, bio, candidate, context.op_number("zone_append"))
    fits = all_mark(conditions, pairs, len(bio))
    fitting = tuple(zip(bio[fits].tolist(), candidate[fits].tolist(), strict=True))
    return narrowed(covering, fits), fitting


def implicit_splits(a: Association, context: Context) -> Findings:
    """Find the root of bios that begin with G, s, M or F inside a larger bio in flight.

    Their X was lost, or there is none: md on 5.10 and 6.1 splits bios without block_split. Asked
    are such bios with data; candidates are bios with a Q and data that cover them and hold
    SPLIT_CONDITIONS. Finds `root` (the candidate's) where there is one candidate, `certainty`
    (INTERVAL at least, AMBIGUOUS with several candidates), and all candidates as `rival_bios`.
    """
    born = (Kind.G, Kind.START, Kind.M, Kind.F)
    bios = np.flatnonzero(np.isin(a.bios.birth_role, born) & (a.facts.piece_bytes > 0))
    if not len(bios):
        return Findings()
    since, until = _in_flight(a)
    questions = [about_piece(a, int(bio), int(since[bio])) for bio in bios]
    queued = np.flatnonzero((a.queued >= 0) & (a.facts.bytes > 0))
    covering = sweep(_pending(a, queued, since, until), questions)
    candidates, rivals = _fitting(a, SPLIT_CONDITIONS, covering, context)
    parents, certainty = only_candidates(candidates, a.certainty)
    root = a.root.copy()
    for bio, parent in parents.items():
        root[bio] = root[parent]
    return Findings(root=root, certainty=certainty, rival_bios=rivals)


def upper_bios(a: Association, context: Context) -> Findings:
    """Find the upper bio of dm and md clones: the one that covers, on the device above, A's source.

    A clone is a bio whose first event is an A that is no partition's and may be no parity write.
    Candidates are the bios queued above that hold UPPER_CONDITIONS; all are found as `rival_bios`.
    A clone without data (a flush) has those without data. `upper` stays -1 where the candidates
    leave it open (`_decided`), for all clones of one bio that overlap on one device, and where a
    bio whose Q was not recorded may be the upper one. Certainty stays: each of the bios is known.
    """
    rows, of_partition = partition_remaps(a, context)
    # A clone's first event is its A. A bio with an earlier event (Q) was itself resubmitted.
    rows = rows[~of_partition & (rows == a.bios.start[a.bios.row_gen[rows]])]
    rows = rows[~may_be_parity_write(a.events, a.bios.row_event[rows], context)]
    if not len(rows):
        return Findings()
    remaps = a.events.fields(Kind.A, a.bios.row_event[rows])
    upper = a.upper.copy()
    rivals: Rivals = ()
    for with_data in (True, False):
        here = (remaps["bytes"] > 0) == with_data
        questions = _remapped_from(a, rows[here], remaps[here])
        covering = sweep(_queued_above(a, with_data), questions)
        candidates, pairs = _fitting(a, UPPER_CONDITIONS, covering, context)
        rivals += pairs
        refused = _maybe_of_unrecorded(a, questions, with_data)
        for bio, above in _decided(a, candidates).items():
            if bio not in refused:
                upper[bio] = above
        if with_data:
            upper[_overlapping_clones(a, upper, questions)] = -1
    return Findings(upper=upper, rival_bios=rivals)


def _decided(a: Association, candidates: dict[int, list[int]]) -> dict[int, int]:
    """Return the upper bio of each clone that its candidates decide, by clone.

    candidates: bios above that may be the clone's, by clone. One alone decides. Without pointers
    several are decided by the thread of the clone's A, if it queued exactly one of them: dm and md
    map a bio in the thread that submits it, or in a worker (dm_submit_bio). One alone that is
    ambiguous, and that another thread queued, decides nothing then: the clone's own may be thought
    to have ended by the completion of this one.
    """
    if a.events.doubt is None:
        return {bio: ids[0] for bio, ids in candidates.items() if len(ids) == 1}
    found = {}
    for bio, ids in candidates.items():
        sender = _thread(a, int(a.bios.birth[bio]))
        own = [above for above in ids if _thread(a, int(a.queued[above])) == sender]
        if len(own) == 1 and (sender or len(ids) == 1):  # thread 0: an interrupt of anyone's
            found[bio] = own[0]
        elif len(ids) == 1 and a.certainty[ids[0]] < Certainty.AMBIGUOUS:
            found[bio] = ids[0]
    return found


def _thread(a: Association, event: int) -> int:
    """Return the thread id of a Q or A event; 0: an interrupt's of the idle thread."""
    return int(a.events.raw[event, 4]) >> 32


def _queued_above(a: Association, with_data: bool) -> Pending:
    """Return the bios that have a Q, as candidates: those with data, or those without.

    Bios without data (flushes) have no sectors: all of them get the range [0, 1).
    """
    since, until = _in_flight(a)
    sized = a.facts.bytes > 0 if with_data else a.facts.bytes == 0
    pending = _pending(a, np.flatnonzero((a.queued >= 0) & sized), since, until)
    if with_data:
        return pending
    sector, end = np.zeros_like(pending.sector), np.ones_like(pending.end)
    return Pending(pending.ids, pending.dev, sector, end, pending.since, pending.until)


def _maybe_of_unrecorded(a: Association, questions: list[Question], with_data: bool) -> set[int]:
    """Return the asking bios whose upper bio may be one of which only the c was recorded.

    with_data: whether the asking bios have data.
    """
    unrecorded = _unrecorded_uppers(a)
    last = int(a.events.ts[a.bios.birth[unrecorded]].max()) if len(unrecorded) else NEVER
    return {
        q.asker
        for q in questions
        if q.ts <= last and _covered_by_unrecorded(a, unrecorded, q, with_data)
    }


def _unrecorded_uppers(a: Association) -> I64:
    """Return the bios whose only event is their c, and which are no front pieces."""
    unsplit = a.root == np.arange(len(a.bios))
    return np.flatnonzero((a.queued < 0) & (a.bios.birth_role == Kind.BIO_COMPLETE) & unsplit)


def _covered_by_unrecorded(
    a: Association, unrecorded: I64, question: Question, with_data: bool
) -> bool:
    """Return whether one of the bios `unrecorded`, of which only c is, may be the upper bio.

    unrecorded: (k,) bio generations. The bio must be on the question's device, have the asker's
    operation, end at the question's time or later, and have the range in question; where bi_size is
    0 by its c, it must end where that range does. with_data: whether the asker has data; without,
    an upper bio has no range (sector 0, no bytes).
    """
    bios = unrecorded[(a.facts.dev[unrecorded] == question.dev)]
    bios = bios[a.events.ts[a.bios.birth[bios]] >= question.ts]
    bios = bios[same_operation(a.facts.opf[bios], a.facts.opf[question.asker])]
    begin, size = a.facts.sector[bios].astype(np.int64), a.facts.bytes[bios] // SECTOR_BYTES
    if not with_data:
        return bool(((begin == 0) & (size == 0)).any())
    covers = (size > 0) & (begin <= question.sector) & (begin + size >= question.end)
    return bool((covers | ((size == 0) & (begin == question.end))).any())


def _overlapping_clones(a: Association, upper: I64, questions: list[Question]) -> list[int]:
    """Return all clones of one upper bio, on one device, whose sources overlap; bios can repeat.

    upper: (b,) upper bio, or -1. A bio sends no sector to a device twice, so one of the clones is
    of a bio from before the log.
    """
    sent = sorted(
        (int(upper[q.asker]), int(a.facts.dev[q.asker]), q.sector, q.end, q.asker)
        for q in questions
        if upper[q.asker] >= 0
    )
    overlapping: list[int] = []
    for place, (above, dev, _, end, bio) in enumerate(sent):
        for other in sent[place + 1 :]:
            if other[:2] != (above, dev) or other[2] >= end:
                break
            overlapping += [bio, other[4]]
    return overlapping


def _remapped_from(a: Association, rows: I64, remaps: NDArray[np.void]) -> list[Question]:
    """Return, per A, the query for who covers, at its time, the range that it names as its source.

    rows: (k,) rows of `a.bios` of kind A. remaps: (k,) their records. A flush has no sectors: its
    question is for [0, 1), the range that `_queued_above` gives to all bios without data.
    """
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
