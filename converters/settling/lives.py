# SPDX-License-Identifier: Apache-2.0
"""What the settled, plain I/O of a window is asked for later: its addresses, and its events.

Only followed objects and the slowest I/Os ask for it, so nothing of it is made before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.plain_events import Owners
from biotrail.converters.events.tables import I64, Bool, EventRows
from biotrail.converters.lifecycles.lifecycles import Modelled
from biotrail.recorder.schema.records import Kind


class PlainLives:
    """The plain lives of one window. They can be asked until the next window is built."""

    def __init__(self, events: Events, lives: Any, model: Callable[[Events], Modelled]) -> None:
        """Keep references alone.

        events: the window's. lives: `plain.Lives`, after its families were found. model: what
        builds the tables of some families' events.
        """
        self._events = events
        self._model = model
        bios, requests = lives.counts()
        self._bios = lives.tables.bios[:bios]
        self._requests = lives.tables.requests[:requests]
        self._owner = lives.tables.owner[: len(events)]

    def bios(self) -> Owners:
        """Return the plain bios and their pieces, each piece with its bio's number."""
        bios = self._bios
        found = np.flatnonzero(bios.doubt == 0)
        first = np.maximum(bios.remap, bios.queue)
        first[bios.remap >= 0] = bios.remap[bios.remap >= 0]
        number = self._events.number[first[bios.root[found]]]
        fronts = self._events.rows(Kind.X)
        first[self._owner[fronts]] = fronts
        last = np.where(bios.ended[found] >= 0, bios.ended[found], self._last_of_pieces(found))
        return self._owners(bios.address[found], first[found], last, number)

    def _last_of_pieces(self, found: I64) -> I64:
        """Return the rows of the last events of bios that were in requests; others: no matter."""
        if not len(self._requests):
            return np.full(len(found), -1, np.int64)
        bios = self._bios
        request = self._requests[bios.request[found]]
        # C names the first bio of its request; of the others D, or a CHAIN with its time, is last.
        named = request.named == bios.address[found]
        last = np.where(named | (request.issue < 0), request.complete, request.issue)
        return np.asarray(last, np.int64)

    def requests(self) -> Owners:
        """Return the plain requests."""
        chosen = self._requests[self._requests.doubt == 0]
        first = first_rows(chosen)
        return self._owners(chosen.address, first, chosen.last, self._events.number[first])

    def _owners(self, address: I64, first: I64, last: I64, number: I64) -> Owners:
        """Return owners of addresses. first, last: rows of the first and the last event of each."""
        ts = self._events.ts
        return Owners(address.view(np.uint64).copy(), ts[first], ts[last], number)

    def has(self, numbers: I64) -> Bool:
        """Return per number whether it is that of a plain bio."""
        return np.isin(numbers, self._numbers()[1])

    def modelled(self, numbers: I64) -> Modelled:
        """Return what the model makes of the families of these plain bios (numbers) alone."""
        return self._model(self._events.take(self.rows(numbers)))

    def _numbers(self) -> tuple[I64, I64]:
        """Return the plain whole bios, as indices of lives, and their numbers."""
        bios = self._bios
        whole = np.flatnonzero((bios.doubt == 0) & (bios.root == np.arange(len(bios))))
        remap, queue = bios.remap[whole], bios.queue[whole]
        return whole, self._events.number[np.where(remap >= 0, remap, queue)]

    def rows(self, numbers: I64) -> EventRows:
        """Return the rows of all events of the families of these plain bios, ascending."""
        bios = self._bios
        whole, known = self._numbers()
        chosen = np.zeros(len(bios), np.bool_)
        chosen[whole[np.isin(known, numbers)]] = True
        served = np.zeros(len(self._requests), np.bool_)
        plain = np.flatnonzero(bios.doubt == 0)
        root, pieces = bios.root[plain], plain[bios.request[plain] >= 0]
        request = bios.request[pieces]
        lower = plain[bios.upper[plain] >= 0]
        upper = bios.upper[lower]
        while True:
            before = int(chosen.sum())
            served[request[chosen[pieces]]] = True
            chosen[pieces[served[request]]] = True
            chosen[root[chosen[plain]]] = True
            chosen[plain[chosen[root]]] = True
            chosen[upper[chosen[lower]]] = True
            chosen[lower[chosen[upper]]] = True
            if int(chosen.sum()) == before:
                break
        owner = self._owner
        of_bio, of_request = np.flatnonzero(owner >= 0), np.flatnonzero(owner < -1)
        rows = [of_bio[chosen[owner[of_bio]]], of_request[served[-2 - owner[of_request]]]]
        return np.sort(np.concatenate(rows))


def first_rows(requests: Any) -> I64:
    """Return per request (a table of `plain.Request`) the row of its first event: s, I, D or C."""
    later = np.where(requests.issue >= 0, requests.issue, requests.complete)
    later = np.where(requests.insert >= 0, requests.insert, later)
    return np.asarray(np.where(requests.start >= 0, requests.start, later), np.int64)
