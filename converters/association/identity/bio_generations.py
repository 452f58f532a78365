# SPDX-License-Identifier: Apache-2.0
"""Split the events of each bio address into generations: one per bio that had the address.

Rows are mentions: an event, and an address that it names. `bio_rules` says where a generation
begins.
"""

import numpy as np

from biotrail.converters.association.identity.bio_rules import BIO_RULES, BioRows
from biotrail.converters.association.identity.chains import chain_rows
from biotrail.converters.association.identity.generations import (
    EARLY_COMPLETE,
    PARENT,
    REST,
    Generations,
    build,
)
from biotrail.converters.association.identity.neighbours import begins_by
from biotrail.converters.association.identity.nvme_multipath import early_completions
from biotrail.converters.events.array_steps import is_first_of_run, value_before
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in, stable_order
from biotrail.converters.events.tables import I64, U8, U64, Bool
from biotrail.recorder.schema.records import Kind

_BIO_KINDS = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A, Kind.BIO_COMPLETE)
_HEAD_KINDS = (Kind.START, Kind.I, Kind.RQ_MERGE, Kind.D, Kind.C)
_LOW = np.uint64(0xFFFFFFFF)


def bio_generations(
    events: Events,
    request_of_event: I64,
    absorbed: Bool,
    issued: Bool,
    never_queued: Bool,
    context: Context,
) -> tuple[Generations, I64]:
    """Return (generations of bio addresses, request generation of each of their rows or -1).

    A generation is one use of a bio's address; a row is an event that mentions the address, sorted
    by address, then time. A row has a request if its event mentions both: s, I, D, C, m; G, M and F
    where these report it.

    request_of_event: (n,) request generation of each event, or -1. absorbed, issued: (q,) whether
    each request generation has an m, a D. never_queued: (n,) True for request events whose bios
    were never queued; these get no rows. context: operations, flags and devices of the log.
    """
    event, pointer, role, slot = _mentions(events, never_queued)
    order = np.argsort(event, kind="stable")
    order = order[stable_order(pointer[order])]
    event, pointer, role, slot = event[order], pointer[order], role[order], slot[order]
    named = is_in(role, *_HEAD_KINDS, Kind.G, Kind.M, Kind.F)
    request = np.where(named, request_of_event[event], -1)
    first = is_first_of_run(pointer)
    before = value_before(role, first)
    early = early_completions(events, event, role, before, context)
    if early.any():
        role = np.where(early, np.uint8(EARLY_COMPLETE), role)
        before = value_before(role, first)
    table = BioRows(events, event, role, before, slot, request, absorbed, issued, context)
    begins = first | begins_by(BIO_RULES, table)
    return build(events, pointer, event, role, slot, begins, first), request


def _mentions(events: Events, never_queued: Bool) -> tuple[I64, U64, U8, I64]:
    """Return each mention of a bio: (event, bio pointer, role, place in the chain), (k,) each.

    Not sorted. An event mentions its bio (of a request, the head), an X also the bio that was split
    (PARENT), and a D also the bios of its CHAIN records. The place is 0 but for bios behind the
    head of an issued chain, and for further bios that `without_pointers` found in a request. An X
    that reports the remainder (`_rest_splits`) mentions that bio alone, with role REST. Left out
    are the heads and chains of events in the mask `never_queued` (n,).
    """
    plain = events.rows(*_BIO_KINDS, *_HEAD_KINDS)
    plain = plain[(events.bio[plain] != 0) & ~never_queued[plain]]
    rest = _rest_splits(events)
    splits = events.rows(Kind.X)
    splits = splits[~rest[splits]]
    parents = events.fields(Kind.X, splits)["parent"].astype(np.uint64)
    splits, parents = splits[parents != 0], parents[parents != 0]
    issue, bio, slot = chain_rows(events)
    counts = ~never_queued[issue]
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
    """Return the mask (n,) of X that report the remainder, not the front piece: dm since 6.1.

    There the record's new_sector (the sector where the remainder begins, low 32 bits) is the sector
    of the reported bio itself. False for other kinds.
    """
    result = np.zeros(len(events), dtype=np.bool_)
    rows = events.rows(Kind.X)
    result[rows] = events.fields(Kind.X, rows)["new_sector"] == events.sector[rows] & _LOW
    return result


def _member_rows(events: Events) -> tuple[I64, U64, I64]:
    """Return the bios, but the first, that `without_pointers` put into requests (`events.members`).

    Three arrays (k,): event (D or I) of the request, bio identity, place in the request, from 1.
    The first bio is left out as it is the head that the event itself names.
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
