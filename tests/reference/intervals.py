# SPDX-License-Identifier: Apache-2.0
"""The reference without identities: one event at a time, every candidate that fits by range.

What an event is about is found by device, range, operation, direction of the merge, task and
age alone. Exactly one candidate: that is it. Several: the oldest is taken, and all of them are
ambiguous from then on. None: something is missing from the log. Sound before sharp: a rule that
is right only nearly always is not here.

Nothing is shared with the machine but the letters of the records.
"""

from typing import Any

from tests.reference.completions import Completions
from tests.reference.pending import (
    FUA,
    PREFLUSH,
    RefBio,
    RefDevice,
    RefRequest,
    Thing,
    ended_bios,
    exact,
    flush_machinery,
    grow,
    neighbours,
    own_first,
    shares,
    take_tag,
)
from tests.simulation.model import NO_SECTOR, NO_TAG, SECTOR
from tests.support.captures import OPS

PASSTHROUGH = {number for name, number in OPS.items() if name.startswith("DRV_")}


class IntervalReference(Completions):
    """Feed it events in order of time; then read `bios` and `requests`."""

    def feed(self, letter: str, ts: int, fields: dict[str, Any]) -> None:
        """One event; pointers in its fields are not looked at."""
        rule = getattr(self, f"_on_{letter}", None)
        if rule is None or letter in "TPUEdb":
            return
        self._age += 1
        sector = 0 if fields["sector"] == NO_SECTOR else fields["sector"]
        here = Thing(
            sector,
            sector + fields["bytes"] // SECTOR,
            fields["opf"] & 0xFF,
            fields.get("tid", 0),
            self._age,
        )
        if letter in "GMFX":
            self.sent.pop(here.tid, None)
        rule(self.devices.setdefault(fields["dev"], RefDevice()), here, ts, fields)

    # Bios.

    def _on_A(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        bio = self.sent.pop(e.tid, None)
        on_disk = bio is not None and bio in d.waiting
        if bio is not None and on_disk and bio.place == (fields["from_dev"], fields["from_sector"]):
            d.waiting.remove(bio)  # to a partition just now; from there to the disk
            bio.sector, bio.end = e.sector, e.end
        else:
            bio = self._new_bio(e)
            upper = self.devices.setdefault(fields["from_dev"], RefDevice())
            bio.above = self._above(upper, e, fields["from_sector"])
        bio.place = (fields["part"], e.sector)
        self.sent[e.tid] = bio
        d.waiting.add(bio)

    @staticmethod
    def _above(upper: RefDevice, e: Thing, sector: int) -> tuple[RefDevice, RefBio] | None:
        """The only bio of this range above: of NVMe multipath it goes on itself, without a Q."""
        there = Thing(sector, sector + e.end - e.sector, e.op, e.tid, e.age)
        found = [b for b in exact(upper.waiting, there) if b.queue >= 0]
        return (upper, found[0]) if len(found) == 1 and found[0].tid == e.tid else None

    def _on_Q(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        bio = self.sent.pop(e.tid, None)  # Q follows the bio's A at once, or never
        d.queues = True
        # Of this device: flushes look the same on all.
        here = d.waiting.near(e.sector, e.end)
        if bio not in here or (bio.sector, bio.end, bio.op) != (e.sector, e.end, e.op):
            bio = self._new_bio(e)
            d.waiting.add(bio)
        bio.queue = ts
        bio.flags = fields["opf"] & (PREFLUSH | FUA)

    def _on_X(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        found = [
            b
            for b in d.waiting.near(e.sector, e.end)
            if b.sector == e.sector and b.end > e.end and b.op == e.op
        ]
        parent = self._one(own_first(found, e))
        front = self._new_bio(e)
        d.waiting.add(front)
        if parent is not None:
            front.root = parent
            front.doubt = parent.doubt
            parent.fronts.append(front)
            d.waiting.remove(parent)
            parent.sector = e.end
            d.waiting.add(parent)

    def _claim(self, d: RefDevice, e: Thing) -> RefBio:
        found = [b for b in exact(d.waiting, e) if not b.joined]
        bio: RefBio | None = self._one(own_first(found, e))
        if bio is None:
            return self._new_bio(e)
        d.waiting.remove(bio)
        if bio.above is not None and bio.queue < 0 and not d.queues:
            upper, whole = bio.above
            if whole in upper.waiting.all():
                upper.waiting.remove(whole)
                whole.sector, whole.end = bio.sector, bio.end
                whole.doubt = whole.doubt or bio.doubt
                return whole
        return bio

    def _serve(self, bio: RefBio, rq: RefRequest) -> None:
        bio.request, bio.piece = rq, bio.end - bio.sector
        bio.whole.pieces.append(bio)
        rq.members.append(bio)

    def _on_c(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        bio = self._one(ended_bios(d, e))
        if bio is not None:
            d.waiting.remove(bio)
            bio.own_end, bio.status = ts, fields["status"]
            if d.takes_requests and any(f.request is None for f in bio.fronts):
                bio.doubt = True

    # Requests.

    def _on_G(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        bio = self._claim(d, e)
        rq = self._new_request(e, bio)
        bio.times["getrq"] = ts
        rq.times["start"] = ts
        d.takes_requests = d.tells_allocations = True
        d.held.add(rq)

    def _on_s(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        fresh = [r for r in exact(d.held, e) if not r.started]
        if not fresh:
            self._on_G(d, e, ts, fields)
            fresh = [r for r in exact(d.held, e) if r.age == e.age]
        rq = self._one(fresh)
        rq.started = True
        sched = fields["sched_tag"] != NO_TAG
        tag = fields["sched_tag" if sched else "tag"]
        if tag != NO_TAG and fields["dev"] in self.one_queue:
            take_tag("life", (sched, tag), rq, [d.held, d.issued])

    def _on_a(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        """Request-based dm hands a request of its own to this device."""
        d.held.add(self._new_request(e))

    def _on_M(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        self._merge(d, e, ts, "M")

    def _on_F(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        self._merge(d, e, ts, "F")

    def _merge(self, d: RefDevice, e: Thing, ts: int, side: str) -> None:
        bio = self._claim(d, e)
        bio.times["merge"] = ts
        takers = neighbours(d, e, side)
        # A task tries what it holds back itself before what the scheduler holds.
        takers.sort(key=lambda r: r.tid != e.tid or r.inserted)
        if len(takers) > 1:
            lo, hi = min(r.sector for r in takers), max(r.end for r in takers)
            d.blurs.append((min(lo, e.sector), max(hi, e.end), takers))
        rq = self._one(takers)
        if rq is None:
            bio.joined = True
            d.waiting.add(bio)
            return
        rivals = [] if d.tells_allocations else d.waiting.near(e.sector, e.end)
        for rival in rivals:  # a bio that waits next to it may have a request too
            if rival.op == e.op and (rival.end == e.sector or rival.sector == e.end):
                rival.doubt = rq.doubt = bio.doubt = True
        rq.doubt = rq.doubt or bio.doubt
        self._serve(bio, rq)
        grow(d, rq, e)

    def _on_m(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        gone = self._one(exact(d.held, e))
        if gone is None:
            return
        takers = [r for r in neighbours(d, e, "MF") if r is not gone]
        if len(takers) > 1:
            lo, hi = min(r.sector for r in takers), max(r.end for r in takers)
            d.blurs.append((min(lo, e.sector), max(hi, e.end), takers))
        taker = self._one(takers)
        self._blurred(d, e, gone)
        d.held.remove(gone)
        gone.finished = True
        if taker is None:
            return
        taker.doubt = taker.doubt or gone.doubt
        for bio in gone.members:
            bio.request = taker
            bio.times.setdefault("insert", gone.times.get("insert", -1))
        taker.members += gone.members
        gone.members = []
        grow(d, taker, e)

    def _on_I(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        found = exact(d.held, e)
        rq = self._one([r for r in found if not r.inserted] or found)
        if rq is None:
            rq = self._unknown(d, e)
            d.held.add(rq)
        self._blurred(d, e, rq)
        rq.inserted = True
        rq.times.setdefault("insert", ts)

    def _unknown(self, d: RefDevice, e: Thing) -> RefRequest:
        """No allocation was recorded: the request serves what lies within it, sector for sector.

        What covers a sector twice, or leaves one out, leaves in doubt all that lies there.
        """
        rq = self._new_request(e)
        d.takes_requests = True
        inside = [
            b
            for b in d.waiting.near(e.sector, e.end)
            if b.op == e.op and e.sector <= b.sector and b.end <= e.end
        ]
        inside = [b for b in inside if (b.end > b.sector) == (e.end > e.sector)]
        at, chosen = e.sector, []
        for bio in sorted(inside, key=lambda b: (b.sector, b.age)):
            if bio.sector == at or (bio.sector == bio.end == e.sector and not chosen):
                chosen.append(bio)
                at = bio.end
        grown = self._grown_discards(d, e)
        if e.op == OPS["DISCARD"] and (len(chosen) != 1 or at != e.end):
            size = e.end - e.sector
            others = [b for b in d.waiting.all() if b.op == e.op and b not in inside]
            grown += [b for b in others if b.end - b.sector < size]
        self._blurred(d, e, rq)
        left = [bio for bio in inside if bio not in chosen]
        if rq.doubt or grown or left or at != e.end:
            for thing in (rq, *inside, *grown):
                thing.doubt = True
        if left:
            lo, hi = min(b.sector for b in left), max(b.end for b in left)
            d.blurs.append((min(lo, e.sector), max(hi, e.end), left))
        for bio in chosen:
            d.waiting.remove(bio)
            self._serve(bio, rq)
            rq.flags |= bio.flags
            rq.doubt = rq.doubt or bio.doubt
        return rq

    def _grown_discards(self, d: RefDevice, e: Thing) -> list[RefRequest]:
        """Discards may have joined a request without an event, from anywhere."""
        near = d.held.near(e.sector, e.end) if e.op == OPS["DISCARD"] else []
        return [r for r in near if r.op == e.op and r.sector == e.sector and r.end < e.end]

    def _rivals_without_allocation(self, d: RefDevice, e: Thing, rq: RefRequest) -> None:
        """A recording that tells no allocations: the issue may be of a bio that waits."""
        rivals = [] if d.tells_allocations else d.waiting.near(e.sector, e.end)
        for bio in rivals:
            if shares(bio, e):
                bio.doubt = rq.doubt = True

    def _on_D(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        if flush_machinery(e):
            rq = self._new_request(e)
            d.flush_issued = e.age
            d.takes_requests = True
        elif e.op in PASSTHROUGH:
            rq = self._new_request(e)
            d.takes_requests = True
        else:
            rq = self._one(exact(d.held, e))
            if rq is None:
                rq = self._unknown(d, e)
            else:
                self._rivals_without_allocation(d, e, rq)
                grown = self._grown_discards(d, e)
                for thing in (rq, *grown) if grown else ():
                    thing.doubt = True
                self._blurred(d, e, rq)
                d.held.remove(rq)
        # A flush first is never the device's; FUA is, where the issue still has it.
        rq.sequence = bool(rq.flags & PREFLUSH or rq.flags & FUA & ~fields["opf"])
        rq.times.setdefault("issue", ts)
        for bio in rq.members:
            bio.times.setdefault("issue", ts)
        rq.issues += 1
        if NO_TAG not in (fields["hctx"], fields["tag"]):
            tag = fields["hctx"], fields["tag"]
            take_tag("flight", tag, rq, [d.issued], outlived=True)
        d.issued.add(rq)

    def _on_R(self, d: RefDevice, e: Thing, ts: int, fields: dict[str, Any]) -> None:
        rq = self._one(exact(d.issued, e))
        if rq is None:
            rq = self._new_request(e)
            rq.doubt = True  # whose sectors these are is not known
        else:
            d.issued.remove(rq)
            self._parted(d, e, rq)
        rq.inserted = False
        rq.tags.pop("flight", None)
        rq.requeues += 1
        d.held.add(rq)
