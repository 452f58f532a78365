# SPDX-License-Identifier: Apache-2.0
"""Bios as they were queued: the pieces of each split bio put together again."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.completion import times
from biotrail.converters.association.completion.end_bounds import Bounds, ends_between
from biotrail.converters.association.completion.end_rules import (
    COMPLETION_LOST_RULES,
    BioProgress,
)
from biotrail.converters.association.completion.partial_completion import BioEnds
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.rules import any_marks
from biotrail.converters.events.array_steps import is_first_of_run, take_or
from biotrail.converters.events.tables import I32, I64, U8, U32, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class Whole:
    """How each queued bio ended: a row per bio that is no front piece, ascending by generation.

    gen: bio generation.
    final: piece (bio generation) that ends last, or has no end yet; -1: no piece was in a request.
    end: event that ended the bio, its own c or the last C of its pieces, or -1.
    complete: whether `end` is known.
    lost: whether its completion was not recorded, or that of a piece which it must have awaited.
    status: blk_status_t of its own c, else of a failed piece, or 0.
    good: bytes completed without error.
    fragments: number of its pieces that were in a request, or about to be (G, M or F).
    requests: number of requests that served them.
    requeues: number of R of these requests.
    certainty: largest certainty (Certainty) of the bio and its pieces.
    bounds: between which times it ended.
    """

    gen: I64
    final: I64
    end: I64
    complete: Bool
    lost: Bool
    status: I32
    good: I64
    fragments: U32
    requests: U32
    requeues: U32
    certainty: U8
    bounds: Bounds
    row_of_gen: I64
    """Per bio generation: row of the bio that it is, or is a piece of."""


def wholes(a: Association, ends: BioEnds, requeues: I64) -> Whole:
    """Return how each queued bio ended, from the ends of its pieces; see Whole.

    ends: end of each bio generation's own piece. requeues: (q,) number of R of each request. A bio
    ends with its own c, or the last of its pieces if all have ended and have all its bytes (or its
    size is not known), whichever is later. COMPLETION_LOST_RULES say whose end was not recorded.
    """
    gen = np.flatnonzero(a.root == np.arange(len(a.bios)))
    row_of_gen = np.searchsorted(gen, a.root)
    piece = np.flatnonzero(a.is_piece)
    row = row_of_gen[piece]
    count = len(gen)
    fragments = np.bincount(row, minlength=count)
    ended = ends.end[piece] >= 0
    open_pieces = np.bincount(row[~ended], minlength=count)
    sent = np.bincount(row, np.maximum(a.facts.piece_bytes[piece], 0), count).astype(np.int64)
    final = _final_pieces(a, ends, piece, row, count)
    own_end = a.bios.last(Kind.BIO_COMPLETE)[gen]
    by_pieces = (fragments > 0) & (open_pieces == 0) & (sent >= a.facts.bytes[gen])
    end = np.where(by_pieces, take_or(ends.end, final, -1), -1)
    end = np.maximum(end, own_end)
    good, status = _outcome(a, ends, gen, own_end, piece, row)
    served, request = _served(a, piece, row)
    again = np.zeros(count, dtype=np.int64)
    if len(requeues) and requeues.any():
        again = np.bincount(served, requeues[request], count).astype(np.int64)
    progress = BioProgress(
        ended=end >= 0,
        own_end=own_end >= 0,
        open_pieces=open_pieces > 0,
        superseded=a.bios.superseded[gen],
        piece_lost=np.bincount(row, a.completion_lost[piece], count) > 0,
        request_reused=_request_reused(a, ends, piece, row, count),
    )
    return Whole(
        gen=gen,
        final=final,
        end=end,
        complete=end >= 0,
        lost=any_marks(COMPLETION_LOST_RULES, progress, count),
        status=status,
        good=good,
        fragments=fragments.astype(np.uint32),
        requests=np.bincount(served, minlength=count).astype(np.uint32),
        requeues=again.astype(np.uint32),
        certainty=_certainty(a, gen, piece, row),
        bounds=_bounds(a, ends, piece, row, by_pieces, own_end),
        row_of_gen=row_of_gen,
    )


def _certainty(a: Association, gen: I64, piece: I64, row: I64) -> U8:
    """Return the largest certainty of each queued bio (n,) and its pieces, as in `Whole`."""
    certainty = a.certainty[gen]
    np.maximum.at(certainty, row, a.certainty[piece])
    return certainty


def _bounds(
    a: Association, ends: BioEnds, piece: I64, row: I64, by_pieces: Bool, own_end: I64
) -> Bounds:
    """Return between which times each queued bio (n,) ended: with the last of what ends it.

    piece: (p,) bio generations; row: (p,) the queued bio of each, a row of Whole. by_pieces:
    whether the pieces end it. own_end: event of its own c, or -1.
    """
    bounds = ends_between(a, own_end)
    counts = by_pieces[row]
    bounds.add_later(row[counts], ends_between(a, ends.end[piece[counts]]))
    return bounds


def _request_reused(a: Association, ends: BioEnds, piece: I64, row: I64, count: int) -> Bool:
    """Return, per queued bio (count,), whether a piece of it waits in a request that is reused.

    That is: the piece has no end, and the address of its request was reused, other than because
    the request was absorbed. piece: (p,) bio generation of each piece. row: (p,) its queued bio, a
    row of Whole.
    """
    reused_row = np.zeros(count, dtype=np.bool_)
    waiting = (a.request[piece] >= 0) & (ends.end[piece] < 0)
    row, request = row[waiting], a.request[piece[waiting]]
    if len(request):
        # An absorbed request is freed at once (blk_mq_free_request); its bios are still in flight.
        reused = a.requests.superseded & (a.requests.first(Kind.RQ_MERGE) < 0)
        reused_row[row[reused[request]]] = True
    return reused_row


def _served(a: Association, piece: I64, row: I64) -> tuple[I64, I64]:
    """Return the distinct (queued bio, request) pairs of the pieces, as two arrays, ascending.

    piece: (p,) bio generations. row: (p,) the queued bio of each, a row of Whole, which the first
    array holds too. Pieces without a known request are left out.
    """
    request = a.request[piece]
    row, request = row[request >= 0], request[request >= 0]
    width = np.int64(len(a.requests) + 1)
    key = np.sort(row * width + request)
    first = is_first_of_run(key)
    return key[first] // width, key[first] % width


def _final_pieces(a: Association, ends: BioEnds, piece: I64, row: I64, count: int) -> I64:
    """Return, per queued bio (count,), the piece that ends last, or has no end yet.

    A bio generation, or -1: the bio has no piece. Of several without an end it is the one that
    began last. piece: (p,) bio generations. row: (p,) the queued bio of each.
    """
    result = np.full(count, -1, dtype=np.int64)
    if (np.bincount(row, minlength=1) > 1).any():
        order = _order_of_ends(a, ends, piece)
        row, piece = row[order], piece[order]
    result[row] = piece
    return result


def _order_of_ends(a: Association, ends: BioEnds, piece: I64) -> I64:
    """Return the order (p,) that sorts the pieces by their ends; pieces without an end come last.

    At equal times the later event comes later, then the bio that began later.
    """
    end_time = np.where(ends.end[piece] >= 0, times(a, ends.end[piece]), np.iinfo(np.int64).max)
    return np.lexsort((a.bios.birth[piece], ends.end[piece], end_time))


def _outcome(
    a: Association, ends: BioEnds, gen: I64, own_end: I64, piece: I64, row: I64
) -> tuple[I64, I32]:
    """Return, per queued bio (n,), (bytes completed without error, blk_status_t or 0).

    gen: (n,) bio generation. own_end: (n,) its own c, or -1. piece: (p,) bio generations of pieces.
    row: (p,) the queued bio of each. The status is that of the bio's own c if it failed, else of
    the piece that failed, of several the one of the highest generation. Good are the good bytes of
    the pieces; of a bio with a c without error and no piece, its full size (0 if not known).
    """
    count = len(gen)
    good = np.bincount(row, ends.good[piece], count).astype(np.int64)
    status = np.zeros(count, dtype=np.int32)
    bad = ends.status[piece] != 0
    status[row[bad]] = ends.status[piece[bad]]
    has_c = own_end >= 0
    own = take_or(a.events.status, own_end, 0)
    status = np.where(has_c & (own != 0), own, status).astype(np.int32)
    alone = has_c & (np.bincount(row, minlength=count) == 0) & (own == 0)
    good = np.where(alone, np.maximum(a.facts.bytes[gen], 0), good)
    return good, status
