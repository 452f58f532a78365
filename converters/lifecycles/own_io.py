# SPDX-License-Identifier: Apache-2.0
"""The recording's own I/O: marks its bios and requests, and removes them from tables and events.

A bio is the recording's own if its Q has the flag Q_FLAG_OWN, or if it was made for an own bio of
an upper device. A request is own if all of its bios are; a request shared with other bios stays.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import NEVER, OwnIo
from biotrail.converters.lifecycles.windows import restricted

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.result import Result


def without_own(result: "Result") -> "tuple[Result, OwnIo | None]":
    """Return a copy of the result whose tables leave out own bios and requests, and these.

    None: there are none but open ones. Their edges, stages and rows of `path` go, too, with own
    calls and waits. Remaining requests count the pieces of own bios in `others` instead of `bios`.
    An open own request stays until it is issued: bios that are not own may still merge into it.
    """
    bios, requests, edges = result.bios, result.requests, result.edges
    ours = np.isin(edges.bio, bios.number[bios.own])
    own = None
    if bios.own.any() or requests.own.any():
        own = OwnIo(bios.take(bios.own), requests.take(requests.own), edges.take(ours))
    shared = np.searchsorted(requests.number, edges.request[ours])
    gone = np.bincount(shared, minlength=len(requests)).astype(np.uint32)
    requests = replace(requests, bios=requests.bios - gone, others=requests.others + gone)
    found = restricted(
        replace(result, requests=requests),
        ~bios.own,
        ~requests.own,
        ~result.open_bios.own,
        ~(result.open_requests.own & (result.open_requests.issue != NEVER)),
    )
    if found.path is not None:
        calls, waits = found.path.calls, found.path.waits
        calls, waits = calls.take(~calls.own), waits.take(~waits.own)
        found.path = replace(found.path, calls=calls, waits=waits)
    return found, own


class OwnEventFilter:
    """A queue of time-sorted events, held until it is known which of them are own."""

    def __init__(self) -> None:
        self._waiting = Events.empty()
        self._own = np.zeros(0, np.int64)

    def release(self, fresh: Events, result: "Result", most: int) -> Events:
        """Add `fresh` events to the queue; remove and return those whose owner is decided, by time.

        Events of own I/O are dropped. Events wait from the first one on of which it is open whether
        it is own (`Result.own_numbers`). fresh: the events that are new in the window `result`.
        most: if as many events wait, all are decided by what is known now.
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
