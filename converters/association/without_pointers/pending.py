# SPDX-License-Identifier: Apache-2.0
"""Bios and requests under way on one device, found by range, for logs without identities.

Exact ranges and shared edges are looked up directly; an interval tree answers what only it
can (who covers this, who lies within) and is kept only once that was asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from biotrail.converters.association.ranges.intervals import PendingRanges
from biotrail.converters.events.tables import Certainty

Tag = tuple[int | str, int]
"""A number, and what it counts in: a hardware queue, or the sort of tag."""


class TagUse(Enum):
    """What a request has a tag for."""

    FLIGHT = auto()
    """From its issue to its completion or requeue; told by D."""
    LIFE = auto()
    """From its start to its end; told by s, without the hardware queue."""


@dataclass(eq=False)
class TagGroup:
    """Tags that are in use, and the requests that have them.

    One tag and one request, until an event could be of several requests: then they have their
    tags together, for who of them ended is not known. When all the tags have been given again,
    all of them have.
    """

    tags: set[Tag]
    owners: "set[Held]"
    merged_into: "TagGroup | None" = None

    @property
    def whole(self) -> "TagGroup":
        """The group that this one is part of by now."""
        group = self
        while group.merged_into is not None:
            group = group.merged_into
        if group is not self:
            self.merged_into = group
        return group

    def merge(self, other: "TagGroup") -> None:
        """Takes in another group."""
        if other is not self:
            self.tags |= other.tags
            self.owners |= other.owners
            other.merged_into = self

    def dissolve(self, use: TagUse) -> None:
        """Nothing can be said of these requests any more."""
        for held in self.owners:
            held.tags.pop(use, None)
        self.owners.clear()


def confuse(candidates: "list[Held]") -> None:
    """An event is of one of these requests: from now on they have their tags together."""
    for use in TagUse:
        groups = [h.tags[use] for h in candidates if use in h.tags]
        for group in groups[1:]:
            groups[0].whole.merge(group.whole)
        if groups and len(groups) < len(candidates):
            groups[0].whole.dissolve(use)  # one of them has a tag that is not known


@dataclass(eq=False)
class Held:
    """A bio or a request: an identity made up for it, and where it is.

    Sectors of 512 bytes, half open. op: operation number. tid: who queued it. origin: order
    in which it came. doubt: how what is said of it is known.
    """

    identity: int
    sector: int
    end: int
    op: int
    tid: int
    origin: int
    doubt: int = Certainty.INTERVAL
    request: int = 0
    inserted: bool = False
    started: bool = False
    flags: int = 0
    """Flags of its bios that may set the flush machinery to work."""
    sequence: bool = False
    """That runs it: a completion of no bytes ends it."""
    data_done: bool = False
    joined: bool = False
    """A bio that merged into a request which is not known."""
    tags: dict[TagUse, TagGroup] = field(default_factory=dict)
    place: tuple[int, int] = (0, 0)
    """Where a bio was sent that awaits its Q: partition or disk, and sector there."""
    unserved: "set[Held]" = field(default_factory=set)
    """Fronts that were split off a bio and are in no request."""
    parent: "Held | None" = None
    since: int = 0
    """Number of the event that began it: its identity may have been another's before."""


class PendingSet:
    """Held things of one sort on one device, oldest first among equals."""

    def __init__(self) -> None:
        self._by_start: dict[int, dict[Held, None]] = {}
        self._by_end: dict[int, dict[Held, None]] = {}
        self._all: dict[Held, None] = {}
        self._tree: PendingRanges[Held] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._all)

    def __contains__(self, held: Held) -> bool:
        return held in self._all

    def add(self, held: Held) -> None:
        """Puts it where its range says."""
        self._all[held] = None
        self._by_start.setdefault(held.sector, {})[held] = None
        self._by_end.setdefault(held.end, {})[held] = None
        if self._tree is not None:
            self._tree.add(held, held.sector, held.end)

    def remove(self, held: Held) -> None:
        """Takes it away."""
        del self._all[held]
        _drop(self._by_start, held.sector, held)
        _drop(self._by_end, held.end, held)
        if self._tree is not None:
            self._tree.remove(held)

    def move(self, held: Held, sector: int, end: int) -> None:
        """Gives it another range; its place among equals stays."""
        self.remove(held)
        held.sector, held.end = sector, end
        self.add(held)

    def exact(self, sector: int, end: int, op: int) -> list[Held]:
        """All of that range and operation, oldest first."""
        return _oldest(h for h in self._by_start.get(sector, ()) if h.end == end and h.op == op)

    def starting(self, sector: int, op: int) -> list[Held]:
        """All that begin there."""
        return _oldest(h for h in self._by_start.get(sector, ()) if h.op == op)

    def ending(self, sector: int, op: int) -> list[Held]:
        """All that end there."""
        return _oldest(h for h in self._by_end.get(sector, ()) if h.op == op)

    def covering(self, sector: int, end: int, op: int) -> list[Held]:
        """All whose range holds `[sector, end)`."""
        return _oldest(h for h in self._ranges().covering(sector, end) if h.op == op)

    def sharing(self, sector: int, end: int, op: int) -> list[Held]:
        """All that have a sector in common with `[sector, end)`."""
        return _oldest(h for h in self._ranges().touching(sector, end) if h.op == op)

    def within(self, sector: int, end: int, op: int) -> list[Held]:
        """All whose range lies in `[sector, end)`, by sector."""
        found = self._ranges().touching(sector, end)
        inside = (h for h in found if h.op == op and h.sector >= sector and h.end <= end)
        return sorted(inside, key=lambda h: (h.sector, h.origin))

    def _ranges(self) -> PendingRanges[Held]:
        if self._tree is None:
            self._tree = PendingRanges()
            for held in self._all:
                self._tree.add(held, held.sector, held.end)
        return self._tree


