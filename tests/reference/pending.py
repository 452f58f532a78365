# SPDX-License-Identifier: Apache-2.0
"""What the reference without identities keeps: bios and requests under way, by range, and tags."""

from dataclasses import dataclass, field
from typing import Any

from intervaltree import Interval, IntervalTree

from tests.simulation.model import SECTOR
from tests.support.captures import FLAG_BITS, OPS

PREFLUSH, FUA = 1 << FLAG_BITS["PREFLUSH"], 1 << FLAG_BITS["FUA"]


@dataclass(eq=False)
class Thing:
    """A bio or request somewhere on a device: `[sector, end)`, op, who queued it, its age."""

    sector: int
    end: int
    op: int
    tid: int
    age: int
    doubt: bool = False
    times: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class RefBio(Thing):
    """One bio; pieces of a split are bios with a `root`."""

    root: "RefBio | None" = None
    pieces: list["RefBio"] = field(default_factory=list)
    request: "RefRequest | None" = None
    queue: int = -1
    size: int = 0
    piece: int = 0
    place: tuple[int, int] = (0, 0)
    """Where A sent it: partition or disk, and sector there."""
    joined: bool = False
    """Merged into a request that is not known."""
    fronts: list["RefBio"] = field(default_factory=list)
    flags: int = 0
    ended: int = -1
    status: int = 0
    good: int = 0
    own_end: int = -1
    above: "tuple[RefDevice, RefBio] | None" = None
    """Of an A: the only bio on the device above that it can send on itself."""

    @property
    def whole(self) -> "RefBio":
        """The bio that its submitter knows."""
        return self if self.root is None else self.root.whole


@dataclass(eq=False)
class RefRequest(Thing):
    """One request. members: the bios in it, by sector."""

    members: list[RefBio] = field(default_factory=list)
    inserted: bool = False
    started: bool = False
    flags: int = 0
    """PREFLUSH and FUA of its bios."""
    sequence: bool = False
    """The flush machinery runs it: a C of no bytes ends it."""
    data_done: bool = False
    tags: dict[str, "RefTags"] = field(default_factory=dict)
    """flight: by hardware queue and driver tag. life: the scheduler's or the driver's tag."""
    issues: int = 0
    requeues: int = 0
    completions: list[tuple[int, int, int]] = field(default_factory=list)
    """(time, bytes, status)."""
    finished: bool = False


@dataclass(eq=False)
class RefTags:
    """Tags in use, and whose they are; several of each where requests could be confused."""

    tags: set[tuple[Any, int]]
    owners: list[RefRequest]


class Ranges:
    """Things by range; those without sectors stand on the one where they begin."""

    def __init__(self) -> None:
        self._tree = IntervalTree()

    def add(self, thing: Any) -> None:
        """Puts it where it is."""
        self._tree.add(self._interval(thing))

    def remove(self, thing: Any) -> None:
        """Takes it away."""
        self._tree.remove(self._interval(thing))

    def __contains__(self, thing: Any) -> bool:
        return self._interval(thing) in self._tree

    @staticmethod
    def _interval(thing: Thing) -> Interval:
        return Interval(thing.sector, max(thing.end, thing.sector + 1), thing)

    def near(self, sector: int, end: int) -> list[Any]:
        """All that could touch or meet `[sector, end)`, oldest first."""
        found = self._tree.overlap(max(0, sector - 1), max(end, sector) + 1)
        return sorted((i.data for i in found), key=lambda t: t.age)

    def all(self) -> list[Any]:
        """Everything, oldest first."""
        return sorted((i.data for i in self._tree), key=lambda t: t.age)


class RefDevice:
    """What is under way on one device."""

    def __init__(self) -> None:
        self.waiting, self.held, self.issued = Ranges(), Ranges(), Ranges()
        self.takes_requests = False
        self.queues = False
        """A Q of it was seen."""
        self.tells_allocations = False
        self.blurs: list[tuple[int, int, list[Any]]] = []
        """Where one of several was taken: their common range, while one of them waits."""
        self.parted: list[tuple[int, int, list[Any]]] = []
        """Of which of several a part completed: their common range, until all are through."""
        self.flush_issued = -1
        """Age of the newest flush request's issue."""


