# SPDX-License-Identifier: Apache-2.0
"""Who an event is about, by ranges: the one candidate, or the oldest of several, all in doubt."""

from collections.abc import Iterable
from typing import Any

from tests.reference.pending import (
    RefBio,
    RefDevice,
    RefRequest,
    Thing,
    share_tags,
)


class Candidates:
    """Bios, requests and devices as the events so far tell of them."""

    def __init__(self, one_queue: Iterable[int] = ()) -> None:
        """one_queue: the devices that have one hardware queue."""
        self.one_queue = frozenset(one_queue)
        self.devices: dict[int, RefDevice] = {}
        self.bios: list[RefBio] = []
        self.requests: list[RefRequest] = []
        self.sent: dict[int, RefBio] = {}
        """By task: the bio that its last event remapped."""
        self._age = 0

    def _one(self, candidates: Iterable[Any]) -> Any:
        """The oldest; none is sure where there are several."""
        found = list(candidates)
        if len(found) > 1:
            for thing in found:
                thing.doubt = True
            for use in ("flight", "life"):
                share_tags(use, [r for r in found if isinstance(r, RefRequest)])
        return found[0] if found else None

    def _blurred(self, d: RefDevice, e: Thing, rq: RefRequest) -> None:
        """Ranges of what waits are not sure near a merge that could have gone elsewhere."""
        waiting = d.held.all() + d.waiting.all()
        d.blurs = [b for b in d.blurs if any(r in waiting for r in b[2])]
        if any(lo < e.end and e.sector < hi for lo, hi, _ in d.blurs):
            rq.doubt = True

    def _parted(self, d: RefDevice, e: Thing, rq: RefRequest) -> None:
        """A part of one of several completed: where the others begin is not sure."""
        under_way = d.held.all() + d.issued.all()
        d.parted = [p for p in d.parted if any(r in under_way for r in p[2])]
        if any(lo < e.end and e.sector < hi for lo, hi, _ in d.parted):
            rq.doubt = True

    def _new_bio(self, e: Thing) -> RefBio:
        bio = RefBio(e.sector, e.end, e.op, e.tid, e.age, size=e.end - e.sector)
        self.bios.append(bio)
        return bio

    def _new_request(self, e: Thing, bio: RefBio | None = None) -> RefRequest:
        tid = e.tid if bio is None else bio.tid
        rq = RefRequest(e.sector, e.end, e.op, tid, e.age)
        self.requests.append(rq)
        if bio is not None:
            rq.doubt = rq.doubt or bio.doubt
            rq.flags = bio.flags
            self._serve(bio, rq)
        return rq
