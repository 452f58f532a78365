# SPDX-License-Identifier: Apache-2.0
"""Identities of requests, by range: from G to D and R."""

from biotrail.converters.association.without_pointers.bios import BioRules
from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import Finding, oldest_first, served
from biotrail.converters.association.without_pointers.pending import Device, Held, TagUse
from biotrail.converters.events.tables import Certainty
from biotrail.recorder.schema.records import Kind


class RequestRules:
    """The rules of G, s, M, F, m, I, D, R and `a`.

    All methods write the identities found to `event` (request, bio, other, members, doubt) and
    update the device's sets.
    """

    def __init__(self, find: Finding, bios: BioRules) -> None:
        self._find, self._bios = find, bios

    def allocate(self, event: Event, device: Device) -> None:
        """G: identify the bio, and begin its request."""
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
        """s: identify the request that the G before began; without a G, do as for G.

        Requests that the s shows to have ended, by its tag, are lost (`Finding.lose`).
        """
        exact = device.allocated.exact(event.sector, event.end, event.op)
        fresh = self._find.one(event, [h for h in exact if not h.started])
        if fresh is None:
            self.allocate(event, device)
            fresh = next(h for h in device.allocated if h.identity == event.request)
        fresh.started = True
        if event.tag is not None:
            self._lose(device.take_tag(fresh, TagUse.LIFE, event.tag))
        event.request, event.bio = fresh.identity, fresh.request

    def hand_on(self, event: Event, device: Device) -> None:
        """`a`: begin a request, the clone of a request of the dm device above."""
        request = self._find.begin_request(event)
        device.allocated.add(request)
        self._find.about(event, request)

    def back_merge(self, event: Event, device: Device) -> None:
        """M: identify the bio, and the request that ends where the bio begins, which grows."""
        self._merge(event, device, device.allocated.ending(event.sector, event.op))

    def front_merge(self, event: Event, device: Device) -> None:
        """F: identify the bio, and the request that begins where the bio ends, which grows."""
        self._merge(event, device, device.allocated.starting(event.end, event.op))

    def _merge(self, event: Event, device: Device, takers: list[Held]) -> None:
        """Merge the event's bio into one of the requests `takers`, or mark the bio `joined`.

        If no bio waits but a request has the event's range, it is an m that blktrace writes as M or
        F.
        """
        takers = self._mergeable(takers)
        waiting = self._bios.exact(event, device)
        absorbed = device.allocated.exact(event.sector, event.end, event.op)
        if not waiting and absorbed and takers:
            self._absorb_into(event, device, absorbed, takers)
            return
        bio = self._bios.claim(event, device)
        event.bio = bio.identity
        # blk_mq_submit_bio tries the task's plug (blk_attempt_plug_merge) before the scheduler.
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
        """Mark a merge ambiguous, and bios waiting next to it, if no G or s is recorded.

        Any of them may have a request already, and the bio may be merged into that one.
        """
        if device.tells_allocations:
            return
        rivals = device.waiting.ending(event.sector, event.op)
        rivals += device.waiting.starting(event.end, event.op)
        for bio in rivals:
            bio.doubt = taker.doubt = event.doubt = Certainty.AMBIGUOUS

    def _mergeable(self, takers: list[Held]) -> list[Held]:
        """Return the requests that can grow, in the same order.

        PREFLUSH and FUA of a bio exclude merges with its request (REQ_NOMERGE_FLAGS).
        """
        no_merge = self._find.preflush | self._find.fua
        return [t for t in takers if not t.flags & no_merge]

    def _choose_taker(self, event: Event, device: Device, takers: list[Held]) -> Held | None:
        """Return the request that a merge is into, or None; record the choice if it is one."""
        if len(takers) > 1:
            device.blur(event.sector, event.end, takers)
        return self._find.one(event, takers)

    def absorb(self, event: Event, device: Device) -> None:
        """m: identify the absorbed request, and its neighbour that absorbs it, which grows."""
        absorbed = device.allocated.exact(event.sector, event.end, event.op)
        takers = device.allocated.ending(event.sector, event.op)
        takers += device.allocated.starting(event.end, event.op)
        self._absorb_into(event, device, absorbed, oldest_first(takers))

    def _absorb_into(
        self, event: Event, device: Device, absorbed: list[Held], takers: list[Held]
    ) -> None:
        """Merge one of the requests `absorbed` into one of `takers`; make the event an m.

        The absorbed request leaves the device. Without one, no identity is written; without an
        absorbing request, `event.other` stays 0.
        """
        event.kind = Kind.RQ_MERGE
        merged = self._find.one(event, absorbed)
        if merged is None:
            return
        takers = [t for t in self._mergeable(takers) if t is not merged]
        taker = self._choose_taker(event, device, takers)
        if device.blurred(event.sector, event.end):
            event.doubt = Certainty.AMBIGUOUS
        device.allocated.remove(merged)
        event.request, event.bio = merged.identity, merged.request
        if taker is None:
            return
        event.other = taker.identity
        taker.doubt = max(taker.doubt, merged.doubt, event.doubt)
        if merged.sector < taker.sector:
            taker.request = merged.request
        sector, end = min(taker.sector, merged.sector), max(taker.end, merged.end)
        device.allocated.move(taker, sector, end)

    def insert(self, event: Event, device: Device) -> None:
        """I: identify the request with exactly this range, preferably one not inserted yet.

        Without one, begin a request that serves the waiting bios in the range.
        """
        exact = device.allocated.exact(event.sector, event.end, event.op)
        request = self._find.one(event, [h for h in exact if not h.inserted] or exact)
        if request is None:
            request = self._unknown_request(event, device)
            device.allocated.add(request)
        self._blur(event, device, request)
        request.inserted = True
        self._find.about(event, request)

    def _blur(self, event: Event, device: Device, request: Held) -> None:
        """Mark the request ambiguous if an earlier choice near it may have made its range wrong."""
        if device.blurred(event.sector, event.end):
            request.doubt = Certainty.AMBIGUOUS

    def _unknown_request(self, event: Event, device: Device) -> Held:
        """Return a new request, whose G and s were not recorded, with the bios that it covers.

        Waiting bios within the event's range, each beginning where the one before ends, go to
        `event.members` and wait no longer. If they do not cover the range exactly, or other bios or
        requests could be members, the request and all candidates become ambiguous. The caller adds
        the request to the device.
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
        """Return waiting bios within the event's range, by sector; of no bytes: the empty ones."""
        if event.sector == event.end:
            return device.waiting.exact(event.sector, event.end, event.op)
        return device.waiting.within(event.sector, event.end, event.op)

    def _grown(self, event: Event, device: Device) -> list[Held]:
        """Return requests shorter than the event at its sector, not issued, for a discard event.

        Other discards may have merged into one of them, which no event reports.
        """
        if event.op != self._find.discard_op:
            return []
        starting = device.allocated.starting(event.sector, event.op)
        return [h for h in starting if h.end < event.end]

    def _may_have_grown(self, event: Event, device: Device, request: Held) -> None:
        """Mark a discard's request ambiguous, with the shorter ones that the D may be of."""
        grown = self._grown(event, device)
        for held in grown:
            held.doubt = request.doubt = Certainty.AMBIGUOUS

    def _scattered(self, event: Event, device: Device, inside: list[Held]) -> list[Held]:
        """Return waiting discards outside the event's range that are shorter than it.

        Several may be one request of several ranges, whose events report the first sector and the
        total size.
        """
        if event.op != self._find.discard_op:
            return []
        size = event.end - event.sector
        waiting = [h for h in device.waiting if h.op == event.op and h not in inside]
        return [h for h in waiting if h.end - h.sector < size]

    def issue(self, event: Event, device: Device) -> None:
        """D: identify the request with exactly this range, not issued so far, which becomes issued.

        Without one, begin a request that serves the waiting bios in the range. Flush and
        passthrough requests are new ones without bios. Requests that the D's tag shows to have
        ended are lost.
        """
        if self._find.is_flush_machinery(event):
            request = self._find.new_request(event)
            device.flush_issued = request.origin
            device.takes_requests = True
        elif self._find.is_passthrough(event):
            request = self._find.new_request(event)
            device.takes_requests = True
        else:
            exact = device.allocated.exact(event.sector, event.end, event.op)
            chosen = self._find.one(event, exact)
            request = chosen or self._unknown_request(event, device)
            if chosen is not None:
                self._rivals(event, device, chosen)
                self._may_have_grown(event, device, chosen)
                self._blur(event, device, chosen)
                device.allocated.remove(chosen)
        self._find.about(event, request)
        # blk_insert_flush clears REQ_FUA where it emulates FUA by a flush after the data. A
        # pre-flush is a request of its own on every device.
        kept = event.opf & self._find.fua
        request.sequence = bool(
            request.flags & self._find.preflush or request.flags & self._find.fua & ~kept
        )
        device.issued.add(request)
        if event.slot is not None:
            self._lose(device.take_tag(request, TagUse.FLIGHT, event.slot))

    def _lose(self, ended: list[Held]) -> None:
        """Give these requests up as lost: they ended, and no completion was recorded."""
        for request in ended:
            self._find.lose(request)

    def _rivals(self, event: Event, device: Device, request: Held) -> None:
        """Mark the request and all bios that wait in its range ambiguous, if no G or s is recorded.

        The D may then be of a request of these bios.
        """
        if device.tells_allocations:
            return
        for bio in device.waiting.sharing(event.sector, event.end, event.op):
            bio.doubt = request.doubt = Certainty.AMBIGUOUS

    def requeue(self, event: Event, device: Device) -> None:
        """R: identify the issued request with exactly this range, which waits for another D.

        Without one, begin a request that is ambiguous.
        """
        request = self._find.one(event, device.issued.exact(event.sector, event.end, event.op))
        if request is None:
            request = self._find.new_request(event)
            # It may be the remainder of any request there, so the C of bios merged later is open.
            request.doubt = Certainty.AMBIGUOUS
        else:
            device.issued.remove(request)
            if device.parted(event.sector, event.end):
                request.doubt = Certainty.AMBIGUOUS
        request.inserted = False
        request.tags.pop(TagUse.FLIGHT, None)
        device.allocated.add(request)
        self._find.about(event, request)
