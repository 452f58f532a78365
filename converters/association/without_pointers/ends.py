# SPDX-License-Identifier: Apache-2.0
"""Identities of the requests that C completes, by range."""

from biotrail.converters.association.without_pointers.bios import BioRules
from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import Finding, oldest_first
from biotrail.converters.association.without_pointers.pending import Device, InFlight, TagUse


class EndRules:
    """The rules of C: of data, of a flush sequence, and of failures before the issue."""

    def __init__(self, find: Finding, bios: BioRules) -> None:
        self._find, self._bios = find, bios

    def complete(self, event: Event, device: Device) -> None:
        """Apply C: identify the request that completed, wholly or in part.

        A C of no bytes that is no flush request's ends a flush sequence (`_end_of_flush`). Others
        fit issued requests (`_completing`) or, after these, with an error, requests not issued
        (`_failing`); of several the first is taken, and all become ambiguous; if none fits,
        `_complete_unknown` decides. Sets request, bio and doubt of the event. The request is
        removed if it was not issued, if its end is the C's, or for a zone append, but in the last
        two cases a flush sequence stays issued with `data_done`; else its range shrinks by the
        bytes completed. Also records partial completions (`_doubt_remainder`), and sets
        `device.has_requests`, unless the log is blktrace's, whose C may be a bio's.
        """
        if event.sector == event.end and not self._find.is_flush_machinery(event):
            self._end_of_flush(event, device)
            return
        device.has_requests |= not self._find.bios_end_by_c
        fits = self._completing(event, device)
        failed = self._failing(event, device, fits)
        request = self._find.choose(event, fits + failed)
        if request is None:
            self._complete_unknown(event, device)
            return
        self._doubt_remainder(event, device, request, fits + failed)
        self._find.set_request(event, request)
        if request in device.allocated:
            device.allocated.remove(request)
        elif event.op == self._find.append_op or request.end == event.end:
            self._end_data(device, request)
        else:
            device.issued.move(request, event.end, request.end)
        last = request not in device.issued
        self._find.ends.add(event.number, event.ts, request, last=last)

    def _doubt_remainder(
        self, event: Event, device: Device, request: InFlight, fits: list[InFlight]
    ) -> None:
        """Mark the request ambiguous if an earlier partial completion may have been of it.

        That is one that `device.overlaps_partial` finds in the C's range. Then calls
        `device.add_partial` with `fits`, all requests that this C fits: if they end at several
        sectors, which one is shortened is open. For any C, also one that ends the request. Does
        nothing for zone append, whose C reports another sector than D.
        """
        if event.op == self._find.append_op:
            return
        if device.overlaps_partial(event.sector, event.end):
            request.set_open()
        device.add_partial(fits)

    def _completing(self, event: Event, device: Device) -> list[InFlight]:
        """Return the issued requests that a C may be of, oldest first.

        Those of its operation that begin at its sector, are not shorter, and are not a flush
        sequence whose data is done. For a zone append, whose C reports the sector that was written
        and not D's: all issued ones of the C's operation and size.
        """
        if event.op == self._find.append_op:
            # Zone append: C reports the sector that was written, not D's.
            size = event.end - event.sector
            same = (h for h in device.issued if h.op == event.op and h.end - h.sector == size)
            return oldest_first(list(same))
        starting = device.issued.starting(event.sector, event.op)
        return [h for h in starting if h.end >= event.end and not h.data_done]

    def _failing(self, event: Event, device: Device, fits: list[InFlight]) -> list[InFlight]:
        """Return the requests not issued that have exactly the range and operation of a failed C.

        Oldest first; [] for a C without an error. If waiting bios of its operation share a sector
        with the range, one of them may have a request that was not recorded: these bios, the
        requests returned and `fits` (the issued candidates) become ambiguous.
        """
        if not event.failed:
            return []
        failed = device.allocated.exact(event.sector, event.end, event.op)
        bios = device.waiting.sharing(event.sector, event.end, event.op)
        for io in [*fits, *failed, *bios] if bios else ():
            io.set_open()
        return failed

    def _end_data(self, device: Device, request: InFlight) -> None:
        """Remove a request whose data is complete from `device.issued`; keep flush sequences.

        A flush sequence stays issued until its C of no bytes: `data_done` is set, and its driver
        tag forgotten, because blk_kick_flush lends that to the flush request.
        """
        if request.sequence:
            request.data_done = True
            # blk_kick_flush lends the request's driver tag to the flush request.
            request.tags.pop(TagUse.FLIGHT, None)
        else:
            device.issued.remove(request)

    def _complete_unknown(self, event: Event, device: Device) -> None:
        """Identify a C that fits no request: as a new request's, which began before the log.

        Only `event.request` is set then, and the request is not added to the device. But if the
        backend is blktrace, which writes C for the end of bios as well, and no request of the
        device was seen, the C is taken for a bio's if a waiting one fits (`waiting_for_end`): the
        first is removed from `device.waiting`, and `event.bio`, `event.completes_bio` and the doubt
        are set.
        """
        bio = None
        if self._find.bios_end_by_c and not device.has_requests:
            bio = self._find.choose(event, self._bios.waiting_for_end(event, device))
        if bio is None:
            event.request = self._find.new_request(event).identity
            return
        device.waiting.remove(bio)
        self._find.ends.add(event.number, event.ts, bio, last=True)
        event.bio, event.completes_bio = bio.identity, True

    def _end_of_flush(self, event: Event, device: Device) -> None:
        """Apply a C of no bytes: identify and remove the flush sequence or empty request.

        Candidates of the C's operation at its sector: issued requests without data or whose data is
        done; and empty requests not issued that are older than the last flush request
        (blk_kick_flush completes only sequences queued before its issue). If flush sequences with
        data in flight, or bios of `_unknown_flushes`, are there too, all become ambiguous. Without
        a candidate `_end_of_unknown_flush` decides. Sets request, bio and doubt of the event, and
        reports the completion to `pairing`.
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
        for io in [*ended, *empty, *rivals] if (ended or empty) and rivals else ():
            io.set_open()
        request = self._find.choose(event, ended + empty)
        self._find.pairing.complete(event.ts, ended + empty, others=bool(rivals))
        if request is None:
            self._end_of_unknown_flush(event, device, unknown)
            return
        self._find.set_request(event, request)
        (device.issued if request in device.issued else device.allocated).remove(request)
        self._find.ends.add(event.number, event.ts, request, last=True)

    def _unknown_flushes(self, event: Event, device: Device) -> list[InFlight]:
        """Return the empty PREFLUSH bios without a request that a C of no bytes may be of.

        They wait at the C's sector, with its operation, and are older than the last flush request.
        [] if a G or s was recorded on the device: else such a bio's C is the first event of its
        request.
        """
        if device.reports_allocations:
            return []
        waiting = device.waiting.exact(event.sector, event.end, event.op)
        waiting = [h for h in waiting if h.flags & self._find.preflush]
        return [h for h in waiting if h.origin < device.flush_issued]

    def _end_of_unknown_flush(self, event: Event, device: Device, waiting: list[InFlight]) -> None:
        """Complete the first of the `waiting` PREFLUSH bios, which gets a new request here.

        event: a C of no bytes. waiting: oldest first (`_unknown_flushes`); if several, they and the
        event become ambiguous. Sets request, bio and doubt of the event, removes the bio from
        `device.waiting`, and reports the completion to `pairing`. The request is not added to the
        device. Without a waiting bio `_complete_unknown` decides.
        """
        bio = self._find.choose(event, waiting)
        self._find.pairing.complete(event.ts, waiting, others=False)
        if bio is None:
            self._complete_unknown(event, device)
            return
        device.waiting.remove(bio)
        self._find.ends.add(event.number, event.ts, bio, last=True)
        event.request, event.bio = self._find.new_request(event).identity, bio.identity
