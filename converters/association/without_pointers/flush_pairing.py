# SPDX-License-Identifier: Apache-2.0
"""By how much the ends of flushes can be off where it is open, without pointers, which is whose.

Bios that one request could serve, and requests that one completion could end, form a group. Each
member ended between the first and the last completion of its group.
"""

from dataclasses import dataclass, field

from biotrail.converters.association.without_pointers.doubt import FAR
from biotrail.converters.association.without_pointers.pairing import Pairing
from biotrail.converters.association.without_pointers.pending import InFlight


@dataclass(eq=False)
class _Group:
    """Bios and requests that share completions.

    first, last: times of the first and last completion (ns; FAR, 0: none yet). live: members that
    have not ended. count: completions so far. bounded: whether all were certainly of a member.
    """

    first: int = FAR
    last: int = 0
    live: set[InFlight] = field(default_factory=set)
    count: int = 0
    bounded: bool = True


class FlushPairing:
    """Follows groups of bios and requests without data that share completions.

    counts: counts over all groups that have ended.
    """

    def __init__(self) -> None:
        self.counts = Pairing()
        self._groups: dict[InFlight, _Group] = {}

    def complete(self, ts: int, candidates: list[InFlight], *, others: bool) -> None:
        """Record a completion that was taken for the first candidate's and could be of any of them.

        ts: ns. candidates: bios or requests, which become one group; the first leaves it. When the
        last member leaves, the group's completions are added to `counts`, but only if each was
        certainly of a member. others: whether this completion may be of a request that is no
        candidate, so that it is not certain. Nothing happens without candidates, and for a single
        one that is in no group.
        """
        if not candidates or (len(candidates) == 1 and candidates[0] not in self._groups):
            return
        group = self._merge_groups(candidates)
        group.first, group.last = min(group.first, ts), max(group.last, ts)
        group.count += 1
        group.bounded &= not others
        group.live.discard(candidates[0])
        del self._groups[candidates[0]]
        if not group.live and group.bounded:
            self.counts.add(group.count, group.last - group.first)

    def share(self, candidates: list[InFlight]) -> None:
        """Put these bios or requests into one group, if several: an event is of one of them."""
        if len(candidates) > 1:
            self._merge_groups(candidates)

    def serve(self, bio: InFlight, request: InFlight) -> None:
        """Replace a bio in its group by the request that serves it; no-op if it is in none."""
        group = self._groups.pop(bio, None)
        if group is not None:
            group.live.discard(bio)
            group.live.add(request)
            self._groups[request] = group

    def _merge_groups(self, candidates: list[InFlight]) -> _Group:
        """Merge the candidates and the groups that they are in into one group, and return it.

        The largest group is kept and the others' members move to it, so each moves at most log n
        times; a new group is made if no candidate is in one. Completions are added up, the times
        widened, and the group is `bounded` if all were. Sets `_groups` of every member.
        """
        groups = list({self._groups[io]: None for io in candidates if io in self._groups})
        groups.sort(key=lambda group: len(group.live))
        group = groups.pop() if groups else _Group()
        for other in groups:
            group.first, group.last = min(group.first, other.first), max(group.last, other.last)
            group.count += other.count
            group.bounded &= other.bounded
            for io in other.live:
                self._groups[io] = group
            group.live |= other.live
        for io in candidates:
            self._groups[io] = group
            group.live.add(io)
        return group
