# SPDX-License-Identifier: Apache-2.0
"""The reference by identity: one event at a time, of a log of which nothing is missing.

An address is a bio's or a request's until its end, which such a log has; so what an event names is
what lives there, and nothing is to be inferred. What no event names, as the bios behind a chain
that was cut, is left open (`untold`).

Nothing is shared with the machine but the letters of the records.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.reference.pending import FUA, PREFLUSH
from tests.simulation.model import SECTOR
from tests.support.captures import OPS

Fields = dict[str, Any]

PASSTHROUGH = {number for name, number in OPS.items() if name.startswith("DRV_")}
NEVER = -1


@dataclass(eq=False)
class KnownRequest:
    """One use of a request's address."""

    dev: int
    first: int
    """Time of the first event that names it."""
    times: dict[str, int] = field(default_factory=dict)
    """start, insert, issue: the first of each. complete: the last."""
    chain: list["KnownBio"] = field(default_factory=list)
    """Its bios that have bytes left, in the order in which a completion takes them."""
    bios: list["KnownBio"] = field(default_factory=list)
    issues: list[Fields] = field(default_factory=list)
    named: int = 0
    """Bios that the last issue's chain has named so far."""
    since_issue: int = 0
    requeues: int = 0
    done: int = 0
    status: int = 0
    clone: bool = False
    sequence: bool = False
    """blk-flush.c runs it: a C of no bytes ends it."""
    driven: bool = False
    """With the driver, and not yet handed on to a device below."""
    untold: bool = False
    """Bios of it may not be known: a chain was cut, or it has none."""
    finished: bool = False
    merged: tuple[int, Fields] | None = None
    """Its m: it was absorbed."""
    absorbed_by: "KnownRequest | None" = None
    parent: "KnownRequest | None" = None


@dataclass(eq=False)
class KnownBio:
    """One use of a bio's address; of a split, the front pieces have the queued bio as `root`."""

    dev: int
    part: int
    sector: int
    size: int
    """Bytes. Both are what is left to be sent, as fronts are split off."""
    opf: int
    root: "KnownBio | None" = None
    fronts: list["KnownBio"] = field(default_factory=list)
    pieces: list["KnownBio"] = field(default_factory=list)
    """Those of it that went to requests: fronts, and what was left."""
    whole: int = 0
    begin: int = 0
    queue_dev: int = 0
    """Bytes, first sector and disk, as queued."""
    queue: int = NEVER
    page: int = 0
    last: str = ""
    """Letter of the last event of its own."""
    first_seen: int = 0
    """Time of the first one."""
    piece: int = NEVER
    """Bytes that went to its own request, from `sector`; NEVER: none did."""
    left: int = 0
    times: dict[str, int] = field(default_factory=dict)
    """getrq, merge, issue: of its own piece."""
    request: KnownRequest | None = None
    before: KnownRequest | None = None
    """The first request that it was in, if that was absorbed."""
    end: int = NEVER
    own_end: int = NEVER
    status: int = 0
    good: int = 0
    parent: "KnownBio | None" = None

    @property
    def queued(self) -> "KnownBio":
        """The bio that its submitter knows."""
        return self if self.root is None else self.root.queued

    @property
    def over(self) -> bool:
        """Whether a queued bio has ended: by its own c, or with the last of its pieces."""
        sent = sum(p.piece for p in self.pieces)
        by_pieces = self.pieces and sent >= self.whole and all(p.end >= 0 for p in self.pieces)
        return self.own_end >= 0 or bool(by_pieces)

    @property
    def untold(self) -> bool:
        """Whether of some piece no event tells its request, or what it was served of it."""
        unsent = self.piece < 0 and 0 < len(self.pieces) < len(self.fronts)
        return unsent or any(p.request is None or p.request.untold for p in self.pieces)


