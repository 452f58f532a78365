# SPDX-License-Identifier: Apache-2.0
"""Identities: a kernel pointer together with its generation. Bios told apart.

Bios and requests are recycled within microseconds, so a pointer alone names nothing.
Rows (an event that names a pointer) are grouped by pointer in time order, and local rules
on neighbouring rows say where a new generation begins. docs/lifecycles.md lists the rules.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.association.identity.nvme_multipath import foretells
from biotrail.converters.association.identity.remaps import resubmitted, sent_on_unseen
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in, stable_order
from biotrail.converters.events.tables import I64, U8, U64, Bool
from biotrail.recorder.schema.records import CHAIN_COUNT, CHAIN_SLOTS, Kind

PARENT = 200
"""Role of a bio that X names as the one that was split."""
REST = 201
"""Role of a bio in an X that names it as what is left (dm)."""
FORETOLD = 202
"""Role of a bio in a c that only foretells its request's C (NVMe multipath)."""

_BIO_KINDS = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A, Kind.BIO_COMPLETE)
_HEAD_KINDS = (Kind.START, Kind.I, Kind.RQ_MERGE, Kind.D, Kind.C)
_LOW = np.uint64(0xFFFFFFFF)
_COUNT_BIT = np.uint64(CHAIN_COUNT.bit_length() - 1)


@dataclass
class Generations:
    """Rows grouped by pointer, in time order within; a generation is a run of rows.

    row_event, row_role, row_gen: one entry per row. start: first row of each generation.
    again: number of the event with which the pointer lives again, -1 none so far.
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
        """Per generation: whether the pointer was seen to live again: this life is over."""
        return np.asarray(self.again >= 0, dtype=np.bool_)

    def first(self, *roles: int) -> I64:
        """Per generation: event of its first row in one of these roles; -1: none. Read only."""
        return self._by_roles(True, roles)

    def last(self, *roles: int) -> I64:
        """Per generation: event of its last row in one of these roles; -1: none. Read only."""
        return self._by_roles(False, roles)

    def _by_roles(self, first: bool, roles: tuple[int, ...]) -> I64:
        """Asked for again and again, by every step: found once."""
        known = self._known.get((first, roles))
        if known is None:
            rows = is_in(self.row_role, *roles)
            known = self.first_where(rows) if first else self.last_where(rows)
            known.flags.writeable = False
            self._known[first, roles] = known
        return known

    def first_where(self, rows: Bool) -> I64:
        """Per generation: event of its first row in the mask; -1: none."""
        return self._pick(np.flatnonzero(rows)[::-1])

    def last_where(self, rows: Bool) -> I64:
        """Per generation: event of its last row in the mask; -1: none."""
        return self._pick(np.flatnonzero(rows))

    def _pick(self, rows: I64) -> I64:
        """Each generation's event of the last of its rows in the given order."""
        picked = np.full(len(self), -1, dtype=np.int64)
        picked[self.row_gen[rows]] = self.row_event[rows]
        return picked

    def count(self, rows: Bool) -> I64:
        """Per generation: how many of its rows are in the mask."""
        return self.total(rows.astype(np.int64))

    def total(self, values: I64) -> I64:
        """Per generation: sum of the values of its rows."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.add.reduceat(values, self.start)

    @property
    def birth(self) -> I64:
        """Event of each generation's first row."""
        return self.row_event[self.start]

    @property
    def birth_role(self) -> U8:
        """Role of each generation's first row."""
        return self.row_role[self.start]

    @property
    def ends(self) -> I64:
        """One past the last row of each generation."""
        return np.append(self.start[1:], len(self.row_event)).astype(np.int64)

    @property
    def last_event(self) -> I64:
        """Event of each generation's last row."""
        return self.row_event[self.ends - 1]


