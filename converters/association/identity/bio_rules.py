# SPDX-License-Identifier: Apache-2.0
"""Where a bio's generation begins, by the event before at the same address: the rules.

A generation is one use of a bio's address, from its allocation until it is freed. A row is an event
that mentions the address; its role is the event's kind, or PARENT, REST, EARLY_COMPLETE.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from biotrail.converters.association.identity.generations import PARENT, REST
from biotrail.converters.association.identity.neighbours import (
    NeighbourRule,
    Neighbours,
    Pairs,
    Roles,
    always,
    but,
    of,
)
from biotrail.converters.association.identity.remaps import queued_below_without_remap, resubmitted
from biotrail.converters.association.rules import Exemption
from biotrail.converters.events.array_steps import (
    is_operation,
    ranges_overlap,
    same_operation,
    take_or,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import I64, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class BioRows(Neighbours):
    """Mentions of bios (n,), sorted by bio address, then time.

    slot: place of the bio in the chain of a D, 0 for its head and for any other role. request:
    request generation that the row's event mentions as well, or -1. absorbed, issued: per request
    generation, whether it has an m, a D.
    """

    slot: I64
    request: I64
    absorbed: Bool
    issued: Bool
    context: Context

    @cached_property
    def resubmitted(self) -> Bool:
        """Per row (n,): whether it is an A that sends the bio of the row before on."""
        return resubmitted(self.events, self.event, self.before)

    @cached_property
    def queued_below(self) -> Bool:
        """Per row (n,): whether it is a Q of the bio of the Q before, on a lower device."""
        return queued_below_without_remap(self.events, self.event, self.before, self.context)


Bios = Pairs[BioRows]

_IN_REQUEST = (Kind.START, Kind.M, Kind.F, Kind.I, Kind.RQ_MERGE, Kind.D, Kind.C)
"""Roles of a bio that has its request. A bio gets one request, and its completion frees it."""
_HAD_REQUEST = of(*_IN_REQUEST, Kind.BIO_COMPLETE)
_WAITED = (Kind.G, Kind.START, Kind.I)


def _other_sector(p: Bios) -> Bool:
    """Return, per pair (k,), whether the two events begin at different sectors."""
    return np.asarray(p.events.sector[p.this] != p.events.sector[p.prev], dtype=np.bool_)


def _other_device(p: Bios) -> Bool:
    """Return, per pair (k,), whether the two events are of different devices."""
    return np.asarray(p.events.dev[p.this] != p.events.dev[p.prev], dtype=np.bool_)


def _outside(p: Bios, outer: I64, inner: I64) -> Bool:
    """Return, per pair (k,), whether events `inner` and `outer` have data and share no sector.

    outer, inner: (k,) the pair's two events, in either order. Where the pair's earlier row is an m
    (a merge of two requests; `p.before`), only `inner` needs data: an `outer` without data shares a
    sector if it lies inside of `inner`, not on its border.
    """
    events = p.events
    overlap = ranges_overlap(
        events.sector[inner], events.end(inner), events.sector[outer], events.end(outer)
    )
    return np.asarray(~overlap, dtype=np.bool_) & _with_data(p, outer, inner)


def _with_data(p: Bios, outer: I64, inner: I64) -> Bool:
    """Return, per pair (k,), whether events `inner` and, but after an m, `outer` have data."""
    outer_counts = (p.events.bytes[outer] > 0) | (p.before == Kind.RQ_MERGE)
    return np.asarray(outer_counts & (p.events.bytes[inner] > 0), dtype=np.bool_)


def _joined_outside(p: Bios) -> Bool:
    """Return, per pair (k,), whether the later event's sectors lie beside the earlier one's."""
    return _outside(p, p.prev, p.this)


def _served_outside(p: Bios) -> Bool:
    """Return, per pair (k,), whether the earlier event's sectors lie beside the later one's."""
    return _outside(p, p.this, p.prev)


def _other_operation(p: Bios) -> Bool:
    """Return, per pair (k,), whether both events have data and their operations differ."""
    differ = ~same_operation(p.events.opf[p.this], p.events.opf[p.prev])
    return differ & _with_data(p, p.this, p.prev)


def _zone_append(p: Bios) -> Bool:
    """Return, per pair (k,), whether one of the two events is of a zone append."""
    number = p.table.context.op_number("zone_append")
    opf = p.events.opf
    return is_operation(opf[p.this], number) | is_operation(opf[p.prev], number)


def _discard(p: Bios) -> Bool:
    """Return, per pair (k,), whether the later event is of a discard."""
    return is_operation(p.events.opf[p.this], p.table.context.op_number("discard"))


def _other_request(p: Bios) -> Bool:
    """Return, per pair (k,), whether both rows have a request, and not the same one."""
    request, previous = p.table.request[p.row], p.table.request[p.row - 1]
    return np.asarray((request >= 0) & (previous >= 0) & (request != previous), dtype=np.bool_)


def _request_absorbed(p: Bios) -> Bool:
    """Return, per pair (k,), whether the earlier row's request was absorbed before its issue."""
    waited = is_in(p.before, *_WAITED, Kind.M, Kind.F, Kind.RQ_MERGE)
    return waited & take_or(p.table.absorbed, p.table.request[p.row - 1], False)


