# SPDX-License-Identifier: Apache-2.0
"""Holds the lifecycles that production gives of a history to what truly happened.

`problems(history, tables)` lists, in words, everything that is wrong: facts that differ from
the truth though they are not marked, marks on what is determined, rows that are missing or
double, sums that do not add up, events without a reason.
"""

import itertools
from collections import Counter
from typing import Any

from biotrail.converters import pipeline as trace_module
from biotrail.converters.events.tables import STAGE_NAMES, Certainty, Lifecycles, Stage
from biotrail.converters.lifecycles.account import Account, Reason
from biotrail.converters.pipeline import Trace
from tests.simulation.contradictions import contradictions
from tests.simulation.delivery import log_of
from tests.simulation.model import SECTOR, Bio, History, Request
from tests.simulation.recorded import NEVER, ns
from tests.simulation.truth import Truth

UNSEEN = 1 << 62
SHORT_HOLD_NS = 2_500_000
"""Longer than any record arrives late; short enough that small histories make windows."""

Row = dict[str, int]


class Tables:
    """All windows of a log, as rows."""

    def __init__(self, windows: list[Lifecycles], account: Account) -> None:
        self.windows, self.account = windows, account
        self.bios = [r for w in windows for r in _rows(w.bios)]
        self.requests = [r for w in windows for r in _rows(w.requests)]
        self.edges = [r for w in windows for r in _rows(w.edges)]
        self.bio_stages = _stages([w.bio_stages for w in windows])
        self.request_stages = _stages([w.request_stages for w in windows])


