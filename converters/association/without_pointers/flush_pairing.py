# SPDX-License-Identifier: Apache-2.0
"""How far the ends of flushes may be off, where which is whose is open, by interval.

Bios that one request could be of, and requests that one completion could be of, share what ends
them: each of them ends between the first and the last of the completions that they share.
"""

from collections import Counter
from dataclasses import dataclass, field

from biotrail.converters.association.without_pointers.pending import Held

FAR = 1 << 63
"""ns: no completion yet."""


@dataclass
class Pairing:
    """Flushes that could have ended by several completions, all of which were seen.

    completions: how many. same: of them, those that came at one time, so that each flush's end is
    exact whichever was its own. most_ns: most time between the first and the last that flushes
    share. spans: completions by the bits of that time (ns).
    """

    completions: int = 0
    same: int = 0
    most_ns: int = 0
    spans: Counter[int] = field(default_factory=Counter)

    def add(self, count: int, apart: int) -> None:
        """So many more completions, of which the first and the last are `apart` (ns)."""
        self.completions += count
        self.same += 0 if apart else count
        self.most_ns = max(self.most_ns, apart)
        self.spans[apart.bit_length()] += count

    @property
    def half_ns(self) -> int:
        """Half of the completions are no further apart (ns), to the next power of two."""
        seen = 0
        for bits, count in sorted(self.spans.items()):
            seen += count
            if 2 * seen >= self.completions:
                return min(self.most_ns, (1 << bits) - 1)
        return 0

    def as_dict(self) -> dict[str, int]:
        """Plain values for JSON; times in ns."""
        return {
            "completions": self.completions,
            "same_time": self.same,
            "half_within_ns": self.half_ns,
            "all_within_ns": self.most_ns,
        }


@dataclass(eq=False)
class _Group:
    """What shares completions: bios and requests not ended yet; the completions' times (ns)."""

    first: int = FAR
    last: int = 0
    live: set[Held] = field(default_factory=set)
    count: int = 0
    bounded: bool = True


class FlushPairing:
    """Follows which bios and requests share completions."""

    def __init__(self) -> None:
        self.found = Pairing()
        self._groups: dict[Held, _Group] = {}

    def end(self, ts: int, candidates: list[Held], *, others: bool) -> None:
        """A completion at `ts` (ns) ends the first of the candidates, as far as is told.

        others: it may be of a request that is none of the candidates, so that nothing is known.
        """
        if not candidates or (len(candidates) == 1 and candidates[0] not in self._groups):
            return
        group = self._joined(candidates)
        group.first, group.last = min(group.first, ts), max(group.last, ts)
        group.count += 1
        group.bounded &= not others
        group.live.discard(candidates[0])
        del self._groups[candidates[0]]
        if not group.live and group.bounded:
            self.found.add(group.count, group.last - group.first)

    def share(self, candidates: list[Held]) -> None:
        """An event is of one of these bios or requests: what ends one may end another."""
        if len(candidates) > 1:
            self._joined(candidates)

    def serve(self, bio: Held, request: Held) -> None:
        """The bio has this request from now on, which stands for it."""
        group = self._groups.pop(bio, None)
        if group is not None:
            group.live.discard(bio)
            group.live.add(request)
            self._groups[request] = group

    def _joined(self, candidates: list[Held]) -> _Group:
        """The one group that the candidates are in from now on."""
        groups = list({self._groups[held]: None for held in candidates if held in self._groups})
        groups.sort(key=lambda group: len(group.live))
        group = groups.pop() if groups else _Group()
        for other in groups:
            group.first, group.last = min(group.first, other.first), max(group.last, other.last)
            group.count += other.count
            group.bounded &= other.bounded
            for held in other.live:
                self._groups[held] = group
            group.live |= other.live
        for held in candidates:
            self._groups[held] = group
            group.live.add(held)
        return group
