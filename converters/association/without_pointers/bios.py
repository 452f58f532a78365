# SPDX-License-Identifier: Apache-2.0
"""Identities of bios in no request yet, by range: for Q, A, X, c, and the bios of G, M and F."""

from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import Finding, same_task
from biotrail.converters.association.without_pointers.pending import Device, InFlight


class BioRules:
    """The rules of events about bios that wait for a request (`Device.waiting`).

    All methods write the identities found to `event` (bio, other, doubt) and update the device's
    sets.
    """

    def __init__(self, find: Finding) -> None:
        self._find = find
        self.sent: dict[int, InFlight] = {}
        """By thread id: the bio of the A that was the thread's last event."""

    def queue(self, event: Event, device: Device) -> None:
        """Apply Q: identify a new bio, or the one that this thread's last event, an A, sent here.

        The latter if the bio still waits and has the Q's range and operation: submit_bio_noacct
        queues a remapped bio right after its A, but NVMe multipath sends on without a Q below. Sets
        `event.bio`, and `flags` of the bio (PREFLUSH, FUA); a new bio is added to `device.waiting`.
        """
        # A resubmitted bio's Q is its thread's next event (submit_bio_noacct); a bio that NVMe
        # multipath sends on has no Q below, so the next Q of the thread is elsewhere.
        bio = event.sent
        if bio is None or bio not in device.waiting or not _at(bio, event):
            bio = self._find.new_bio(event)
        bio.flags = event.opf & (self._find.preflush | self._find.fua)
        event.bio = bio.identity
        if bio not in device.waiting:
            device.waiting.add(bio)

    def remap(self, event: Event, device: Device) -> None:
        """Apply A: identify a new bio on the target device, or the one the thread sent last.

        The latter if the A before named this A's source as its place, and the bio still waits on
        the device: a bio that goes on from a partition to its disk. That bio moves to the new
        range; a new one is added to `device.waiting`. Sets `event.bio`, `place` of the bio and
        `sent` for the thread's next event.
        """
        bio = event.sent
        if bio is not None and bio.place == event.source and bio in device.waiting:
            device.waiting.move(bio, event.sector, event.end)
        else:
            bio = self._find.new_bio(event)
            device.waiting.add(bio)
        bio.place = (event.part, event.sector)
        self.sent[event.tid] = bio
        event.bio = bio.identity

    def split(self, event: Event, device: Device) -> None:
        """Apply X: identify a new bio, the front piece, and its parent, which keeps the rest.

        The parent is a waiting bio of the operation that begins at the X's sector and is longer; if
        some are of the event's thread, one of these. Of several the oldest; all become ambiguous.
        It is shortened to what is behind the piece. Sets `event.bio` (front), `event.other`
        (parent; 0 if none fits) and `event.doubt`, `parent` and `doubt` of the front, and
        `parent.unserved`; the front is added to `device.waiting`.
        """
        longer = [h for h in device.waiting.starting(event.sector, event.op) if h.end > event.end]
        parent = self._find.choose(event, same_task(event, longer), open_=True)
        front = self._find.new_bio(event)
        event.bio = front.identity
        device.waiting.add(front)
        if parent is not None:
            event.other = parent.identity
            front.parent = parent
            front.began = parent.began
            front.inherit(parent)
            parent.unserved.add(front)
            device.waiting.move(parent, event.end, parent.end)

    def waiting_at(self, event: Event, device: Device) -> list[InFlight]:
        """Return the waiting bios with exactly the event's range and operation, oldest first.

        Only those that the event's thread queued, if there are any, else all. Without those that
        merged into a request that could not be identified (`joined`).
        """
        exact = device.waiting.exact(event.sector, event.end, event.op)
        return same_task(event, [h for h in exact if not h.joined])

    def claim(self, event: Event, device: Device) -> InFlight:
        """Return the first bio of `waiting_at`, removed from `device.waiting`; else a new bio.

        Several candidates become ambiguous (`Finding.choose`). A new bio is not added to the
        device.
        """
        bio = self._find.choose(event, self.waiting_at(event, device))
        if bio is None:
            return self._find.new_bio(event)
        device.waiting.remove(bio)
        return bio

    def complete(self, event: Event, device: Device) -> None:
        """Apply c: identify the bio that ended, the first of `waiting_for_end`, else a new one.

        Sets bio and doubt of the event, and removes the bio from `device.waiting`; a new one is not
        added. Several candidates, and the event, become ambiguous. So does the event if the device
        has requests and front pieces of the bio are in none: their completion is still to come.
        """
        bio = self._find.choose(event, self.waiting_for_end(event, device))
        if bio is None:
            bio = self._find.new_bio(event)
        else:
            device.waiting.remove(bio)
            self._find.ends.add(event.number, event.ts, bio, last=True)
            if bio.unserved and device.has_requests:
                event.set_open()
        event.bio = bio.identity

    def waiting_for_end(self, event: Event, device: Device) -> list[InFlight]:
        """Return the waiting bios that a completion may be of: those with its range and operation.

        If the event has no bytes, others of its operation that end at its sector follow:
        bio_advance has then moved the bio to its end, where bi_size is 0. Oldest first in each of
        the two.
        """
        exact = device.waiting.exact(event.sector, event.end, event.op)
        if event.sector == event.end:
            ending = device.waiting.ending(event.sector, event.op)
            exact += [h for h in ending if h not in exact]
        return exact


def _at(bio: InFlight, event: Event) -> bool:
    """Return whether the bio has exactly the event's range and operation."""
    return (bio.sector, bio.end, bio.op) == (event.sector, event.end, event.op)