def _rows(table: Any) -> list[Row]:
    names = list(table.__annotations__)
    columns = [getattr(table, n).tolist() for n in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _stages(tables: list[Any]) -> dict[int, list[tuple[str, int, int]]]:
    found: dict[int, list[tuple[str, int, int]]] = {}
    for table in tables:
        for row in _rows(table):
            name = STAGE_NAMES[Stage(row["stage"])]
            found.setdefault(row["owner"], []).append((name, row["start"], row["end"]))
    return found


def run(history: History, associate: str = "identity", window_events: int = 0) -> Tables:
    before = trace_module.HOLD_NS, trace_module.SETTLE_NS
    trace_module.HOLD_NS = trace_module.SETTLE_NS = SHORT_HOLD_NS
    try:
        trace = Trace(log_of(history), associate)
        windows = list(trace.lifecycles(window_events or history.window_events))
    finally:
        trace_module.HOLD_NS, trace_module.SETTLE_NS = before
    return Tables(windows, trace.account)


def structure(history: History, t: Tables) -> list[str]:
    """What holds for every log, whatever is in it."""
    found = []
    for name, rows in (("bio", t.bios), ("request", t.requests)):
        twice = [n for n, c in Counter(r["number"] for r in rows).items() if c > 1]
        found += [f"{name} {n} is given twice" for n in twice]
    numbers = {r["number"] for r in t.bios}, {r["number"] for r in t.requests}
    for edge in t.edges:
        if edge["bio"] not in numbers[0] or edge["request"] not in numbers[1]:
            found.append(f"an edge of nothing: {edge}")
    found += _sums(t)
    if t.account.total != len(history.recorded):
        found.append(f"account of {t.account.total} events, {len(history.recorded)} recorded")
    if t.account.late:
        found.append(f"{t.account.late} events came late")
    odd = [k for k in t.account.events if not isinstance(k[1], Reason)]
    found += [f"a reason that is none: {k}" for k in odd]
    return found


def _sums(t: Tables) -> list[str]:
    """Stages are gapless and add up to the whole, to the nanosecond."""
    found = []
    for row in t.bios:
        found += _sum(f"bio {row['number']}", row["queue"], row["complete"], t.bio_stages, row)
    for row in t.requests:
        if row["absorbed_by"] == NEVER:
            name = f"request {row['number']}"
            # Of what goes on after the trace, the last completion is not the end.
            end = row["complete"] if row["certainty"] < Certainty.INCOMPLETE else NEVER
            found += _sum(name, row["start"], end, t.request_stages, row)
    return found


def _sum(name: str, begin: int, end: int, stages: dict[int, Any], row: Row) -> list[str]:
    mine = stages.get(row["number"], [])
    found = [f"{name}: stage {s} ends before it starts" for s in mine if s[2] < s[1]]
    gaps = itertools.pairwise(mine)
    found += [f"{name}: gap between {a} and {b}" for a, b in gaps if a[2] != b[1]]
    if NEVER not in (begin, end):
        total = sum(s[2] - s[1] for s in mine)
        if total != end - begin:
            found.append(f"{name}: stages are {total} ns of {end - begin}: {mine}")
    return found


class Checker:
    """Compares one history's tables with the truth, bio by bio and request by request."""

    def __init__(self, history: History, tables: Tables) -> None:
        self.history, self.tables = history, tables
        self.truth = Truth(history)
        self.found: list[str] = []
        self.edges: dict[int, list[Row]] = {}
        for edge in tables.edges:
            self.edges.setdefault(edge["bio"], []).append(edge)
        self.bio_of_number: dict[int, Bio] = {}
        self.row_of_bio: dict[Bio, Row] = {}
        self.row_of_request = {row["number"]: row for row in tables.requests}
        # Also M and F, where they name the request.
        self._request_of = {rec: rq for rq in history.requests for rec in rq.records}
        for row in tables.bios:
            bio = self._whose(row)
            if bio is not None:
                self.bio_of_number[row["number"]] = bio
                self.row_of_bio.setdefault(bio, row)

    def _whose(self, row: Row) -> Bio | None:
        if row["queue"] != NEVER:
            return self.truth.queued.get(row["queue"])
        number, slot = row["number"], 0
        if number >= UNSEEN:
            number, slot = divmod(number - UNSEEN, 1 << 12)
        bios = self.truth.order[number].bios
        return bios[slot].root if slot < len(bios) else None

    def check(self) -> list[str]:
        """All that is wrong."""
        self._every_queue_is_a_bio()
        for row in self.tables.bios:
            bio = self.bio_of_number.get(row["number"])
            if bio is None:
                again = row["queue"] in self.truth.queued_again
                if not again or row["certainty"] < Certainty.INCOMPLETE:
                    self._say(row, None, "is nobody's")
            else:
                self._bio(row, bio)
        self._requests()
        t = self.tables
        said = contradictions(self.history, t.bios, t.requests, t.edges, self._whose)
        self.found += said
        return self.found

    def _say(self, row: Row, of: Bio | Request | None, text: str) -> None:
        sure = "" if of is None else " (determined)" if self.truth.determined(of) else ""
        kind = "bio" if "part" in row else "request"
        mark = Certainty(row["certainty"]).name.lower()
        self.found.append(f"{kind} {row['number']}{sure}, {mark}: {text}")

    def _every_queue_is_a_bio(self) -> None:
        given = Counter(r["queue"] for r in self.tables.bios if r["queue"] != NEVER)
        for at, bio in self.truth.queued.items():
            if given[at] != 1:
                where = f"{bio.first}+{bio.whole // SECTOR}"
                self.found.append(f"bio queued at {at} ({where}) is given {given[at]} times")

    # Bios.

    def _bio(self, row: Row, bio: Bio) -> None:
        sure = self.truth.determined(bio)
        certainty = Certainty(row["certainty"])
        if row["queue"] == NEVER:
            if certainty < Certainty.INCOMPLETE:
                self._say(row, bio, "was never queued")
            return
        truth = self.truth.bio(bio)
        if sure:
            right = set(Certainty) if truth.interval else {0}
            if certainty not in right:
                self._say(row, bio, "is marked")
        if certainty <= Certainty.INTERVAL:
            self._bio_columns(row, bio)
            self._bio_edges(row, bio)
        elif not self._in_loss(row, bio):
            self._no_lie(row, bio)
        if not sure and self._in_loss(row, bio) and certainty < Certainty.AMBIGUOUS:
            self._say(row, bio, "was in flight while records were lost, and is not marked")
        self._parent(row, bio)

    def _in_loss(self, row: Row, bio: Bio) -> bool:
        end = row["complete"] if row["complete"] != NEVER else 1 << 62
        return self.truth.touched(row["queue"] - ns(0), end - ns(0))

    def _bio_columns(self, row: Row, bio: Bio) -> None:
        truth = self.truth.bio(bio)
        if not self.truth.determined(bio):
            # Requeues of its request after its own end may be lost: not its own history.
            truth.columns["requeues"] = min(row["requeues"], truth.columns["requeues"])
        for name, value in truth.columns.items():
            if row[name] != value:
                self._say(row, bio, f"{name} is {row[name]}, not {value}")
        if row["status"] not in truth.statuses:
            self._say(row, bio, f"status is {row['status']}, not of {truth.statuses}")
        names = truth.finals[0].keys()
        given = {n: row[n] for n in names} | {"request": self._same(row["request"])}
        if given not in truth.finals:
            self._say(row, bio, f"{given} is not of {truth.finals}")
        elif row["complete"] != NEVER:
            stages = self.tables.bio_stages.get(row["number"], [])
            wanted = truth.stages[truth.finals.index(given)]
            if stages not in wanted:
                self._say(row, bio, f"stages are {stages}, not {wanted[0]}")

    def _bio_edges(self, row: Row, bio: Bio) -> None:
        wanted = sorted(
            (self.truth.request_number(rq), sector, size)
            for rq, sector, size in self.truth.bio(bio).edges
        )
        given = sorted(
            (self._same(e["request"]), e["sector"], e["bytes"])
            for e in self.edges.get(row["number"], [])
        )
        if given != wanted:
            self._say(row, bio, f"edges are {given}, not {wanted}")
        if bio.own_end is None and row["complete"] != NEVER:
            self._served_once(row, bio)

    def _same(self, number: int) -> int:
        """A request's number, also where a part of it, after a loss, stands by itself."""
        rq = self.whose_request(number) if number != NEVER else None
        if rq is None or self.truth.determined(rq):
            return number
        return self.truth.request_number(rq)

    def whose_request(self, number: int) -> Request | None:
        rec = self.truth.order[number]
        return rec.request or self._request_of.get(rec)

    def _served_once(self, row: Row, bio: Bio) -> None:
        """Every sector by exactly one request."""
        at = None
        total = 0
        for edge in sorted(self.edges.get(row["number"], []), key=lambda e: e["sector"]):
            if at is not None and edge["sector"] != at:
                self._say(row, bio, f"sectors are not served once at {edge['sector']}")
            at = edge["sector"] + edge["bytes"] // SECTOR
            total += edge["bytes"]
        if total != row["bytes"]:
            self._say(row, bio, f"{total} bytes are served, not {row['bytes']}")

    def _no_lie(self, row: Row, bio: Bio) -> None:
        """What is marked incomplete or lost, but was in no loss: what is said is still true."""
        if row["certainty"] == Certainty.AMBIGUOUS:
            return
        truth = self.truth.bio(bio)
        if truth.interval:
            return  # which request it joined, intervals alone could say
        times = {ns(r.ts) for m in (bio, *bio.pieces) for r in m.records}
        times |= {ns(r.ts) for p in bio.pieces for rq in p.requests for r in rq.records}
        for name in ("getrq", "merge", "insert", "issue", "complete"):
            if row[name] != NEVER and row[name] not in times:
                self._say(row, bio, f"{name} is another's: {row[name]}")
        ends = {ns(e.ts) for e in [bio.own_end, *(p.end for p in bio.pieces)] if e}
        if row["complete"] != NEVER and row["complete"] not in ends:
            self._say(row, bio, f"complete is {row['complete']}, not {sorted(ends)}")
        right = {self.truth.request_number(rq) for rq, _, _ in truth.edges}
        right |= {self.truth.request_number(q) for p in bio.pieces for q in p.requests}
        for edge in self.edges.get(row["number"], []):
            if self._same(edge["request"]) not in right:
                self._say(row, bio, f"edge to {edge['request']}, not of {sorted(right)}")

    def _parent(self, row: Row, bio: Bio) -> None:
        if row["certainty"] in (Certainty.LOST, Certainty.AMBIGUOUS):
            return
        allowed, must = self.truth.parent(bio)
        given = self.bio_of_number.get(row["parent"]) if row["parent"] != NEVER else None
        above = self.row_of_bio.get(given) if given else None
        # What the parent itself is marked for, the link is too.
        doubtful = above is not None and above["certainty"] >= Certainty.INCOMPLETE
        if row["parent"] != NEVER and given not in allowed and not doubtful:
            self._say(row, bio, f"parent is {row['parent']}, not its own")
        if row["parent"] == NEVER and must:
            upper = self.row_of_bio.get(next(iter(allowed)))
            self._say(row, bio, f"parent is not given: {upper and upper['number']}")

    # Requests.

    def _requests(self) -> None:
        rows = self.row_of_request
        seen = set()
        for rq in self.history.requests:
            number = self.truth.request_number(rq)
            if number == NEVER:
                continue
            seen.add(number)
            row = rows.get(number)
            only_comments = not any(
                r in self.truth.recorded and r.letter in ("sIRDC" if rq.absorbed_by else "sIRmDC")
                for r in rq.records
            )
            if row is None:
                if self.truth.determined(rq) and not only_comments:
                    self.found.append(f"request {number} ({rq.sector}) is not given")
                continue
            self._request(row, rq)
        for number, row in rows.items():
            if number not in seen and row["certainty"] <= Certainty.INTERVAL:
                self._part(row)

    def _part(self, row: Row) -> None:
        """A part of a request after a loss may stand by itself, with times that are its own."""
        rq = self.whose_request(row["number"])
        if rq is None or self.truth.determined(rq):
            self._say(row, None, "is nobody's")
            return
        times = {ns(r.ts) for r in rq.records} | {NEVER}
        for name in ("start", "insert", "issue", "complete"):
            if row[name] not in times:
                self._say(row, rq, f"{name} is another's: {row[name]}")

    def _request(self, row: Row, rq: Request) -> None:
        sure = self.truth.determined(rq)
        certainty = Certainty(row["certainty"])
        cut = any(not self.truth.told(b) for b in self.truth.ever.get(rq, ()))
        if sure and certainty != Certainty.EXACT and not cut:
            self._say(row, rq, "is marked")
        if certainty > Certainty.INTERVAL:
            return
        truth = self.truth.request(rq)
        if rq.absorbed_by is not None and self.truth.first(rq, "s") is None:
            # Which bio an absorbed request was allocated for, no event names.
            truth.columns["start"] = row["start"]
        if cut and self.truth.first(rq, "s") is None:
            truth.columns["start"] = row["start"]  # G of a bio that no chain names
        row = row | {"absorbed_by": self._same(row["absorbed_by"])}
        for name, value in truth.columns.items():
            if row[name] != value and not ((cut or rq.kind == "clone") and name == "bios"):
                self._say(row, rq, f"{name} is {row[name]}, not {value}")
        if row["status"] not in truth.statuses:
            self._say(row, rq, f"status is {row['status']}, not of {truth.statuses}")
        upper, must = self.truth.upper_request(rq)
        given = self._same(row["parent"])
        above = self.row_of_request.get(given)
        # What the parent itself is marked for, the link is too.
        doubtful = above is not None and above["certainty"] >= Certainty.INCOMPLETE
        if (given not in (upper, NEVER) and not doubtful) or (must and given == NEVER):
            self._say(row, rq, f"parent is {row['parent']}, not {upper}")


def problems(history: History, tables: Tables) -> list[str]:
    return structure(history, tables) + Checker(history, tables).check()


def story(history: History) -> str:
    """The recorded records as lines, for a report."""
    lines = []
    for number, rec in enumerate(Truth(history).order):
        f = rec.fields
        low = {k: f"{v & 0xFFFFFFFF:x}" for k, v in f.items() if k in ("bio", "rq", "parent")}
        where = f"{f.get('sector', 0)}+{f.get('bytes', 0) // 512}"
        rest = {k: f[k] for k in ("status", "from_sector", "tag", "nr_bios", "flags") if k in f}
        chain = [f"{b.pointer & 0xFFFFFFFF:x}" for b in rec.bios[1:]]
        lines.append(
            f"{number:4} {rec.ts:>9} cpu{rec.cpu} {rec.letter} {f.get('dev', 0):x} "
            f"{f.get('opf', 0):x} {where} {low} {rest} {chain or ''}"
        )
    return "\n".join([*lines, f"losses {history.losses}"])
