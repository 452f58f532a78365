# SPDX-License-Identifier: Apache-2.0
"""Bios and requests in flight on one device, looked up by range, for logs without pointers.

Exact ranges and shared ends are dictionary lookups; an interval tree, built when first needed,
answers which range covers, overlaps or lies within another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from biotrail.converters.association.ranges.intervals import PendingRanges
from biotrail.converters.events.tables import Certainty

Tag = tuple[int | str, int]
"""A tag number, after what it is unique in: a hardware queue, "scheduler" or "driver"."""


class TagUse(Enum):
    """Which of a request's tags."""

    FLIGHT = auto()
    """The driver's, from D to C or R; reported by D."""
    LIFE = auto()
    """The one that it has from s to its end; reported by s, without the hardware queue."""


@dataclass(eq=False)
class TagGroup:
    """Tags in use, and the requests that have them, with no record of which request has which.

    One tag and one request, until an event could be of several requests: then which of them ended
    is not known, and their groups merge. When all tags of a group were reused, all its requests
    have ended.
    merged_into: the group that this one became part of, or None.
    """

    tags: set[Tag]
    owners: "set[Held]"
    merged_into: "TagGroup | None" = None

    @property
    def whole(self) -> "TagGroup":
        """The group that this one is part of now: itself, or the end of `merged_into`."""
        group = self
        while group.merged_into is not None:
            group = group.merged_into
        if group is not self:
            self.merged_into = group
        return group

    def merge(self, other: "TagGroup") -> None:
        """Add the tags and requests of another group to this one; the other group refers to it."""
        if other is not self:
            self.tags |= other.tags
            self.owners |= other.owners
            other.merged_into = self

    def dissolve(self, use: TagUse) -> None:
        """Remove the group from all its requests: their tags are not known any more."""
        for held in self.owners:
            held.tags.pop(use, None)
        self.owners.clear()


def confuse(candidates: "list[Held]") -> None:
    """Merge the tag groups of these requests: an event is of one of them, and not known of which.

    If one of the requests has no group (its tag was not recorded), the merged group is dissolved.
    """
    for use in TagUse:
        groups = [h.tags[use] for h in candidates if use in h.tags]
        for group in groups[1:]:
            groups[0].whole.merge(group.whole)
        if groups and len(groups) < len(candidates):
            groups[0].whole.dissolve(use)


@dataclass(eq=False)
class Held:
    """A bio or request in flight: the identity made up for it, and its range.

    identity: stands for the pointer. sector, end: range in 512-byte sectors, half open; it grows by
    merges and shrinks by splits and partial completions. op: REQ_OP_*. tid: thread that queued the
    bio.
    origin: order in which it began. doubt: how its events are known (Certainty).
    request: of a request, the identity of its head bio. inserted, started: whether I, s was
    recorded.
    data_done: whether the data of its flush sequence is complete. parent: bio that a front piece
    was split from.
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
    """PREFLUSH and FUA of its bios: these make blk-flush.c run it."""
    sequence: bool = False
    """Whether blk-flush.c runs it as a flush sequence, which a C of no bytes ends."""
    data_done: bool = False
    joined: bool = False
    """The bio was merged into a request that could not be identified."""
    tags: dict[TagUse, TagGroup] = field(default_factory=dict)
    """By use: the group of a request's tag, with all requests that may have the tag instead."""
    place: tuple[int, int] = (0, 0)
    """Of a remapped bio whose Q is to come: partition or disk, and sector there."""
    unserved: "set[Held]" = field(default_factory=set)
    """Front pieces of the bio that are in no request yet."""
    parent: "Held | None" = None
    since: int = 0
    """Number of the event that began it; earlier events of its identity are of another one."""


class PendingSet:
    """Bios or requests of one device, by range. Queries return the oldest first, by `origin`."""

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
        """Add a bio or request, at its present range."""
        self._all[held] = None
        self._by_start.setdefault(held.sector, {})[held] = None
        self._by_end.setdefault(held.end, {})[held] = None
        if self._tree is not None:
            self._tree.add(held, held.sector, held.end)

    def remove(self, held: Held) -> None:
        """Remove a bio or request; KeyError if it is not in the set."""
        del self._all[held]
        _drop(self._by_start, held.sector, held)
        _drop(self._by_end, held.end, held)
        if self._tree is not None:
            self._tree.remove(held)

    def move(self, held: Held, sector: int, end: int) -> None:
        """Change the range of a bio or request in the set; its age stays."""
        self.remove(held)
        held.sector, held.end = sector, end
        self.add(held)

    def exact(self, sector: int, end: int, op: int) -> list[Held]:
        """Return those with exactly this range and operation."""
        return _oldest(h for h in self._by_start.get(sector, ()) if h.end == end and h.op == op)

    def starting(self, sector: int, op: int) -> list[Held]:
        """Return those of this operation that begin at this sector."""
        return _oldest(h for h in self._by_start.get(sector, ()) if h.op == op)

    def ending(self, sector: int, op: int) -> list[Held]:
        """Return those of this operation that end at this sector."""
        return _oldest(h for h in self._by_end.get(sector, ()) if h.op == op)

    def covering(self, sector: int, end: int, op: int) -> list[Held]:
        """Return those of this operation whose range contains `[sector, end)`."""
        return _oldest(h for h in self._ranges().covering(sector, end) if h.op == op)

    def sharing(self, sector: int, end: int, op: int) -> list[Held]:
        """Return those of this operation that share a sector with `[sector, end)`."""
        return _oldest(h for h in self._ranges().touching(sector, end) if h.op == op)

    def within(self, sector: int, end: int, op: int) -> list[Held]:
        """Return those of this operation that lie within `[sector, end)`, by sector, then age."""
        found = self._ranges().touching(sector, end)
        inside = (h for h in found if h.op == op and h.sector >= sector and h.end <= end)
        return sorted(inside, key=lambda h: (h.sector, h.origin))

    def _ranges(self) -> PendingRanges[Held]:
        """Return the interval tree over all ranges, built at the first call."""
        if self._tree is None:
            self._tree = PendingRanges()
            for held in self._all:
                self._tree.add(held, held.sector, held.end)
        return self._tree


