# SPDX-License-Identifier: Apache-2.0
"""Which bio an event is about, by interval: Q, A, X, c, and whom G, M and F take."""

from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.finding import Finding, same_task
from biotrail.converters.association.without_pointers.pending import Device, Held
from biotrail.converters.events.tables import Certainty


class BioRules:
    """The rules of events about bios that are in no request."""

    def __init__(self, find: Finding) -> None:
        self._find = find
        self.sent: dict[int, Held] = {}
        """By thread: the bio that its last event remapped."""

    def queue(self, event: Event, device: Device) -> None:
        """Q: a bio begins here, unless its A came just before."""
        # Q follows the bio's A at once; where none does, the bio was sent on without.
        bio = event.sent
        if bio is None or bio not in device.waiting or not _at(bio, event):
            bio = self._find.new_bio(event)
        bio.flags = event.opf & (self._find.preflush | self._find.fua)
        event.bio = bio.identity
        if bio not in device.waiting:
            device.waiting.add(bio)

    def remap(self, event: Event, device: Device) -> None:
        """A: a new bio from a device above; one that was sent to a partition goes on."""
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
        """X: a front piece leaves a bio, which goes on behind it."""
        found = [h for h in device.waiting.starting(event.sector, event.op) if h.end > event.end]
        parent = self._find.one(event, same_task(event, found))
        front = self._find.new_bio(event)
        event.bio = front.identity
        device.waiting.add(front)
        if parent is not None:
            event.other = parent.identity
            front.parent, front.doubt = parent, parent.doubt
            parent.unserved.add(front)
            device.waiting.move(parent, event.end, parent.end)

    def exact(self, event: Event, device: Device) -> list[Held]:
        """Bios of the event's range that wait for a request."""
        exact = device.waiting.exact(event.sector, event.end, event.op)
        return same_task(event, [h for h in exact if not h.joined])

    def claim(self, event: Event, device: Device) -> Held:
        """The waiting bio of the event's range; a new one where none is known."""
        bio = self._find.one(event, self.exact(event, device))
        if bio is None:
            return self._find.new_bio(event)
        device.waiting.remove(bio)
        return bio

    def complete(self, event: Event, device: Device) -> None:
        """c: a bio ends, without a request."""
        bio = self._find.one(event, self.ended(event, device))
        if bio is None:
            bio = self._find.new_bio(event)
        else:
            device.waiting.remove(bio)
            if bio.unserved and device.takes_requests:
                event.doubt = Certainty.AMBIGUOUS
        event.bio = bio.identity

    def ended(self, event: Event, device: Device) -> list[Held]:
        """Waiting bios of the event's range; its size may be gone, and only the end left."""
        exact = device.waiting.exact(event.sector, event.end, event.op)
        if event.sector == event.end:
            ending = device.waiting.ending(event.sector, event.op)
            exact += [h for h in ending if h not in exact]
        return exact


def _at(bio: Held, event: Event) -> bool:
    return (bio.sector, bio.end, bio.op) == (event.sector, event.end, event.op)
