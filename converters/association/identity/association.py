# SPDX-License-Identifier: Apache-2.0
"""Which request served which bio, for one window of events.

Exact joins on identities (pointer and generation) settle all that the events name. What the events
do not name is left to `ranges.matching.repair`, which looks candidates up in interval trees.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.association.identity.address_reuse import Lives
from biotrail.converters.association.identity.bio_generations import bio_generations
from biotrail.converters.association.identity.generations import PARENT, Generations
from biotrail.converters.association.identity.request_generations import request_generations
from biotrail.converters.association.identity.request_rows import Operations
from biotrail.converters.events.array_steps import first_known, take_or
from biotrail.converters.events.context import OP_MASK, PASSTHROUGH_OPS, Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U8, U32, U64, Bool
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Kind


@dataclass
class Facts:
    """Per bio generation: device, range and operation, from the event that reports each best.

    dev: the disk. sector, bytes: range of the whole bio; bytes is -1 where no event has the bio's
    size. opf: bi_opf. piece_sector, piece_bytes: range that went to the bio's own request, smaller
    than the bio where front pieces were split off; bytes -1 as above.
    """

    dev: U32
    sector: U64
    bytes: I64
    opf: U32
    piece_sector: U64
    piece_bytes: I64


@dataclass
class Association:
    """Bios and requests of one window, and the links between them.

    r bio rows, b bio generations, q request generations; links are indices of generations.
    row_request: (r,) request that each row of `bios` mentions, or -1.
    request: (b,) request that served the bio, or -1: none, or not known.
    certainty: (b,) how `request` is known (Certainty).
    root: (b,) bio that was queued, of which this is a front piece; itself where it is none.
    absorbed_by: (q,) request that an absorbed one (m) merged into, at last; -1: not absorbed or not
    known.
    upper: (b,) bio on the device above whose data this one carries, or -1.
    gone: (b,) True for a bio whose own completion was not recorded, as its request shows: the whole
    chain of its issue excludes it, or its address was reused before its end.
    above: (q,) request of the dm device above of which this is the clone, or -1.
    rival_bios: (bio, candidate bio) pairs considered for `root` or `upper`.
    rival_requests: (bio, candidate request) pairs considered for `request`.
    rival_above: (request, candidate request) pairs considered for `above`.
    """

    events: Events
    requests: Generations
    bios: Generations
    row_request: I64
    request: I64
    certainty: U8
    root: I64
    absorbed_by: I64
    upper: I64
    facts: Facts
    gone: Bool
    above: I64
    rival_bios: list[tuple[int, int]] = field(default_factory=list)
    rival_requests: list[tuple[int, int]] = field(default_factory=list)
    rival_above: list[tuple[int, int]] = field(default_factory=list)

    @property
    def queued(self) -> I64:
        """Per bio (b,): its Q event, or -1."""
        return self.bios.first(Kind.Q)

    @property
    def is_piece(self) -> Bool:
        """Per bio (b,): whether it was itself in a request, or about to be (G, M or F)."""
        return (self.request >= 0) | (self.bios.first(Kind.G, Kind.M, Kind.F) >= 0)


def associate(events: Events, context: Context, lives: Lives | None = None) -> Association:
    """Associate one window of time-sorted events by identity, as far as identities go.

    lives: what earlier windows recorded about reused addresses of the generations they kept.
    In the result `upper`, `above` (-1) and the rivals (empty) are left to `repair` and
    `request_parents`.
    """
    lives = lives or Lives()
    requests = request_generations(events, Operations.of(context))
    lives.requests.tell(events, requests)
    request_of_event = np.full(len(events), -1, dtype=np.int64)
    request_of_event[requests.row_event] = requests.row_gen
    absorbed = requests.first(Kind.RQ_MERGE) >= 0
    nobodys = _never_queued(events, requests, request_of_event, context)
    issued = requests.first(Kind.D) >= 0
    bios, row_request = bio_generations(
        events, request_of_event, absorbed, issued, nobodys, context
    )
    lives.bios.tell(events, bios)
    request = _last_request(bios, row_request)
    result = Association(
        events,
        requests,
        bios,
        row_request,
        request,
        np.zeros(len(bios), dtype=np.uint8),
        _roots(bios),
        np.full(len(requests), -1, dtype=np.int64),
        np.full(len(bios), -1, dtype=np.int64),
        _facts(events, bios),
        np.zeros(len(bios), dtype=np.bool_),
        np.full(len(requests), -1, dtype=np.int64),
    )
    _named_absorptions(result)
    _absorptions(result)
    _exclude_by_chains(result)
    _set_certainty(result)
    return result


def _last_request(bios: Generations, row_request: I64) -> I64:
    """Return each bio's request: that of its last D, else of its last event with one, or -1."""
    result = np.full(len(bios), -1, dtype=np.int64)
    named = np.flatnonzero(row_request >= 0)
    result[bios.row_gen[named]] = row_request[named]
    issued = named[bios.row_role[named] == Kind.D]
    result[bios.row_gen[issued]] = row_request[issued]
    return result


