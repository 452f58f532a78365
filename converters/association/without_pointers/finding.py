# SPDX-License-Identifier: Apache-2.0
"""What the rules share: new identities, and the choice among candidates."""

from biotrail.converters.association.without_pointers.doubt import Ends, share
from biotrail.converters.association.without_pointers.events import Event
from biotrail.converters.association.without_pointers.flush_pairing import FlushPairing
from biotrail.converters.association.without_pointers.pending import (
    InFlight,
    merge_tag_groups,
)
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.tables import Certainty

_BIOS = 1 << 32
_REQUESTS = 1 << 48


class Finding:
    """Makes up identities, and chooses among candidates; knows the log's operations and flags.

    preflush, fua: masks of these bits in opf. flush_op, append_op, discard_op: operation numbers.
    bios_end_by_c: whether C may be a bio's completion (blktrace has one letter for both).
    pairing: flushes that could have ended by several completions. ends: bounds of completions that
    could be of several bios or requests.
    """

    def __init__(self, context: Context) -> None:
        """Look up the numbers of operations and flags in the log's header (`context`).

        The mask of a flag that the kernel lacks is 0, the number of an operation -1. No identity is
        made up so far.
        """
        self._context = context
        self._next = 0
        self._unended: list[int] = []
        """Identities of requests whose completion was not recorded, free to be reused."""
        self.pairing = FlushPairing()
        self.ends = Ends()
        self.preflush = context.flag_mask("PREFLUSH")
        self.fua = context.flag_mask("FUA")
        self._passthrough_ops = {context.op_number(name) for name in PASSTHROUGH_OPS}
        self.flush_op = context.op_number("flush")
        self.append_op = context.op_number("zone_append")
        self.discard_op = context.op_number("discard")
        # blktrace has one letter for the end of bios and of requests.
        self.bios_end_by_c = context.header.get("backend") == "blktrace"

    @property
    def has_bios(self) -> bool:
        """Whether bios are recorded: a request that none waits for then lacks one."""
        return self._context.records_bios

    def new_bio(self, event: Event) -> InFlight:
        """Return a new bio with the event's range, operation and thread."""
        return self._new(event, _BIOS)

    def new_request(self, event: Event) -> InFlight:
        """Return a new request with the event's range, operation and thread."""
        return self._new(event, _REQUESTS)

    def begin_request(self, event: Event) -> InFlight:
        """Return a new request for a G, s or `a`, with the event's range, operation and thread.

        Its identity is one given to `free_identity`, if there is any, else a new one. Reuse of an
        identity means reuse of an address: association then takes the earlier request for lost, as
        it does on kernel pointers. Only G, s and `a` begin a new request after any event of the
        same address.
        """
        request = self._new(event, _REQUESTS)
        if self._unended:
            request.identity = self._unended.pop()
        return request

    def free_identity(self, request: InFlight) -> None:
        """Free a request's identity for `begin_request`: its completion was not recorded."""
        self._unended.append(request.identity)
        self.ends.lose(request)

    def _new(self, event: Event, base: int) -> InFlight:
        """Return a new bio or request with the range, operation, tid and number of `event`.

        Its identity is `base` plus a number that counts up; so is `origin`, its age. base: _BIOS or
        _REQUESTS. The caller adds the object to its device.
        """
        self._next += 1
        made = InFlight(base + self._next, event.sector, event.end, event.op, event.tid, self._next)
        made.since = event.number
        made.doubt, made.began = Certainty.INTERVAL, event.ts
        return made

    def choose(
        self, event: Event, candidates: list[InFlight], *, open_: bool = False
    ) -> InFlight | None:
        """Return the first candidate, None if there is none; raise `event.doubt` to its doubt.

        Callers sort the candidates: the oldest first, if need be after those of the event's thread.
        If there are several, `doubt` of the event and of all candidates becomes AMBIGUOUS, and
        their tag groups are merged (`merge_tag_groups`). If the event has no bytes and is no flush
        request's, they also join one group of `pairing`: completions that could be of each of them.
        open_: whether they are not alike, so that the choice decides which completion is whose.
        """
        if len(candidates) > 1:
            share(candidates, open_=open_)
            merge_tag_groups(candidates)
            if event.sector == event.end and not self.is_flush_machinery(event):
                self.pairing.share(candidates)
        if not candidates:
            return None
        event.inherit(candidates[0])
        return candidates[0]

    def set_request(self, event: Event, request: InFlight) -> None:
        """Set the event's request and its head bio; raise the event's doubt to the request's."""
        event.request, event.bio = request.identity, request.head_bio
        event.inherit(request)

    def is_flush_machinery(self, event: Event) -> bool:
        """Return whether the event is of a flush request (blk_kick_flush), which has no bio."""
        return event.op == self.flush_op and event.sector == event.end

    def is_passthrough(self, event: Event) -> bool:
        """Return whether the event is of a passthrough request; its bios were never queued."""
        return event.op in self._passthrough_ops


def serve(request: InFlight, bio: InFlight) -> None:
    """Note that the request serves the bio, which is no longer a front piece in no request."""
    request.serve(bio)
    if bio.parent is not None:
        bio.parent.unserved.discard(bio)


def same_task(event: Event, found: list[InFlight]) -> list[InFlight]:
    """Return the bios or requests that the event's thread (tid) queued; if none, all of `found`.

    The order stays. A task submits one bio after the other, so its own are the likelier ones.
    """
    own = [h for h in found if h.tid == event.tid]
    return own or found


def oldest_first(found: list[InFlight]) -> list[InFlight]:
    """Return the bios or requests sorted by the order in which they began."""
    return sorted(found, key=lambda h: h.origin)