def inserted(bio: KnownBio, requests: list[KnownRequest]) -> int:
    """When the request that a piece was in first was inserted; NEVER: it was not.

    Where no event names that request, it is the first of those which the one that served the piece
    absorbed that had the piece's sectors then.
    """
    found = bio.before or bio.request
    if bio.before is None:
        taken = [
            (rq.merged[0], rq)
            for rq in requests
            if rq.merged is not None
            and rq.absorbed_by is bio.request is not rq
            and bio.first_seen < rq.merged[0]
            and covers(rq.merged[1], bio)
        ]
        found = min(taken, key=lambda one: one[0])[1] if taken else found
    return NEVER if found is None else found.times.get("insert", NEVER)


def covers(e: Fields, bio: KnownBio) -> bool:
    """Whether an event's range has a piece's first sector."""
    return bool(e["sector"] <= bio.sector < e["sector"] + e["bytes"] // SECTOR)


class IdentityReference:
    """Feed it events in order of time; then read `bios` and `requests`."""

    def __init__(self, devices: Iterable[Fields] = ()) -> None:
        """devices: as a log's header has them."""
        self.bios: list[KnownBio] = []
        self.requests: list[KnownRequest] = []
        self._bio_at: dict[int, KnownBio] = {}
        self._request_at: dict[int, KnownRequest] = {}
        entries = {int(d["dev"]): d for d in devices}
        self._backing = {
            dev: _disk(entries, int(entry["loop"]["backing_dev"]))
            for dev, entry in entries.items()
            if "loop" in entry
        }
        self._partitions = {dev for dev, entry in entries.items() if entry.get("disk", dev) != dev}

    def feed(self, letter: str, ts: int, fields: Fields) -> None:
        """One event: its letter, time (ns) and the record's fields."""
        rule: Callable[[int, Fields], None] | None = getattr(self, f"_on_{letter}", None)
        if rule is not None:
            rule(ts, fields)

    # Bios.

    def _new_bio(self, ts: int, e: Fields, part: int) -> KnownBio:
        bio = KnownBio(e["dev"], part, e["sector"], e["bytes"], e["opf"], first_seen=ts)
        bio.whole, bio.begin = bio.size, bio.sector
        self.bios.append(bio)
        self._bio_at[e["bio"]] = bio
        return bio

    def _on_Q(self, ts: int, e: Fields) -> None:
        bio = self._bio_at.get(e["bio"])
        if bio is None or bio.last != "A":
            bio = self._new_bio(ts, e, e["part"])
        bio.last = "Q"
        if bio.queue < 0:
            bio.queue, bio.page, bio.part = ts, e.get("page", 0), e["part"]
            bio.begin, bio.whole, bio.queue_dev = e["sector"], e["bytes"], e["dev"]
            bio.parent = bio.parent or self._by_page(bio)

    def _on_A(self, ts: int, e: Fields) -> None:
        """From a partition, or to a path of NVMe multipath: the bio itself. Else a clone."""
        bio = self._bio_at.get(e["bio"])
        source = e["from_dev"], e["from_sector"]
        here = () if bio is None else ((bio.dev, bio.sector), (bio.part, bio.sector))
        if bio is None or bio.last not in "QA" or source not in here:
            bio = self._new_bio(ts, e, e["part"])
            if e["from_dev"] not in self._partitions:
                bio.parent = self._covering(bio, e)
        bio.dev, bio.part, bio.sector = e["dev"], e["part"], e["sector"]
        bio.last = "A"

    def _covering(self, clone: KnownBio, e: Fields) -> KnownBio | None:
        """The bio in flight above whose sectors a clone has; None: none, or several."""
        begin, end = e["from_sector"], e["from_sector"] + e["bytes"] // SECTOR
        found = [
            b
            for b in self.bios
            if b is not clone
            and b.queue >= 0
            and not b.over
            and b.queue_dev == e["from_dev"]
            and b.opf & 0xFF == e["opf"] & 0xFF
            and bool(b.whole) == bool(e["bytes"])
            and (not e["bytes"] or b.begin <= begin < end <= b.begin + b.whole // SECTOR)
        ]
        return found[0] if len(found) == 1 else None

    def _by_page(self, bio: KnownBio) -> KnownBio | None:
        """The loop device's bio in flight whose first page a bio on its backing disk carries."""
        found = [
            b
            for b in self.bios
            if b is not bio
            and bio.page
            and b.page == bio.page
            and not b.over
            and self._backing.get(b.queue_dev) == bio.dev
            and any(p.request and p.request.driven for p in b.pieces)
        ]
        return found[-1] if found else None

    def _on_X(self, ts: int, e: Fields) -> None:
        if e["new_sector"] == e["sector"] & 0xFFFFFFFF:
            return  # dm: what is left, not what was split off
        parent = self._bio_at.get(e["parent"])
        front = self._new_bio(ts, e, 0)
        front.last = "X"
        if parent is not None:
            front.root, front.part = parent.queued, parent.part
            front.root.fronts.append(front)
            parent.sector += front.size // SECTOR
            parent.size -= front.size

    def _on_c(self, ts: int, e: Fields) -> None:
        bio = self._bio_at.get(e["bio"])
        if bio is None or (bio.request is not None and bio.request.issues):
            return  # NVMe multipath: the C of its request comes next
        del self._bio_at[e["bio"]]
        bio.own_end, bio.status = ts, e["status"] or bio.status
        if not bio.pieces and not bio.status:
            bio.good = bio.whole

    # Requests.

    def _on_G(self, ts: int, e: Fields) -> None:
        self._becomes_piece(ts, e).times["getrq"] = ts

    def _on_M(self, ts: int, e: Fields) -> None:
        self._join(ts, e, back=True)

    def _on_F(self, ts: int, e: Fields) -> None:
        self._join(ts, e, back=False)

    def _join(self, ts: int, e: Fields, *, back: bool) -> None:
        bio = self._becomes_piece(ts, e)
        bio.times["merge"] = ts
        if e.get("rq", 0):  # kernels up to 5.10 say which
            rq = self._request_at.get(e["rq"]) or self._new_request(ts, e)
            self._serve(rq, bio)
            rq.chain.insert(len(rq.chain) if back else 0, rq.chain.pop(rq.chain.index(bio)))

    def _becomes_piece(self, ts: int, e: Fields) -> KnownBio:
        bio = self._bio_at.get(e["bio"]) or self._new_bio(ts, e, e["dev"])
        bio.last = "G"
        bio.dev, bio.sector = e["dev"], e["sector"]
        bio.piece = bio.left = e["bytes"]
        bio.queued.pieces.append(bio)
        return bio

    def _new_request(self, ts: int, e: Fields) -> KnownRequest:
        rq = KnownRequest(e["dev"], ts)
        self.requests.append(rq)
        self._request_at[e["rq"]] = rq
        return rq

    def _request(self, ts: int, e: Fields) -> KnownRequest:
        rq = self._request_at.get(e["rq"]) or self._new_request(ts, e)
        self._add(rq, e["bio"], e)
        return rq

    def _add(self, rq: KnownRequest, address: int, e: Fields) -> None:
        """A bio that an event names in a request; those of clones and commands were not queued."""
        bio = self._bio_at.get(address)
        if not address or rq.clone or e["opf"] & 0xFF in PASSTHROUGH or bio is None:
            return
        if bio.piece < 0:  # a minimal recording: no event before tells that it has a request
            bio.piece = bio.left = bio.size
            bio.queued.pieces.append(bio)
        self._serve(rq, bio)

    @staticmethod
    def _serve(rq: KnownRequest, bio: KnownBio) -> None:
        old = bio.request
        if old is rq:
            return
        if old is not None:  # absorbed: the chain of the one that took it has its bios
            old.absorbed_by = rq
            old.bios.remove(bio)
            bio.before = bio.before or old
        bio.request = rq
        rq.bios.append(bio)
        rq.chain.append(bio)

    def _on_s(self, ts: int, e: Fields) -> None:
        old = self._request_at.get(e["rq"])
        if old is None or not old.clone or "start" in old.times:
            self._request_at.pop(e["rq"], None)
        rq = self._request(ts, e)
        rq.times["start"] = ts
        for bio in rq.bios:
            bio.times.setdefault("getrq", ts)

    def _on_I(self, ts: int, e: Fields) -> None:
        self._request(ts, e).times.setdefault("insert", ts)

    def _on_m(self, ts: int, e: Fields) -> None:
        self._request(ts, e).merged = ts, e
        del self._request_at[e["rq"]]

    def _on_a(self, ts: int, e: Fields) -> None:
        """A clone of the one request above that has these sectors and was not handed on yet."""
        rq = self._new_request(ts, e)
        rq.clone = True
        above = [
            r
            for r in self.requests
            if r.driven
            and (r.dev, r.issues[-1]["sector"]) == (e["from_dev"], e["from_sector"])
            and r.issues[-1]["bytes"] == e["bytes"]
            and r.issues[-1]["opf"] & 0xFF == e["opf"] & 0xFF
        ]
        if len(above) == 1:
            rq.parent = above[0]
            above[0].driven = False

    def _on_D(self, ts: int, e: Fields) -> None:
        rq = self._request(ts, e)
        rq.times.setdefault("issue", ts)
        rq.issues.append(e)
        rq.since_issue = 0
        rq.named = 0
        rq.driven = True
        rq.untold = rq.untold or bool(e["flags"] & 1)
        self._in_chain(ts, rq, e["bio"])

    def _on_b(self, ts: int, e: Fields) -> None:
        rq = self._request_at[e["rq"]]
        for address in e["bios"]:
            self._add(rq, address, rq.issues[-1])
            self._in_chain(ts, rq, address)

    def _in_chain(self, ts: int, rq: KnownRequest, address: int) -> None:
        """Behind those that the chain has named before comes this one."""
        bio = self._bio_at.get(address)
        if bio is None or bio not in rq.chain:
            return
        bio.times.setdefault("issue", ts)
        rq.chain.remove(bio)
        rq.chain.insert(rq.named, bio)
        rq.named += 1
        # blk-flush.c runs what has data, and asks for a flush first, or for FUA that is gone here.
        fua_gone = bio.opf & FUA & ~rq.issues[0]["opf"]
        rq.sequence = rq.sequence or bool(bio.piece and (bio.opf & PREFLUSH or fua_gone))

    def _on_R(self, ts: int, e: Fields) -> None:
        rq = self._request(ts, e)
        rq.requeues += 1
        rq.driven = False

    def _on_C(self, ts: int, e: Fields) -> None:
        rq = self._request(ts, e)
        size, status = e["bytes"], e["status"]
        rq.times["complete"] = ts
        rq.driven = False
        rq.since_issue += size
        rq.status = status or rq.status
        rq.done += 0 if status else size
        if not rq.issues:
            rq.untold = rq.untold or rq.requeues > 0 or size > sum(b.left for b in rq.bios)
        issued = rq.issues[-1]["bytes"] if rq.issues else size
        rq.finished = rq.since_issue >= issued
        if rq.sequence and rq.issues:
            rq.finished = size == 0
        if rq.sequence:
            for bio in rq.bios if rq.finished else ():
                bio.end, bio.status, bio.good = ts, rq.status, min(bio.piece, rq.done)
        else:
            self._take(rq, ts, size, status)
        if rq.finished:
            del self._request_at[e["rq"]]
        for address in [a for a, b in self._bio_at.items() if b.end >= 0]:
            del self._bio_at[address]

    @staticmethod
    def _take(rq: KnownRequest, ts: int, size: int, status: int) -> None:
        """blk_update_request: the bios take the bytes in order; those without any left end."""
        while rq.chain:
            bio = rq.chain[0]
            taken = min(size, bio.left)
            size -= taken
            bio.left -= taken
            bio.good += 0 if status else taken
            if taken or not bio.piece:
                bio.status = status or bio.status
            if bio.left:
                return
            bio.end = ts
            rq.chain.pop(0)


def _disk(entries: dict[int, Fields], dev: int) -> int:
    return int(entries.get(dev, {}).get("disk", dev))
