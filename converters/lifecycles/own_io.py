# SPDX-License-Identifier: Apache-2.0
"""The recording's own I/O: marks its bios and requests, and removes them from tables and events.

A bio is the recording's own if its Q has the flag Q_FLAG_OWN, or if it was made for an own bio of
an upper device. A request is own if all of its bios are; a request shared with other bios stays.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    OwnIo,
    Stages,
)
from biotrail.recorder.schema.records import Q_FLAG_OWN, Kind

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import PathTables
    from biotrail.converters.lifecycles.result import Result


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


def _path_without(result: "Result") -> "PathTables | None":
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
    return stages.take(~np.isin(stages.owner, owners))
