# SPDX-License-Identifier: Apache-2.0
"""The recording's own I/O: marks its bios and requests, and removes them from tables and events.

A bio is the recording's own if its Q has the flag Q_FLAG_OWN, or if it was made for an own bio of
an upper device. A request is own if all of its bios are; a request shared with other bios stays.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.path_tables import PathTables
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bool,
    OwnIo,
    Stages,
)
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Q_FLAG_OWN, Kind

if TYPE_CHECKING:
    from biotrail.converters.association.completion.completion import RequestEnds
    from biotrail.converters.association.completion.families import Whole
    from biotrail.converters.association.identity.association import Association
    from biotrail.converters.lifecycles.lifecycles import Modelled
    from biotrail.converters.lifecycles.result import Result

_DEEPEST = 64
"""Limit of stacked devices that are followed; no kernel allows so many."""


@dataclass
class Own:
    """Masks of the recording's own I/O, by bio generation and by request generation."""

    bios: Bool
    requests: Bool

    def __bool__(self) -> bool:
        """Return whether any bio is own."""
        return bool(self.bios.any())


def own_io(a: "Association", whole: "Whole", ends: "RequestEnds") -> Own:
    """Return which bio and request generations of a window are the recording's own, as masks.

    Own is a bio whose Q has Q_FLAG_OWN, every piece that was split off it, and every bio that lower
    devices made for it, level by level (at most _DEEPEST); a request, if all its bios are known and
    own (`_own_requests`). All False if no Q has the flag.
    """
    queued = a.bios.first(Kind.Q)[whole.gen]
    rows = np.zeros(len(whole.gen), dtype=np.bool_)
    seen = np.flatnonzero(queued >= 0)
    if len(seen):
        rows[seen] = a.events.field(Kind.Q, "flags", queued[seen]) & Q_FLAG_OWN != 0
    if not rows.any():
        return Own(np.zeros(len(a.bios), np.bool_), np.zeros(len(a.requests), np.bool_))
    lower = np.flatnonzero(a.upper[whole.gen] >= 0)
    upper = whole.row_of_gen[a.upper[whole.gen[lower]]]
    for _ in range(_DEEPEST):
        further = lower[rows[upper] & ~rows[lower]]
        if not len(further):
            break
        rows[further] = True
    bios = rows[whole.row_of_gen]
    return Own(bios, _own_requests(a, ends, bios))


def _own_requests(a: "Association", ends: "RequestEnds", own: Bool) -> Bool:
    """Return per request generation whether it is the recording's own.

    own: per bio generation. A request is own if it has bios, all of them are known and own: at its
    last D no chain cut short (D_FLAG_CHAIN_CUT), none left out by filters. Without a D the bios so
    far decide, though others may still be merged into it. A request that was absorbed is judged
    instead by the known bios it had before or, if there is none, as the absorbing one. A lower
    device's request (request-based dm) is own by its bios, or if the upper one is.
    """
    from biotrail.converters.association.completion.completion import bios_left_out
    from biotrail.converters.association.identity.absorptions import request_before_merge

    flags = a.events.field(Kind.D, "flags", np.maximum(ends.last_issue, 0))
    cut = (ends.last_issue >= 0) & (flags & D_FLAG_CHAIN_CUT != 0)
    own_requests = (
        _all_own(a.request, own, len(a.requests)) & ~cut & (bios_left_out(a, ends.last_issue) == 0)
    )
    absorbed = np.flatnonzero(a.absorbed_by >= 0)
    if len(absorbed):
        before = request_before_merge(a)
        has_bios = np.bincount(before[before >= 0], minlength=len(a.requests)) > 0
        all_own = _all_own(before, own, len(a.requests))
        own_requests[absorbed] = np.where(
            has_bios[absorbed], all_own[absorbed], own_requests[a.absorbed_by[absorbed]]
        )
    above = np.flatnonzero(a.above >= 0)
    own_requests[above] |= own_requests[a.above[above]]
    return np.asarray(own_requests, dtype=np.bool_)


def _all_own(request: I64, own: Bool, count: int) -> Bool:
    """Return per request (count,) whether it has bios and all of them are own.

    request: per bio, index of its request, -1 none. own: per bio, whether it is own.
    """
    bio = np.flatnonzero(request >= 0)
    bios = np.bincount(request[bio], minlength=count)
    ours = np.bincount(request[bio[own[bio]]], minlength=count)
    return np.asarray((bios > 0) & (bios == ours), dtype=np.bool_)


