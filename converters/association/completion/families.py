# SPDX-License-Identifier: Apache-2.0
"""Bios as their submitters know them: the pieces of a split put together again."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.completion import times
from biotrail.converters.association.completion.partial_completion import BioEnds
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.tables import I32, I64, U8, U32, Bool
from biotrail.recorder.schema.records import Kind


@dataclass
class Whole:
    """One row per whole bio (a root generation), in ascending generation.

    gen: its generation. final: the piece that finishes last (or has not finished), -1 when
    no piece went to a request. end: event that ended it, -1 not seen. complete: nothing
    more is to come. lost: its end was not seen, and never will be.
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
    row_of_gen: I64
    """Per bio generation: row of its whole bio."""


def wholes(a: Association, ends: BioEnds, requeues: I64) -> Whole:
    """Puts pieces together. requeues: R events per request generation."""
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
    piece_end = np.where(final >= 0, ends.end[np.maximum(final, 0)], -1) if len(piece) else final
    end = np.where(by_pieces, piece_end, -1)
    end = np.maximum(end, own_end)
    good, status = _outcome(a, ends, gen, own_end, piece, row)
    served, request = _served(a, piece, row)
    again = np.zeros(count, dtype=np.int64)
    if len(requeues) and requeues.any():
        again = np.bincount(served, requeues[request], count).astype(np.int64)
    certainty = a.certainty[gen]
    np.maximum.at(certainty, row, a.certainty[piece])
    return Whole(
        gen=gen,
        final=final,
        end=end,
        complete=end >= 0,
        lost=((end < 0) & (a.bios.superseded[gen] | _lost_pieces(a, ends, piece, row, count)))
        | ((own_end >= 0) & (open_pieces > 0)),  # it waited for them: their ends were missed
        status=status,
        good=good,
        fragments=fragments.astype(np.uint32),
        requests=np.bincount(served, minlength=count).astype(np.uint32),
        requeues=again.astype(np.uint32),
        certainty=certainty,
        row_of_gen=row_of_gen,
    )


def _lost_pieces(a: Association, ends: BioEnds, piece: I64, row: I64, count: int) -> Bool:
    """Per whole bio: whether a request that it waited for was used again for other I/O."""
    lost = np.bincount(row, a.gone[piece], count) > 0
    waiting = (a.request[piece] >= 0) & (ends.end[piece] < 0)
    row, request = row[waiting], a.request[piece[waiting]]
    if len(request):
        # One that was absorbed is free at once; its bios live on.
        gone = a.requests.superseded & (a.requests.first(Kind.RQ_MERGE) < 0)
        lost[row[gone[request]]] = True
    return lost


def _served(a: Association, piece: I64, row: I64) -> tuple[I64, I64]:
    """Distinct (whole bio, request) pairs."""
    request = a.request[piece]
    row, request = row[request >= 0], request[request >= 0]
    width = np.int64(len(a.requests) + 1)
    key = np.sort(row * width + request)
    first = np.ones(len(key), dtype=np.bool_)
    first[1:] = key[1:] != key[:-1]
    return key[first] // width, key[first] % width


def _final_pieces(a: Association, ends: BioEnds, piece: I64, row: I64, count: int) -> I64:
    """Per whole bio: the piece whose end is latest; one without an end counts as later."""
    result = np.full(count, -1, dtype=np.int64)
    late = np.where(ends.end[piece] >= 0, times(a, ends.end[piece]), np.iinfo(np.int64).max)
    if (np.bincount(row, minlength=1) > 1).any():
        order = np.lexsort((a.bios.birth[piece], ends.end[piece], late))
        row, piece = row[order], piece[order]
    result[row] = piece
    return result


def _outcome(
    a: Association, ends: BioEnds, gen: I64, own_end: I64, piece: I64, row: I64
) -> tuple[I64, I32]:
    """Bytes without error, and the last error's status, per whole bio."""
    count = len(gen)
    good = np.bincount(row, ends.good[piece], count).astype(np.int64)
    status = np.zeros(count, dtype=np.int32)
    bad = ends.status[piece] != 0
    status[row[bad]] = ends.status[piece[bad]]
    told = own_end >= 0
    own = np.where(told, a.events.status[np.maximum(own_end, 0)], 0) if count else status
    status = np.where(told & (own != 0), own, status).astype(np.int32)
    alone = told & (np.bincount(row, minlength=count) == 0) & (own == 0)
    good = np.where(alone, np.maximum(a.facts.bytes[gen], 0), good)
    return good, status