def build(
    events: Events, pointer: U64, event: I64, role: U8, slot: I64, begins: Bool, first: Bool
) -> Generations:
    """Generations of rows sorted by pointer, then time. first: each pointer's first row."""
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
    """Generations of bio pointers, and each row's request generation (-1: none).

    Roles are record kinds, PARENT, REST and FORETOLD. request_of_event: request generation by event
    index; absorbed, issued: by request generation; nobodys: request events whose bios do not
    count.
    """
    event, pointer, role, slot = _mentions(events, nobodys)
    order = np.argsort(event, kind="stable")
    order = order[stable_order(pointer[order])]
    event, pointer, role, slot = event[order], pointer[order], role[order], slot[order]
    named = is_in(role, *_HEAD_KINDS, Kind.G, Kind.M, Kind.F)
    request = np.where(named, request_of_event[event], -1)
    first = np.ones(len(event), dtype=np.bool_)
    first[1:] = pointer[1:] != pointer[:-1]
    before = np.where(first, 0, np.roll(role, 1)).astype(np.uint8)
    foretold = foretells(events, event, role, before, context)
    if foretold.any():
        role = np.where(foretold, np.uint8(FORETOLD), role)
        before = np.where(first, 0, np.roll(role, 1)).astype(np.uint8)
    begins = first | _begins_by_role(role, before)
    begins |= (role == Kind.A) & ~resubmitted(events, event, before)
    moved = events.sector[event] != events.sector[np.roll(event, 1)]
    begins |= (role == Kind.Q) & (before == Kind.A) & moved
    # Only a remap takes a bio to another device.
    dev = events.dev[event]
    begins |= (role != Kind.A) & (dev != np.roll(dev, 1))
    begins &= ~sent_on_unseen(events, event, before, context)
    begins |= _outside(events, event, role, before, context)
    taken = _taken_unseen(events, event, role, before, slot, request, issued)
    begins |= _changes_request(role, before, request, absorbed) & ~taken
    return build(events, pointer, event, role, slot, begins, first), request


def _begins_by_role(role: U8, before: U8) -> Bool:
    served = (Kind.START, Kind.M, Kind.F, Kind.I, Kind.RQ_MERGE, Kind.D, Kind.C)
    over = is_in(before, *served, Kind.BIO_COMPLETE)
    begins = (role == Kind.X) | ((role == Kind.Q) & (before != Kind.A))
    begins |= is_in(role, Kind.G, Kind.M, Kind.F) & (over | (before == Kind.G))
    begins |= is_in(role, Kind.START, PARENT, REST) & over
    begins |= (role == Kind.BIO_COMPLETE) & over
    begins |= (before == Kind.BIO_COMPLETE) & is_in(role, *served)
    return np.asarray(begins, dtype=np.bool_)


def _changes_request(role: U8, before: U8, request: I64, absorbed: Bool) -> Bool:
    """A bio cannot change its request, but for one that was absorbed before its issue."""
    previous = np.roll(request, 1)
    differs = (request >= 0) & (previous >= 0) & (request != previous) & (before != 0)
    if not len(absorbed):
        return np.asarray(differs, dtype=np.bool_)
    moved = absorbed[np.maximum(previous, 0)] & is_in(
        before, Kind.G, Kind.M, Kind.F, Kind.START, Kind.I, Kind.RQ_MERGE
    )
    return np.asarray(differs & ~moved & (role != PARENT), dtype=np.bool_)


def _outside(events: Events, event: I64, role: U8, before: U8, context: Context) -> Bool:
    """Whether what joins or issues a bio cannot be of it: its address lives again, unseen.

    What goes to a request was queued with its sectors and its operation, and is issued with
    them; but a request of discards holds ranges that lie apart, and the kernel can make
    writes of zone appends.
    """
    discard = np.uint32(context.op_number("discard") % 256)
    append = np.uint32(context.op_number("zone_append") % 256)
    joins = is_in(role, Kind.G, Kind.M, Kind.F, Kind.START) & is_in(before, Kind.Q, Kind.A, Kind.X)
    issued = (role == Kind.D) & is_in(before, Kind.G, Kind.M, Kind.F)
    # What took its request over has what that had.
    later = is_in(role, Kind.I, Kind.D, Kind.C, Kind.RQ_MERGE)
    issued |= later & is_in(before, Kind.RQ_MERGE, Kind.X)
    rows = np.flatnonzero(joins | issued)
    outer = np.where(issued[rows], event[rows], event[rows - 1])
    inner = np.where(issued[rows], event[rows - 1], event[rows])
    there = (events.bytes[outer] > 0) & (events.bytes[inner] > 0)
    there |= (before[rows] == Kind.RQ_MERGE) & (events.bytes[inner] > 0)
    op, other = events.opf[outer] & 0xFF, events.opf[inner] & 0xFF
    apart = issued[rows] & (op == discard)
    before_it = events.end(inner) <= events.sector[outer]
    behind_it = events.sector[inner] >= events.end(outer)
    elsewhere = (before_it | behind_it) & ~apart
    changed = (op != other) & (op != append) & (other != append)
    result = np.zeros(len(event), dtype=np.bool_)
    result[rows] = there & (elsewhere | changed)
    return result


