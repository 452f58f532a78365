# SPDX-License-Identifier: Apache-2.0
"""Generations of kernel pointers (an address from one allocation to the next), and those of bios.

Bios and requests are reused within microseconds, so an address alone identifies neither. Rows (an
event that mentions an address, once per mention) are grouped by address in time order, and local
rules on neighbouring rows say where a new generation begins. docs/lifecycles.md lists the rules;
`request_generations` has those of requests.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.association.identity.nvme_multipath import foretells
from biotrail.converters.association.identity.remaps import resubmitted, sent_on_unseen
from biotrail.converters.events.array_steps import (
    is_first_of_run,
    is_operation,
    latest_before,
    ranges_overlap,
    same_operation,
    value_before,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in, stable_order
from biotrail.converters.events.tables import I64, U8, U64, Bool
from biotrail.recorder.schema.records import CHAIN_COUNT, CHAIN_SLOTS, Kind

PARENT = 200
"""Role of the bio that an X names as the one it was split from (bi_private)."""
REST = 201
"""Role of the bio of an X that reports the remainder instead of the front piece (dm since 6.1)."""
FORETOLD = 202
"""Role of the bio of a c that NVMe multipath reports just before the C of the bio's request."""

_BIO_KINDS = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A, Kind.BIO_COMPLETE)
_HEAD_KINDS = (Kind.START, Kind.I, Kind.RQ_MERGE, Kind.D, Kind.C)
_LOW = np.uint64(0xFFFFFFFF)
_COUNT_BIT = np.uint64(CHAIN_COUNT.bit_length() - 1)


