# SPDX-License-Identifier: Apache-2.0
"""The events behind chosen bios: their own, their pieces' and their requests'.

A window in which a bio is given out holds all of its events, for what is under way is handed
on as events; so nothing has to be remembered from window to window.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.association import Association, edges_of_rows
from biotrail.converters.events.tables import I64, NEVER, SECTOR_BYTES, Bool, Table
from biotrail.converters.lifecycles.lifecycles import Result
from biotrail.recorder.schema.records import Kind


@dataclass
class Histories(Table):
    """One row per (bio, event), in the order of bio, then of time."""

    bio: I64
    """Bios.number of the chosen bio."""
    request: I64
    """Requests.number of the request that the event is about; NEVER: about the bio itself."""
    event: I64
    """Index in the window's events (`result.association.events`)."""


def histories(result: Result, bios: I64) -> Histories:
    """All events of the given bios (numbers) that the window closes or holds."""
    a = result.association
    own_bio, own_event = _own(a, result.bio_number, bios)
    request_bio, request, event = _of_requests(a, result, bios)
    # An event that names both is the request's: it stands once.
    bio = np.concatenate([request_bio, own_bio])
    about = np.concatenate([request, np.full(len(own_bio), NEVER, dtype=np.int64)])
    event = np.concatenate([event, own_event])
    order = np.lexsort((np.arange(len(bio)), event, bio))
    bio, about, event = bio[order], about[order], event[order]
    new = np.ones(len(bio), dtype=np.bool_)
    new[1:] = (bio[1:] != bio[:-1]) | (event[1:] != event[:-1])
    return Histories(bio[new], about[new], event[new])


def _own(a: Association, number: I64, bios: I64) -> tuple[I64, I64]:
    """(bio, event) of what names the bios or their pieces."""
    rows = np.flatnonzero(np.isin(number, bios)[a.bios.row_gen]) if len(number) else a.bios.row_gen
    return number[a.bios.row_gen[rows]], a.bios.row_event[rows]


def _of_requests(a: Association, result: Result, bios: I64) -> tuple[I64, I64, I64]:
    """(bio, request, event) of the requests that held any piece of the bios at any time."""
    piece, request = _held(a, np.isin(result.bio_number, bios))
    if not len(piece):
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    pairs = np.stack([result.bio_number[piece], request])
    bio, held = np.unique(pairs, axis=1)
    start = a.requests.start[held]
    count = a.requests.ends[held] - start
    row = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(count.sum())
    number = result.request_number[held]
    return np.repeat(bio, count), np.repeat(number, count), a.requests.row_event[row]


def _held(a: Association, ours: Bool) -> tuple[I64, I64]:
    """(bio generation, request) for those of the mask: by name, by outcome, or passing through."""
    named, by = edges_of_rows(a)
    served = np.flatnonzero((a.request >= 0) & ours)
    passed, through = _passed_through(a, served)
    chosen = ours[named]
    return (
        np.concatenate([named[chosen], served, passed]),
        np.concatenate([by[chosen], a.request[served], through]),
    )


def _passed_through(a: Association, served: I64) -> tuple[I64, I64]:
    """Absorbed requests that had the bios on their way, by the range of the merge: (bio, request).

    Where requests merge one after the other, nothing names a bio in those in between.
    """
    event = a.requests.first(Kind.RQ_MERGE)
    gone = np.flatnonzero((a.absorbed_by >= 0) & (event >= 0))
    gone = gone[np.isin(a.absorbed_by[gone], a.request[served])]
    pairs: list[tuple[int, int]] = []
    for request in gone.tolist():
        m = int(event[request])
        begin = int(a.events.sector[m])
        end = begin + int(a.events.bytes[m]) // SECTOR_BYTES
        sector = a.facts.piece_sector[served]
        inside = (a.request[served] == a.absorbed_by[request]) & (sector >= begin) & (sector < end)
        inside &= a.bios.birth[served] < m
        pairs += [(bio, request) for bio in served[inside].tolist()]
    found = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return found[:, 0], found[:, 1]
