# SPDX-License-Identifier: Apache-2.0
"""Which bios and requests of a window have ended, and which the next window must see again.

A window passes on all events of what has not ended, together with all that is linked to it, so that
the next window sees whole families again. Nothing else is remembered, apart from addresses that
were reused (`ReusedAddresses`).
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.completion.end_bounds import ends_between
from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.association import (
    Association,
    Rivals,
    edges_of_rows,
    split_links,
)
from biotrail.converters.association.identity.chains import chain_owners
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.tables import I64, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class Kept:
    """Masks of what the next window must see again.

    bios: (b,) and requests: (q,), by generation; events: (n,) rows of the window's events.
    """

    bios: Bool
    requests: Bool
    events: Bool


def keep(a: Association, ends: RequestEnds, whole: Whole, *, settled: int, final: bool) -> Kept:
    """Return masks of bios, requests and events that the next window must see again.

    Kept are bios and requests that have not ended, or of which it is still open between which times
    they ended, or with an event at `settled` (ns) or later, and all that is linked to one of them
    (`_links`); of events, those that mention one of these, and their CHAIN. A request has ended
    when it is finished or absorbed, its address or those of all its bios were reused, or it has C
    and no recorded size. A bio has ended when the queued bio that it is, or is a piece
    of, is complete or lost in `whole`. final: nothing is kept.
    """
    if final:
        return Kept(
            np.zeros(len(a.bios), np.bool_),
            np.zeros(len(a.requests), np.bool_),
            np.zeros(len(a.events), np.bool_),
        )
    ts = a.events.ts
    bios, requests = a.bios, a.requests
    closed = whole.complete | whole.lost
    open_bios = ~closed[whole.row_of_gen]
    open_requests = ~(ends.finished | requests.superseded | (requests.first(Kind.RQ_MERGE) >= 0))
    open_requests &= ~unanswered(a) & (a.absorbed_by < 0)
    # A request with C alone has no size to wait for: closed, as it may never show more.
    open_requests &= ~((ends.end >= 0) & (ends.total < 0))
    open_bios |= whole.bounds.pending[whole.row_of_gen]
    open_requests |= ends_between(a, ends.end).pending
    if len(bios):
        open_bios |= ts[bios.last_event] >= settled
    if len(requests):
        open_requests |= ts[requests.last_event] >= settled
    _spread(_links(a), open_bios, open_requests)
    return Kept(open_bios, open_requests, _rows_of(a, open_bios, open_requests))


def unanswered(a: Association) -> Bool:
    """Return, per request (q,), whether the addresses of all its bios were reused.

    Such a request has ended, with no C recorded. False for a request without known bios.
    """
    served = np.flatnonzero(a.request >= 0)
    count = np.bincount(a.request[served], minlength=len(a.requests))
    reused = np.bincount(a.request[served], a.bios.superseded[served], len(a.requests))
    return np.asarray((count > 0) & (reused == count), dtype=np.bool_)


def _links(a: Association) -> tuple[tuple[I64, I64], tuple[I64, I64], tuple[I64, I64]]:
    """Return pairs that must stay in one window: (bio, request), (bio, bio), (request, request).

    Each as two arrays of generations: a bio and a request that an event of it names or that served
    it; a front piece and the bio that it was split from, or that was queued; a clone and its upper
    bio; an absorbed request and the absorbing one; a cloned lower request and the upper one.
    Candidates that were considered for such a link are pairs too.
    """
    bio, request = edges_of_rows(a)
    served = np.flatnonzero(a.request >= 0)
    split = np.flatnonzero(a.root != np.arange(len(a.bios)))
    below = np.flatnonzero(a.upper >= 0)
    taken = np.flatnonzero(a.absorbed_by >= 0)
    named = split_links(a.bios)
    # Candidates stay with the bio or request that could not choose among them, to be candidates in
    # the next window too: its result must not depend on where windows are cut.
    doubts = _columns(a.rival_bios), _columns(a.rival_requests)
    lower, upper = _columns(a.rival_above)
    return (
        (
            np.concatenate([bio, served, doubts[1][0]]),
            np.concatenate([request, a.request[served], doubts[1][1]]),
        ),
        (
            np.concatenate([split, below, named[0], doubts[0][0]]),
            np.concatenate([a.root[split], a.upper[below], named[1], doubts[0][1]]),
        ),
        (np.concatenate([taken, lower]), np.concatenate([a.absorbed_by[taken], upper])),
    )


def _columns(pairs: Rivals) -> tuple[I64, I64]:
    """Return the first and the second member of each pair, as two arrays."""
    table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return table[:, 0], table[:, 1]


def _spread(
    links: tuple[tuple[I64, I64], tuple[I64, I64], tuple[I64, I64]],
    bios: Bool,
    requests: Bool,
) -> None:
    """Set the masks for everything that is linked to what they have, however far.

    links: as `_links` returns them. Changes `bios` (b,) and `requests` (q,).
    """
    (bio, request), (low, high), (taken, taker) = links
    while True:
        before = int(bios.sum()) + int(requests.sum())
        requests[request[bios[bio]]] = True
        bios[bio[requests[request]]] = True
        bios[low[bios[high]]] = True
        bios[high[bios[low]]] = True
        requests[taken[requests[taker]]] = True
        requests[taker[requests[taken]]] = True
        if int(bios.sum()) + int(requests.sum()) == before:
            return


def _rows_of(a: Association, bios: Bool, requests: Bool) -> Bool:
    """Return the mask (n,) of events that mention one of these bios or requests.

    bios: (b,), requests: (q,), masks of generations. With each D come its CHAIN records.
    """
    kept = np.zeros(len(a.events), dtype=np.bool_)
    kept[a.bios.row_event[bios[a.bios.row_gen]]] = True
    kept[a.requests.row_event[requests[a.requests.row_gen]]] = True
    chains = a.events.rows(Kind.CHAIN)
    owner, _ = chain_owners(a.events, chains)
    kept[chains] = take_or(kept, owner, False)
    return kept


def named_events(a: Association) -> Bool:
    """Return the mask of events that belong to any bio or request generation."""
    return events_of(a, np.ones(len(a.bios), np.bool_), np.ones(len(a.requests), np.bool_))


def events_of(a: Association, bios: Bool, requests: Bool) -> Bool:
    """Return the mask of events that belong to a bio or request generation of the given masks."""
    return _rows_of(a, bios, requests)