def _taken_unseen(
    events: Events, event: I64, role: U8, before: U8, slot: I64, request: I64, issued: Bool
) -> Bool:
    """D: whether a bio that waited in a request of its own came here by a merge, whose m is lost.

    Its own request was never issued, and what it had lies within what this one issues.
    """
    result = np.zeros(len(event), dtype=np.bool_)
    waits = is_in(before, Kind.G, Kind.START, Kind.I)
    rows = np.flatnonzero((role == Kind.D) & (slot > 0) & waits)
    own = request[rows - 1]
    waits = own >= 0
    rows, own = rows[waits], own[waits]
    rows = rows[~issued[own]] if len(issued) else rows
    now, then = event[rows], event[rows - 1]
    inside = events.lie_within(then, now)
    result[rows] = inside & (events.opf[now] & 0xFF == events.opf[then] & 0xFF)
    return result


def _mentions(events: Events, nobodys: Bool) -> tuple[I64, U64, U8, I64]:
    """Every (event, bio pointer, role, place in the chain)."""
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
    found, member, place = _member_rows(events)
    return (
        np.concatenate([plain, splits, issue, found]),
        np.concatenate([events.bio[plain], parents, bio, member]),
        np.concatenate(
            [
                np.where(rest[plain], np.uint8(REST), events.kind[plain]),
                np.full(len(splits), PARENT, np.uint8),
                np.full(len(issue), Kind.D, np.uint8),
                events.kind[found],
            ]
        ),
        np.concatenate([np.zeros(len(plain) + len(splits), np.int64), slot, place]),
    )


def _rest_splits(events: Events) -> Bool:
    """X events that name what is left instead of the front piece: dm since 6.1.

    The split's sector, 32 bits of it, is where the rest begins.
    """
    result = np.zeros(len(events), dtype=np.bool_)
    rows = events.rows(Kind.X)
    result[rows] = events.fields(Kind.X, rows)["new_sector"] == events.sector[rows] & _LOW
    return result


def _member_rows(events: Events) -> tuple[I64, U64, I64]:
    """Bios that intervals found in a request: (index of the event, pointer, place from 1)."""
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
    """Bios after the head of every issued chain: (index of D, bio pointer, place from 1)."""
    chains = events.rows(Kind.CHAIN)
    owner, place = chain_owners(events, chains)
    chains, place, owner = chains[owner >= 0], place[owner >= 0], owner[owner >= 0]
    bios = events.raw[chains, 2 : 2 + CHAIN_SLOTS]
    rank = 1 + place[:, None] * CHAIN_SLOTS + np.arange(CHAIN_SLOTS)
    used = (bios != 0) & (bios >> _COUNT_BIT != 1)
    issue = np.broadcast_to(owner[:, None], bios.shape)
    return issue[used], bios[used], rank[used]


def chain_others(events: Events) -> tuple[I64, I64]:
    """Bios that the filters left out of issued requests: (index of D, how many)."""
    chains = events.rows(Kind.CHAIN)
    owner, _ = chain_owners(events, chains)
    slots = events.raw[chains, 2 : 2 + CHAIN_SLOTS]
    counts = np.where(slots >> _COUNT_BIT == 1, slots & _LOW, 0).sum(axis=1).astype(np.int64)
    told = (owner >= 0) & (counts > 0)
    return owner[told], counts[told]


def chain_owners(events: Events, chains: I64) -> tuple[I64, I64]:
    """For each CHAIN row: the index of its D (-1: none) and which of its records it is.

    A D and its CHAIN records leave the kernel together, with one timestamp.
    """
    if not len(chains):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    issues = events.rows(Kind.D)
    owner = _latest(events, issues, chains)
    # Two rings can hold issues of one nanosecond: then the next one back is meant.
    for _ in range(len(issues)):
        wrong = (owner >= 0) & (events.rq[owner] != events.rq[chains])
        wrong &= events.ts[owner] == events.ts[chains]
        if not wrong.any():
            break
        owner[wrong] = _latest(events, issues, owner[wrong])
    right = (owner >= 0) & (events.ts[owner] == events.ts[chains])
    right &= events.rq[owner] == events.rq[chains]
    place = chains - owner - 1
    return np.where(right, owner, -1), place


def _latest(events: Events, issues: I64, before: I64) -> I64:
    """The last of `issues` (ascending) before each event; -1: none."""
    at = np.searchsorted(issues, before) - 1
    return np.where(at >= 0, issues[np.maximum(at, 0)] if len(issues) else -1, -1)