def _oldest(found: Iterator[Held]) -> list[Held]:
    return sorted(found, key=lambda h: h.origin)


def _drop(index: dict[int, dict[Held, None]], key: int, held: Held) -> None:
    at = index[key]
    del at[held]
    if not at:
        del index[key]


class Device:
    """What is under way on one device."""

    def __init__(self, *, one_queue: bool = False) -> None:
        self.one_queue = one_queue
        """It has one hardware queue, so that a tag alone names a request."""
        self.waiting = PendingSet()
        """Bios that are in no request."""
        self.allocated = PendingSet()
        """Requests that are not issued."""
        self.issued = PendingSet()
        """Requests that are issued; also those whose data is done before the last flush."""
        self._by_tag: dict[tuple[TagUse, Tag], TagGroup] = {}
        self.takes_requests = False
        self.tells_allocations = False
        self.flush_issued = 0
        """`origin` of the newest flush request that was issued."""
        self._blurs: list[tuple[int, int, list[Held]]] = []
        self._parted: list[tuple[int, int, list[Held]]] = []

    def take_tag(self, request: Held, use: TagUse, tag: Tag) -> list[Held]:
        """The request has this tag now; gives those that must have ended, unseen, for that."""
        if use is TagUse.LIFE and not self.one_queue:
            return []
        known = self._by_tag.get((use, tag))
        self._by_tag[use, tag] = request.tags[use] = TagGroup({tag}, {request})
        if known is None:
            return []
        before = known.whole
        before.tags.discard(tag)
        before.owners = {h for h in before.owners if self._owns(h, use, before)}
        too_many = len(before.owners) - len(before.tags)
        # Where some are still there, it is not known which: all may be.
        gone = _oldest(iter(before.owners)) if too_many >= len(before.owners) else []
        for held in gone:
            before.owners.remove(held)
            (self.issued if held in self.issued else self.allocated).remove(held)
        return gone

    def _owns(self, held: Held, use: TagUse, group: TagGroup) -> bool:
        if use not in held.tags or held.tags[use].whole is not group:
            return False
        return held in self.issued or (use is TagUse.LIFE and held in self.allocated)

    def under_way(self) -> Iterator[Held]:
        """All bios and requests."""
        yield from self.waiting
        yield from self.allocated
        yield from self.issued

    def blur(self, sector: int, end: int, candidates: list[Held]) -> None:
        """Something went to one of several: where the others are is not sure."""
        lowest, highest = min(c.sector for c in candidates), max(c.end for c in candidates)
        self._blurs.append((min(lowest, sector), max(highest, end), candidates))

    def blurred(self, sector: int, end: int) -> bool:
        """Whether such a choice was near, and one of its candidates still waits."""
        self._blurs = [b for b in self._blurs if any(self._waits(h) for h in b[2])]
        return any(low < end and sector < high for low, high, _ in self._blurs)

    def part(self, candidates: list[Held]) -> None:
        """A part of one of these completed: where the others begin is not sure, if they go on."""
        ends = {h.end for h in candidates}
        if len(ends) > 1:
            self._parted.append((min(h.sector for h in candidates), max(ends), candidates))

    def parted(self, sector: int, end: int) -> bool:
        """Whether such a part was near, and one of its candidates is not through."""
        self._parted = [p for p in self._parted if any(self._is_here(h) for h in p[2])]
        return any(low < end and sector < high for low, high, _ in self._parted)

    def _is_here(self, held: Held) -> bool:
        return held in self.issued or held in self.allocated

    def _waits(self, held: Held) -> bool:
        return held in self.allocated or held in self.waiting
