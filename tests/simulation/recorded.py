# SPDX-License-Identifier: Apache-2.0
"""What was recorded of a simulated history, and of whom the log then says all there is to say.

**Determined**: bios and requests that ever shared a request, a split or a merge form a group.
A bio or request is determined when every record of its group (of the kinds that the recording
takes) is in the log, and no loss window touches its own life. Whatever else was lost, the log
then says all there is to say of it, and the truth is the only right answer.
"""

from tests.simulation.delivery import arrival
from tests.simulation.model import Bio, History, Rec, Request
from tests.support import captures

NEVER = -1
TELLING = set("QXAGsMFIRmDbCca")
"""Kinds that say something; E, d, P, U and T only comment."""


def ns(ts: int) -> int:
    """A simulation's time as a log has it."""
    return captures.BASE_NS + ts


class Recorded:
    """A history and those of its records that are in the log."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.recorded = history.recorded
        self.order = arrival(history)
        self.number = {rec: n for n, rec in enumerate(self.order)}
        self.letters = history.kernel.seen & TELLING
        self._incomplete = self._incomplete_groups()
        self.ever: dict[Request, list[Bio]] = {}
        """All pieces that a request ever held."""
        for root in history.bios:
            for piece in root.pieces:
                for rq in piece.requests:
                    self.ever.setdefault(rq, []).append(piece)
        self.queued = {
            ns(rec.ts): rec.bios[0]
            for b in history.bios
            if (rec := self.first(b, "Q")) is not None and b is rec.bios[0]
        }
        self.queued_again = {
            ns(rec.ts) for rec in self.order if rec.letter == "Q" and ns(rec.ts) not in self.queued
        }
        """Further Q of bios that are sent on."""
        self.request_dev = {
            int(d["dev"]) for d in history.devices if "nr_hw_queues" in d.get("queue", {})
        }

    def first(self, of: Bio | Request, letters: str) -> Rec | None:
        return next((r for r in of.records if r.letter in letters and r in self.recorded), None)

    def last(self, of: Bio | Request, letters: str) -> Rec | None:
        found = [r for r in of.records if r.letter in letters and r in self.recorded]
        return found[-1] if found else None

    def _incomplete_groups(self) -> set[int]:
        """Ids of the members of groups of which a telling record is missing."""
        parent: dict[int, int] = {}

        def find(key: int) -> int:
            while parent.setdefault(key, key) != key:
                key = parent[key]
            return key

        members: list[Bio | Request] = [*self.history.requests, *self.history.bios]
        for root in self.history.bios:
            for piece in root.pieces:
                members.append(piece)
                parent[find(id(piece))] = find(id(root))
                for rq in piece.requests:
                    parent[find(id(rq))] = find(id(piece))
        broken = {
            find(id(m))
            for m in members
            for r in m.records
            if r.letter in self.letters and r not in self.recorded
        }
        # A bio of which nothing was recorded is in no table and breaks nothing.
        return {id(m) for m in members if find(id(m)) in broken}

    def _after_an_end(self, rq: Request) -> bool:
        """Of a request without bios only its memory tells: that must have been free before."""
        same = [r for r in self.history.requests if r.pointer == rq.pointer]
        before = same[: same.index(rq)]
        return not before or id(before[-1]) not in self._incomplete

    def touched(self, begin: int, end: int) -> bool:
        """Whether a loss window touches a life (simulation's clock)."""
        return any(w["start"] <= end and w["end"] >= begin for w in self.history.losses)

    def determined(self, of: Bio | Request) -> bool:
        """See the module's text."""
        if id(of) in self._incomplete:
            return False
        if isinstance(of, Request) and not self.ever.get(of) and not self._after_an_end(of):
            return False
        life = self.life(of)
        return life is not None and not self.touched(*life)

    def life(self, of: Bio | Request) -> tuple[int, int] | None:
        """First and last telling moment; None where there is none. A bio's begins at Q."""
        told = [r.ts for r in of.records if r.letter in self.letters]
        if isinstance(of, Bio):
            queued = [r.ts for r in of.records if r.letter == "Q"]
            told = queued[:1] or told
            told += [p.end.ts for p in of.pieces if p.end] + ([of.own_end.ts] if of.own_end else [])
            return (min(told), max(told)) if told else None
        taker = of
        while taker.absorbed_by is not None:
            taker = taker.absorbed_by
            told += [r.ts for r in taker.records if r.letter in self.letters]
        if not self.history.kernel.has_start:
            allocation = self._allocation(of)
            told += [allocation.ts] if allocation else []
        return (min(told), max(told)) if told else None

    def _count(self, rq: Request, letter: str) -> int:
        return sum(r.letter == letter and r in self.recorded for r in rq.records)

    @staticmethod
    def _at(rec: Rec | None) -> int:
        return NEVER if rec is None else ns(rec.ts)

    def request_number(self, rq: Request) -> int:
        """Number of the event that a request is known by; NEVER: of none."""
        named = [r for r in rq.records if r in self.recorded and r.letter in "sIRmDCEdaMF"]
        return self.number[named[0]] if named else NEVER

    def _allocation(self, rq: Request) -> Rec | None:
        """G of the bio that it was allocated for."""
        firsts = [
            p
            for b in self.history.bios
            for p in b.pieces
            if p.requests and p.requests[0] is rq and not p.merged
        ]
        return self.first(firsts[0], "G") if firsts else None

    def _end(self, bio: Bio) -> Rec | None:
        ends = [p.end for p in bio.pieces] + ([bio.own_end] if bio.own_end else [])
        if not ends or any(e is None or e not in self.recorded for e in ends):
            return None
        return max((e for e in ends if e), key=lambda r: r.order)
