# SPDX-License-Identifier: Apache-2.0
"""Identities for logs that have none, by intervals: range, operation, direction and age.

One pass over the events, in time order, gives every event the identity of the bio and the
request it must be about; then everything else works as it does on kernel pointers. Where
more than one candidate fits, the oldest is taken and all of them are marked ambiguous.
Imported blktrace files, bcc's logs, and `--associate intervals` come through here.
"""

from collections.abc import Callable

import numpy as np

from recorder.records import Kind

from .context import Context
from .events import Events
from .interval_events import (
    RELEVANT,
    WITH_TID,
    Event,
    as_bio_complete,
    as_request_merge,
    forget_pointers,
    read,
)
from .pending import Device, Held
from .tables import U8, Certainty

_BIOS = 1 << 32
_REQUESTS = 1 << 48


class Identifier:
    """The state of all devices between windows; bounded by what is in flight."""

    def __init__(self, context: Context) -> None:
        self._devices: dict[int, Device] = {}
        self._next = 0
        self._preflush = context.flag_mask("PREFLUSH")
        self._fua = context.flag_mask("FUA")
        self._flush_op = context.op_number("flush")
        self._append_op = context.op_number("zone_append")
        self._discard_op = context.op_number("discard")
        # blktrace has one letter for the end of bios and of requests.
        self._bios_end_by_c = context.header.get("backend") == "blktrace"
        self._members: dict[int, list[int]] = {}
        self._sent: dict[int, Held] = {}
        """By thread: the bio that its last event remapped."""
        self._rules: dict[int, Callable[[Event, Device], None]] = {
            Kind.Q: self._queue,
            Kind.A: self._remap,
            Kind.X: self._split,
            Kind.G: self._allocate,
            Kind.START: self._start,
            Kind.M: self._back_merge,
            Kind.F: self._front_merge,
            Kind.RQ_MERGE: self._absorb,
            Kind.I: self._insert,
            Kind.D: self._issue,
            Kind.R: self._requeue,
            Kind.C: self._complete,
            Kind.RQ_REMAP: self._hand_on,
            Kind.BIO_COMPLETE: self._bio_complete,
        }

    def identify(self, events: Events) -> Events:
        """The same events with made-up identities. Each event must come once, in order."""
        raw = events.raw.copy()
        doubt = np.zeros(len(events), dtype=np.uint8)
        forget_pointers(events, raw)
        rows = events.rows(*RELEVANT)
        for row, event in zip(rows.tolist(), read(events, rows), strict=True):
            device = self._devices.setdefault(event.dev, Device())
            if event.kind in WITH_TID:
                event.sent = self._sent.pop(event.tid, None)
            self._rules[event.kind](event, device)
            self._write(raw[row], doubt, row, event)
        return Events(events.ts, events.cpu, events.number, raw, doubt, self._members)

    def _write(self, words: np.ndarray, doubt: U8, row: int, event: Event) -> None:
        doubt[row] = max(event.doubt, Certainty.INTERVAL)
        if event.completes_bio:
            as_bio_complete(words)
        elif event.kind == Kind.RQ_MERGE and int(words[0]) >> 56 != Kind.RQ_MERGE:
            as_request_merge(words)
        if event.kind in WITH_TID or event.kind == Kind.BIO_COMPLETE or event.completes_bio:
            words[1] = event.bio
            if event.kind in (Kind.G, Kind.M, Kind.F):
                words[5] = event.request
            elif event.kind == Kind.X:
                words[5] = event.other
        else:
            words[1], words[2] = event.request, event.bio
            if event.kind == Kind.RQ_MERGE:
                words[6] = event.other
        if event.members:
            self._members[event.number] = event.members

    def forget(self, numbers: np.ndarray) -> None:
        """Drops what is known of issues whose lifecycles have been given out."""
        for number in numbers.tolist():
            self._members.pop(number, None)

    # Rules. Each finds who the event is about, and keeps the device's state.

    def _new(self, event: Event, base: int) -> Held:
        self._next += 1
        return Held(base + self._next, event.sector, event.end, event.op, event.tid, self._next)

    def _queue(self, event: Event, device: Device) -> None:
        # Q follows the bio's A at once; where none does, the bio was sent on without.
        bio = event.sent
        if bio is None or (bio.sector, bio.end, bio.op) != (event.sector, event.end, event.op):
            bio = self._new(event, _BIOS)
        bio.flags = event.opf & (self._preflush | self._fua)
        event.bio = bio.identity
        if bio not in device.waiting:
            device.waiting.add(bio)

    def _remap(self, event: Event, device: Device) -> None:
        """A: a new bio from a device above; one that was sent to a partition goes on."""
        bio = event.sent
        if bio is not None and bio.place == event.source and bio in device.waiting:
            device.waiting.move(bio, event.sector, event.end)
        else:
            bio = self._new(event, _BIOS)
            device.waiting.add(bio)
        bio.place = (event.part, event.sector)
        self._sent[event.tid] = bio
        event.bio = bio.identity

    def _split(self, event: Event, device: Device) -> None:
        found = [h for h in device.waiting.starting(event.sector, event.op) if h.end > event.end]
        parent = self._choose(event, _same_task(event, found))
        front = self._new(event, _BIOS)
        event.bio = front.identity
        device.waiting.add(front)
        if parent is not None:
            event.other = parent.identity
            front.parent = parent
            parent.unserved.add(front)
            device.waiting.move(parent, event.end, parent.end)

    def _exact_bios(self, event: Event, device: Device) -> list[Held]:
        exact = device.waiting.exact(event.sector, event.end, event.op)
        return _same_task(event, [h for h in exact if not h.joined])

    def _claim_bio(self, event: Event, device: Device) -> Held:
        """The waiting bio of the event's range; a new one where none is known."""
        bio = self._choose(event, self._exact_bios(event, device))
        if bio is None:
            return self._new(event, _BIOS)
        device.waiting.remove(bio)
        return bio

    def _allocate(self, event: Event, device: Device) -> None:
        bio = self._claim_bio(event, device)
        request = self._new(event, _REQUESTS)
        request.tid, request.flags = bio.tid, bio.flags
        request.request = bio.identity
        request.doubt = max(request.doubt, event.doubt)
        _served(bio)
        event.bio, event.request = bio.identity, request.identity
        device.takes_requests = device.tells_allocations = True
        device.allocated.add(request)

    def _start(self, event: Event, device: Device) -> None:
        """s follows its G; where G was not recorded, it stands for it."""
        found = device.allocated.exact(event.sector, event.end, event.op)
        fresh = self._choose(event, [h for h in found if not h.started])
        if fresh is None:
            self._allocate(event, device)
            fresh = next(h for h in device.allocated if h.identity == event.request)
        fresh.started = True
        event.request, event.bio = fresh.identity, fresh.request

    def _hand_on(self, event: Event, device: Device) -> None:
        """Request-based dm hands a request of its own to this device."""
        request = self._new(event, _REQUESTS)
        device.allocated.add(request)
        self._about(event, request)

    def _back_merge(self, event: Event, device: Device) -> None:
        self._merge(event, device, device.allocated.ending(event.sector, event.op))

    def _front_merge(self, event: Event, device: Device) -> None:
        self._merge(event, device, device.allocated.starting(event.end, event.op))

    def _merge(self, event: Event, device: Device, takers: list[Held]) -> None:
        takers = self._mergeable(takers)
        waiting = self._exact_bios(event, device)
        absorbed = device.allocated.exact(event.sector, event.end, event.op)
        if not waiting and absorbed and takers:
            self._absorb_into(event, device, absorbed, takers)
            return
        bio = self._claim_bio(event, device)
        event.bio = bio.identity
        # What a task holds back itself comes before what the scheduler holds.
        plugged = [t for t in takers if t.tid == event.tid and not t.inserted]
        taker = self._choose_taker(event, device, plugged or takers)
        if taker is None:
            bio.joined = True
            device.waiting.add(bio)
            return
        _served(bio)
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
        return [t for t in takers if not t.flags & self._preflush]

    def _choose_taker(self, event: Event, device: Device, takers: list[Held]) -> Held | None:
        if len(takers) > 1:
            device.blur(event.sector, event.end, takers)
        return self._choose(event, takers)

    def _absorb(self, event: Event, device: Device) -> None:
        absorbed = device.allocated.exact(event.sector, event.end, event.op)
        takers = device.allocated.ending(event.sector, event.op)
        takers += device.allocated.starting(event.end, event.op)
        self._absorb_into(event, device, absorbed, _oldest_first(takers))

    def _absorb_into(
        self, event: Event, device: Device, absorbed: list[Held], takers: list[Held]
    ) -> None:
        """A request joins its neighbour. blktrace writes it as M; here it becomes m."""
        event.kind = Kind.RQ_MERGE
        gone = self._choose(event, absorbed)
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

    def _insert(self, event: Event, device: Device) -> None:
        found = device.allocated.exact(event.sector, event.end, event.op)
        request = self._choose(event, [h for h in found if not h.inserted] or found)
        if request is None:
            request = self._unknown_request(event, device)
            device.allocated.add(request)
        self._blur(event, device, request)
        request.inserted = True
        self._about(event, request)

    def _blur(self, event: Event, device: Device, request: Held) -> None:
        if device.blurred(event.sector, event.end):
            request.doubt = Certainty.AMBIGUOUS

    def _unknown_request(self, event: Event, device: Device) -> Held:
        """A request whose allocation was not recorded serves the bios that it covers.

        They must cover it sector for sector, or all that lies there is in doubt.
        """
        request = self._new(event, _REQUESTS)
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
        if grown or left or at != event.end or device.blurred(event.sector, event.end):
            for held in (request, *inside, *grown):
                held.doubt = Certainty.AMBIGUOUS
        if left:
            device.blur(event.sector, event.end, left)
        for bio in members:
            device.waiting.remove(bio)
            _served(bio)
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
        if event.op != self._discard_op:
            return []
        found = device.allocated.starting(event.sector, event.op)
        return [h for h in found if h.end < event.end]

    def _about(self, event: Event, request: Held) -> None:
        event.request, event.bio = request.identity, request.request
        event.doubt = max(event.doubt, request.doubt)

    def _issue(self, event: Event, device: Device) -> None:
        if self._is_flush_machinery(event):
            request = self._new(event, _REQUESTS)
            device.flush_issued = request.origin
            device.takes_requests = True
        else:
            found = device.allocated.exact(event.sector, event.end, event.op)
            chosen = self._choose(event, found)
            request = chosen or self._unknown_request(event, device)
            if chosen is not None:
                self._rivals(event, device, chosen)
                self._blur(event, device, chosen)
                device.allocated.remove(chosen)
        self._about(event, request)
        # FUA that is still there is the device's own; a flush first is never the device's.
        kept = event.opf & self._fua
        request.sequence = bool(request.flags & self._preflush or request.flags & self._fua & ~kept)
        device.issued.add(request)

    def _rivals(self, event: Event, device: Device, request: Held) -> None:
        """Where no allocation is told, the issue may be of a bio that waits."""
        if device.tells_allocations:
            return
        for bio in device.waiting.sharing(event.sector, event.end, event.op):
            bio.doubt = request.doubt = Certainty.AMBIGUOUS

    def _is_flush_machinery(self, event: Event) -> bool:
        return event.op == self._flush_op and event.sector == event.end

    def _requeue(self, event: Event, device: Device) -> None:
        request = self._choose(event, device.issued.exact(event.sector, event.end, event.op))
        if request is None:
            request = self._new(event, _REQUESTS)
        else:
            device.issued.remove(request)
        request.inserted = False
        device.allocated.add(request)
        self._about(event, request)

    def _complete(self, event: Event, device: Device) -> None:
        if event.sector == event.end and not self._is_flush_machinery(event):
            self._end_of_flush(event, device)
            return
        device.takes_requests |= not self._bios_end_by_c
        fits = self._completing(event, device)
        failed = self._failing(event, device, fits)
        request = self._choose(event, fits + failed)
        if request is None:
            self._complete_unknown(event, device)
            return
        self._about(event, request)
        if request in device.allocated:
            device.allocated.remove(request)
        elif event.op == self._append_op or request.end == event.end:
            self._data_done(device, request)
        else:
            device.issued.move(request, event.end, request.end)

    def _completing(self, event: Event, device: Device) -> list[Held]:
        if event.op == self._append_op:
            # Zone append: C carries the sector that was written, not D's.
            size = event.end - event.sector
            same = (h for h in device.issued if h.op == event.op and h.end - h.sector == size)
            return _oldest_first(list(same))
        found = device.issued.starting(event.sector, event.op)
        return [h for h in found if h.end >= event.end and not h.data_done]

    def _failing(self, event: Event, device: Device, fits: list[Held]) -> list[Held]:
        """What fails may never have been issued, or its allocation never been recorded."""
        if not event.failed:
            return []
        failed = device.allocated.exact(event.sector, event.end, event.op)
        unseen = device.waiting.sharing(event.sector, event.end, event.op)
        for held in [*fits, *failed, *unseen] if unseen else ():
            held.doubt = Certainty.AMBIGUOUS
        return failed

    def _data_done(self, device: Device, request: Held) -> None:
        if request.sequence:
            request.data_done = True
        else:
            device.issued.remove(request)

    def _complete_unknown(self, event: Event, device: Device) -> None:
        """No request is known: one from before the log; in blktrace's data, maybe a bio."""
        bio = None
        if self._bios_end_by_c and not device.takes_requests:
            bio = self._choose(event, self._ended_bios(event, device))
        if bio is None:
            event.request = self._new(event, _REQUESTS).identity
            return
        device.waiting.remove(bio)
        event.bio, event.completes_bio = bio.identity, True

    def _end_of_flush(self, event: Event, device: Device) -> None:
        """C of no bytes: the end of a flush sequence, or of a flush that had no data."""
        ended = [h for h in device.issued.starting(event.sector, event.op) if h.data_done]
        empty = device.allocated.exact(event.sector, event.end, event.op)
        # A flush serves only what was there when it was issued.
        empty = [h for h in empty if h.origin < device.flush_issued]
        unknown = self._unknown_flushes(event, device)
        for held in [*ended, *empty, *unknown] if (ended or empty) and unknown else ():
            held.doubt = Certainty.AMBIGUOUS
        request = self._choose(event, ended + empty)
        if request is None:
            self._end_of_unknown_flush(event, device, unknown)
            return
        self._about(event, request)
        (device.issued if request in device.issued else device.allocated).remove(request)

    def _unknown_flushes(self, event: Event, device: Device) -> list[Held]:
        """Where no allocation is told, bios without data wait for the completion itself."""
        if device.tells_allocations:
            return []
        waiting = device.waiting.exact(event.sector, event.end, event.op)
        waiting = [h for h in waiting if h.flags & self._preflush]
        return [h for h in waiting if h.origin < device.flush_issued]

    def _end_of_unknown_flush(self, event: Event, device: Device, waiting: list[Held]) -> None:
        bio = self._choose(event, waiting)
        if bio is None:
            self._complete_unknown(event, device)
            return
        device.waiting.remove(bio)
        event.request, event.bio = self._new(event, _REQUESTS).identity, bio.identity

    def _bio_complete(self, event: Event, device: Device) -> None:
        bio = self._choose(event, self._ended_bios(event, device))
        if bio is None:
            bio = self._new(event, _BIOS)
        else:
            device.waiting.remove(bio)
            if bio.unserved and device.takes_requests:
                event.doubt = Certainty.AMBIGUOUS
        event.bio = bio.identity

    def _ended_bios(self, event: Event, device: Device) -> list[Held]:
        """Waiting bios of the event's range; its size may be gone, and only the end left."""
        exact = device.waiting.exact(event.sector, event.end, event.op)
        if event.sector == event.end:
            ending = device.waiting.ending(event.sector, event.op)
            exact += [h for h in ending if h not in exact]
        return exact

    def _choose(self, event: Event, candidates: list[Held]) -> Held | None:
        """The oldest; all of them are in doubt when there are several."""
        if len(candidates) > 1:
            event.doubt = Certainty.AMBIGUOUS
            for held in candidates:
                held.doubt = Certainty.AMBIGUOUS
        if not candidates:
            return None
        event.doubt = max(event.doubt, candidates[0].doubt)
        return candidates[0]


def _served(bio: Held) -> None:
    """A bio is in a request now; so its parent misses one front less."""
    if bio.parent is not None:
        bio.parent.unserved.discard(bio)


def _same_task(event: Event, found: list[Held]) -> list[Held]:
    """A task submits one bio after the other: its own come first, if there are any."""
    own = [h for h in found if h.tid == event.tid]
    return own or found


def _oldest_first(found: list[Held]) -> list[Held]:
    return sorted(found, key=lambda h: h.origin)
