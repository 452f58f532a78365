# SPDX-License-Identifier: Apache-2.0
"""Which request served which bio. Intervals find candidates, identity decides.

Exact joins on identities (pointer and generation) settle all that the events name; what
they do not name goes to `repair`, on interval trees. Works on one window of events.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.association.identity.address_reuse import Lives
from biotrail.converters.association.identity.generations import (
    PARENT,
    Generations,
    bio_generations,
)
from biotrail.converters.association.identity.request_generations import (
    Operations,
    request_generations,
)
from biotrail.converters.events.context import OP_MASK, PASSTHROUGH_OPS, Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U8, U32, U64, Bool
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Kind

NO_SECTOR = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass
class Facts:
    """What is known of each bio generation, from the event that tells it best.

    sector, bytes: the whole bio's; piece_sector, piece_bytes: of what went to its own
    request (smaller than the bio where fronts were split off). bytes is -1 when unknown.
    """

    dev: U32
    sector: U64
    bytes: I64
    opf: U32
    piece_sector: U64
    piece_bytes: I64


@dataclass
class Association:
    """Indices are of generations: `bios` rows and `requests` rows.

    row_request: request generation of each row of `bios`, -1 none.
    request: per bio, the request that served it, -1 none or not known.
    certainty: per bio, how `request` is known (Certainty).
    root: per bio, the bio it was split from, at last; itself when not split.
    absorbed_by: per request, -1 none or not known. upper: per bio, the upper device's bio.
    gone: per bio, whether its request turned out to be another's: its own end was not seen.
    above: per request, the upper device's request that it does the work of, -1 none.
    rival_bios, rival_requests: (bio, candidate) that intervals could not choose among.
    rival_above: (request, candidate) likewise.
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
        """Per bio: its Q event, -1 not seen."""
        return self.bios.first(Kind.Q)

    @property
    def is_piece(self) -> Bool:
        """Per bio: whether it went (or was about to go) to a request itself."""
        return (self.request >= 0) | (self.bios.first(Kind.G, Kind.M, Kind.F) >= 0)


def associate(events: Events, context: Context, lives: Lives | None = None) -> Association:
    """Associates one window of time-sorted events by identity, as far as that decides.

    lives: what earlier windows saw of what they kept.
    """
    lives = lives or Lives()
    requests = request_generations(events, Operations.of(context))
    lives.requests.tell(events, requests)
    request_of_event = np.full(len(events), -1, dtype=np.int64)
    request_of_event[requests.row_event] = requests.row_gen
    absorbed = requests.first(Kind.RQ_MERGE) >= 0
    nobodys = _nobodys(events, requests, request_of_event, context)
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
    _told_absorptions(result)
    _absorptions(result)
    _leave_out(result)
    _doubts(result)
    return result


def _last_request(bios: Generations, row_request: I64) -> I64:
    """An issue's chain tells what the request held; before that, the last event that names it."""
    result = np.full(len(bios), -1, dtype=np.int64)
    named = np.flatnonzero(row_request >= 0)
    result[bios.row_gen[named]] = row_request[named]
    issued = named[bios.row_role[named] == Kind.D]
    result[bios.row_gen[issued]] = row_request[issued]
    return result


def split_links(bios: Generations) -> tuple[I64, I64]:
    """The front piece and the parent that each X names, of the X that name both."""
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
    """Follows X from the front piece to the bio it was cut from."""
    root = np.arange(len(bios))
    front, parent = split_links(bios)
    root[front] = parent
    for _ in range(len(root).bit_length()):
        further = root[root]
        if (further == root).all():
            return root
        root = further
    # Only in a log that was made up do X go round; then no bio is a piece of another.
    return np.where(root[root] == root, root, np.arange(len(root)))


def _at(events: Events, index: I64, column: I64 | U32 | U64, default: int) -> I64 | U32 | U64:
    """column[index], the default where index is -1."""
    if not len(events):
        return np.full(len(index), default, dtype=column.dtype)
    fallback = column.dtype.type(default)
    return np.where(index >= 0, column[np.maximum(index, 0)], fallback)


def _first_known(*choices: I64) -> I64:
    result = choices[0].copy()
    for choice in choices[1:]:
        result = np.where(result >= 0, result, choice)
    return result


