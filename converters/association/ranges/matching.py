# SPDX-License-Identifier: Apache-2.0
"""Links that identities do not settle, found by range: cut chains, implicit splits, upper bios."""

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.completion.partial_completion import BioEnds
from biotrail.converters.association.identity.association import Association, partition_remaps
from biotrail.converters.association.ranges.cut_chains import unnamed_members
from biotrail.converters.association.ranges.md_parity import of_parity
from biotrail.converters.association.ranges.queries import (
    END_OF_TIME,
    Pending,
    Question,
    about_piece,
    mark,
    sweep,
)
from biotrail.converters.events.array_steps import (
    is_first_of_run,
    latest_marked,
    ranges_overlap,
    same_operation,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, SECTOR_BYTES, Bool
from biotrail.recorder.schema.records import Kind


def repair(a: Association, ends: RequestEnds, context: Context) -> None:
    """Fill in by range what identity left open: splits without X, cut chains, upper bios of clones.

    Sets `a.root`, `a.request`, `a.absorbed_by`, `a.upper` and `a.certainty`, and appends to
    `a.rival_bios` and `a.rival_requests`.
    """
    _implicit_splits(a)
    unnamed_members(a, ends)
    _upper_bios(a, context)


def _in_flight(a: Association) -> tuple[I64, I64]:
    """Return the first and last time (ns) of every bio generation.

    The last includes its request's last event; END_OF_TIME where no completion was recorded.
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


def _queued_bios(a: Association, since: I64, until: I64) -> Pending:
    """Return the bios that have a Q and data, as candidates."""
    rows = np.flatnonzero((a.queued >= 0) & (a.facts.bytes > 0))
    return _pending(a, rows, since, until)


def _pending(a: Association, rows: I64, since: I64, until: I64) -> Pending:
    """Return these bios with their whole ranges, in flight from `since` to `until` (ns)."""
    sector = a.facts.sector[rows]
    end = sector + (a.facts.bytes[rows] // SECTOR_BYTES).astype(np.uint64)
    return Pending(rows, a.facts.dev[rows], sector, end, since[rows], until[rows])


def _implicit_splits(a: Association) -> None:
    """Set `a.root` of bios that begin with G, s, M or F inside a larger bio in flight.

    Their X was lost, or there is none: md on 5.10 and 6.1 splits bios without block_split. Appends
    all candidates to `a.rival_bios`, and sets `a.certainty`.
    """
    born = (Kind.G, Kind.START, Kind.M, Kind.F)
    rows = np.flatnonzero(np.isin(a.bios.birth_role, born) & (a.facts.piece_bytes > 0))
    if not len(rows):
        return
    since, until = _in_flight(a)
    questions = [about_piece(a, int(bio), int(since[bio])) for bio in rows]
    # A bio that sent some of these sectors to a request itself, or by a front piece, was not split
    # there.
    sent, fronts = a.is_piece, _fronts(a)
    for bio, covering in sweep(_queued_bios(a, since, until), questions).items():
        larger = [
            c
            for c in covering
            if a.facts.bytes[c] > a.facts.piece_bytes[bio]
            and not (sent[c] and _overlap(a, c, bio))
            and not any(_overlap(a, front, bio) for front in fronts.get(c, ()))
            and _same_op(a, c, bio)
        ]
        a.rival_bios += [(bio, c) for c in larger]
        parent = mark(a, bio, larger)
        if parent >= 0:
            a.root[bio] = a.root[parent]


def _fronts(a: Association) -> dict[int, list[int]]:
    """Return the front pieces of every split bio, by the bio that was queued."""
    fronts: dict[int, list[int]] = {}
    for front in np.flatnonzero(a.root != np.arange(len(a.bios))).tolist():
        fronts.setdefault(int(a.root[front]), []).append(front)
    return fronts


def _overlap(a: Association, one: int, other: int) -> bool:
    """Return whether the pieces that two bios sent to requests share a sector."""
    begin, start = int(a.facts.piece_sector[one]), int(a.facts.piece_sector[other])
    end = begin + int(a.facts.piece_bytes[one]) // SECTOR_BYTES
    stop = start + int(a.facts.piece_bytes[other]) // SECTOR_BYTES
    return bool(ranges_overlap(begin, end, start, stop))


def _upper_bios(a: Association, context: Context) -> None:
    """Set `a.upper` of dm and md clones to the bio that covers, on the device above, A's source.

    Appends all candidates to `a.rival_bios`. Several candidates, a parity write, a second clone of
    the same sectors, or an upper bio whose Q was not recorded leave -1.
    """
    rows, of_partition = partition_remaps(a, context)
    # A clone's first event is its A. A bio with an earlier event (Q) was itself resubmitted.
    rows = rows[~of_partition & (rows == a.bios.start[a.bios.row_gen[rows]])]
    rows = rows[~of_parity(a.events, a.bios.row_event[rows], context)]
    if not len(rows):
        return
    since, until = _in_flight(a)
    sized = a.facts.bytes > 0
    remaps = a.events.fields(Kind.A, a.bios.row_event[rows])
    unrecorded = _unrecorded_uppers(a)
    last_unrecorded = int(a.events.ts[a.bios.birth[unrecorded]].max()) if len(unrecorded) else NEVER
    for with_data in (True, False):
        upper = np.flatnonzero((a.queued >= 0) & (sized if with_data else a.facts.bytes == 0))
        pending = _pending(a, upper, since, until)
        if not with_data:  # flushes have no sectors: give all of them the same one
            pending.sector, pending.end = np.zeros_like(pending.sector), np.ones_like(pending.end)
        here = (remaps["bytes"] > 0) == with_data
        questions = _remapped_from(a, rows[here], remaps[here])
        for bio, found in sweep(pending, questions).items():
            others = [c for c in found if c != bio and a.root[c] == c and _same_op(a, c, bio)]
            a.rival_bios += [(bio, c) for c in others]
            if len(others) == 1:
                a.upper[bio] = others[0]
        for question in questions:
            if question.ts <= last_unrecorded and _covered_by_unrecorded(
                a, unrecorded, question, with_data
            ):
                a.upper[question.asker] = -1
        if with_data:
            _reset_overlapping_clones(a, questions)


def _unrecorded_uppers(a: Association) -> I64:
    """Return the bios whose only event is their c, and which are no front pieces."""
    unsplit = a.root == np.arange(len(a.bios))
    return np.flatnonzero((a.queued < 0) & (a.bios.birth_role == Kind.BIO_COMPLETE) & unsplit)


def _covered_by_unrecorded(
    a: Association, unrecorded: I64, question: Question, with_data: bool
) -> bool:
    """Return whether one of these bios, whose Q was not recorded, could be the upper bio.

    Its c comes after the question and has the bio's range, or, where bi_size is 0 by then, its end
    alone.
    """
    bios = unrecorded[(a.facts.dev[unrecorded] == question.dev)]
    bios = bios[a.events.ts[a.bios.birth[bios]] >= question.ts]
    bios = bios[same_operation(a.facts.opf[bios], a.facts.opf[question.asker])]
    begin, size = a.facts.sector[bios].astype(np.int64), a.facts.bytes[bios] // SECTOR_BYTES
    if not with_data:
        return bool(((begin == 0) & (size == 0)).any())
    covers = (size > 0) & (begin <= question.sector) & (begin + size >= question.end)
    return bool((covers | ((size == 0) & (begin == question.end))).any())


def _reset_overlapping_clones(a: Association, questions: list[Question]) -> None:
    """Reset `a.upper` to -1 for clones of one upper bio that overlap on one lower device.

    A bio sends no sector to a device twice, so one of the clones is of a bio from before the log.
    """
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
    """Return the question who covers the range that each A names as its source.

    A flush has no sectors: its question is for sector 0, where `_upper_bios` puts all flushes.
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


def _same_op(a: Association, one: int, other: int) -> bool:
    """Return whether two bios have the same operation (REQ_OP)."""
    return bool(same_operation(a.facts.opf[one], a.facts.opf[other]))


def loop_parents(a: Association, ends: RequestEnds, pieces: BioEnds, context: Context) -> None:
    """Set `a.upper` of bios that a loop device with direct I/O sent to its backing device.

    lo_rw_aio submits the upper bio's pages, so the first page (recorded at Q) links the two. The
    upper bio is the last one with that page that was queued on a device with others below it. Its
    request must have been issued before the lower Q and not have ended by then, the operations must
    be the same, and the lower device must be one below the upper. Buffered loops share no pages: no
    link.
    """
    stacked = {dev: _backing(context, dev) for dev in np.unique(a.facts.dev).tolist()}
    if not any(stacked.values()) or not len(a.requests):
        return
    queued = a.bios.first(Kind.Q)
    rows = np.flatnonzero(queued >= 0)
    page = a.events.field(Kind.Q, "page", queued[rows])
    rows, page = rows[page != 0], page[page != 0]
    order = np.lexsort((queued[rows], page))
    rows, page = rows[order], page[order]
    group = latest_marked(is_first_of_run(page))
    stands = np.array([bool(stacked[dev]) for dev in a.facts.dev[rows].tolist()], dtype=np.bool_)
    latest = np.append(-1, latest_marked(stands)[:-1])[: len(rows)]
    low = np.flatnonzero(latest >= group)
    upper, lower = rows[latest[low]], rows[low]
    first = _first_pieces(a)[upper]
    request, end = a.request[first], pieces.end[first]
    issue = ends.issue[np.maximum(request, 0)]
    asked = queued[lower]
    live = (request >= 0) & (issue >= 0) & (issue < asked) & ((end < 0) | (end > asked))
    live &= ~_completed_before(a, first, asked)
    live &= a.facts.dev[upper] != a.facts.dev[lower]
    live &= same_operation(a.facts.opf[upper], a.facts.opf[lower])
    for up, low in zip(upper[live].tolist(), lower[live].tolist(), strict=True):
        if int(a.facts.dev[low]) in stacked[int(a.facts.dev[up])]:
            a.upper[low] = up


def _completed_before(a: Association, bios: I64, asked: I64) -> Bool:
    """Return, per bio, whether its request had completed it before event `asked`.

    Shown by an R or D of the request that begins behind the bio's piece (the bio's part completed,
    in a C that was not recorded), or by a new generation at the request's address.
    """
    request = np.maximum(a.request[bios], 0)
    last, again = a.requests.last(Kind.R, Kind.D)[request], a.requests.again[request]
    end = a.facts.piece_sector[bios].astype(np.int64) + a.facts.piece_bytes[bios] // SECTOR_BYTES
    behind = a.events.sector[np.maximum(last, 0)].astype(np.int64) >= end
    over = (again >= 0) & (again < a.events.number[asked])
    return np.asarray(((last >= 0) & (last < asked) & behind) | over)


def _first_pieces(a: Association) -> I64:
    """Return, per bio, the piece with its first sector, and so with its first page."""
    first = np.arange(len(a.bios))
    fronts = np.flatnonzero(a.root != first)
    starts = a.facts.piece_sector[fronts] == a.facts.sector[a.root[fronts]]
    first[a.root[fronts[starts]]] = fronts[starts]
    return first


def _backing(context: Context, dev: int) -> set[int]:
    """Return the disks below a device."""
    return {context.disk_of(d) for d in context.lower_devices(dev)}