def _absorption_lost(p: Bios) -> Bool:
    """Return, per pair (k,), whether the bio came into the issued request by an m that was lost.

    Such a bio is behind the head of the D's chain (the later row), its row before is a G, s or I of
    a request that was never issued, and that event has sectors within the D and its operation.
    """
    events, request = p.events, p.table.request[p.row - 1]
    moved = (p.role == Kind.D) & (p.table.slot[p.row] > 0) & is_in(p.before, *_WAITED)
    moved &= (request >= 0) & ~take_or(p.table.issued, request, False)
    moved &= events.lie_within(p.prev, p.this)
    moved &= same_operation(events.opf[p.this], events.opf[p.prev])
    return np.asarray(moved, dtype=np.bool_)


_QUEUED_BELOW: Exemption[Bios] = Exemption(
    "queued-below",
    lambda p: p.table.queued_below[p.row],
    "a `Q` of the same size and operation, on its partition or on a bio-based device that stands "
    "on this one, of which no clone was sent: only its `A` was lost",
)
_RESUBMITTED: Exemption[Bios] = Exemption(
    "resubmitted",
    lambda p: p.table.resubmitted[p.row],
    "a `Q` or `A` of the device it comes from, of its operation, that holds all its sectors",
)
_ZONE_APPEND = Exemption("zone-append", _zone_append, "a zone append")
_DISCARD = Exemption("discard", _discard, "a discard, whose request has ranges apart")