def _facts(events: Events, bios: Generations) -> Facts:
    queued, front = bios.first(Kind.Q), bios.first(Kind.X)
    remap, ended = bios.last(Kind.A), bios.first(Kind.BIO_COMPLETE)
    joined = bios.last(Kind.M, Kind.F)
    got, started = bios.first(Kind.G), bios.first(Kind.START)
    whole = _first_known(queued, front, remap, got, joined, started, ended)
    # A remap after the queueing sends the bio on: its sector there is the piece's.
    sent_on = np.where(remap > np.maximum(queued, front), remap, -1)
    piece = _first_known(joined, got, started, sent_on, front, queued)
    # A request event tells of its whole request: good for dev and op, not for one bio's size.
    any_row = bios.birth if len(bios) else np.zeros(0, np.int64)
    named = _first_known(whole, any_row)
    facts = Facts(
        dev=_at(events, named, events.dev, 0).astype(np.uint32),
        sector=_at(events, named, events.sector, 0).astype(np.uint64),
        bytes=_at(events, whole, events.bytes, -1).astype(np.int64),
        opf=_at(events, named, events.opf, 0).astype(np.uint32),
        piece_sector=_at(events, _first_known(piece, any_row), events.sector, 0).astype(np.uint64),
        piece_bytes=_at(events, piece, events.bytes, -1).astype(np.int64),
    )
    _leave_the_rest(events, bios, facts, _first_known(joined, got, started) < 0)
    return facts


def _leave_the_rest(events: Events, bios: Generations, facts: Facts, unsent: Bool) -> None:
    """What a split bio sends itself is what its fronts leave, where no event says its size."""
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


def _nobodys(
    events: Events, requests: Generations, request_of_event: I64, context: Context
) -> Bool:
    """Request events whose bios were never queued: a driver's own, and clones of dm's requests."""
    own = [context.op_number(name) for name in sorted(PASSTHROUGH_OPS)]
    through = (request_of_event >= 0) & np.isin(events.opf & OP_MASK, own)
    cloned = requests.first(Kind.RQ_REMAP) >= 0
    if cloned.any():
        through |= (request_of_event >= 0) & cloned[np.maximum(request_of_event, 0)]
    return np.asarray(through, dtype=np.bool_)


def _told_absorptions(a: Association) -> None:
    """Where intervals found who took an absorbed request, the merge itself says so."""
    merged = np.flatnonzero(a.requests.row_role == Kind.RQ_MERGE)
    taker = a.events.raw[a.requests.row_event[merged], 6]
    merged, taker = merged[taker != 0], taker[taker != 0]
    if not len(merged):
        return
    event = a.requests.row_event[merged]
    # An identity can be used again: the one that lives at the merge is meant.
    pointers, rank = np.unique(a.requests.pointer, return_inverse=True)
    width = len(a.events) + 1
    keys = rank * width + a.requests.birth
    by_birth = np.argsort(keys)
    place = np.searchsorted(pointers, taker)
    at = np.searchsorted(keys[by_birth], place * width + event) - 1
    found = by_birth[np.maximum(at, 0)]
    known = (at >= 0) & (a.requests.pointer[found] == taker)
    a.absorbed_by[a.requests.row_gen[merged[known]]] = found[known]


def _leave_out(a: Association) -> None:
    """Takes from a request the bios that the whole chain of its issue does not hold."""
    issue = a.requests.first(Kind.D)
    held = np.flatnonzero((a.request >= 0) & (a.bios.first(Kind.D) < 0))
    held = held[issue[a.request[held]] >= 0]
    if not len(held) or a.events.doubt is not None:
        return
    rows = np.flatnonzero(a.requests.row_role == Kind.D)
    flags = a.events.field(Kind.D, "flags", a.requests.row_event[rows])
    told = a.events.bio[a.requests.row_event[rows]] != 0
    open_ended = np.zeros(len(a.requests), dtype=np.bool_)
    open_ended[a.requests.row_gen[rows[((flags & D_FLAG_CHAIN_CUT) != 0) | ~told]]] = True
    held = held[~open_ended[a.request[held]]]
    a.request[held] = -1
    a.gone[held] = True


def _doubts(a: Association) -> None:
    """Intervals' doubts, from a bio's own events and from its request's."""
    if a.events.doubt is None or not len(a.bios):
        return
    a.certainty[:] = np.maximum.reduceat(a.events.doubt[a.bios.row_event], a.bios.start)
    if len(a.requests):
        doubt = np.maximum.reduceat(a.events.doubt[a.requests.row_event], a.requests.start)
        served = a.request >= 0
        a.certainty[served] = np.maximum(a.certainty[served], doubt[a.request[served]])


