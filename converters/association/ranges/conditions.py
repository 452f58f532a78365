# SPDX-License-Identifier: Apache-2.0
"""Which candidates of a range query can be right: the conditions that each of them must hold.

A query by sectors (`queries`) finds who covers a range at a time; these conditions, each a rule,
leave those that the kernel could have linked.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.rules import Rule
from biotrail.converters.events.array_steps import (
    is_operation,
    ranges_overlap,
    same_operation,
    take_or,
)
from biotrail.converters.events.tables import I64, SECTOR_BYTES, Bool


@dataclass(frozen=True)
class BioCandidates:
    """Pairs (k,) of bio generations: `bio` asks, `candidate` covers its range at the time.

    zone_append: that operation's number; -1: the kernel has none.
    """

    a: Association
    bio: I64
    candidate: I64
    zone_append: int = -1

    @property
    def same_operation(self) -> Bool:
        """Per pair (k,): whether both bios have the same operation (REQ_OP)."""
        opf = self.a.facts.opf
        return same_operation(opf[self.candidate], opf[self.bio])

    @cached_property
    def fronts(self) -> dict[int, list[int]]:
        """Front pieces (bio generations) of every split bio, by the bio that was queued."""
        fronts: dict[int, list[int]] = {}
        for front in np.flatnonzero(self.a.root != np.arange(len(self.a.bios))).tolist():
            fronts.setdefault(int(self.a.root[front]), []).append(front)
        return fronts


def _pieces_overlap(a: Association, bio: I64, other: I64) -> Bool:
    """Return, per pair of bios (k,), whether their pieces share a sector."""
    begin = a.facts.piece_sector.astype(np.int64)
    end = begin + a.facts.piece_bytes // SECTOR_BYTES
    overlap = ranges_overlap(begin[bio], end[bio], begin[other], end[other])
    return np.asarray(overlap, dtype=np.bool_)


def _longer(rows: BioCandidates) -> Bool:
    """Return, per pair (k,), whether the candidate is longer than the asking bio's piece."""
    facts = rows.a.facts
    return np.asarray(facts.bytes[rows.candidate] > facts.piece_bytes[rows.bio], dtype=np.bool_)


def _not_sent_itself(rows: BioCandidates) -> Bool:
    """Return, per pair (k,), whether no request got these sectors from the candidate itself."""
    overlap = _pieces_overlap(rows.a, rows.candidate, rows.bio)
    return ~(rows.a.is_piece[rows.candidate] & overlap)


def _not_sent_by_front(rows: BioCandidates) -> Bool:
    """Return, per pair (k,), whether no front piece of the candidate has a sector of `bio`'s piece.

    True for a candidate without known front pieces.
    """
    result = np.ones(len(rows.bio), dtype=np.bool_)
    pairs = zip(rows.bio.tolist(), rows.candidate.tolist(), strict=True)
    for pair, (bio, candidate) in enumerate(pairs):
        fronts = np.array(rows.fronts.get(candidate, ()), dtype=np.int64)
        result[pair] = not _pieces_overlap(rows.a, fronts, np.full(len(fronts), bio)).any()
    return result


def _not_zone_append(rows: BioCandidates) -> Bool:
    """Return, per pair (k,), whether the candidate is no zone append."""
    return ~is_operation(rows.a.facts.opf[rows.candidate], rows.zone_append)


SPLIT_CONDITIONS: tuple[Rule[BioCandidates], ...] = (
    Rule(
        "longer",
        _longer,
        "it is longer",
        "a split leaves something (bio_split)",
        "case",
    ),
    Rule(
        "same-operation",
        lambda rows: rows.same_operation,
        "it has the same operation",
        "a front piece is a clone of its bio (bio_alloc_clone)",
        "case",
    ),
    Rule(
        "not-zone-append",
        _not_zone_append,
        "it is no zone append",
        "bio_split refuses these (5.8 and later)",
        "seed 630131",
    ),
    Rule(
        "not-sent-itself",
        _not_sent_itself,
        "it did not go to a request with these sectors itself",
        "a bio sends no sector twice",
        "tests/unit/converters/association/test_scenarios_twenty.py::test_scenario",
    ),
    Rule(
        "not-sent-by-front",
        _not_sent_by_front,
        "no front piece that an `X` names has these sectors",
        "likewise",
        "seed 104325",
    ),
)
"""Implicit splits: the bio that a bio without a Q was split from."""


UPPER_CONDITIONS: tuple[Rule[BioCandidates], ...] = (
    Rule(
        "not-itself",
        lambda rows: rows.candidate != rows.bio,
        "it is another bio",
        "a clone is a new bio (bio_alloc_clone)",
        "case",
    ),
    Rule(
        "queued-whole",
        lambda rows: rows.a.root[rows.candidate] == rows.candidate,
        "it is no front piece",
        "dm and md remap sectors of the bio that was queued",
        "case",
    ),
    Rule(
        "same-operation",
        lambda rows: rows.same_operation,
        "it has the same operation",
        "a clone has the operation of its bio (bio_alloc_clone)",
        "seed 126",
    ),
)
"""Upper bios: the bio on the device above whose data a clone carries."""


