# SPDX-License-Identifier: Apache-2.0
"""What the rules share: new identities, and the choice among candidates."""

from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.flush_pairing import FlushPairing
from biotrail.converters.association.without_pointers.pending import Held, confuse
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.tables import Certainty

_BIOS = 1 << 32
_REQUESTS = 1 << 48


class Finding:
    """Makes up identities, and chooses among candidates; knows the log's operations and flags.

    preflush, fua: masks of these bits in opf. flush_op, append_op, discard_op: operation numbers.
    bios_end_by_c: whether C may be a bio's completion (blktrace has one letter for both).
    pairing: flushes that could have ended by several completions.
    """

    def __init__(self, context: Context) -> None:
        self._next = 0
        self._unended: list[int] = []
        """Identities of requests whose completion was not recorded, free to be reused."""
        self.pairing = FlushPairing()
        self.preflush = context.flag_mask("PREFLUSH")
        self.fua = context.flag_mask("FUA")
        self._passthrough_ops = {context.op_number(name) for name in PASSTHROUGH_OPS}
        self.flush_op = context.op_number("flush")
        self.append_op = context.op_number("zone_append")
        self.discard_op = context.op_number("discard")
        # blktrace has one letter for the end of bios and of requests.
        self.bios_end_by_c = context.header.get("backend") == "blktrace"

    def new_bio(self, event: Event) -> Held:
        """Return a new bio with the event's range, operation and thread."""
        return self._new(event, _BIOS)

    def new_request(self, event: Event) -> Held:
        """Return a new request with the event's range, operation and thread."""
        return self._new(event, _REQUESTS)

    def begin_request(self, event: Event) -> Held:
        """Return a new request that begins at this event, a G, s or `a`.

        Its identity may be a request's whose completion was not recorded, as the kernel reuses an
        address: that shows the rules on generations that the earlier request is lost. Only for G, s
        and `a`, which begin a generation after any event.
        """
        request = self._new(event, _REQUESTS)
        if self._unended:
            request.identity = self._unended.pop()
        return request

    def lose(self, request: Held) -> None:
        """Free a request's identity for `begin_request`: its completion was not recorded."""
        self._unended.append(request.identity)

    def _new(self, event: Event, base: int) -> Held:
        """Return a new bio or request with an identity above `base`."""
        self._next += 1
        made = Held(base + self._next, event.sector, event.end, event.op, event.tid, self._next)
        made.since = event.number
        return made

    def one(self, event: Event, candidates: list[Held]) -> Held | None:
        """Return the first candidate, or None if there are none; raise `event.doubt` to its own.

        Callers sort candidates, the oldest first, if need be after those of the event's thread. If
        there are several, the event and all of them become ambiguous, and share their tags
        (`confuse`) and, for an event of no bytes, their completions (`FlushPairing.share`).
        """
        if len(candidates) > 1:
            event.doubt = Certainty.AMBIGUOUS
            for held in candidates:
                held.doubt = Certainty.AMBIGUOUS
            confuse(candidates)
            if event.sector == event.end and not self.is_flush_machinery(event):
                self.pairing.share(candidates)
        if not candidates:
            return None
        event.doubt = max(event.doubt, candidates[0].doubt)
        return candidates[0]

    def about(self, event: Event, request: Held) -> None:
        """Set the event's request and its head bio; raise the event's doubt to the request's."""
        event.request, event.bio = request.identity, request.request
        event.doubt = max(event.doubt, request.doubt)

    def is_flush_machinery(self, event: Event) -> bool:
        """Return whether the event is of a flush request (blk_kick_flush), which has no bio."""
        return event.op == self.flush_op and event.sector == event.end

    def is_passthrough(self, event: Event) -> bool:
        """Return whether the event is of a passthrough request; its bios were never queued."""
        return event.op in self._passthrough_ops


def served(bio: Held) -> None:
    """Remove the bio from its parent's front pieces that are in no request yet."""
    if bio.parent is not None:
        bio.parent.unserved.discard(bio)


def same_task(event: Event, found: list[Held]) -> list[Held]:
    """Return the bios or requests of the event's thread; if it has none, all of them.

    A task submits one bio after the other, so its own are the likelier ones.
    """
    own = [h for h in found if h.tid == event.tid]
    return own or found


def oldest_first(found: list[Held]) -> list[Held]:
    """Return the bios or requests sorted by the order in which they began."""
    return sorted(found, key=lambda h: h.origin)