BIO_RULES: tuple[NeighbourRule[BioRows], ...] = (
    NeighbourRule(
        "queued",
        always,
        "",
        "submit_bio_noacct queues a bio once on each device; an `A` (partition, dm, md) comes just "
        "before its bio's `Q`",
        "seed 20764",
        unless=(_QUEUED_BELOW,),
        roles=of(Kind.Q),
        after=but(Kind.A),
    ),
    NeighbourRule(
        "queued-elsewhere",
        _other_sector,
        "to another sector",
        "the bio of the `A` is queued where that `A` sends it",
        "case",
        roles=of(Kind.Q),
        after=of(Kind.A),
    ),
    NeighbourRule(
        "remapped",
        always,
        "",
        "a clone is a new bio; otherwise the same bio goes on below (submit_bio_noacct)",
        "seed 21322",
        unless=(_RESUBMITTED,),
        roles=of(Kind.A),
    ),
    NeighbourRule(
        "other-device",
        _other_device,
        "of another device",
        "only a remap (`A`) changes bi_bdev",
        "case",
        unless=(_QUEUED_BELOW,),
        roles=but(Kind.A),
        after=but(),
    ),
    NeighbourRule(
        "split-off",
        always,
        "",
        "a front piece is a new bio (bio_split); where `X` names what is left (dm since 6.1: the "
        "split's sector is the bio's own), it is the bio itself",
        "seed 20764",
        roles=of(Kind.X),
    ),
    NeighbourRule(
        "joins-again",
        always,
        "",
        "a bio gets one request: it is a later bio, whose `Q` is missing",
        "seed 162",
        roles=of(Kind.G, Kind.M, Kind.F),
        after=Roles(_HAD_REQUEST.members | {Kind.G}),
    ),
    NeighbourRule(
        "starts-again",
        always,
        "",
        "likewise",
        "case",
        roles=of(Kind.START, PARENT, REST),
        after=_HAD_REQUEST,
    ),
    NeighbourRule(
        "completes-again",
        always,
        "",
        "request-based I/O has no `c` (bio_endio without BIO_TRACE_COMPLETION) but for NVMe "
        "multipath's, just before its request's `C` (nvme_trace_bio_complete), which is the bio's",
        "seed 128",
        roles=of(Kind.BIO_COMPLETE),
        after=_HAD_REQUEST,
    ),
    NeighbourRule(
        "served-after-completion",
        always,
        "",
        "a completed bio is freed (bio_endio)",
        "case",
        roles=of(*_IN_REQUEST),
        after=of(Kind.BIO_COMPLETE),
    ),
    NeighbourRule(
        "joins-outside",
        _joined_outside,
        "beside its sectors",
        "a bio is queued with all sectors that its request gets from it",
        "case",
        roles=of(Kind.G, Kind.M, Kind.F, Kind.START),
        after=of(Kind.Q, Kind.A, Kind.X),
    ),
    NeighbourRule(
        "joins-with-other-operation",
        _other_operation,
        "of another operation",
        "a bio keeps its operation; the kernel may turn a zone append into a write",
        "case",
        unless=(_ZONE_APPEND,),
        roles=of(Kind.G, Kind.M, Kind.F, Kind.START),
        after=of(Kind.Q, Kind.A, Kind.X),
    ),
    NeighbourRule(
        "issued-outside",
        _served_outside,
        "beside its sectors",
        "a bio lies within the issue of its request",
        "case",
        unless=(_DISCARD,),
        roles=of(Kind.D),
        after=of(Kind.G, Kind.M, Kind.F),
    ),
    NeighbourRule(
        "issued-with-other-operation",
        _other_operation,
        "of another operation",
        "a request has bios of one operation (blk_rq_merge_ok)",
        "case",
        unless=(_ZONE_APPEND,),
        roles=of(Kind.D),
        after=of(Kind.G, Kind.M, Kind.F),
    ),
    NeighbourRule(
        "served-outside",
        _served_outside,
        "beside its sectors",
        "the request that absorbed another has all its sectors (attempt_merge)",
        "case",
        unless=(_DISCARD,),
        roles=of(Kind.I, Kind.D, Kind.C, Kind.RQ_MERGE),
        after=of(Kind.RQ_MERGE, Kind.X),
    ),
    NeighbourRule(
        "served-with-other-operation",
        _other_operation,
        "of another operation",
        "only requests of one operation merge (attempt_merge)",
        "case",
        unless=(_ZONE_APPEND,),
        roles=of(Kind.I, Kind.D, Kind.C, Kind.RQ_MERGE),
        after=of(Kind.RQ_MERGE, Kind.X),
    ),
    NeighbourRule(
        "other-request",
        _other_request,
        "of another request",
        "a bio does not change its request, but by a merge of requests (attempt_merge)",
        "seed 128",
        unless=(
            Exemption("absorbed", _request_absorbed, "an event of a request with an `m`"),
            Exemption(
                "absorption-lost",
                _absorption_lost,
                "an event of a request that was not issued and lies within the `D` whose chain "
                "has the bio: its `m` was lost",
            ),
        ),
        roles=but(PARENT),
    ),
)
"""A row that any rule marks begins a generation; the first row of an address always does."""
