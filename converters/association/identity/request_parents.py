# SPDX-License-Identifier: Apache-2.0
"""Requests upon requests: request-based dm (multipath) hands its request on as another one.

`a` names the lower request, and of the upper one only the device, sector, size and operation.
The upper request was issued just before, and each issue is handed on once at most: so the
issue that fits and was not answered yet is meant. Several that fit: none is taken.
"""

from collections import defaultdict

import numpy as np

from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.context import OP_MASK
from biotrail.recorder.schema.records import Kind

Place = tuple[int, int, int, int]
"""dev, sector, bytes, operation."""


class _Issued:
    """Issues of upper requests that no `a` has answered, by what `a` says of them."""

    def __init__(self) -> None:
        self._at: dict[Place, dict[int, int]] = defaultdict(dict)
        """Place to pointer to request."""
        self._place: dict[int, Place] = {}

    def issue(self, pointer: int, request: int, place: Place) -> None:
        """The request waits to be handed on; an older one at its address has gone."""
        self.over(pointer)
        self._at[place][pointer] = request
        self._place[pointer] = place

    def over(self, pointer: int) -> None:
        """It was handed on, given back or completed."""
        place = self._place.pop(pointer, None)
        if place is not None:
            del self._at[place][pointer]

    def fitting(self, place: Place) -> dict[int, int]:
        """Pointer to request of those that could be meant."""
        return dict(self._at.get(place, {}))


def request_parents(a: Association) -> None:
    """Fills `a.above`, and `a.rival_above` where several upper requests fit."""
    handed = a.events.rows(Kind.RQ_REMAP)
    if not len(handed):
        return
    source = a.events.fields(Kind.RQ_REMAP, handed)
    stacked = np.unique(source["from_dev"])
    rows = np.flatnonzero(np.isin(a.requests.row_role, (Kind.D, Kind.R, Kind.C)))
    rows = rows[np.isin(a.events.dev[a.requests.row_event[rows]], stacked)]
    below = np.flatnonzero(a.requests.row_role == Kind.RQ_REMAP)
    rows = np.concatenate([rows, below])
    rows = rows[np.argsort(a.requests.row_event[rows], kind="stable")]
    event, request = a.requests.row_event[rows], a.requests.row_gen[rows]
    dev, sector = a.events.dev[event], a.events.sector[event]
    remaps = a.requests.row_role[rows] == Kind.RQ_REMAP
    told = a.events.fields(Kind.RQ_REMAP, event[remaps])
    dev[remaps], sector[remaps] = told["from_dev"], told["from_sector"]
    columns = (
        a.requests.row_role[rows],
        a.requests.pointer[request],
        request,
        dev,
        sector,
        a.events.bytes[event],
        a.events.opf[event] & OP_MASK,
    )
    issued = _Issued()
    for role, pointer, gen, *place in zip(*(c.tolist() for c in columns), strict=True):
        where = (place[0], place[1], place[2], place[3])
        if role == Kind.D:
            issued.issue(pointer, gen, where)
        elif role == Kind.RQ_REMAP:
            _hand_on(a, issued, gen, where)
        else:
            issued.over(pointer)


def _hand_on(a: Association, issued: _Issued, lower: int, where: Place) -> None:
    found = issued.fitting(where)
    a.rival_above += [(lower, upper) for upper in found.values()]
    if len(found) == 1:
        pointer, a.above[lower] = next(iter(found.items()))
        issued.over(pointer)