@dataclass(frozen=True)
class ChainCandidates:
    """Pairs (k,): a merged bio that no chain names, and a request that covers it.

    range_event: (q,) event with the final range of each request, or -1.
    """

    a: Association
    bio: I64
    request: I64
    range_event: I64


def _request_has_operation(rows: ChainCandidates) -> Bool:
    """Return, per pair (k,), whether the request has the bio's operation (REQ_OP)."""
    opf = rows.a.events.opf[rows.range_event[rows.request]]
    return same_operation(opf, rows.a.facts.opf[rows.bio])


CHAIN_CONDITIONS: tuple[Rule[ChainCandidates], ...] = (
    Rule(
        "same-operation",
        _request_has_operation,
        "it has the same operation",
        "a request takes in only bios of its operation (blk_rq_merge_ok)",
        "case",
    ),
)
"""Cut chains: the request that a merged bio is in."""


@dataclass(frozen=True)
class ChainAnswers:
    """Bios (k,) that ask for their request, with the request that alone can be the answer.

    only: request, or -1 where none or several fit. place_taken: whether a bio that is known to be
    of that request has some of the same sectors. joined: event of the bio's merge. waiting: event
    since when a request of its device waits for its D, END_OF_TIME where none does. merged_last:
    last m on its device whose absorbing request is not known, or -1.
    """

    ends: RequestEnds
    only: I64
    place_taken: Bool
    joined: I64
    waiting: I64
    merged_last: I64


CHAIN_REFUSALS: tuple[Rule[ChainAnswers], ...] = (
    Rule(
        "request-waits",
        lambda rows: rows.waiting < np.maximum(rows.joined, rows.merged_last),
        "a request on the device waits for its issue since before the merge",
        "its range is not final: it may turn out to cover the bio too",
        "seed 122148",
    ),
    Rule(
        "failed-before-issue",
        lambda rows: (rows.only >= 0) & (take_or(rows.ends.issue, rows.only, 0) < 0),
        "the only request failed before its issue",
        "it has no chain at all, so the bio may be of a request whose chain was cut",
        "case",
    ),
    Rule(
        "place-taken",
        lambda rows: rows.place_taken,
        "the request has another bio at these sectors",
        "a request serves no sector twice",
        "seed 33736",
    ),
)
"""Cut chains: when not even the only candidate is taken."""


@dataclass(frozen=True)
class LoopCandidates:
    """Pairs (k,) of bios with one first page: `upper` on a stacked device, `lower` queued later.

    request, issue, end: request of the upper bio's first piece, its first D, and the C that ended
    the piece; -1: none. completed: whether that piece is known to have completed before the lower
    bio's Q. asked: Q of the lower bio. below: whether the lower bio's device stands directly below.
    """

    a: Association
    upper: I64
    lower: I64
    request: I64
    issue: I64
    end: I64
    completed: Bool
    asked: I64
    below: Bool


LOOP_CONDITIONS: tuple[Rule[LoopCandidates], ...] = (
    Rule(
        "issued",
        lambda rows: (rows.request >= 0) & (rows.issue >= 0),
        "its request was issued",
        "the loop driver submits below when it is given a request (loop_queue_rq, lo_rw_aio)",
        "seed 33812",
    ),
    Rule(
        "issued-before",
        lambda rows: rows.issue < rows.asked,
        "… before the lower `Q`",
        "likewise",
        "case",
    ),
    Rule(
        "not-ended",
        lambda rows: (rows.end < 0) | (rows.end > rows.asked),
        "it has not ended by then",
        "the request ends when its lower I/O has (lo_rw_aio_complete)",
        "seed 21788",
    ),
    Rule(
        "not-completed-in-part",
        lambda rows: ~rows.completed,
        "no `R` or `D` that begins behind it, or new request at its request's address, shows that "
        "it has completed by then",
        "its `C` was not recorded",
        "seed 91887",
    ),
    Rule(
        "other-device",
        lambda rows: rows.a.facts.dev[rows.upper] != rows.a.facts.dev[rows.lower],
        "it is on another device",
        "a bio with the same page on one device is a later one",
        "case",
    ),
    Rule(
        "same-operation",
        lambda rows: same_operation(rows.a.facts.opf[rows.upper], rows.a.facts.opf[rows.lower]),
        "it has the same operation",
        "lo_rw_aio reads for a read and writes for a write",
        "case",
    ),
    Rule(
        "directly-below",
        lambda rows: rows.below,
        "the lower device is one that it stands on",
        "the backing file is on that device",
        "case",
    ),
)
"""Loop devices with direct I/O: the upper bio of a bio on the backing device."""
