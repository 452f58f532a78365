# SPDX-License-Identifier: Apache-2.0
"""What the rules of `identify` share: new identities, and the choice among candidates."""

from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.flush_pairing import FlushPairing
from biotrail.converters.association.without_pointers.pending import Held, confuse
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.tables import Certainty

_BIOS = 1 << 32
_REQUESTS = 1 << 48


class Finding:
    """Makes up identities, and chooses; knows the log's operations and flags."""

    def __init__(self, context: Context) -> None:
        self._next = 0
        self._unended: list[int] = []
        """Identities of requests whose completion was not seen, to be used again."""
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
        """A bio that is where the event is."""
        return self._new(event, _BIOS)

    def new_request(self, event: Event) -> Held:
        """A request that is where the event is."""
        return self._new(event, _REQUESTS)

    def begin_request(self, event: Event) -> Held:
        """A request that begins here.

        It may take the identity of one whose completion was not seen, as the kernel uses an
        address again: that is how the rules on generations know that the other one is lost.
        Only for G, s and a, which begin a generation whatever came before.
        """
        request = self._new(event, _REQUESTS)
        if self._unended:
            request.identity = self._unended.pop()
        return request

    def lose(self, request: Held) -> None:
        """Its completion was not seen, and will not be."""
        self._unended.append(request.identity)

    def _new(self, event: Event, base: int) -> Held:
        self._next += 1
        made = Held(base + self._next, event.sector, event.end, event.op, event.tid, self._next)
        made.since = event.number
        return made

    def one(self, event: Event, candidates: list[Held]) -> Held | None:
        """The oldest; all of them are in doubt when there are several."""
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
        """The event is about this request."""
        event.request, event.bio = request.identity, request.request
        event.doubt = max(event.doubt, request.doubt)

    def is_flush_machinery(self, event: Event) -> bool:
        """A request of the flush machinery's own: it has no bio."""
        return event.op == self.flush_op and event.sector == event.end

    def is_passthrough(self, event: Event) -> bool:
        """A command of a user or driver: its bios, if it has any, were never queued."""
        return event.op in self._passthrough_ops


def served(bio: Held) -> None:
    """A bio is in a request now; so its parent misses one front less."""
    if bio.parent is not None:
        bio.parent.unserved.discard(bio)


def same_task(event: Event, found: list[Held]) -> list[Held]:
    """A task submits one bio after the other: its own come first, if there are any."""
    own = [h for h in found if h.tid == event.tid]
    return own or found


def oldest_first(found: list[Held]) -> list[Held]:
    """By the order in which they came."""
    return sorted(found, key=lambda h: h.origin)
