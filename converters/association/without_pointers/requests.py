# SPDX-License-Identifier: Apache-2.0
"""Identities of requests, by range: from G to D and R."""

from biotrail.converters.association.without_pointers.bios import BioRules
from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import (
    Finding,
    oldest_first,
    serve,
)
from biotrail.converters.association.without_pointers.pending import Device, InFlight, TagUse
from biotrail.recorder.schema.records import Kind


class RequestRules:
    """The rules of G, s, M, F, m, I, D, R and `a`.

    All methods write the identities found to `event` (request, bio, other, members, doubt) and
    update the device's sets.
    """

    def __init__(self, find: Finding, bios: BioRules) -> None:
        self._find, self._bios = find, bios

    def allocate(self, event: Event, device: Device) -> None:
        """Apply G: identify the bio that waits with this range, else a new one; begin its request.

        Sets bio, request and doubt of the event. The bio (`BioRules.claim`: of the event's range
        and operation) leaves `device.waiting` and its parent's `unserved`. The request gets the
        bio's tid and flags, and the bio as head, is added to `device.allocated`, and takes the
        bio's place in `pairing`; it is as doubtful as the choice of the bio. Also sets
        `device.has_requests` and `reports_allocations`.
        """
        bio = self._bios.claim(event, device)
        request = self._find.begin_request(event)
        request.tid, request.flags = bio.tid, bio.flags
        request.head_bio = bio.identity
        serve(request, bio)
        self._find.pairing.serve(bio, request)
        event.bio, event.request = bio.identity, request.identity
        device.has_requests = device.reports_allocations = True
        device.allocated.add(request)

    def start(self, event: Event, device: Device) -> None:
        """Apply s: identify the request not started yet with this range; if none, do as G first.

        It has the event's operation, too, and is not issued. Of several the oldest; all become
        ambiguous. Sets `started` of the request, and request, bio and doubt of the event. If the s
        reports a tag, requests that must have ended for it to be free (`Device.assign_tag`) leave
        the device and are given up as lost.
        """
        exact = device.allocated.exact(event.sector, event.end, event.op)
        fresh = self._find.choose(event, [h for h in exact if not h.started])
        if fresh is None:
            self.allocate(event, device)
            fresh = next(h for h in device.allocated if h.identity == event.request)
        fresh.started = True
        if event.tag is not None:
            self._free_identities(device.assign_tag(fresh, TagUse.LIFE, event.tag))
        event.request, event.bio = fresh.identity, fresh.head_bio

    def clone(self, event: Event, device: Device) -> None:
        """`a`: begin a request, the clone of a request of the dm device above."""
        request = self._find.begin_request(event)
        device.allocated.add(request)
        self._find.set_request(event, request)

    def back_merge(self, event: Event, device: Device) -> None:
        """M: identify the bio, and the request that ends where the bio begins, which grows."""
        self._merge(event, device, device.allocated.ending(event.sector, event.op))

    def front_merge(self, event: Event, device: Device) -> None:
        """F: identify the bio, and the request that begins where the bio ends, which grows."""
        self._merge(event, device, device.allocated.starting(event.end, event.op))

    def _merge(self, event: Event, device: Device, takers: list[InFlight]) -> None:
        """Apply M or F: identify the bio, and which of the requests `takers` grows by its range.

        takers: requests not issued that touch the bio, oldest first; only those that can grow
        (`_mergeable`) count. Preferred are those of the event's thread that are not inserted; of
        several the first is taken, and all become ambiguous. Sets bio, request and doubt of the
        event; the request is as doubtful, and gets the bio as head if that is now its first.
        Without a taker the bio is marked `joined` and stays in, or is added to, `device.waiting`.
        If no bio waits with the event's range, but a request has that range and there are takers,
        it is an m, which blktrace writes as M or F: see `_absorb_into`.
        """
        takers = self._mergeable(takers)
        waiting = self._bios.waiting_at(event, device)
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
        serve(taker, bio)
        event.request = taker.identity
        self._doubt_unknown_takers(event, device, taker)
        taker.inherit(event)
        if event.sector < taker.sector:
            taker.head_bio = bio.identity
        sector, end = min(taker.sector, event.sector), max(taker.end, event.end)
        device.allocated.move(taker, sector, end)

    def _doubt_unknown_takers(self, event: Event, device: Device, taker: InFlight) -> None:
        """Mark a merge ambiguous if it may be into a request whose G and s were not recorded.

        Only on devices that report neither: bios of its operation waiting right before or behind
        the event's range may then have a request already. These bios, `taker` (the request chosen)
        and the event become ambiguous; nothing changes if there are none.
        """
        if device.reports_allocations:
            return
        rivals = device.waiting.ending(event.sector, event.op)
        rivals += device.waiting.starting(event.end, event.op)
        for io in (*rivals, taker, event) if rivals else ():
            io.set_open()

    def _mergeable(self, takers: list[InFlight]) -> list[InFlight]:
        """Return the requests that can grow, in the same order.

        Those without PREFLUSH and FUA: these exclude merges (REQ_NOMERGE_FLAGS).
        """
        no_merge = self._find.preflush | self._find.fua
        return [t for t in takers if not t.flags & no_merge]

    def _choose_taker(
        self, event: Event, device: Device, takers: list[InFlight]
    ) -> InFlight | None:
        """Return the first of `takers`, requests that a merge may be into; None if there is none.

        Of several all become ambiguous, and so does the event; the choice is recorded by
        `device.add_guess`.
        """
        if len(takers) > 1:
            device.add_guess(event.sector, event.end, takers)
        return self._find.choose(event, takers, open_=True)

    def absorb(self, event: Event, device: Device) -> None:
        """Apply m: identify the absorbed request, and its neighbour that absorbs it, which grows.

        The absorbed one has exactly the event's range; neighbours end where it begins, or begin
        where it ends; all have its operation and are not issued. Of several the oldest. Sets
        request, bio, `other` (absorbing request) and doubt of the event; the absorbed request
        leaves `device.allocated`. If one of the two is missing: see `_absorb_into`.
        """
        absorbed = device.allocated.exact(event.sector, event.end, event.op)
        takers = device.allocated.ending(event.sector, event.op)
        takers += device.allocated.starting(event.end, event.op)
        self._absorb_into(event, device, absorbed, oldest_first(takers))

    def _absorb_into(
        self, event: Event, device: Device, absorbed: list[InFlight], takers: list[InFlight]
    ) -> None:
        """Merge the first of the requests `absorbed` into the first of `takers` that can grow.

        Makes the event an m (`event.kind`). Sets its request and bio (the absorbed request's),
        `other` (the absorbing one) and doubt: AMBIGUOUS if either list offers several, or an
        earlier guess overlaps. The absorbed request leaves `device.allocated`; the other one grows
        by its range, is as doubtful, and gets its head bio if that is now the first. Without an
        absorbed request no identity is set; without an absorbing one `event.other` stays 0.
        """
        event.kind = Kind.RQ_MERGE
        merged = self._find.choose(event, absorbed)
        if merged is None:
            return
        takers = [t for t in self._mergeable(takers) if t is not merged]
        taker = self._choose_taker(event, device, takers)
        if device.overlaps_guess(event.sector, event.end):
            event.set_open()
        device.allocated.remove(merged)
        event.request, event.bio = merged.identity, merged.head_bio
        if taker is None:
            self._find.ends.lose(merged)
            return
        event.other = taker.identity
        taker.serve(merged)
        taker.inherit(event)
        if merged.sector < taker.sector:
            taker.head_bio = merged.head_bio
        sector, end = min(taker.sector, merged.sector), max(taker.end, merged.end)
        device.allocated.move(taker, sector, end)

    def insert(self, event: Event, device: Device) -> None:
        """Apply I: identify the request with exactly this range, preferably one not inserted yet.

        It has the event's operation, too, and is not issued. Of several the oldest; all become
        ambiguous. Without one, a request whose beginning was not recorded is made of the waiting
        bios in the range (`_unknown_request`) and added to `device.allocated`. Sets `inserted` of
        the request, and request, bio and doubt of the event; the request is ambiguous if an earlier
        guess may have made its range wrong.
        """
        exact = device.allocated.exact(event.sector, event.end, event.op)
        request = self._find.choose(event, [h for h in exact if not h.inserted] or exact)
        if request is None:
            request = self._unknown_request(event, device)
            device.allocated.add(request)
        self._doubt_range(event, device, request)
        request.inserted = True
        self._find.set_request(event, request)

    def _doubt_range(self, event: Event, device: Device, request: InFlight) -> None:
        """Mark the request ambiguous if an earlier choice near it may have made its range wrong."""
        if device.overlaps_guess(event.sector, event.end):
            request.set_open()

    def _unknown_request(self, event: Event, device: Device) -> InFlight:
        """Return a new request, whose G and s were not recorded, with the bios that it covers.

        Waiting bios of the event's operation within its range, each beginning where the one before
        ends, are its members (of several without bytes only the oldest): they leave
        `device.waiting` and go to `event.members`; flags, doubt and head bio of the request are
        theirs. The request and all bios within its range become ambiguous if the members do not
        cover the range exactly, where bios are recorded, other bios lie within it (then recorded by
        `add_guess`), an earlier guess overlaps it, or there are `_shorter_discards` or, unless one
        member has the whole range, `_smaller_discards`, which become ambiguous as well. Also sets
        `device.has_requests`.
        The caller adds the request to the device.
        """
        request = self._find.new_request(event)
        device.has_requests = True
        at = event.sector
        members: list[InFlight] = []
        inside = self._waiting_within(event, device)
        for bio in inside:
            if bio.sector == at and not (members and members[-1].end == bio.end):
                members.append(bio)
                at = bio.end
        grown = self._shorter_discards(event, device)
        left = [bio for bio in inside if bio not in members]
        if len(members) != 1 or at != event.end:
            grown += self._smaller_discards(event, device, inside)
        uncovered = at != event.end and self._find.has_bios
        if grown or left or uncovered or device.overlaps_guess(event.sector, event.end):
            for io in (request, *inside, *grown):
                io.set_open()
        if left:
            device.add_guess(event.sector, event.end, left)
        for bio in members:
            device.waiting.remove(bio)
            serve(request, bio)
            event.members.append(bio.identity)
            event.inherit(bio)
            request.flags |= bio.flags
        if members:
            request.head_bio = event.members[0]
        return request

    def _waiting_within(self, event: Event, device: Device) -> list[InFlight]:
        """Return the waiting bios of the event's operation within its range, by sector.

        For an event of no bytes: the bios of no bytes at its sector, oldest first.
        """
        if event.sector == event.end:
            return device.waiting.exact(event.sector, event.end, event.op)
        return device.waiting.within(event.sector, event.end, event.op)

    def _shorter_discards(self, event: Event, device: Device) -> list[InFlight]:
        """Return the discard requests, not issued, that may have grown to the event's range.

        They begin at its sector and are shorter: further discards may have merged into one of them,
        which no event reports. [] for another operation.
        """
        if event.op != self._find.discard_op:
            return []
        starting = device.allocated.starting(event.sector, event.op)
        return [h for h in starting if h.end < event.end]

    def _doubt_grown_discards(self, event: Event, device: Device, request: InFlight) -> None:
        """Mark ambiguous a discard's request and the shorter ones that its D may be of instead.

        Does nothing if there are none (`_shorter_discards`), so for other operations.
        """
        grown = self._shorter_discards(event, device)
        for io in (*grown, request) if grown else ():
            io.set_open()

    def _smaller_discards(
        self, event: Event, device: Device, inside: list[InFlight]
    ) -> list[InFlight]:
        """Return waiting discards, not among `inside`, that are shorter than the event; any sector.

        Several may be one request of several ranges, whose events report the first sector and the
        total size. [] for another operation. inside: bios within the event's range.
        """
        if event.op != self._find.discard_op:
            return []
        size = event.end - event.sector
        waiting = [h for h in device.waiting if h.op == event.op and h not in inside]
        return [h for h in waiting if h.end - h.sector < size]

    def issue(self, event: Event, device: Device) -> None:
        """Apply D: identify the request with exactly this range, not issued so far, and issue it.

        Where bios are not recorded, it may have grown to that range (`_issuable`). It has the
        event's operation, too; of several the oldest, and all become ambiguous. So does a single
        one where the D may be of others (`_doubt_waiting_bios`, `_doubt_grown_discards`,
        `_doubt_range`). Without one, it is made of the waiting bios in the range
        (`_unknown_request`). A flush request or passthrough command is always a new request without
        bios. The request moves from `device.allocated` to `device.issued`; `sequence` is set if its
        bios ask for a pre-flush, or for FUA that the D lacks. Sets request, bio and doubt of the
        event, and for a flush request `device.flush_issued`. If hardware queue and driver tag are
        known, requests that must have ended for that tag to be free (`assign_tag`) leave the device
        and are given up as lost.
        """
        if self._find.is_flush_machinery(event):
            request = self._find.new_request(event)
            device.flush_issued = request.origin
            device.has_requests = True
        elif self._find.is_passthrough(event):
            request = self._find.new_request(event)
            device.has_requests = True
        else:
            chosen = self._find.choose(event, self._issuable(event, device))
            request = chosen or self._unknown_request(event, device)
            if chosen is not None:
                self._doubt_waiting_bios(event, device, chosen)
                self._doubt_grown_discards(event, device, chosen)
                self._doubt_range(event, device, chosen)
                device.allocated.remove(chosen)
                chosen.sector, chosen.end = event.sector, event.end
        self._find.set_request(event, request)
        # blk_insert_flush clears REQ_FUA where it emulates FUA by a flush after the data. A
        # pre-flush is a request of its own on every device.
        kept = event.opf & self._find.fua
        request.sequence = bool(
            request.flags & self._find.preflush or request.flags & self._find.fua & ~kept
        )
        device.issued.add(request)
        if event.slot is not None:
            self._free_identities(device.assign_tag(request, TagUse.FLIGHT, event.slot))

    def _issuable(self, event: Event, device: Device) -> list[InFlight]:
        """Return the requests that a D may issue: of its range; without bios, within its range.

        Where bios are not recorded, bios that were merged into a request since its I are not, too.
        """
        exact = device.allocated.exact(event.sector, event.end, event.op)
        if exact or self._find.has_bios:
            return exact
        return device.allocated.within(event.sector, event.end, event.op)

    def _free_identities(self, ended: list[InFlight]) -> None:
        """Give these requests up as lost: they ended, and no completion was recorded."""
        for request in ended:
            self._find.free_identity(request)

    def _doubt_waiting_bios(self, event: Event, device: Device, request: InFlight) -> None:
        """Mark the request, and all bios that wait in the event's range, ambiguous.

        Only bios of its operation, and only if no G or s was recorded on the device: the D may then
        be of a request of these bios. Does nothing if none waits there.
        """
        if device.reports_allocations:
            return
        bios = device.waiting.sharing(event.sector, event.end, event.op)
        for io in (*bios, request) if bios else ():
            io.set_open()

    def requeue(self, event: Event, device: Device) -> None:
        """Apply R: identify the issued request with exactly this range, which waits for another D.

        It has the event's operation, too; of several the oldest, and all become ambiguous. The
        request moves from `device.issued` to `device.allocated`, not inserted, without its driver
        tag; it is ambiguous if it may be the remainder of another request's partial completion.
        Without one, a new request without bios is made and added there, ambiguous: it may be the
        remainder of any request. Sets request, bio and doubt of the event.
        """
        request = self._find.choose(event, device.issued.exact(event.sector, event.end, event.op))
        if request is None:
            request = self._find.new_request(event)
            # It may be the remainder of any request there, so the C of bios merged later is open.
            request.set_open()
        else:
            device.issued.remove(request)
            if device.overlaps_partial(event.sector, event.end):
                request.set_open()
        request.inserted = False
        request.tags.pop(TagUse.FLIGHT, None)
        device.allocated.add(request)
        self._find.set_request(event, request)