def share_tags(use: str, confused: list[RefRequest]) -> None:
    """Which of them an event is of is not known; so neither whose tag is whose."""
    groups = {id(r.tags[use]): r.tags[use] for r in confused if use in r.tags}
    together = RefTags(set(), [])
    for group in groups.values():
        together.tags |= group.tags
        together.owners += [r for r in group.owners if r.tags.get(use) is group]
    for rq in together.owners:
        rq.tags[use] = together
    if any(use not in r.tags for r in confused):
        for rq in together.owners:
            del rq.tags[use]


def take_tag(
    use: str,
    tag: tuple[Any, int],
    rq: RefRequest,
    places: list[Ranges],
    *,
    outlived: bool = False,
) -> None:
    """A tag is given again when its request has ended, whether that was seen or not.

    outlived: of a flush sequence only the data has, then.

    Where requests share their tags, which of them has ended is known when none is left.
    """
    rq.tags[use] = RefTags({tag}, [rq])
    alive = [r for place in places for r in place.all() if r is not rq and use in r.tags]
    for group in [r.tags[use] for r in alive if tag in r.tags[use].tags][:1]:
        group.tags.discard(tag)
        left = sorted((r for r in alive if r.tags[use] is group), key=lambda r: r.age)
        for gone in left if not group.tags else []:
            if outlived and gone.sequence:
                gone.data_done = True  # it waits for a flush still
            else:
                next(p for p in places if gone in p.all()).remove(gone)
            del gone.tags[use]


def consume(rq: RefRequest) -> None:
    """The bios take the completed bytes in the order of their sectors."""
    at = 0
    for bio in sorted(rq.members, key=lambda b: b.sector):
        begin, at = at, at + bio.piece * SECTOR
        done = 0
        good = 0
        status = 0
        for ts, size, bad in rq.completions:
            share = min(done + size, at) - max(done, begin)
            if share > 0:
                good += 0 if bad else share
                status = bad or status
            done += size
            if done >= at and bio.ended < 0:
                bio.ended = ts
        bio.good, bio.status = good, status


def exact(ranges: Ranges, e: Thing) -> list[Any]:
    return [
        t
        for t in ranges.near(e.sector, e.end)
        if (t.sector, t.end, t.op) == (e.sector, e.end, e.op)
    ]


def own_first(found: list[Any], e: Thing) -> list[Any]:
    """A task submits one bio after the other: what it queued is what it goes on with."""
    return [t for t in found if t.tid == e.tid] or found


def grow(d: RefDevice, rq: RefRequest, e: Thing) -> None:
    d.held.remove(rq)
    rq.sector, rq.end = min(rq.sector, e.sector), max(rq.end, e.end)
    d.held.add(rq)


def neighbours(d: RefDevice, e: Thing, sides: str) -> list[RefRequest]:
    return [
        r
        for r in d.held.near(e.sector, e.end)
        if r.op == e.op
        and not r.flags & (PREFLUSH | FUA)  # REQ_NOMERGE_FLAGS
        and (("M" in sides and r.end == e.sector) or ("F" in sides and r.sector == e.end))
    ]


def shares(thing: Thing, e: Thing) -> bool:
    """Whether it has a sector in common with an event of its operation."""
    return thing.op == e.op and thing.sector < e.end and e.sector < thing.end


def ended_bios(d: RefDevice, e: Thing) -> list[RefBio]:
    """c has the whole range, or no size any more and the end as its sector."""
    found = exact(d.waiting, e)
    if e.sector == e.end:
        found += [
            b
            for b in d.waiting.near(e.sector, e.end)
            if b.end == e.sector and b.op == e.op and b not in found
        ]
    return found


def flush_machinery(e: Thing) -> bool:
    return e.op == OPS["FLUSH"] and e.sector == e.end
