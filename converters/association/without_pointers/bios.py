# SPDX-License-Identifier: Apache-2.0
"""Identities of bios in no request yet, by range: for Q, A, X, c, and the bios of G, M and F."""

from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import Finding, same_task
from biotrail.converters.association.without_pointers.pending import Device, Held
from biotrail.converters.events.tables import Certainty


class BioRules:
    """The rules of events about bios that wait for a request (`Device.waiting`).

    All methods write the identities found to `event` (bio, other, doubt) and update the device's
    sets.
    """

    def __init__(self, find: Finding) -> None:
        self._find = find
        self.sent: dict[int, Held] = {}
        """By thread id: the bio of the A that was the thread's last event."""

    def queue(self, event: Event, device: Device) -> None:
        """Q: identify a new bio, or the one that this thread's A just before sent to this place."""
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
        """A: identify a new bio here, or move the one this thread just sent to the partition.

        The bio's `place` and `sent` are set for the thread's next event.
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
        """X: identify a new bio, the front piece, and its parent, which keeps the rest.

        The parent is a longer waiting bio that begins at the same sector. Without one,
        `event.other` stays 0.
        """
        longer = [h for h in device.waiting.starting(event.sector, event.op) if h.end > event.end]
        parent = self._find.one(event, same_task(event, longer))
        front = self._find.new_bio(event)
        event.bio = front.identity
        device.waiting.add(front)
        if parent is not None:
            event.other = parent.identity
            front.parent, front.doubt = parent, parent.doubt
            parent.unserved.add(front)
            device.waiting.move(parent, event.end, parent.end)

    def exact(self, event: Event, device: Device) -> list[Held]:
        """Return waiting bios with exactly the event's range and operation.

        Only this thread's, if it has any. Not those that merged into a request that is not known.
        """
        exact = device.waiting.exact(event.sector, event.end, event.op)
        return same_task(event, [h for h in exact if not h.joined])

    def claim(self, event: Event, device: Device) -> Held:
        """Return the waiting bio with the event's range, and end its waiting; else a new bio."""
        bio = self._find.one(event, self.exact(event, device))
        if bio is None:
            return self._find.new_bio(event)
        device.waiting.remove(bio)
        return bio

    def complete(self, event: Event, device: Device) -> None:
        """c: identify the bio that ended, and remove it from the waiting ones.

        Ambiguous on a request-based device, if front pieces of the bio are in no request yet.
        """
        bio = self._find.one(event, self.ended(event, device))
        if bio is None:
            bio = self._find.new_bio(event)
        else:
            device.waiting.remove(bio)
            if bio.unserved and device.takes_requests:
                event.doubt = Certainty.AMBIGUOUS
        event.bio = bio.identity

    def ended(self, event: Event, device: Device) -> list[Held]:
        """Return waiting bios with the event's range, or ending there if the event has no size.

        bi_size is 0 in a c after the bio was advanced to its end.
        """
        exact = device.waiting.exact(event.sector, event.end, event.op)
        if event.sector == event.end:
            ending = device.waiting.ending(event.sector, event.op)
            exact += [h for h in ending if h not in exact]
        return exact


def _at(bio: Held, event: Event) -> bool:
    """Return whether the bio has exactly the event's range and operation."""
    return (bio.sector, bio.end, bio.op) == (event.sector, event.end, event.op)
