# SPDX-License-Identifier: Apache-2.0
"""Which bios and requests may have swapped their events, and so between which times each ended.

Where an event could be of several bios or requests, any of them may be the one: from then on what
happens to one of them may have happened to another. They form an exchange, which ends when all of
them have ended. Until then each completion of a member may be any member's.

A member that ended did so within bounds: from the first completion that could be its own to the
last one of its exchange. Bounds wider than a tenth of its latency say no more than none, so nobody
waits for them longer than that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from biotrail.converters.events.ends import SHARE, EndBounds
from biotrail.converters.events.tables import Certainty

FAR = 1 << 62
"""ns: later than any time."""


@dataclass(eq=False)
class _End:
    """A completion given to a member of an exchange.

    number: of its event. first: when the member may have ended first; deadline: by when it must
    have ended at last for its latency to be known (ns).
    """

    number: int
    first: int
    deadline: int


@dataclass(eq=False)
class Exchange:
    """Bios and requests that may have swapped their events.

    live: those that have not ended. ended: completions that were given to those that have.
    is_open: whether nothing bounds when they ended: an event may be of another one still, or
    decided more than whose it was. merged_into: the exchange that it became part of, or None.
    """

    live: "set[Member]" = field(default_factory=set)
    ended: list[_End] = field(default_factory=list)
    is_open: bool = False
    merged_into: "Exchange | None" = None

    @property
    def current(self) -> "Exchange":
        """The exchange that this one is part of now."""
        exchange = self
        while exchange.merged_into is not None:
            exchange = exchange.merged_into
        if exchange is not self:
            self.merged_into = exchange
        return exchange

    def merged(self, other: "Exchange") -> "Exchange":
        """Return this exchange and `other` as one; both must be current."""
        if self is other:
            return self
        small, large = sorted((self, other), key=lambda exchange: len(exchange.live))
        large.live |= small.live
        large.ended += small.ended
        large.is_open |= small.is_open
        small.merged_into = large
        return large


@dataclass(eq=False, kw_only=True)
class Doubt:
    """How surely an identity is known: by Certainty; AMBIGUOUS where it is in an exchange."""

    doubt: int = 0
    exchange: Exchange | None = None

    def inherit(self, other: "Doubt") -> None:
        """Become as doubtful as `other`, on which this identity rests."""
        self.doubt = max(self.doubt, other.doubt)
        if other.exchange is not None:
            self.join(other.exchange)

    def join(self, exchange: Exchange) -> None:
        """Become one of an exchange, which is then one with those joined before."""
        joined = exchange.current
        if self.exchange is not None:
            joined = joined.merged(self.exchange.current)
        self.doubt, self.exchange = Certainty.AMBIGUOUS, joined

    def set_open(self) -> None:
        """Become AMBIGUOUS, where nothing bounds when the I/O ended."""
        self.join(Exchange(is_open=True))


@dataclass(eq=False, kw_only=True)
class Member(Doubt):
    """A bio or request in flight, as exchanges see it.

    began: when it began; of a request when its first bio did. first_end: the first completion that
    may have been its own (ns); FAR: none so far.
    """

    began: int = 0
    first_end: int = FAR

    def join(self, exchange: Exchange) -> None:
        """Also count among those that have not ended."""
        super().join(exchange)
        assert self.exchange is not None
        self.exchange.live.add(self)

    def serve(self, bio: "Member") -> None:
        """Take a bio's place: what ends this request, or whole bio, ends it."""
        self.began = min(self.began, bio.began)
        self.first_end = min(self.first_end, bio.first_end)
        self.inherit(bio)
        bio.leave()

    def leave(self) -> None:
        """No longer count among those that have not ended: another one stands for it."""
        if self.exchange is not None:
            self.exchange.current.live.discard(self)


def share(candidates: Sequence[Member], *, open_: bool = False) -> None:
    """Make one exchange of several candidates for an event.

    open_: whether they differ in more than their beginning, so that the choice decides which
    completions there are.
    """
    exchange = Exchange(is_open=open_)
    for one in candidates:
        one.join(exchange)


class Ends:
    """Finds the bounds of ends, as completions come in order of time.

    bounds: those found.
    """

    def __init__(self) -> None:
        self.bounds = EndBounds()
        self._deadlines: list[tuple[int, int]] = []

    def add(self, number: int, ts: int, of: Member, *, last: bool) -> None:
        """Add the completion `number` at `ts` (ns), which was given to `of`.

        last: whether it ended it, and not a part of it. Does nothing for one in no exchange.
        """
        if of.exchange is None:
            return
        exchange = of.exchange.current
        for one in exchange.live:
            one.first_end = min(one.first_end, ts)
        first = min(of.first_end, ts)
        end = _End(number, first, first + max(first - of.began, 0) // SHARE)
        exchange.ended = [e for e in (*exchange.ended, end) if ts <= e.deadline]
        if last:
            exchange.live.discard(of)
        if exchange.is_open:
            self._give_up(exchange)
        elif not exchange.live:
            for e in exchange.ended:
                self.bounds.known[e.number] = e.first, ts
                self.bounds.pending.discard(e.number)
            exchange.ended = []
        elif ts <= end.deadline:
            self.bounds.pending.add(number)
            heappush(self._deadlines, (end.deadline, number))

    def lose(self, gone: Member) -> None:
        """Note that a bio or request ended, and no completion was recorded."""
        if gone.exchange is not None:
            exchange = gone.exchange.current
            exchange.live.discard(gone)
            exchange.is_open = True
            self._give_up(exchange)

    def pass_time(self, ts: int) -> None:
        """Give up the ends that must have been known before `ts` (ns)."""
        while self._deadlines and self._deadlines[0][0] < ts:
            self.bounds.pending.discard(heappop(self._deadlines)[1])

    def _give_up(self, exchange: Exchange) -> None:
        """Give up all ends of an exchange."""
        self.bounds.pending.difference_update(e.number for e in exchange.ended)
        exchange.ended = []
