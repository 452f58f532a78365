# SPDX-License-Identifier: Apache-2.0
"""Bios, requests and the links that their events name: exact joins on (address, generation).

What events do not name is left to the steps that follow (`association/steps.py`).
"""

import numpy as np

from biotrail.converters.association.identity.address_reuse import ReusedAddresses
from biotrail.converters.association.identity.association import (
    Association,
    Findings,
    split_links,
)
from biotrail.converters.association.identity.bio_generations import bio_generations
from biotrail.converters.association.identity.facts import bio_facts
from biotrail.converters.association.identity.generations import Generations
from biotrail.converters.association.identity.request_generations import request_generations
from biotrail.converters.association.identity.request_rows import Operations
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, OP_MASK, Bool
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Kind


def join_identities(events: Events, context: Context, reused: ReusedAddresses) -> Association:
    """Return the bios and requests of one window of time-sorted events, with links by name alone.

    `request`, `root` and the facts are set. `absorbed_by`, `upper` and `above` are -1, `certainty`
    is 0, `completion_lost` is False, and there are no rivals: later steps find these.

    reused: what earlier windows recorded about reused addresses of the generations they kept.
    """
    requests = request_generations(events, Operations.of(context))
    requests = reused.requests.superseding(events, requests)
    request_of_event = np.full(len(events), -1, dtype=np.int64)
    request_of_event[requests.row_event] = requests.row_gen
    bios, row_request = bio_generations(
        events,
        request_of_event,
        requests.first(Kind.RQ_MERGE) >= 0,
        requests.first(Kind.D) >= 0,
        _never_queued(events, requests, request_of_event, context),
        context,
    )
    bios = reused.bios.superseding(events, bios)
    return Association(
        events=events,
        requests=requests,
        bios=bios,
        row_request=row_request,
        facts=bio_facts(events, bios),
        request=_last_request(bios, row_request),
        certainty=np.zeros(len(bios), dtype=np.uint8),
        root=_roots(bios),
        absorbed_by=np.full(len(requests), -1, dtype=np.int64),
        upper=np.full(len(bios), -1, dtype=np.int64),
        completion_lost=np.zeros(len(bios), dtype=np.bool_),
        above=np.full(len(requests), -1, dtype=np.int64),
    )


def _last_request(bios: Generations, row_request: I64) -> I64:
    """Return each bio's request: that of its last D, else of its last event with one, or -1."""
    result = np.full(len(bios), -1, dtype=np.int64)
    named_row = np.flatnonzero(row_request >= 0)
    result[bios.row_gen[named_row]] = row_request[named_row]
    issued_row = named_row[bios.row_role[named_row] == Kind.D]
    result[bios.row_gen[issued_row]] = row_request[issued_row]
    return result


def _roots(bios: Generations) -> I64:
    """Return per bio (b,) the bio that was queued, following X (front piece → parent) to its end.

    A bio that is no front piece is its own; so are those on a cycle of X, which damage can make.
    """
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


def _never_queued(
    events: Events, requests: Generations, request_of_event: I64, context: Context
) -> Bool:
    """Return, per event (n,), whether it is of a request whose bios were never queued.

    Such are the bios of passthrough requests, and of dm's clones of requests, which have an `a`;
    False for events without a request. request_of_event: request generation of each event, or -1.
    """
    own = [context.op_number(name) for name in sorted(PASSTHROUGH_OPS)]
    never = (request_of_event >= 0) & np.isin(events.opf & OP_MASK, own)
    cloned = requests.first(Kind.RQ_REMAP) >= 0
    if cloned.any():
        never |= take_or(cloned, request_of_event, False)
    return np.asarray(never, dtype=np.bool_)


def exclude_by_chains(a: Association) -> Findings:
    """Find the bios that no D names, and that the complete chain of their request's D excludes.

    These get no request, and `completion_lost`. Bios of a request are left alone if it has no D, or
    if the chain of any of its D was cut (D_FLAG_CHAIN_CUT) or has no head. Finds nothing without
    pointers, where chains are guesses.
    """
    issue = a.requests.first(Kind.D)
    bio = np.flatnonzero((a.request >= 0) & (a.bios.first(Kind.D) < 0))
    bio = bio[issue[a.request[bio]] >= 0]
    if not len(bio) or a.events.doubt is not None:
        return Findings()
    rows = np.flatnonzero(a.requests.row_role == Kind.D)
    flags = a.events.field(Kind.D, "flags", a.requests.row_event[rows])
    has_head = a.events.bio[a.requests.row_event[rows]] != 0
    open_ended = np.zeros(len(a.requests), dtype=np.bool_)
    open_ended[a.requests.row_gen[rows[((flags & D_FLAG_CHAIN_CUT) != 0) | ~has_head]]] = True
    bio = bio[~open_ended[a.request[bio]]]
    request, completion_lost = a.request.copy(), a.completion_lost.copy()
    request[bio] = -1
    completion_lost[bio] = True
    return Findings(request=request, completion_lost=completion_lost)


def identity_certainty(a: Association) -> Findings:
    """Find each bio's certainty: the least certain of its events and of its request's events.

    Finds nothing if there are no bios, or if identities are the kernel's pointers
    (`Events.doubt` is None).
    """
    if a.events.doubt is None or not len(a.bios):
        return Findings()
    certainty = np.maximum.reduceat(a.events.doubt[a.bios.row_event], a.bios.start)
    if len(a.requests):
        doubt = np.maximum.reduceat(a.events.doubt[a.requests.row_event], a.requests.start)
        served = a.request >= 0
        certainty[served] = np.maximum(certainty[served], doubt[a.request[served]])
    return Findings(certainty=certainty)
