# SPDX-License-Identifier: Apache-2.0
"""Identities of the requests that C completes, by range."""

from biotrail.converters.association.without_pointers.bios import BioRules
from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import Finding, oldest_first
from biotrail.converters.association.without_pointers.pending import Device, Held, TagUse
from biotrail.converters.events.tables import Certainty


class EndRules:
    """The rules of C: of data, of a flush sequence, and of failures before the issue."""

    def __init__(self, find: Finding, bios: BioRules) -> None:
        self._find, self._bios = find, bios

    def complete(self, event: Event, device: Device) -> None:
        """C: identify the request, and shorten it by the bytes completed or remove it.

        The request stays issued if it has bytes left, or if it is a flush sequence whose data is
        done.
        """
        if event.sector == event.end and not self._find.is_flush_machinery(event):
            self._end_of_flush(event, device)
            return
        device.takes_requests |= not self._find.bios_end_by_c
        fits = self._completing(event, device)
        failed = self._failing(event, device, fits)
        request = self._find.one(event, fits + failed)
        if request is None:
            self._complete_unknown(event, device)
            return
        self._parts(event, device, request, fits + failed)
        self._find.about(event, request)
        if request in device.allocated:
            device.allocated.remove(request)
        elif event.op == self._find.append_op or request.end == event.end:
            self._data_done(device, request)
        else:
            device.issued.move(request, event.end, request.end)

    def _parts(self, event: Event, device: Device, request: Held, fits: list[Held]) -> None:
        """Mark the request ambiguous if it may be the remainder of another's partial completion.

        Records this C in the device too, if `fits` end at several sectors: the remainder of each is
        possible.
        """
        if event.op == self._find.append_op:
            return
        if device.parted(event.sector, event.end):
            request.doubt = Certainty.AMBIGUOUS
        device.part(fits)

    def _completing(self, event: Event, device: Device) -> list[Held]:
        """Return issued requests that begin at the C's sector, and are not shorter, oldest first.

        For a zone append: those of the C's size, anywhere.
        """
        if event.op == self._find.append_op:
            # Zone append: C reports the sector that was written, not D's.
            size = event.end - event.sector
            same = (h for h in device.issued if h.op == event.op and h.end - h.sector == size)
            return oldest_first(list(same))
        starting = device.issued.starting(event.sector, event.op)
        return [h for h in starting if h.end >= event.end and not h.data_done]

    def _failing(self, event: Event, device: Device, fits: list[Held]) -> list[Held]:
        """Return requests not issued that have exactly the range of a failed C; else none.

        If bios wait in that range too, one of them may have a request that was not recorded: these
        bios, the requests returned and `fits` become ambiguous.
        """
        if not event.failed:
            return []
        failed = device.allocated.exact(event.sector, event.end, event.op)
        bios = device.waiting.sharing(event.sector, event.end, event.op)
        for held in [*fits, *failed, *bios] if bios else ():
            held.doubt = Certainty.AMBIGUOUS
        return failed

    def _data_done(self, device: Device, request: Held) -> None:
        """Remove a request whose data is complete, unless it is a flush sequence.

        A flush sequence stays issued until its C of no bytes, with `data_done` set.
        """
        if request.sequence:
            request.data_done = True
            # blk_kick_flush lends the request's driver tag to the flush request.
            request.tags.pop(TagUse.FLIGHT, None)
        else:
            device.issued.remove(request)

    def _complete_unknown(self, event: Event, device: Device) -> None:
        """Identify a new request, issued before the log; on blktrace, a waiting bio if one fits.

        blktrace has one letter for C and c, so on a device without requests so far C may be a
        bio's: then `event.completes_bio` is set.
        """
        bio = None
        if self._find.bios_end_by_c and not device.takes_requests:
            bio = self._find.one(event, self._bios.ended(event, device))
        if bio is None:
            event.request = self._find.new_request(event).identity
            return
        device.waiting.remove(bio)
        event.bio, event.completes_bio = bio.identity, True

    def _end_of_flush(self, event: Event, device: Device) -> None:
        """C of no bytes: identify the flush sequence or empty request that ended, and remove it.

        Candidates are issued requests at the sector that have no data, or whose data is done, and
        empty ones not issued that are older than the last flush request. All become ambiguous if
        flush sequences with data in flight, or bios of `_unknown_flushes`, are there too.
        """
        issued = device.issued.starting(event.sector, event.op)
        ended = [h for h in issued if h.data_done or h.end == h.sector]
        empty = device.allocated.exact(event.sector, event.end, event.op)
        # A flush completes only sequences that were queued when it was issued (blk_kick_flush).
        empty = [h for h in empty if h.origin < device.flush_issued]
        unknown = self._unknown_flushes(event, device)
        # Flush sequences with data in flight: their C may not have been recorded.
        data_in_flight = [h for h in issued if h.sequence and h not in ended]
        rivals = [*unknown, *data_in_flight]
        for held in [*ended, *empty, *rivals] if (ended or empty) and rivals else ():
            held.doubt = Certainty.AMBIGUOUS
        request = self._find.one(event, ended + empty)
        self._find.pairing.end(event.ts, ended + empty, others=bool(rivals))
        if request is None:
            self._end_of_unknown_flush(event, device, unknown)
            return
        self._find.about(event, request)
        (device.issued if request in device.issued else device.allocated).remove(request)

    def _unknown_flushes(self, event: Event, device: Device) -> list[Held]:
        """Return empty PREFLUSH bios there, older than the last flush; none if G or s is recorded.

        Without G and s, such a bio's C is the first event of its request.
        """
        if device.tells_allocations:
            return []
        waiting = device.waiting.exact(event.sector, event.end, event.op)
        waiting = [h for h in waiting if h.flags & self._find.preflush]
        return [h for h in waiting if h.origin < device.flush_issued]

    def _end_of_unknown_flush(self, event: Event, device: Device, waiting: list[Held]) -> None:
        """Complete one of the waiting PREFLUSH bios, which gets a new request.

        `_complete_unknown` where none waits.
        """
        bio = self._find.one(event, waiting)
        self._find.pairing.end(event.ts, waiting, others=False)
        if bio is None:
            self._complete_unknown(event, device)
            return
        device.waiting.remove(bio)
        event.request, event.bio = self._find.new_request(event).identity, bio.identity