def split_links(bios: Generations) -> tuple[I64, I64]:
    """Return two arrays: front piece, and bio it was split from, of each X that names both."""
    fronts = np.flatnonzero(bios.row_role == Kind.X)
    parents = np.flatnonzero(bios.row_role == PARENT)
    if not len(parents) or not len(fronts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    fronts = fronts[np.argsort(bios.row_event[fronts], kind="stable")]
    at = np.searchsorted(bios.row_event[fronts], bios.row_event[parents])
    at = fronts[np.minimum(at, len(fronts) - 1)]
    both = bios.row_event[at] == bios.row_event[parents]
    return bios.row_gen[at[both]], bios.row_gen[parents[both]]


def _roots(bios: Generations) -> I64:
    """Return per bio the bio that was queued, following X (front piece → parent) to its end."""
    root = np.arange(len(bios))
    front, parent = split_links(bios)
    root[front] = parent
    for _ in range(len(root).bit_length()):
        further = root[root]
        if (further == root).all():
            return root
        root = further
    # Pointer jumping has not converged: X form a cycle, as in no kernel's log. Ignore X on it.
    return np.where(root[root] == root, root, np.arange(len(root)))


def _facts(events: Events, bios: Generations) -> Facts:
    """Return range and operation of each bio: from Q, else X, A, G, M or F, s, c."""
    queued, front = bios.first(Kind.Q), bios.first(Kind.X)
    remap, ended = bios.last(Kind.A), bios.first(Kind.BIO_COMPLETE)
    joined = bios.last(Kind.M, Kind.F)
    got, started = bios.first(Kind.G), bios.first(Kind.START)
    whole = first_known(queued, front, remap, got, joined, started, ended)
    # An A after the Q sends the same bio on (partition, multipath): its request has A's sector.
    sent_on = np.where(remap > np.maximum(queued, front), remap, -1)
    piece = first_known(joined, got, started, sent_on, front, queued)
    # I, D, C and m have the range of the whole request: good for dev and op, not for the size.
    any_row = bios.birth if len(bios) else np.zeros(0, np.int64)
    named = first_known(whole, any_row)
    facts = Facts(
        dev=take_or(events.dev, named, 0),
        sector=take_or(events.sector, named, 0),
        bytes=take_or(events.bytes, whole, -1),
        opf=take_or(events.opf, named, 0),
        piece_sector=take_or(events.sector, first_known(piece, any_row), 0),
        piece_bytes=take_or(events.bytes, piece, -1),
    )
    _subtract_fronts(events, bios, facts, first_known(joined, got, started) < 0)
    return facts


def _subtract_fronts(events: Events, bios: Generations, facts: Facts, unsent: Bool) -> None:
    """Subtract a split bio's front pieces from its own, in `facts`, if no G, s, M or F has it."""
    rows = np.flatnonzero(bios.row_role == PARENT)
    rows = rows[unsent[bios.row_gen[rows]]]
    if not len(rows):
        return
    gen, front = bios.row_gen[rows], bios.row_event[rows]
    known = facts.piece_bytes[gen] >= 0
    gen, front = gen[known], front[known]
    np.subtract.at(facts.piece_bytes, gen, events.bytes[front])
    np.add.at(facts.piece_sector, gen, (events.bytes[front] // SECTOR_BYTES).astype(np.uint64))
    facts.piece_bytes[gen] = np.maximum(facts.piece_bytes[gen], 0)


def _never_queued(
    events: Events, requests: Generations, request_of_event: I64, context: Context
) -> Bool:
    """Mark request events whose bios were never queued: passthrough, and dm's clones (`a`)."""
    own = [context.op_number(name) for name in sorted(PASSTHROUGH_OPS)]
    through = (request_of_event >= 0) & np.isin(events.opf & OP_MASK, own)
    cloned = requests.first(Kind.RQ_REMAP) >= 0
    if cloned.any():
        through |= take_or(cloned, request_of_event, False)
    return np.asarray(through, dtype=np.bool_)


def _named_absorptions(a: Association) -> None:
    """Set `a.absorbed_by` from m that name the absorbing request (`without_pointers` adds it)."""
    merged = np.flatnonzero(a.requests.row_role == Kind.RQ_MERGE)
    taker = a.events.raw[a.requests.row_event[merged], 6]
    merged, taker = merged[taker != 0], taker[taker != 0]
    if not len(merged):
        return
    event = a.requests.row_event[merged]
    # An identity can be reused: take its last generation that began before the m.
    pointers, rank = np.unique(a.requests.pointer, return_inverse=True)
    width = len(a.events) + 1
    keys = rank * width + a.requests.birth
    by_birth = np.argsort(keys)
    place = np.searchsorted(pointers, taker)
    at = np.searchsorted(keys[by_birth], place * width + event) - 1
    request = by_birth[np.maximum(at, 0)]
    known = (at >= 0) & (a.requests.pointer[request] == taker)
    a.absorbed_by[a.requests.row_gen[merged[known]]] = request[known]


def _exclude_by_chains(a: Association) -> None:
    """Remove from each request the bios that the complete chain of its D excludes.

    Sets their `a.request` to -1 and `a.gone` to True. A chain is not complete where it was cut
    (D_FLAG_CHAIN_CUT) or has no head. Does nothing without pointers, where chains are guesses.
    """
    issue = a.requests.first(Kind.D)
    held = np.flatnonzero((a.request >= 0) & (a.bios.first(Kind.D) < 0))
    held = held[issue[a.request[held]] >= 0]
    if not len(held) or a.events.doubt is not None:
        return
    rows = np.flatnonzero(a.requests.row_role == Kind.D)
    flags = a.events.field(Kind.D, "flags", a.requests.row_event[rows])
    has_head = a.events.bio[a.requests.row_event[rows]] != 0
    open_ended = np.zeros(len(a.requests), dtype=np.bool_)
    open_ended[a.requests.row_gen[rows[((flags & D_FLAG_CHAIN_CUT) != 0) | ~has_head]]] = True
    held = held[~open_ended[a.request[held]]]
    a.request[held] = -1
    a.gone[held] = True


def _set_certainty(a: Association) -> None:
    """Set `a.certainty` of each bio to the largest doubt of its events and its request's.

    Does nothing if there are no bios, or `a.events.doubt` is None: identities are pointers then.
    """
    if a.events.doubt is None or not len(a.bios):
        return
    a.certainty[:] = np.maximum.reduceat(a.events.doubt[a.bios.row_event], a.bios.start)
    if len(a.requests):
        doubt = np.maximum.reduceat(a.events.doubt[a.requests.row_event], a.requests.start)
        served = a.request >= 0
        a.certainty[served] = np.maximum(a.certainty[served], doubt[a.request[served]])


def _absorptions(a: Association) -> None:
    """Set `a.absorbed_by`, and move the bios of absorbed requests to the request that was issued.

    An absorbed request merged into the one whose D names its head bio (attempt_merge links the two
    bio lists, so that bio is in the chain).
    """
    merged = np.flatnonzero(a.bios.row_role == Kind.RQ_MERGE)
    merged = np.concatenate([merged, _lost_merges(a)])
    if not len(merged) or not len(a.requests):
        return
    source, taker = a.row_request[merged], a.request[a.bios.row_gen[merged]]
    known = (taker >= 0) & (taker != source)
    a.absorbed_by[source[known]] = taker[known]
    # m of m: C merged into B, B into A, so C's bios are A's. Pointer jumping doubles the path
    # length in each pass, so a cycle of merges terminates too.
    for _ in range(len(merged).bit_length()):
        further = take_or(a.absorbed_by, a.absorbed_by, -1)
        moved = further >= 0
        if not moved.any():
            break
        a.absorbed_by[moved] = further[moved]
    taken = take_or(a.absorbed_by, a.request, -1)
    a.request = np.where(taken >= 0, taken, a.request)


def _lost_merges(a: Association) -> I64:
    """Return the bio rows that a D of another request follows: the m between them was lost.

    Indices (k,) into the rows of `a.bios`, ascending. The D is the next row of the same bio
    generation. Left out are pairs of which one names no request, and rows whose request has an m.
    """
    after = np.flatnonzero(a.bios.row_role == Kind.D)
    after = after[after != a.bios.start[a.bios.row_gen[after]]]
    before = after - 1
    own, taker = a.row_request[before], a.row_request[after]
    changed = (own >= 0) & (taker >= 0) & (own != taker)
    before, own = before[changed], own[changed]
    without_m: I64 = before[a.requests.first(Kind.RQ_MERGE)[own] < 0]
    return without_m


def came_with(a: Association) -> I64:
    """Return, per bio, the absorbed request that it was in before the merge, or -1.

    From the first event of the bio before its D that mentions a request, or, where the kernel
    reports only the request's head bio, from the range of the m.
    """
    before = (Kind.G, Kind.START, Kind.M, Kind.F, Kind.I, Kind.RQ_MERGE)
    issue = a.bios.first(Kind.D)
    early = (a.bios.row_event < issue[a.bios.row_gen]) | (issue[a.bios.row_gen] < 0)
    named = np.flatnonzero((a.row_request >= 0) & np.isin(a.bios.row_role, before) & early)[::-1]
    own = np.full(len(a.bios), -1, dtype=np.int64)
    own[a.bios.row_gen[named]] = a.row_request[named]
    got = (a.bios.first(Kind.G) >= 0) & (a.request >= 0)
    own = _in_range_of_merges(a, np.flatnonzero(got & (own < 0)), own)
    return np.where((own >= 0) & (own != a.request), own, -1)


def _in_range_of_merges(a: Association, bios: I64, own: I64) -> I64:
    """Return a copy of `own` with, for `bios`, the request of the first m that covers their sector.

    Such an m is later than the bio's first event, and of a request absorbed by the one that served
    it. Cost grows with the bios that lie in ranges of m, not with bios times m.
    """
    merged = np.flatnonzero(a.requests.row_role == Kind.RQ_MERGE)
    merged = merged[np.isin(a.absorbed_by[a.requests.row_gen[merged]], a.request[bios])]
    merged = merged[np.argsort(a.requests.row_event[merged], kind="stable")]
    event, absorbed = a.requests.row_event[merged], a.requests.row_gen[merged]
    sectors, place = np.unique(a.facts.piece_sector[bios], return_inverse=True)
    begin, length = a.events.sector[event], a.events.bytes[event] // SECTOR_BYTES
    end = begin + np.maximum(length, 0).astype(np.uint64)
    first = np.searchsorted(sectors, begin)
    behind = np.where(end < begin, len(sectors), np.searchsorted(sectors, end))
    # Bios by their request and sector: those of one merge's range stand side by side.
    width = len(sectors) + 1
    order = np.argsort(a.request[bios] * width + place, kind="stable")
    keys = (a.request[bios] * width + place)[order]
    low = np.searchsorted(keys, a.absorbed_by[absorbed] * width + first)
    count = np.searchsorted(keys, a.absorbed_by[absorbed] * width + behind) - low
    count = np.maximum(count, 0)
    merge = np.repeat(np.arange(len(merged)), count)
    # Position in `keys` of each (merge, bio in its range) pair: low[merge], low[merge] + 1, …
    position = np.arange(len(merge)) - np.repeat(np.cumsum(count) - count, count) + low[merge]
    bio = bios[order[position]]
    later = a.bios.birth[bio] < event[merge]
    bio, merge = bio[later][::-1], merge[later][::-1]
    result = own.copy()
    result[bio] = absorbed[merge]  # the first merge is assigned last
    return result


def edges_of_rows(a: Association) -> tuple[I64, I64]:
    """Return every (bio, request) pair that an event mentions, as two arrays; pairs can repeat."""
    named = np.flatnonzero(a.row_request >= 0)
    return a.bios.row_gen[named], a.row_request[named]


def partition_remaps(a: Association, context: Context) -> tuple[I64, Bool]:
    """Return the A rows of `a.bios`, and whether each remaps from a partition to its own disk."""
    rows = np.flatnonzero(a.bios.row_role == Kind.A)
    remaps = a.events.fields(Kind.A, a.bios.row_event[rows])
    pairs = remaps["from_dev"].astype(np.uint64) << np.uint64(32) | remaps["dev"]
    distinct, back = np.unique(pairs, return_inverse=True)
    listed = [context.is_partition_of(int(p) >> 32, int(p) & 0xFFFFFFFF) for p in distinct]
    return rows, (remaps["from_dev"] == remaps["part"]) | np.array(listed, np.bool_)[back]
