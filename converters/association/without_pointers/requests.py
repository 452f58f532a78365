# SPDX-License-Identifier: Apache-2.0
"""Which request an event is about, by interval: from its start to its issue."""

from biotrail.converters.association.without_pointers.bios import BioRules
from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import Finding, oldest_first, served
from biotrail.converters.association.without_pointers.pending import Device, Held, TagUse
from biotrail.converters.events.tables import Certainty
from biotrail.recorder.schema.records import Kind


class RequestRules:
    """The rules of G, s, M, F, m, I, D, R, and of requests from above."""

    def __init__(self, find: Finding, bios: BioRules) -> None:
        self._find, self._bios = find, bios

    def allocate(self, event: Event, device: Device) -> None:
        """G: a bio gets a request."""
        bio = self._bios.claim(event, device)
        request = self._find.begin_request(event)
        request.tid, request.flags = bio.tid, bio.flags
        request.request = bio.identity
        request.doubt = max(request.doubt, event.doubt)
        self._find.pairing.serve(bio, request)
        served(bio)
        event.bio, event.request = bio.identity, request.identity
        device.takes_requests = device.tells_allocations = True
        device.allocated.add(request)

    def start(self, event: Event, device: Device) -> None:
        """s follows its G; where G was not recorded, it stands for it."""
        found = device.allocated.exact(event.sector, event.end, event.op)
        fresh = self._find.one(event, [h for h in found if not h.started])
        if fresh is None:
            self.allocate(event, device)
            fresh = next(h for h in device.allocated if h.identity == event.request)
        fresh.started = True
        if event.tag is not None:
            self._lose(device.take_tag(fresh, TagUse.LIFE, event.tag))
        event.request, event.bio = fresh.identity, fresh.request

    def hand_on(self, event: Event, device: Device) -> None:
        """Request-based dm hands a request of its own to this device."""
        request = self._find.begin_request(event)
        device.allocated.add(request)
        self._find.about(event, request)

    def back_merge(self, event: Event, device: Device) -> None:
        """M: a bio joins the request that ends where it begins."""
        self._merge(event, device, device.allocated.ending(event.sector, event.op))

    def front_merge(self, event: Event, device: Device) -> None:
        """F: a bio joins the request that begins where it ends."""
        self._merge(event, device, device.allocated.starting(event.end, event.op))

    def _merge(self, event: Event, device: Device, takers: list[Held]) -> None:
        takers = self._mergeable(takers)
        waiting = self._bios.exact(event, device)
        absorbed = device.allocated.exact(event.sector, event.end, event.op)
        if not waiting and absorbed and takers:
            self._absorb_into(event, device, absorbed, takers)
            return
        bio = self._bios.claim(event, device)
        event.bio = bio.identity
        # What a task holds back itself comes before what the scheduler holds, if it can be joined.
        takers.sort(key=lambda t: t.tid != event.tid or t.inserted)
        taker = self._choose_taker(event, device, takers)
        if taker is None:
            bio.joined = True
            device.waiting.add(bio)
            return
        served(bio)
        event.request = taker.identity
        self._unknown_takers(event, device, taker)
        taker.doubt = max(taker.doubt, event.doubt)
        if event.sector < taker.sector:
            taker.request = bio.identity
        sector, end = min(taker.sector, event.sector), max(taker.end, event.end)
        device.allocated.move(taker, sector, end)

    def _unknown_takers(self, event: Event, device: Device, taker: Held) -> None:
        """Where no allocation is told, a bio that waits next to it may have a request too."""
        if device.tells_allocations:
            return
        rivals = device.waiting.ending(event.sector, event.op)
        rivals += device.waiting.starting(event.end, event.op)
        for bio in rivals:
            bio.doubt = taker.doubt = event.doubt = Certainty.AMBIGUOUS

    def _mergeable(self, takers: list[Held]) -> list[Held]:
        return [t for t in takers if not t.flags & self._find.preflush]

    def _choose_taker(self, event: Event, device: Device, takers: list[Held]) -> Held | None:
        if len(takers) > 1:
            device.blur(event.sector, event.end, takers)
        return self._find.one(event, takers)

    def absorb(self, event: Event, device: Device) -> None:
        """m: a request joins its neighbour."""
        absorbed = device.allocated.exact(event.sector, event.end, event.op)
        takers = device.allocated.ending(event.sector, event.op)
        takers += device.allocated.starting(event.end, event.op)
        self._absorb_into(event, device, absorbed, oldest_first(takers))

    def _absorb_into(
        self, event: Event, device: Device, absorbed: list[Held], takers: list[Held]
    ) -> None:
        """A request joins its neighbour. blktrace writes it as M; here it becomes m."""
        event.kind = Kind.RQ_MERGE
        gone = self._find.one(event, absorbed)
        if gone is None:
            return
        takers = [t for t in self._mergeable(takers) if t is not gone]
        taker = self._choose_taker(event, device, takers)
        if device.blurred(event.sector, event.end):
            event.doubt = Certainty.AMBIGUOUS
        device.allocated.remove(gone)
        event.request, event.bio = gone.identity, gone.request
        if taker is None:
            return
        event.other = taker.identity
        taker.doubt = max(taker.doubt, gone.doubt, event.doubt)
        if gone.sector < taker.sector:
            taker.request = gone.request
        sector, end = min(taker.sector, gone.sector), max(taker.end, gone.end)
        device.allocated.move(taker, sector, end)

    def insert(self, event: Event, device: Device) -> None:
        """I: a request goes to a scheduler, or into a queue."""
        found = device.allocated.exact(event.sector, event.end, event.op)
        request = self._find.one(event, [h for h in found if not h.inserted] or found)
        if request is None:
            request = self._unknown_request(event, device)
            device.allocated.add(request)
        self._blur(event, device, request)
        request.inserted = True
        self._find.about(event, request)

    def _blur(self, event: Event, device: Device, request: Held) -> None:
        if device.blurred(event.sector, event.end):
            request.doubt = Certainty.AMBIGUOUS

    def _unknown_request(self, event: Event, device: Device) -> Held:
        """A request whose allocation was not recorded serves the bios that it covers.

        They must cover it sector for sector, or all that lies there is in doubt.
        """
        request = self._find.new_request(event)
        device.takes_requests = True
        at = event.sector
        members: list[Held] = []
        inside = self._inside(event, device)
        for bio in inside:
            if bio.sector == at and not (members and members[-1].end == bio.end):
                members.append(bio)
                at = bio.end
        grown = self._grown(event, device)
        left = [bio for bio in inside if bio not in members]
        if len(members) != 1 or at != event.end:
            grown += self._scattered(event, device, inside)
        if grown or left or at != event.end or device.blurred(event.sector, event.end):
            for held in (request, *inside, *grown):
                held.doubt = Certainty.AMBIGUOUS
        if left:
            device.blur(event.sector, event.end, left)
        for bio in members:
            device.waiting.remove(bio)
            served(bio)
            event.members.append(bio.identity)
            event.doubt = max(event.doubt, bio.doubt)
            request.flags |= bio.flags
            request.doubt = max(request.doubt, bio.doubt)
        if members:
            request.request = event.members[0]
        return request

    def _inside(self, event: Event, device: Device) -> list[Held]:
        if event.sector == event.end:
            return device.waiting.exact(event.sector, event.end, event.op)
        return device.waiting.within(event.sector, event.end, event.op)

    def _grown(self, event: Event, device: Device) -> list[Held]:
        """Discards may have joined a request without an event, from anywhere."""
        if event.op != self._find.discard_op:
            return []
        found = device.allocated.starting(event.sector, event.op)
        return [h for h in found if h.end < event.end]

    def _may_have_grown(self, event: Event, device: Device, request: Held) -> None:
        """The issue may be of another discard, to which others have joined."""
        grown = self._grown(event, device)
        for held in grown:
            held.doubt = request.doubt = Certainty.AMBIGUOUS

    def _scattered(self, event: Event, device: Device, inside: list[Held]) -> list[Held]:
        """Discards that wait elsewhere: several may be one request, which tells only its size."""
        if event.op != self._find.discard_op:
            return []
        size = event.end - event.sector
        waiting = [h for h in device.waiting if h.op == event.op and h not in inside]
        return [h for h in waiting if h.end - h.sector < size]

    def issue(self, event: Event, device: Device) -> None:
        """D: a request goes to the driver."""
        if self._find.is_flush_machinery(event):
            request = self._find.new_request(event)
            device.flush_issued = request.origin
            device.takes_requests = True
        elif self._find.is_passthrough(event):
            request = self._find.new_request(event)
            device.takes_requests = True
        else:
            found = device.allocated.exact(event.sector, event.end, event.op)
            chosen = self._find.one(event, found)
            request = chosen or self._unknown_request(event, device)
            if chosen is not None:
                self._rivals(event, device, chosen)
                self._may_have_grown(event, device, chosen)
                self._blur(event, device, chosen)
                device.allocated.remove(chosen)
        self._find.about(event, request)
        # FUA that is still there is the device's own; a flush first is never the device's.
        kept = event.opf & self._find.fua
        request.sequence = bool(
            request.flags & self._find.preflush or request.flags & self._find.fua & ~kept
        )
        device.issued.add(request)
        if event.slot is not None:
            self._lose(device.take_tag(request, TagUse.FLIGHT, event.slot))

    def _lose(self, gone: list[Held]) -> None:
        for request in gone:
            self._find.lose(request)

    def _rivals(self, event: Event, device: Device, request: Held) -> None:
        """Where no allocation is told, the issue may be of a bio that waits."""
        if device.tells_allocations:
            return
        for bio in device.waiting.sharing(event.sector, event.end, event.op):
            bio.doubt = request.doubt = Certainty.AMBIGUOUS

    def requeue(self, event: Event, device: Device) -> None:
        """R: the driver gives a request back."""
        request = self._find.one(event, device.issued.exact(event.sector, event.end, event.op))
        if request is None:
            request = self._find.new_request(event)
            # Whose sectors these are is not known, and so not which C ends what joins it.
            request.doubt = Certainty.AMBIGUOUS
        else:
            device.issued.remove(request)
            if device.parted(event.sector, event.end):
                request.doubt = Certainty.AMBIGUOUS
        request.inserted = False
        request.tags.pop(TagUse.FLIGHT, None)
        device.allocated.add(request)
        self._find.about(event, request)