@dataclass
class Generations:
    """Rows sorted by pointer, then time. A generation is a run of consecutive rows of one pointer.

    n rows, m generations; events are indices into the window's `Events`.
    pointer: (m,) address of each generation.
    row_event: (n,) event of each row.
    row_role: (n,) what the pointer is in that event: a record kind, PARENT, REST or FORETOLD.
    row_slot: (n,) place of the bio in the chain of a D, 0 for the head and for any other role.
    row_gen: (n,) generation of each row.
    start: (m,) first row of each generation.
    again: (m,) number (`Events.number`) of the event with which the next generation of the same
    pointer begins, or -1: none so far.
    """

    pointer: U64
    row_event: I64
    row_role: U8
    row_slot: I64
    row_gen: I64
    start: I64
    again: I64
    _known: dict[tuple[bool, tuple[int, ...]], I64] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def superseded(self) -> Bool:
        """Per generation: whether a later one of its pointer was seen, so that it has ended."""
        return np.asarray(self.again >= 0, dtype=np.bool_)

    def first(self, *roles: int) -> I64:
        """Return each generation's first event with one of these roles, or -1. Read-only."""
        return self._by_roles(True, roles)

    def last(self, *roles: int) -> I64:
        """Return each generation's last event with one of these roles, or -1. Read-only."""
        return self._by_roles(False, roles)

    def _by_roles(self, first: bool, roles: tuple[int, ...]) -> I64:
        """Return each generation's first or last event of these roles; computed once and cached."""
        known = self._known.get((first, roles))
        if known is None:
            rows = is_in(self.row_role, *roles)
            known = self.first_where(rows) if first else self.last_where(rows)
            known.flags.writeable = False
            self._known[first, roles] = known
        return known

    def first_where(self, rows: Bool) -> I64:
        """Return, per generation, the event of its first row in the mask (n,), or -1."""
        return self._pick(np.flatnonzero(rows)[::-1])

    def last_where(self, rows: Bool) -> I64:
        """Return, per generation, the event of its last row in the mask (n,), or -1."""
        return self._pick(np.flatnonzero(rows))

    def _pick(self, rows: I64) -> I64:
        """Return per generation the event of whichever of its `rows` comes last there, or -1."""
        picked = np.full(len(self), -1, dtype=np.int64)
        picked[self.row_gen[rows]] = self.row_event[rows]
        return picked

    def count(self, rows: Bool) -> I64:
        """Return, per generation, how many of its rows are in the mask (n,)."""
        return self.total(rows.astype(np.int64))

    def total(self, values: I64) -> I64:
        """Return, per generation, the sum of `values` (n,) over its rows."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.add.reduceat(values, self.start)

    @property
    def birth(self) -> I64:
        """Per generation: event of its first row."""
        return self.row_event[self.start]

    @property
    def birth_role(self) -> U8:
        """Per generation: role of its first row."""
        return self.row_role[self.start]

    @property
    def ends(self) -> I64:
        """Per generation: one past its last row."""
        return np.append(self.start[1:], len(self.row_event)).astype(np.int64)

    @property
    def last_event(self) -> I64:
        """Per generation: event of its last row."""
        return self.row_event[self.ends - 1]


def build(
    events: Events, pointer: U64, event: I64, role: U8, slot: I64, begins: Bool, first: Bool
) -> Generations:
    """Return the generations of rows (n,) that are sorted by pointer, then time.

    pointer: each row's address. event: each row's index into `events`. role, slot: kept as they
    are (see Generations). begins, first: masks (n,) of the rows that begin a generation, and of
    each pointer's first row, which must begin one. `again` in the result is found from them.
    """
    start = np.flatnonzero(begins)
    gen = np.cumsum(begins) - 1
    again = np.full(len(start), -1, dtype=np.int64)
    follows = start[1:]
    again[:-1] = np.where(first[follows], -1, events.number[event[follows]])
    return Generations(pointer[start], event, role, slot, gen, start, again)


def bio_generations(
    events: Events,
    request_of_event: I64,
    absorbed: Bool,
    issued: Bool,
    nobodys: Bool,
    context: Context,
) -> tuple[Generations, I64]:
    """Return the generations of bio pointers, and the request generation of each row, or -1.

    A row has a request if its event mentions both: s, I, D, C, m; G, M and F where these report it.

    request_of_event: request generation by event, or -1.
    absorbed, issued: per request generation, whether it has an m, a D.
    nobodys: per event, True for request events whose bios were never queued, and so get no rows.
    """
    event, pointer, role, slot = _mentions(events, nobodys)
    order = np.argsort(event, kind="stable")
    order = order[stable_order(pointer[order])]
    event, pointer, role, slot = event[order], pointer[order], role[order], slot[order]
    named = is_in(role, *_HEAD_KINDS, Kind.G, Kind.M, Kind.F)
    request = np.where(named, request_of_event[event], -1)
    first = is_first_of_run(pointer)
    before = value_before(role, first)
    foretold = foretells(events, event, role, before, context)
    if foretold.any():
        role = np.where(foretold, np.uint8(FORETOLD), role)
        before = value_before(role, first)
    begins = first | _begins_by_role(role, before)
    begins |= (role == Kind.A) & ~resubmitted(events, event, before)
    moved = events.sector[event] != events.sector[np.roll(event, 1)]
    begins |= (role == Kind.Q) & (before == Kind.A) & moved
    # Only a remap (A) changes bi_bdev, so any other event on another device is another bio's.
    dev = events.dev[event]
    begins |= (role != Kind.A) & (dev != np.roll(dev, 1))
    begins &= ~sent_on_unseen(events, event, before, context)
    begins |= _outside(events, event, role, before, context)
    merged = _came_by_lost_merge(events, event, role, before, slot, request, issued)
    begins |= _changes_request(role, before, request, absorbed) & ~merged
    return build(events, pointer, event, role, slot, begins, first), request


def _begins_by_role(role: U8, before: U8) -> Bool:
    """Mark rows that begin a generation by their role and the role of the row before alone.

    X always does, and Q unless an A is before it. G, M, F, s, c and the bio that an X splits do
    after a row that has the bio in a request or completed, since a bio gets one request and its
    completion frees its address; so does any row with a request after a c, and G after G.
    """
    served = (Kind.START, Kind.M, Kind.F, Kind.I, Kind.RQ_MERGE, Kind.D, Kind.C)
    over = is_in(before, *served, Kind.BIO_COMPLETE)
    begins = (role == Kind.X) | ((role == Kind.Q) & (before != Kind.A))
    begins |= is_in(role, Kind.G, Kind.M, Kind.F) & (over | (before == Kind.G))
    begins |= is_in(role, Kind.START, PARENT, REST) & over
    begins |= (role == Kind.BIO_COMPLETE) & over
    begins |= (before == Kind.BIO_COMPLETE) & is_in(role, *served)
    return np.asarray(begins, dtype=np.bool_)


def _changes_request(role: U8, before: U8, request: I64, absorbed: Bool) -> Bool:
    """Mark rows whose request differs from the row before: a new bio at the same address.

    A bio keeps its request, unless that request was absorbed (m) before its issue; such rows are
    not marked, and neither are PARENT rows.
    """
    previous = np.roll(request, 1)
    differs = (request >= 0) & (previous >= 0) & (request != previous) & (before != 0)
    if not len(absorbed):
        return np.asarray(differs, dtype=np.bool_)
    moved = absorbed[np.maximum(previous, 0)] & is_in(
        before, Kind.G, Kind.M, Kind.F, Kind.START, Kind.I, Kind.RQ_MERGE
    )
    return np.asarray(differs & ~moved & (role != PARENT), dtype=np.bool_)


def _outside(events: Events, event: I64, role: U8, before: U8, context: Context) -> Bool:
    """Mark rows that do not fit the range or operation of the row before: of a later bio.

    A bio is queued (Q, A, X) with all sectors that its G, M, F or s reports, and lies within the D,
    I, C or m of its request, with one operation. Exempt are the ranges of discards, which a request
    holds apart from each other, and zone appends, which the kernel may turn into writes.
    """
    discard, append = context.op_number("discard"), context.op_number("zone_append")
    joins = is_in(role, Kind.G, Kind.M, Kind.F, Kind.START) & is_in(before, Kind.Q, Kind.A, Kind.X)
    issued = (role == Kind.D) & is_in(before, Kind.G, Kind.M, Kind.F)
    # The request that absorbed the bio's request covers all sectors of the m.
    later = is_in(role, Kind.I, Kind.D, Kind.C, Kind.RQ_MERGE)
    issued |= later & is_in(before, Kind.RQ_MERGE, Kind.X)
    rows = np.flatnonzero(joins | issued)
    outer = np.where(issued[rows], event[rows], event[rows - 1])
    inner = np.where(issued[rows], event[rows - 1], event[rows])
    there = (events.bytes[outer] > 0) & (events.bytes[inner] > 0)
    there |= (before[rows] == Kind.RQ_MERGE) & (events.bytes[inner] > 0)
    op, other = events.opf[outer], events.opf[inner]
    apart = issued[rows] & is_operation(op, discard)
    elsewhere = ~apart & ~ranges_overlap(
        events.sector[inner], events.end(inner), events.sector[outer], events.end(outer)
    )
    changed = ~same_operation(op, other)
    changed &= ~is_operation(op, append) & ~is_operation(other, append)
    result = np.zeros(len(event), dtype=np.bool_)
    result[rows] = there & (elsewhere | changed)
    return result


def _came_by_lost_merge(
    events: Events, event: I64, role: U8, before: U8, slot: I64, request: I64, issued: Bool
) -> Bool:
    """Mark D rows of bios that got into the issued request by a merge of requests whose m was lost.

    Such a bio is behind the head of the chain, had an own request (G, s or I) that was never
    issued, and that request's sectors and operation lie within the D.

    issued: per request generation, whether it has a D.
    """
    result = np.zeros(len(event), dtype=np.bool_)
    waits = is_in(before, Kind.G, Kind.START, Kind.I)
    rows = np.flatnonzero((role == Kind.D) & (slot > 0) & waits)
    own = request[rows - 1]
    waits = own >= 0
    rows, own = rows[waits], own[waits]
    rows = rows[~issued[own]] if len(issued) else rows
    issue, own_event = event[rows], event[rows - 1]
    inside = events.lie_within(own_event, issue)
    result[rows] = inside & same_operation(events.opf[issue], events.opf[own_event])
    return result


def _mentions(events: Events, nobodys: Bool) -> tuple[I64, U64, U8, I64]:
    """Return each mention of a bio: event, bio pointer, role, and place in the chain.

    Four (n,) arrays, not sorted. The place is 0 but for bios behind the head of an issued chain,
    and for bios that `without_pointers` found in a request. Request events in the mask `nobodys`
    are left out.
    """
    plain = events.rows(*_BIO_KINDS, *_HEAD_KINDS)
    plain = plain[(events.bio[plain] != 0) & ~nobodys[plain]]
    rest = _rest_splits(events)
    splits = events.rows(Kind.X)
    splits = splits[~rest[splits]]
    parents = events.fields(Kind.X, splits)["parent"].astype(np.uint64)
    splits, parents = splits[parents != 0], parents[parents != 0]
    issue, bio, slot = chain_rows(events)
    counts = ~nobodys[issue]
    issue, bio, slot = issue[counts], bio[counts], slot[counts]
    member_event, member, place = _member_rows(events)
    return (
        np.concatenate([plain, splits, issue, member_event]),
        np.concatenate([events.bio[plain], parents, bio, member]),
        np.concatenate(
            [
                np.where(rest[plain], np.uint8(REST), events.kind[plain]),
                np.full(len(splits), PARENT, np.uint8),
                np.full(len(issue), Kind.D, np.uint8),
                events.kind[member_event],
            ]
        ),
        np.concatenate([np.zeros(len(plain) + len(splits), np.int64), slot, place]),
    )


def _rest_splits(events: Events) -> Bool:
    """Mark X events that report the remainder instead of the front piece: dm since 6.1.

    There the record's new_sector (the sector where the remainder begins, low 32 bits) is the sector
    of the reported bio itself.
    """
    result = np.zeros(len(events), dtype=np.bool_)
    rows = events.rows(Kind.X)
    result[rows] = events.fields(Kind.X, rows)["new_sector"] == events.sector[rows] & _LOW
    return result


def _member_rows(events: Events) -> tuple[I64, U64, I64]:
    """Return the bios, but the first, that `without_pointers` put into requests (`events.members`).

    Three arrays: event (D or I) of the request, bio identity, place in the request, from 1.
    """
    if not events.members:
        return np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.int64)
    rows = [
        (row, bio, place)
        for row in events.rows(Kind.D, Kind.I).tolist()
        for place, bio in enumerate(events.members.get(int(events.number[row]), ())[1:], 1)
    ]
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    return table[:, 0], table[:, 1].astype(np.uint64), table[:, 2]


def chain_rows(events: Events) -> tuple[I64, U64, I64]:
    """Return the bios behind the head of each issued chain: event of D, pointer, place from 1."""
    chains = events.rows(Kind.CHAIN)
    owner, place = chain_owners(events, chains)
    chains, place, owner = chains[owner >= 0], place[owner >= 0], owner[owner >= 0]
    bios = events.raw[chains, 2 : 2 + CHAIN_SLOTS]
    rank = 1 + place[:, None] * CHAIN_SLOTS + np.arange(CHAIN_SLOTS)
    used = (bios != 0) & (bios >> _COUNT_BIT != 1)
    issue = np.broadcast_to(owner[:, None], bios.shape)
    return issue[used], bios[used], rank[used]


def chain_others(events: Events) -> tuple[I64, I64]:
    """Return the D events with bios that the recording's filters left out, and how many."""
    chains = events.rows(Kind.CHAIN)
    owner, _ = chain_owners(events, chains)
    slots = events.raw[chains, 2 : 2 + CHAIN_SLOTS]
    counts = np.where(slots >> _COUNT_BIT == 1, slots & _LOW, 0).sum(axis=1).astype(np.int64)
    counted = (owner >= 0) & (counts > 0)
    return owner[counted], counts[counted]


def chain_owners(events: Events, chains: I64) -> tuple[I64, I64]:
    """Return, per CHAIN record in `chains`, the event of its D, or -1, and its place behind that D.

    A D and its CHAIN records leave the kernel together, with one timestamp and one request pointer.
    The place counts from 0 and is meaningless where the D is -1.
    """
    if not len(chains):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    issues = events.rows(Kind.D)
    owner = latest_before(issues, chains)
    # Two CPUs can issue in the same nanosecond: then the D before the last one is tried.
    for _ in range(len(issues)):
        wrong = (owner >= 0) & (events.rq[owner] != events.rq[chains])
        wrong &= events.ts[owner] == events.ts[chains]
        if not wrong.any():
            break
        owner[wrong] = latest_before(issues, owner[wrong])
    right = (owner >= 0) & (events.ts[owner] == events.ts[chains])
    right &= events.rq[owner] == events.rq[chains]
    place = chains - owner - 1
    return np.where(right, owner, -1), place
