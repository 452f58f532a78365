# SPDX-License-Identifier: Apache-2.0
"""The upper request of each request that request-based dm (multipath) cloned onto a lower device.

`a` (block_rq_remap) names the lower request and, of the upper one, only device, sector, size and
operation. dm-rq issues the upper request just before, and maps each issue to a clone at most once.
So the upper request is an issue with that range and operation that no `a`, R or C has followed;
where several are, no parent is claimed.
"""

from collections import defaultdict

import numpy as np

from biotrail.converters.association.identity.association import Association, Findings
from biotrail.converters.events.tables import OP_MASK
from biotrail.recorder.schema.records import Kind

Place = tuple[int, int, int, int]
"""Device, sector, bytes and operation of an issue."""


class _Issued:
    """Issues on request-based dm devices that no `a`, R or C has followed yet, by `Place`."""

    def __init__(self) -> None:
        self._at: dict[Place, dict[int, int]] = defaultdict(dict)
        """By place: request generation by pointer."""
        self._place: dict[int, Place] = {}

    def issue(self, pointer: int, request: int, place: Place) -> None:
        """Add an issue; forget an earlier one at the same request pointer."""
        self.over(pointer)
        self._at[place][pointer] = request
        self._place[pointer] = place

    def over(self, pointer: int) -> None:
        """Remove the issue of this pointer, if any: it was mapped (`a`), requeued or completed."""
        place = self._place.pop(pointer, None)
        if place is not None:
            del self._at[place][pointer]

    def fitting(self, place: Place) -> dict[int, int]:
        """Return a copy of the issues at this place: request generation by request pointer."""
        return dict(self._at.get(place, {}))


def request_parents(a: Association) -> Findings:
    """Find `above` of each cloned request, where one upper request fits.

    One fits whose last D before the clone's `a` is on the device and with the sector, size and
    operation that the `a` names, if no R or C of it, nor an `a` that it alone fitted, came since.
    All (lower, upper) pairs that fit, also single ones, are found as `rival_above`. Finds nothing
    where there is no `a`.
    """
    remap_event = a.events.rows(Kind.RQ_REMAP)
    if not len(remap_event):
        return Findings()
    source = a.events.fields(Kind.RQ_REMAP, remap_event)
    stacked = np.unique(source["from_dev"])
    rows = np.flatnonzero(np.isin(a.requests.row_role, (Kind.D, Kind.R, Kind.C)))
    rows = rows[np.isin(a.events.dev[a.requests.row_event[rows]], stacked)]
    below = np.flatnonzero(a.requests.row_role == Kind.RQ_REMAP)
    rows = np.concatenate([rows, below])
    rows = rows[np.argsort(a.requests.row_event[rows], kind="stable")]
    event, request = a.requests.row_event[rows], a.requests.row_gen[rows]
    dev, sector = a.events.dev[event], a.events.sector[event]
    remaps = a.requests.row_role[rows] == Kind.RQ_REMAP
    # Of an `a`, the place is that of the upper request.
    upper = a.events.fields(Kind.RQ_REMAP, event[remaps])
    dev[remaps], sector[remaps] = upper["from_dev"], upper["from_sector"]
    columns = (
        a.requests.row_role[rows],
        a.requests.pointer[request],
        request,
        dev,
        sector,
        a.events.bytes[event],
        a.events.opf[event] & OP_MASK,
    )
    issued, above = _Issued(), a.above.copy()
    rivals: list[tuple[int, int]] = []
    for role, pointer, gen, *place in zip(*(c.tolist() for c in columns), strict=True):
        where = (place[0], place[1], place[2], place[3])
        if role == Kind.D:
            issued.issue(pointer, gen, where)
        elif role == Kind.RQ_REMAP:
            uppers = issued.fitting(where)
            rivals += [(gen, upper) for upper in uppers.values()]
            if len(uppers) == 1:
                upper_pointer, above[gen] = next(iter(uppers.items()))
                issued.over(upper_pointer)
        else:
            issued.over(pointer)
    return Findings(above=above, rival_above=tuple(rivals))
