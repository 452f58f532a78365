# SPDX-License-Identifier: Apache-2.0
"""The events behind chosen bios: those of the bios, of their pieces and of their requests.

The window in which a bio is returned as ended has all of its events, because the events of bios
in flight are passed on to the next window; so no state is needed between windows.
"""

from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.association.identity.association import Association, edges_of_rows
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, NEVER, SECTOR_BYTES, Bool
from biotrail.converters.lifecycles.result import Histories
from biotrail.recorder.schema.records import Kind

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.lifecycles import Modelled


def histories(result: "Modelled", bios: I64) -> tuple[Histories, Events]:
    """Return `Result.histories` of a window that the model associated."""
    a = result.association
    own_bio, own_event = _bio_events(a, result.bio_number, bios)
    request_bio, request, event = _request_events(a, result, bios)
    # An event that names bio and request is listed once, as the request's: the sort is stable
    # and the requests' rows come first.
    bio = np.concatenate([request_bio, own_bio])
    about = np.concatenate([request, np.full(len(own_bio), NEVER, dtype=np.int64)])
    event = np.concatenate([event, own_event])
    order = np.lexsort((np.arange(len(bio)), event, bio))
    bio, about, event = bio[order], about[order], event[order]
    new = np.ones(len(bio), dtype=np.bool_)
    new[1:] = (bio[1:] != bio[:-1]) | (event[1:] != event[:-1])
    return Histories(bio[new], about[new], event[new]), a.events


def _bio_events(a: Association, number: I64, bios: I64) -> tuple[I64, I64]:
    """Return (bio number, event index) of all events that name the bios or their pieces."""
    rows = np.flatnonzero(np.isin(number, bios)[a.bios.row_gen]) if len(number) else a.bios.row_gen
    return number[a.bios.row_gen[rows]], a.bios.row_event[rows]


def _request_events(a: Association, result: "Modelled", bios: I64) -> tuple[I64, I64, I64]:
    """Return (bio number, request number, event row) of all events of the bios' requests.

    bios: values of `Bios.number`. The requests are those that held any piece of the bios at any
    time (`_request_pairs`); a request of several of the bios is listed for each. Three int64 arrays
    of one length, by bio, then request; event rows index the window's events.
    """
    piece, request = _request_pairs(a, np.isin(result.bio_number, bios))
    if not len(piece):
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    pairs = np.stack([result.bio_number[piece], request])
    bio, gen = np.unique(pairs, axis=1)
    start = a.requests.start[gen]
    count = a.requests.ends[gen] - start
    row = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(count.sum())
    number = result.request_number[gen]
    return np.repeat(bio, count), np.repeat(number, count), a.requests.row_event[row]


def _request_pairs(a: Association, ours: Bool) -> tuple[I64, I64]:
    """Return (bios, requests): pairs of a bio in the mask `ours` and a request that held it.

    Both int64, indices of bios and requests of the association `a`, where each use of a kernel
    address counts as one (a generation). A request counts if an event names it with the bio, if it
    served the bio in the end, or if it was merged into that request and had the bio before. Pairs
    may repeat.
    """
    named, by = edges_of_rows(a)
    served = np.flatnonzero((a.request >= 0) & ours)
    absorbed_bio, absorbed_request = _absorbed_requests(a, served)
    chosen = ours[named]
    return (
        np.concatenate([named[chosen], served, absorbed_bio]),
        np.concatenate([by[chosen], a.request[served], absorbed_request]),
    )


def _absorbed_requests(a: Association, served: I64) -> tuple[I64, I64]:
    """Return (bios, requests): pairs of a bio and a request that was merged with the bio in it.

    The pairs are found by range: the merge (m) came after the bio began, covers the bio's sector,
    and is into the request that served the bio. Where requests are merged one after the other, no
    event names the bio together with those in between. served, and both results: indices of bios
    and requests of the association; those of `served` have a request.
    """
    event = a.requests.first(Kind.RQ_MERGE)
    absorbed = np.flatnonzero((a.absorbed_by >= 0) & (event >= 0))
    absorbed = absorbed[np.isin(a.absorbed_by[absorbed], a.request[served])]
    pairs: list[tuple[int, int]] = []
    for request in absorbed.tolist():
        m = int(event[request])
        begin = int(a.events.sector[m])
        end = begin + int(a.events.bytes[m]) // SECTOR_BYTES
        sector = a.facts.piece_sector[served]
        inside = (a.request[served] == a.absorbed_by[request]) & (sector >= begin) & (sector < end)
        inside &= a.bios.birth[served] < m
        pairs += [(bio, request) for bio in served[inside].tolist()]
    found = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return found[:, 0], found[:, 1]