def _oldest(found: Iterator[Held]) -> list[Held]:
    """Return the bios or requests sorted by age, oldest first."""
    return sorted(found, key=lambda h: h.origin)


def _drop(index: dict[int, dict[Held, None]], key: int, held: Held) -> None:
    """Remove a bio or request from the entry `key`, and the entry if it is then empty."""
    at = index[key]
    del at[held]
    if not at:
        del index[key]


class Device:
    """The bios and requests in flight on one device."""

    def __init__(self, *, one_queue: bool = False) -> None:
        self.one_queue = one_queue
        """Whether it has one hardware queue, so that LIFE tags are unique."""
        self.waiting = PendingSet()
        """Bios in no request."""
        self.allocated = PendingSet()
        """Requests not issued, requeued ones included."""
        self.issued = PendingSet()
        """Requests with the driver, and flush sequences whose data is done."""
        self._by_tag: dict[tuple[TagUse, Tag], TagGroup] = {}
        self.takes_requests = False
        """Whether a request of it was seen, so that its bios complete by C, not c."""
        self.tells_allocations = False
        """Whether a G or s of it was seen: each request then begins with an event."""
        self.flush_issued = 0
        """`origin` of the newest flush request that was issued."""
        self._blurs: list[tuple[int, int, list[Held]]] = []
        """(sector, end, candidates) of choices among several candidates."""
        self._parted: list[tuple[int, int, list[Held]]] = []
        """(sector, end, candidates) of partial completions of one of several requests."""

    def take_tag(self, request: Held, use: TagUse, tag: Tag) -> list[Held]:
        """Give the request this tag, in a group of its own; return requests that ended before.

        The tag is removed from its earlier group, if any. If that leaves the group without a tag,
        all its requests that are still in flight with it must have ended: they are removed from
        the group and from the device, and returned, oldest first. The kernel reuses a tag only
        after blk_mq_put_tag, so they completed (or, with FLIGHT, were requeued) with no event
        recorded. Otherwise [] is returned.

        use: which of the request's tags. For LIFE, where tags are not unique (several hardware
        queues), nothing changes and [] is returned.
        """
        if use is TagUse.LIFE and not self.one_queue:
            return []
        earlier = self._by_tag.get((use, tag))
        self._by_tag[use, tag] = request.tags[use] = TagGroup({tag}, {request})
        if earlier is None:
            return []
        group = earlier.whole
        group.tags.discard(tag)
        group.owners = {h for h in group.owners if self._owns(h, use, group)}
        too_many = len(group.owners) - len(group.tags)
        # While one of the group's tags is in use, any of its requests may have that tag.
        ended = _oldest(iter(group.owners)) if too_many >= len(group.owners) else []
        for held in ended:
            group.owners.remove(held)
            (self.issued if held in self.issued else self.allocated).remove(held)
        return ended

    def _owns(self, held: Held, use: TagUse, group: TagGroup) -> bool:
        """Return whether a request still has a tag of this group, and is in flight with it."""
        if use not in held.tags or held.tags[use].whole is not group:
            return False
        return held in self.issued or (use is TagUse.LIFE and held in self.allocated)

    def under_way(self) -> Iterator[Held]:
        """Yield all bios and requests in flight."""
        yield from self.waiting
        yield from self.allocated
        yield from self.issued

    def blur(self, sector: int, end: int, candidates: list[Held]) -> None:
        """Record that one of several candidates was chosen: the ranges of all may be wrong now.

        sector, end: range of the event, which a merge adds to one of the candidates.
        """
        lowest, highest = min(c.sector for c in candidates), max(c.end for c in candidates)
        self._blurs.append((min(lowest, sector), max(highest, end), candidates))

    def blurred(self, sector: int, end: int) -> bool:
        """Return whether `[sector, end)` overlaps such a choice with a candidate not issued yet."""
        self._blurs = [b for b in self._blurs if any(self._waits(h) for h in b[2])]
        return any(low < end and sector < high for low, high, _ in self._blurs)

    def part(self, candidates: list[Held]) -> None:
        """Record a partial completion that fits several requests: which one it shortened is open.

        Only if they end at different sectors: with one end, the remainder is the same for all.
        """
        ends = {h.end for h in candidates}
        if len(ends) > 1:
            self._parted.append((min(h.sector for h in candidates), max(ends), candidates))

    def parted(self, sector: int, end: int) -> bool:
        """Return whether `[sector, end)` overlaps such a completion with a request in flight."""
        self._parted = [p for p in self._parted if any(self._is_here(h) for h in p[2])]
        return any(low < end and sector < high for low, high, _ in self._parted)

    def _is_here(self, held: Held) -> bool:
        """Return whether a request is in flight."""
        return held in self.issued or held in self.allocated

    def _waits(self, held: Held) -> bool:
        """Return whether a bio or request is not issued yet."""
        return held in self.allocated or held in self.waiting
