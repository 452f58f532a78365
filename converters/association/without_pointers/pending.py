# SPDX-License-Identifier: Apache-2.0
"""Bios and requests in flight on one device, looked up by range, for logs without pointers.

Exact ranges and shared ends are dictionary lookups; an interval tree, built when first needed,
answers which range covers, overlaps or lies within another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from biotrail.converters.association.ranges.intervals import PendingRanges
from biotrail.converters.association.without_pointers.doubt import Member

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
    owners: "set[InFlight]"
    merged_into: "TagGroup | None" = None

    @property
    def current(self) -> "TagGroup":
        """The group that this one is part of now: itself, or the last one along `merged_into`.

        Shortens `merged_into` to point to that last group directly.
        """
        group = self
        while group.merged_into is not None:
            group = group.merged_into
        if group is not self:
            self.merged_into = group
        return group

    def merge(self, other: "TagGroup") -> None:
        """Add the tags and requests of `other` to this group, and set `other.merged_into` to it.

        Does nothing if `other` is this group. Neither may have been merged into another group
        before.
        """
        if other is not self:
            self.tags |= other.tags
            self.owners |= other.owners
            other.merged_into = self

    def dissolve(self, use: TagUse) -> None:
        """Remove the group from its requests, whose tags then count as not recorded.

        Deletes the entry `use` in each request's `InFlight.tags`, and empties `owners`. The group
        must not have been merged into another.
        """
        for io in self.owners:
            io.tags.pop(use, None)
        self.owners.clear()


def merge_tag_groups(candidates: "list[InFlight]") -> None:
    """Merge the tag groups of requests of which one, not known which, had an event.

    For each TagUse on its own. If one of the requests has no group (its tag was not recorded), any
    of the tags may be that request's, so the merged group is dissolved. No effect where no request
    has a group.
    """
    for use in TagUse:
        groups = [h.tags[use] for h in candidates if use in h.tags]
        for group in groups[1:]:
            groups[0].current.merge(group.current)
        if groups and len(groups) < len(candidates):
            groups[0].current.dissolve(use)


@dataclass(eq=False)
class InFlight(Member):
    """A bio or request in flight: the identity made up for it, and its range.

    identity: stands for the pointer. sector, end: range in 512-byte sectors, half open; it grows by
    merges and shrinks by splits and partial completions. op: REQ_OP_*. tid: thread that queued the
    bio.
    origin: order in which it began.
    head_bio: of a request, the identity of its first bio, 0 none. inserted, started: whether I, s
    was recorded.
    data_done: whether the data of its flush sequence is complete. parent: bio that a front piece
    was split from.
    """

    identity: int
    sector: int
    end: int
    op: int
    tid: int
    origin: int
    head_bio: int = 0
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
    unserved: "set[InFlight]" = field(default_factory=set)
    """Front pieces of the bio that are in no request yet."""
    parent: "InFlight | None" = None
    since: int = 0
    """Number of the event that began it; earlier events of its identity are of another one."""


class PendingSet:
    """Bios or requests of one device, by range. Queries return the oldest first, by `origin`."""

    def __init__(self) -> None:
        self._by_start: dict[int, dict[InFlight, None]] = {}
        self._by_end: dict[int, dict[InFlight, None]] = {}
        self._all: dict[InFlight, None] = {}
        self._tree: PendingRanges[InFlight] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[InFlight]:
        return iter(self._all)

    def __contains__(self, io: InFlight) -> bool:
        return io in self._all

    def add(self, io: InFlight) -> None:
        """Add a bio or request, found from now on by its present `sector` and `end`.

        Change these by `move` alone while it is in the set.
        """
        self._all[io] = None
        self._by_start.setdefault(io.sector, {})[io] = None
        self._by_end.setdefault(io.end, {})[io] = None
        if self._tree is not None:
            self._tree.add(io, io.sector, io.end)

    def remove(self, io: InFlight) -> None:
        """Remove a bio or request, whose range must be the one it was added with.

        Raises KeyError: not in the set.
        """
        del self._all[io]
        _drop(self._by_start, io.sector, io)
        _drop(self._by_end, io.end, io)
        if self._tree is not None:
            self._tree.remove(io)

    def move(self, io: InFlight, sector: int, end: int) -> None:
        """Set `io.sector` and `io.end` (512-byte sectors) of a bio or request in the set.

        Its age (`origin`) stays. Raises KeyError: not in the set.
        """
        self.remove(io)
        io.sector, io.end = sector, end
        self.add(io)

    def exact(self, sector: int, end: int, op: int) -> list[InFlight]:
        """Return those with exactly this range and operation."""
        return _oldest(h for h in self._by_start.get(sector, ()) if h.end == end and h.op == op)

    def starting(self, sector: int, op: int) -> list[InFlight]:
        """Return those of this operation that begin at this sector."""
        return _oldest(h for h in self._by_start.get(sector, ()) if h.op == op)

    def ending(self, sector: int, op: int) -> list[InFlight]:
        """Return those of this operation that end at this sector."""
        return _oldest(h for h in self._by_end.get(sector, ()) if h.op == op)

    def covering(self, sector: int, end: int, op: int) -> list[InFlight]:
        """Return those of this operation whose range contains `[sector, end)`."""
        return _oldest(h for h in self._ranges().covering(sector, end) if h.op == op)

    def sharing(self, sector: int, end: int, op: int) -> list[InFlight]:
        """Return those of this operation that share a sector with `[sector, end)`."""
        return _oldest(h for h in self._ranges().touching(sector, end) if h.op == op)

    def within(self, sector: int, end: int, op: int) -> list[InFlight]:
        """Return the members of operation `op` (REQ_OP_*) whose range lies within `[sector, end)`.

        Sorted by first sector, then oldest first; empty ranges are not found. Unit: 512-byte
        sectors.
        """
        found = self._ranges().touching(sector, end)
        inside = (h for h in found if h.op == op and h.sector >= sector and h.end <= end)
        return sorted(inside, key=lambda h: (h.sector, h.origin))

    def _ranges(self) -> PendingRanges[InFlight]:
        """Return the interval tree over the ranges of all members, but for empty ranges.

        Built and kept in `_tree` at the first call; `add` and `remove` keep it up to date from then
        on.
        """
        if self._tree is None:
            self._tree = PendingRanges()
            for io in self._all:
                self._tree.add(io, io.sector, io.end)
        return self._tree


def _oldest(found: Iterator[InFlight]) -> list[InFlight]:
    """Return the bios or requests sorted by age, oldest first."""
    return sorted(found, key=lambda h: h.origin)


def _drop(index: dict[int, dict[InFlight, None]], key: int, io: InFlight) -> None:
    """Remove a bio or request from the dict at `index[key]`, and that dict if it is then empty.

    index: members by first sector, or by end. Raises KeyError: `io` is not in the dict at `key`.
    """
    members = index[key]
    del members[io]
    if not members:
        del index[key]


class Device:
    """The bios and requests in flight on one device."""

    def __init__(self, *, one_queue: bool = False) -> None:
        """Start with nothing in flight, and no request or allocation seen.

        one_queue: whether the device has one hardware queue, so that LIFE tags are unique.
        """
        self.one_queue = one_queue
        """Whether it has one hardware queue, so that LIFE tags are unique."""
        self.waiting = PendingSet()
        """Bios in no request."""
        self.allocated = PendingSet()
        """Requests not issued, requeued ones included."""
        self.issued = PendingSet()
        """Requests with the driver, and flush sequences whose data is done."""
        self._by_tag: dict[tuple[TagUse, Tag], TagGroup] = {}
        self.has_requests = False
        """Whether a request of it was seen, so that its bios complete by C, not c."""
        self.reports_allocations = False
        """Whether a G or s of it was seen: each request then begins with an event."""
        self.flush_issued = 0
        """`origin` of the newest flush request that was issued."""
        self._guesses: list[tuple[int, int, list[InFlight]]] = []
        """(sector, end, candidates) of choices among several candidates."""
        self._partials: list[tuple[int, int, list[InFlight]]] = []
        """(sector, end, candidates) of partial completions of one of several requests."""

    def assign_tag(self, request: InFlight, use: TagUse, tag: Tag) -> list[InFlight]:
        """Give the request a tag just seen; return requests that must have ended before.

        The kernel reuses a tag only after blk_mq_put_tag, so the tag's earlier owner has ended
        (FLIGHT: or was requeued) without a recorded event. The tag moves from its earlier TagGroup
        to a new group of the request alone (`request.tags[use]`). While the earlier group has
        another tag, any of its requests may own that one, and [] is returned. Otherwise its
        requests that are still in flight are removed from it and from `issued` or `allocated`, and
        returned, oldest first; [] if there is none.

        use: which of the request's tags. For LIFE, on a device of several hardware queues, the tag
        number is not unique: nothing changes, and [] is returned.
        """
        if use is TagUse.LIFE and not self.one_queue:
            return []
        earlier = self._by_tag.get((use, tag))
        self._by_tag[use, tag] = request.tags[use] = TagGroup({tag}, {request})
        if earlier is None:
            return []
        group = earlier.current
        group.tags.discard(tag)
        group.owners = {h for h in group.owners if self._has_tag_of(h, use, group)}
        too_many = len(group.owners) - len(group.tags)
        # While one of the group's tags is in use, any of its requests may have that tag.
        ended = _oldest(iter(group.owners)) if too_many >= len(group.owners) else []
        for io in ended:
            group.owners.remove(io)
            (self.issued if io in self.issued else self.allocated).remove(io)
        return ended

    def _has_tag_of(self, io: InFlight, use: TagUse, group: TagGroup) -> bool:
        """Return whether the request has a tag of `group`, and is in flight.

        group: one that was not merged into another. In flight means issued; for LIFE tags, which a
        request has before its issue, also allocated.
        """
        if use not in io.tags or io.tags[use].current is not group:
            return False
        return io in self.issued or (use is TagUse.LIFE and io in self.allocated)

    def in_flight(self) -> Iterator[InFlight]:
        """Yield all bios and requests in flight."""
        yield from self.waiting
        yield from self.allocated
        yield from self.issued

    def add_guess(self, sector: int, end: int, candidates: list[InFlight]) -> None:
        """Record that an event was given to one of several candidates: any range may be wrong.

        sector, end: range of the event (512-byte sectors); a merge adds it to one candidate.
        `overlaps_guess` then answers for the smallest range that holds the event and all
        candidates.
        """
        lowest, highest = min(c.sector for c in candidates), max(c.end for c in candidates)
        self._guesses.append((min(lowest, sector), max(highest, end), candidates))

    def overlaps_guess(self, sector: int, end: int) -> bool:
        """Return whether `[sector, end)` overlaps a range of `add_guess` that may still be wrong.

        That is one with a candidate among the waiting bios or allocated requests; others are
        forgotten.
        """
        self._guesses = [b for b in self._guesses if any(self._not_issued(h) for h in b[2])]
        return any(low < end and sector < high for low, high, _ in self._guesses)

    def add_partial(self, candidates: list[InFlight]) -> None:
        """Record that a partial completion fits all `candidates`: which one it shortened is open.

        Nothing is recorded if all candidates end at one sector: then the remainder is the same for
        each. `overlaps_partial` answers for the range from the lowest first sector to the highest
        end.
        """
        ends = {h.end for h in candidates}
        if len(ends) > 1:
            self._partials.append((min(h.sector for h in candidates), max(ends), candidates))

    def overlaps_partial(self, sector: int, end: int) -> bool:
        """Return whether `[sector, end)` overlaps a range of `add_partial` that may still matter.

        That is one with a candidate among the allocated or issued requests; others are forgotten.
        """
        self._partials = [
            p for p in self._partials if any(self._request_in_flight(h) for h in p[2])
        ]
        return any(low < end and sector < high for low, high, _ in self._partials)

    def _request_in_flight(self, io: InFlight) -> bool:
        """Return whether a request is in flight."""
        return io in self.issued or io in self.allocated

    def _not_issued(self, io: InFlight) -> bool:
        """Return whether a bio or request is not issued yet."""
        return io in self.allocated or io in self.waiting
