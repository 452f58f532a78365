# SPDX-License-Identifier: Apache-2.0
"""What a log should say of a simulated history: the truth, as far as its records tell it.

`recorded` decides of which bios and requests the log says everything (determined). A parent must
be given where both are determined and one pending bio alone covers what the remap names.

What is not determined may be marked; what is not marked must be as the records tell.
"""

from dataclasses import dataclass, field

from tests.simulation.model import NO_TAG, SECTOR, Bio, Rec, Request
from tests.simulation.operations import PREFLUSH
from tests.simulation.recorded import NEVER, Recorded, ns


@dataclass
class BioTruth:
    """Expected columns of one whole bio; several choices where pieces end at once."""

    columns: dict[str, int]
    finals: list[dict[str, int]]
    """Columns that belong to the piece that ends last: one entry per piece that does."""
    stages: list[list[list[tuple[str, int, int]]]]
    """Per entry of `finals`, what they may be."""
    statuses: set[int]
    edges: set[tuple[Request, int, int]]
    interval: bool = False
    """Known by interval at best: a chain was cut."""


@dataclass
class RequestTruth:
    """Expected columns of one request."""

    columns: dict[str, int]
    statuses: set[int]
    stages: list[tuple[str, int, int]] = field(default_factory=list)


class Truth(Recorded):
    """A history seen through its recorded records."""

    # Bios.

    def bio(self, bio: Bio) -> BioTruth:
        """What the log should say of a bio whose Q was recorded."""
        queue = self.first(bio, "Q")
        assert queue is not None
        end = self._end(bio)
        pieces = [p for p in bio.pieces if self._joined(p)]
        requests = {p.request for p in pieces if p.request is not None}
        columns = {
            "dev": queue.fields["dev"],
            "part": queue.fields["part"],
            "sector": queue.fields["sector"],
            "bytes": bio.whole,
            "opf": bio.opf,
            "tid": bio.tid,
            "cgroup": bio.cgroup,
            "queue": ns(queue.ts),
            "complete": ns(end.ts) if end else NEVER,
            "fragments": len(pieces),
            "requests": len(requests),
            "requeues": sum(self._count(r, "R") for r in requests),
            "done_bytes": self._good(bio, pieces),
        }
        finals = self._final_pieces(pieces)
        statuses = {p.status for p in pieces if p.status} | {bio.own_status}
        if len(statuses) > 1:
            statuses.discard(0)
        finals = [p for p in finals for _ in self._issues(p)]
        entries = [self._final(p, n) for p, n in self._numbered(finals)]
        return BioTruth(
            columns,
            entries or [dict.fromkeys(("getrq", "merge", "insert", "issue", "request"), NEVER)],
            [
                [self._stages(bio, p, e, end, i) for i in self._inserted(p, e["merge"])]
                for p, e in zip(finals, entries, strict=True)
            ]
            or [[self._single_stage(bio, ns(queue.ts), end)]],
            statuses,
            {(p.request, p.piece_sector, p.piece) for p in pieces if p.request},
            any(not self.told(p) or self._unplaced(p) for p in pieces),
        )

    def _joined(self, piece: Bio) -> bool:
        return piece.request is not None

    def told(self, piece: Bio) -> bool:
        """Whether any record names the piece together with its request, by pointers."""
        named = [
            r
            for rq in piece.requests
            for r in rq.records
            if r in self.recorded and r.letter in "sIRmDbC" and piece in r.bios
        ]
        merge = self.first(piece, "MF")
        if len(piece.requests) > 1:
            # Absorbed: that it moved on is told by a later chain alone.
            return any(piece in r.bios for r in piece.requests[-1].records if r.letter in "Db")
        return bool(named) or (merge is not None and bool(merge.fields["rq"]))

    def _unplaced(self, piece: Bio) -> bool:
        """Whether a cut chain hides where it lies in a request that completed in parts."""
        rq = piece.request
        if rq is None or self._count(rq, "C") < 2:
            return False
        issues = [r for r in rq.records if r.letter == "D" and piece in r.held]
        named = {r.ts for r in rq.records if r.letter in "Db" and piece in r.bios}
        return any(r.ts not in named for r in issues)

    def _good(self, bio: Bio, pieces: list[Bio]) -> int:
        if bio.own_end and not pieces:
            return 0 if bio.own_status else bio.whole
        return sum(p.good for p in pieces)

    def _final_pieces(self, pieces: list[Bio]) -> list[Bio]:
        if not pieces:
            return []
        orders = [p.end.order if p.end else 1 << 60 for p in pieces]
        return [p for p, o in zip(pieces, orders, strict=True) if o == max(orders)]

    def _issues(self, piece: Bio) -> list[Rec | None]:
        """The first issue that held it, and, where its chain was cut, the first that names it."""
        rq = piece.request
        every = [r for r in rq.records if r.letter == "D" and r in self.recorded] if rq else []
        held = [r for r in every if piece in r.held] or every
        named = [r for r in every if piece in r.bios] or held
        first: list[Rec | None] = [*held[:1]]
        first += [r for r in named[:1] if r not in first]
        return first or [None]

    @staticmethod
    def _numbered(pieces: list[Bio]) -> list[tuple[Bio, int]]:
        return [(p, pieces[:n].count(p)) for n, p in enumerate(pieces)]

    def _final(self, piece: Bio, which: int) -> dict[str, int]:
        rq = piece.request
        assert rq is not None
        own = piece.requests[0]
        merge = self._at(self.last(piece, "MF"))
        getrq = NEVER if piece.merged else self._at(self.first(piece, "G"))
        if getrq == NEVER and not piece.merged:
            getrq = self._at(self.first(own, "s"))
        issue = self._at(self._issues(piece)[which])
        insert = self._at(self.first(own, "I"))
        begun = max(merge, getrq)
        if begun == NEVER or insert < begun or (issue != NEVER and insert > issue):
            insert = NEVER
        number = self.request_number(rq)
        return {
            "getrq": getrq,
            "merge": merge,
            "insert": insert,
            "issue": issue,
            "request": number,
        }

    def _inserted(self, piece: Bio, merge: int) -> list[int]:
        """When the request that a bio joined at `merge` was last inserted, as the log may tell it.

        Where the end of a part of it, or that it was requeued, was not recorded since, it may seem
        to be another one.
        """
        other = False
        records = piece.requests[0].records
        before = [r for r in records if r.letter in "ICR" and ns(r.ts) < merge]
        for r in sorted(before, key=lambda r: r.order, reverse=True):
            if r.letter in "CR" and r not in self.recorded:
                other = True
            if r.letter == "I" and r in self.recorded:
                return [ns(r.ts), NEVER] if other else [ns(r.ts)]
        return [NEVER]

    def _single_stage(self, bio: Bio, queue: int, end: Rec | None) -> list[tuple[str, int, int]]:
        if end is None:
            return []
        asked = self.first(bio, "Q")
        failed = bio.own_status and asked and asked.fields["dev"] in self.request_dev
        return [("failed" if failed else "bio-based", queue, ns(end.ts))]

    def _stages(
        self, bio: Bio, piece: Bio, at: dict[str, int], end: Rec | None, inserted: int
    ) -> list[tuple[str, int, int]]:
        queue = self._at(self.first(bio, "Q"))
        if end is None:
            return []
        if bio.whole == 0 and bio.opf & PREFLUSH:
            return [("flush", queue, ns(end.ts))]
        rq = piece.request
        assert rq is not None
        joined = at["merge"] if at["merge"] != NEVER else at["getrq"]
        begin = [("Q2M" if at["merge"] != NEVER else "Q2G", joined)]
        if piece.merged and at["merge"] == NEVER:
            begin = []
        before = "pre-flush" if bio.opf & PREFLUSH else ""
        merged = at["merge"] != NEVER
        marks = [m for m in begin if m[1] != NEVER]
        if at["insert"] != NEVER:
            marks.append((before or ("M2I" if merged else "G2I"), at["insert"]))
        if at["issue"] == NEVER:
            marks.append((before or "failed", ns(end.ts)))
            return _gapless(queue, marks)
        scheduled = at["insert"] != NEVER or (merged and NEVER != inserted < at["merge"])
        waiting = "I2D" if scheduled else before or ("M2D" if merged else "G2D")
        if not begin or joined == NEVER:
            waiting = "Q2D"
        marks.append((waiting, at["issue"]))
        done = ns(end.ts)
        if rq.sequence:
            data = next(r for r in rq.records if r.letter == "C")
            done = ns(data.ts)
        marks += _issues_and_requeues(rq, at["issue"], done)
        if rq.sequence:
            marks.append(("post-flush", ns(end.ts)))
        return _gapless(queue, marks)

    # Requests.

    def request(self, rq: Request) -> RequestTruth:
        """What the log should say of a request of which something was recorded."""
        issues = [r for r in rq.records if r.letter == "D" and r in self.recorded]
        birth = self.order[self.request_number(rq)]
        told = issues[0] if issues else birth
        ends = [r for r in rq.records if r.letter == "C" and r in self.recorded]
        start = self.first(rq, "s") or self._allocation(rq) or birth
        columns = {
            "dev": rq.dev,
            "sector": told.fields["sector"],
            "bytes": told.fields["bytes"],
            "opf": told.fields["opf"],
            "tag": issues[-1].fields["tag"] if issues else NO_TAG,
            "sched_tag": issues[0].fields["sched_tag"] if issues else NO_TAG,
            "hctx": issues[0].fields["hctx"] if issues else NO_TAG,
            "start": ns(start.ts),
            "insert": self._at(self.first(rq, "I")),
            "issue": self._at(issues[0] if issues else None),
            "complete": self._at(ends[-1] if ends else None),
            "bios": 0 if rq.absorbed_by else len(list(rq.members)),
            "requeues": self._count(rq, "R"),
            "done_bytes": sum(0 if r.fields["status"] else r.fields["bytes"] for r in ends),
            "kind": {"flush": 1, "passthrough": 2}.get(rq.kind, 0),
            "absorbed_by": self._taker(rq),
        }
        statuses = {r.fields["status"] for r in ends if r.fields["status"]} or {0}
        return RequestTruth(columns, statuses)

    def _taker(self, rq: Request) -> int:
        """The request that has its bios at last."""
        if rq.absorbed_by is None:
            return NEVER
        while rq.absorbed_by is not None:
            rq = rq.absorbed_by
        return self.request_number(rq)

    # Parents.

    def parent(self, bio: Bio) -> tuple[set[Bio], bool]:
        """The upper bios that may be given as parent, and whether one must be."""
        if bio.upper is None:
            return set(), False
        upper = bio.upper
        remap = self.first(bio, "A")
        if bio.page:
            sure = self.determined(upper) and self.determined(bio)
            return {upper}, sure and self.first(upper, "Q") is not None
        if remap is None:
            return {upper}, False
        rivals = [b for b in self.history.bios if b is not upper and self._covers(b, remap)]
        if self.first(upper, "Q") is None:
            # Only its end tells that it was there, maybe when its clone has been given out.
            return {upper, *rivals}, False
        sure = not rivals and self.determined(upper) and self.determined(bio)
        return {upper}, sure and not self._sent_twice(bio, remap)

    def _sent_twice(self, bio: Bio, remap: Rec) -> bool:
        """Whether a clone of another bio, on the same disk, is of the same sectors."""
        told = [self.first(b, "A") for b in self.history.bios if b.upper is not bio.upper]
        return any(r is not None and _same_source(r, remap) for r in told)

    def upper_request(self, rq: Request) -> tuple[int, bool]:
        """Number of the request that a clone works for, and whether it must be given."""
        if rq.upper is None:
            return NEVER, False
        told = self.first(rq, "a")
        if told is None or not (self.determined(rq) and self.determined(rq.upper)):
            return self.request_number(rq.upper), False
        rivals = [
            r
            for r in self.history.requests
            if r is not rq.upper
            and r.dev == rq.upper.dev
            and any(e.fields.get("sector") == told.fields["from_sector"] for e in r.records)
            and r.records[0].ts <= told.ts <= self._until(r)
        ]
        return self.request_number(rq.upper), not rivals

    def _until(self, rq: Request) -> int:
        """When it was seen to have ended; never, where its completions were not all recorded."""
        ends = [r for r in rq.records if r.letter == "C"]
        return ends[-1].ts if ends and self.recorded.issuperset(ends) else 1 << 62

    def _covers(self, bio: Bio, remap: Rec) -> bool:
        queue = self.first(bio, "Q")
        if bio.queue_dev != remap.fields["from_dev"]:
            return False
        if bio.op != remap.fields["opf"] & 0xFF or bool(bio.whole) != bool(remap.fields["bytes"]):
            return False
        begin, size = remap.fields["from_sector"], remap.fields["bytes"] // SECTOR
        end = self._end(bio)
        # Of one that was there before the log its end tells.
        came = queue.ts <= remap.ts if queue is not None else end is not None
        alive = came and (end is None or end.ts >= remap.ts)
        stop = bio.first + bio.whole // SECTOR
        if queue is None and stop == begin + size:
            return alive  # its end has no size any more, and so may tell no beginning
        return alive and bio.first <= begin and begin + size <= stop


def _issues_and_requeues(rq: Request, issue: int, done: int) -> list[tuple[str, int]]:
    """D2C, R2D, D2C … up to `done`."""
    marks, state = [], "D2C"
    for rec in rq.records:
        at = ns(rec.ts)
        turn = {"R": "R2D", "D": "D2C"}.get(rec.letter, state)
        if issue < at <= done and turn != state:
            marks.append((state, at))
            state = turn
    return [*marks, (state, done)]


def _gapless(begin: int, marks: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    rows = []
    for name, end in marks:
        rows.append((name, begin, end))
        begin = end
    return rows


def _same_source(one: Rec, other: Rec) -> bool:
    if any(one.fields[n] != other.fields[n] for n in ("dev", "from_dev")):
        return False
    begin, start = one.fields["from_sector"], other.fields["from_sector"]
    end = begin + one.fields["bytes"] // SECTOR
    return bool(begin < start + other.fields["bytes"] // SECTOR and start < end)
