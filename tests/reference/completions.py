# SPDX-License-Identifier: Apache-2.0
"""Which request a C completes, without identities."""

from typing import Any

from tests.reference.candidates import Candidates
from tests.reference.pending import (
    PREFLUSH,
    RefDevice,
    Thing,
    consume,
    exact,
    flush_machinery,
    shares,
)
from tests.simulation.model import SECTOR
from tests.support.captures import OPS


class Completions(Candidates):
    """The rules for C."""

    def _on_C(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        status = fields["status"]
        if e.sector == e.end and not flush_machinery(e):
            self._end_of_flush(d, e, ts, status)
            return
        fits = [
            r
            for r in d.issued.near(e.sector, e.end)
            if r.sector == e.sector and r.op == e.op and r.end >= e.end and not r.data_done
        ]
        if e.op == OPS["ZONE_APPEND"]:
            size = e.end - e.sector
            fits = [r for r in d.issued.all() if r.op == e.op and r.end - r.sector == size]
        d.takes_requests = True
        # What fails may never have been issued, or its allocation never been recorded.
        failed = exact(d.held, e) if status else []
        unseen = [b for b in d.waiting.near(e.sector, e.end) if status and shares(b, e)]
        for thing in [*fits, *failed, *unseen] if unseen else ():
            thing.doubt = True
        rq = self._one(fits + failed)
        if rq is None:
            return
        if e.op != OPS["ZONE_APPEND"]:
            self._parted(d, e, rq)
            maybe = fits + failed
            if len({r.end for r in maybe}) > 1:
                d.parted.append((e.sector, max(r.end for r in maybe), maybe))
        rq.completions.append((ts, (e.end - e.sector) * SECTOR, status))
        if rq in failed:
            d.held.remove(rq)
            rq.finished = True
            consume(rq)
            return
        d.issued.remove(rq)
        if e.op != OPS["ZONE_APPEND"] and rq.end > e.end:
            rq.sector = e.end
            d.issued.add(rq)
        elif rq.sequence:
            rq.data_done = True
            rq.tags.pop("flight", None)  # it may lend its tag to the flush that it waits for
            d.issued.add(rq)
        else:
            rq.finished = True
        if not rq.sequence:
            consume(rq)

    def _end_of_flush(self, d: RefDevice, e: Thing, ts: int, status: int) -> None:
        """C of no bytes ends a sequence whose data is done, or a flush that had no data."""
        near = d.issued.near(e.sector, e.end)
        ended = [r for r in near if r.sector == e.sector and r.op == e.op]
        ended = [r for r in ended if r.data_done or r.end == r.sector]
        empty = [r for r in d.held.all() if r.sector == r.end == e.sector and r.op == e.op]
        empty = [r for r in empty if r.age < d.flush_issued]
        waiting = [] if d.tells_allocations else exact(d.waiting, e)
        waiting = [b for b in waiting if b.flags & PREFLUSH and b.age < d.flush_issued]
        running = [r for r in near if r.sector == e.sector and r.op == e.op]
        running = [r for r in running if r.sequence and r not in ended]
        rivals = [*waiting, *running]  # the end of their data may not have been seen
        for thing in [*ended, *empty, *rivals] if (ended or empty) and rivals else ():
            thing.doubt = True
        rq = self._one(ended + empty)
        bio = None if rq else self._one(waiting)
        if bio is not None:
            d.waiting.remove(bio)
            rq = self._new_request(e, bio)
            d.held.add(rq)
        if rq is None:
            return
        (d.issued if rq in ended else d.held).remove(rq)
        rq.completions.append((ts, 0, status))
        rq.finished = True
        bad = [s for _, _, s in rq.completions if s]
        for bio in rq.members:
            bio.ended = ts
            bio.status = bad[-1] if bad else 0
            bio.good = sum(size for _, size, s in rq.completions if not s)