def without_own(result: "Result") -> "Result":
    """Return a copy of the result whose tables leave out own bios and requests.

    Their edges, stages and rows of `path` go, too, with own calls and waits. Remaining requests
    count the pieces of own bios in `others` instead of `bios`. An open own request stays until it
    is issued: bios that are not own may still merge into it. Open own bios, and own requests that
    are closed, are always left out.
    """
    bios, requests, edges = result.bios, result.requests, result.edges
    ours = np.isin(edges.bio, bios.number[bios.own])
    shared = np.searchsorted(requests.number, edges.request[ours])
    gone = np.bincount(shared, minlength=len(requests)).astype(np.uint32)
    requests = replace(requests, bios=requests.bios - gone, others=requests.others + gone)
    # A request that was not issued yet may still get bios of others by a merge.
    decided = result.open_requests.own & (result.open_requests.issue != NEVER)
    return replace(
        result,
        bios=bios.take(~bios.own),
        requests=requests.take(~requests.own),
        edges=edges.take(~ours),
        open_bios=result.open_bios.take(~result.open_bios.own),
        open_requests=result.open_requests.take(~decided),
        bio_stages=_stages_without(result.bio_stages, bios.number[bios.own]),
        request_stages=_stages_without(result.request_stages, requests.number[requests.own]),
        path=_path_without(result),
    )


def own_of(result: "Result") -> OwnIo | None:
    """Return the closed bios and requests that `without_own` leaves out; None: there are none."""
    bios, requests, edges = result.bios, result.requests, result.edges
    if not (bios.own.any() or requests.own.any()):
        return None
    ours = np.isin(edges.bio, bios.number[bios.own])
    return OwnIo(bios.take(bios.own), requests.take(requests.own), edges.take(ours))


def _path_without(result: "Result") -> PathTables | None:
    """Return the result's `path` without own calls, waits, bios (ended or open) and ended requests.

    None if it has none. A copy.
    """
    path = result.path
    if path is None:
        return None
    bios, still, requests = result.bios, result.open_bios, result.requests
    own_requests = requests.number[requests.own]
    return replace(
        path,
        calls=path.calls.take(~path.calls.own),
        waits=path.waits.take(~path.waits.own),
        bios=path.bios.take(~np.isin(path.bios.number, bios.number[bios.own])),
        interrupts=path.interrupts.take(~np.isin(path.interrupts.number, own_requests)),
        steps=path.steps.take(~np.isin(path.steps.number, own_requests)),
        open_bios=path.open_bios.take(~np.isin(path.open_bios.number, still.number[still.own])),
        held=path.held.take(~np.isin(path.held.number, bios.number[bios.own])),
        open_held=path.open_held.take(~np.isin(path.open_held.number, still.number[still.own])),
    )


def own_events(result: "Modelled") -> Bool:
    """Return per event of the window whether it belongs to own I/O and to no other.

    False for events of no bio or request (names, plugging); all False if no bio is own.
    """
    from biotrail.converters.association.completion.carry_over import events_of, named_events

    a = result.association
    if not result.own:
        return np.zeros(len(a.events), np.bool_)
    return named_events(a) & ~events_of(a, ~result.own.bios, ~result.own.requests)


def has_own(events: Events) -> bool:
    """Return whether any Q has the flag Q_FLAG_OWN."""
    flags = events.field(Kind.Q, "flags", events.rows(Kind.Q))
    return bool((flags & Q_FLAG_OWN != 0).any())


class OwnEventFilter:
    """A queue of time-sorted events, held until it is known which of them are own."""

    def __init__(self) -> None:
        self._waiting = Events.empty()
        self._own = np.zeros(0, np.int64)

    def release(self, fresh: Events, result: "Result", most: int) -> Events:
        """Add `fresh` events to the queue; remove and return those whose owner is decided, by time.

        Events of own I/O are dropped. Events wait from the first one on of which it is open whether
        it is own (`Result.own_numbers`). The final window has none such, so nothing waits after it.

        fresh: the events that are new in the window `result`. most: if as many events wait, `fresh`
        included, all are decided by what is known now, and returned.
        """
        own, undecided = result.own_numbers()
        self._waiting = Events.join([self._waiting, fresh])
        self._own = np.concatenate([self._own, own])
        edge = len(self._waiting)
        if len(undecided) and edge < most:
            edge = int(np.argmax(np.append(np.isin(self._waiting.number, undecided), True)))
            self._own = np.setdiff1d(self._own, undecided)
        ready, self._waiting = self._waiting.split(edge)
        ready = ready.take(~np.isin(ready.number, self._own))
        self._own = np.intersect1d(self._own, self._waiting.number)
        return ready


def _stages_without(stages: Stages, owners: I64) -> Stages:
    """Return the stages of all owners but these (numbers)."""
    return stages.take(~np.isin(stages.owner, owners))