def _absorptions(a: Association) -> None:
    """A request that m names was absorbed by the one whose issue held its head bio."""
    merged = np.flatnonzero(a.bios.row_role == Kind.RQ_MERGE)
    merged = np.concatenate([merged, _merges_unseen(a)])
    if not len(merged) or not len(a.requests):
        return
    source, taker = a.row_request[merged], a.request[a.bios.row_gen[merged]]
    known = (taker >= 0) & (taker != source)
    a.absorbed_by[source[known]] = taker[known]
    # Chains of m: the bios of C are on A once B, which took C, is on A.
    # Each step doubles how far they are followed, so that m that go round end as well.
    for _ in range(len(merged).bit_length()):
        further = np.where(a.absorbed_by >= 0, a.absorbed_by[np.maximum(a.absorbed_by, 0)], -1)
        moved = further >= 0
        if not moved.any():
            break
        a.absorbed_by[moved] = further[moved]
    held = a.request >= 0
    taken = np.where(held, a.absorbed_by[np.maximum(a.request, 0)], -1)
    a.request = np.where(taken >= 0, taken, a.request)


def _merges_unseen(a: Association) -> I64:
    """Rows of `a.bios` after which another request than theirs issued the bio, without m."""
    after = np.flatnonzero(a.bios.row_role == Kind.D)
    after = after[after != a.bios.start[a.bios.row_gen[after]]]
    before = after - 1
    own, taker = a.row_request[before], a.row_request[after]
    changed = (own >= 0) & (taker >= 0) & (own != taker)
    before, own = before[changed], own[changed]
    found: I64 = before[a.requests.first(Kind.RQ_MERGE)[own] < 0]
    return found


def came_with(a: Association) -> I64:
    """Per bio: the absorbed request that was its own before, -1 none.

    Told by its own events, or, where only its head was named, by the range of the merge.
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
    """Return `own` with, for these bios, the request of the first merge that held their sector.

    That is a merge after the bio's first event, into the request that served it. What it costs
    grows with the bios that stand in merges' ranges, not with bios times merges.
    """
    merged = np.flatnonzero(a.requests.row_role == Kind.RQ_MERGE)
    merged = merged[np.isin(a.absorbed_by[a.requests.row_gen[merged]], a.request[bios])]
    merged = merged[np.argsort(a.requests.row_event[merged], kind="stable")]
    event, gone = a.requests.row_event[merged], a.requests.row_gen[merged]
    sectors, place = np.unique(a.facts.piece_sector[bios], return_inverse=True)
    begin, length = a.events.sector[event], a.events.bytes[event] // SECTOR_BYTES
    end = begin + np.maximum(length, 0).astype(np.uint64)
    first = np.searchsorted(sectors, begin)
    behind = np.where(end < begin, len(sectors), np.searchsorted(sectors, end))
    # Bios by their request and sector: those of one merge's range stand side by side.
    width = len(sectors) + 1
    order = np.argsort(a.request[bios] * width + place, kind="stable")
    keys = (a.request[bios] * width + place)[order]
    low = np.searchsorted(keys, a.absorbed_by[gone] * width + first)
    count = np.searchsorted(keys, a.absorbed_by[gone] * width + behind) - low
    count = np.maximum(count, 0)
    merge = np.repeat(np.arange(len(merged)), count)
    held = np.arange(len(merge)) - np.repeat(np.cumsum(count) - count, count) + low[merge]
    bio = bios[order[held]]
    later = a.bios.birth[bio] < event[merge]
    bio, merge = bio[later][::-1], merge[later][::-1]
    result = own.copy()
    result[bio] = gone[merge]  # the first merge is assigned last
    return result


def edges_of_rows(a: Association) -> tuple[I64, I64]:
    """Every (bio, request) pair that any event names, for what must be kept together."""
    named = np.flatnonzero(a.row_request >= 0)
    return a.bios.row_gen[named], a.row_request[named]


def partition_remaps(a: Association, context: Context) -> tuple[I64, Bool]:
    """Rows of `a.bios` that are A, and whether each is a partition's remap to its disk."""
    rows = np.flatnonzero(a.bios.row_role == Kind.A)
    remaps = a.events.fields(Kind.A, a.bios.row_event[rows])
    pairs = remaps["from_dev"].astype(np.uint64) << np.uint64(32) | remaps["dev"]
    distinct, back = np.unique(pairs, return_inverse=True)
    listed = [context.is_partition_of(int(p) >> 32, int(p) & 0xFFFFFFFF) for p in distinct]
    return rows, (remaps["from_dev"] == remaps["part"]) | np.array(listed, np.bool_)[back]
