# SPDX-License-Identifier: Apache-2.0
"""The reference of identities held to the truth, and what production says held to the reference.

Compared are bios and requests that ended, of histories of which nothing is missing before they end.
"""

from collections.abc import Iterator

from biotrail.converters.events.tables import Certainty
from tests.reference.identities import IdentityReference, KnownBio, KnownRequest, inserted
from tests.simulation.check import Row, Tables
from tests.simulation.delivery import arrival
from tests.simulation.model import Bio, History
from tests.simulation.recorded import NEVER, ns
from tests.simulation.truth import Truth

TIMES = ("getrq", "merge", "insert", "issue")
EDGE = tuple[int, int, int]
"""(time of the request's first event, first sector, bytes)."""


def comparable(history: History) -> bool:
    """Whether nothing is missing of a history but what happened after its recording ended."""
    lost = ("begins in flight", "C never seen, not counted", "one record lost, not counted")
    return not history.losses and not any(history.features[name] for name in lost)


def reference_of(history: History) -> IdentityReference:
    """The reference, fed with all that was recorded."""
    reference = IdentityReference(history.devices)
    for rec in arrival(history):
        reference.feed(rec.letter, ns(rec.ts), rec.fields)
    return reference


def bio_columns(bio: KnownBio) -> Row:
    """Columns of a bio that is over."""
    served = {id(p.request): p.request for p in bio.pieces if p.request is not None}
    bad = [p.status for p in bio.pieces if p.status] + [bio.status] * bool(bio.status)
    ends = [bio.own_end, *(p.end for p in bio.pieces)]
    return {
        "dev": bio.queue_dev,
        "sector": bio.begin,
        "bytes": bio.whole,
        "complete": max(ends),
        "fragments": len(bio.pieces),
        "requests": len(served),
        "requeues": sum(r.requeues for r in served.values()),
        "status": bad[-1] if bad else 0,
        "done_bytes": bio.good if not bio.pieces else sum(p.good for p in bio.pieces),
    }


def finals(bio: KnownBio, requests: list[KnownRequest]) -> list[Row]:
    """Times of each piece that ended last."""
    last = max((p.end for p in bio.pieces), default=NEVER)
    found = []
    for piece in bio.pieces:
        if piece.end != last:
            continue
        t = {n: piece.times.get(n, NEVER) for n in TIMES}
        if t["merge"] != NEVER:
            t["getrq"] = NEVER
        t["insert"] = inserted(piece, requests)
        begun = max(t["getrq"], t["merge"])
        if begun == NEVER or t["insert"] < begun or NEVER != t["issue"] < t["insert"]:
            t["insert"] = NEVER
        found.append(t)
    return found or [dict.fromkeys(TIMES, NEVER)]


def edges(bio: KnownBio) -> list[EDGE]:
    return sorted((p.request.first, p.sector, p.piece) for p in bio.pieces if p.request)


def request_columns(rq: KnownRequest) -> Row:
    """Columns of a request that is over; other requests by the time of their first event."""
    given = {n: rq.times.get(n, NEVER) for n in ("insert", "issue", "complete")}
    given |= {"start": rq.times["start"]} if "start" in rq.times else {}
    taker = rq if rq.absorbed_by is None else rq.absorbed_by
    given |= {} if taker.untold else {"bios": len(rq.bios)}
    return given | {
        "requeues": rq.requeues,
        "status": rq.status,
        "done_bytes": rq.done,
        "absorbed_by": NEVER if rq.absorbed_by is None else rq.absorbed_by.first,
    }


def _judged(reference: IdentityReference) -> list[KnownBio]:
    """The queued bios that ended, and of which the events tell everything."""
    based = {r.dev for r in reference.requests}
    whole = [b for b in reference.bios if b.root is None and b.queue >= 0 and b.over]
    # Discards join requests without an event: of those that failed before an issue nothing tells.
    whole = [b for b in whole if not (b.fronts and not b.pieces and b.dev in based)]
    return [b for b in whole if not b.untold]


def _ended(reference: IdentityReference) -> list[KnownRequest]:
    return [r for r in reference.requests if r.finished or r.absorbed_by is not None]


def problems_of_reference(history: History) -> list[str]:
    """Where the reference itself is wrong, held to the truth."""
    truth, reference = Truth(history), reference_of(history)
    found = []
    at = {ns(rec.ts): rec for rec in truth.order if rec.letter != "b"}
    owner = {rec: rq for rq in history.requests for rec in rq.records}
    for bio in _judged(reference):
        real = truth.queued.get(bio.queue)
        if real is None:
            found.append(f"bio queued at {bio.queue} is nobody's")
            continue
        found += _unlike_truth(truth, reference, bio, real)
    for rq in _ended(reference):
        real_request = at[rq.first].request or owner.get(at[rq.first])
        if real_request is None:
            found.append(f"request begun at {rq.first} is nobody's")
            continue
        right = truth.request(real_request)
        right.columns["absorbed_by"] = _time_of(truth, right.columns["absorbed_by"])
        given = request_columns(rq)
        given.pop("bios" if rq.clone else "", None)
        if not rq.finished:
            del given["absorbed_by"]
        for name, value in given.items():
            allowed = right.statuses if name == "status" else {right.columns[name]}
            if value not in allowed:
                found.append(f"request begun at {rq.first}: {name} is {value}, not of {allowed}")
        upper, must = truth.upper_request(real_request)
        parent = NEVER if rq.parent is None else rq.parent.first
        wanted = _time_of(truth, upper)
        if parent not in (wanted, NEVER) or (must and parent == NEVER):
            found.append(f"request begun at {rq.first}: parent is {parent}, not {wanted}")
    return found


def _time_of(truth: Truth, number: int) -> int:
    return NEVER if number == NEVER else ns(truth.order[number].ts)


def _unlike_truth(
    truth: Truth, reference: IdentityReference, bio: KnownBio, real: Bio
) -> list[str]:
    wanted, found, name = truth.bio(real), [], f"bio queued at {bio.queue}"
    for column, value in bio_columns(bio).items():
        right = wanted.statuses if column == "status" else {wanted.columns[column]}
        if value not in right:
            found.append(f"{name}: {column} is {value}, not of {right}")
    allowed = [{n: f[n] for n in TIMES} for f in wanted.finals]
    if not any(f in allowed for f in finals(bio, reference.requests)):
        found.append(f"{name}: {finals(bio, reference.requests)} is not of {allowed}")
    of = sorted((_time_of(truth, truth.request_number(r)), s, n) for r, s, n in wanted.edges)
    if edges(bio) != of:
        found.append(f"{name}: edges are {edges(bio)}, not {of}")
    uppers, must = truth.parent(real)
    parent = None if bio.parent is None else truth.queued.get(bio.parent.queue)
    if (bio.parent is not None and parent not in uppers) or (must and bio.parent is None):
        found.append(f"{name}: parent is not its own")
    return found


def identity_differences(history: History, tables: Tables) -> list[str]:
    """What production says otherwise than the reference, of what both know to its end."""
    reference = reference_of(history)
    time = [ns(rec.ts) for rec in arrival(history)]
    return [
        *_unlike_bios(reference, tables, time),
        *_unlike_requests(reference, tables, time),
    ]


def _unlike_bios(reference: IdentityReference, tables: Tables, time: list[int]) -> Iterator[str]:
    queued = {r["queue"]: r for r in tables.bios if r["queue"] != NEVER}
    rows = {r["number"]: r for r in tables.bios}
    served: dict[int, list[EDGE]] = {}
    for edge in tables.edges:
        place = (time[edge["request"]], edge["sector"], edge["bytes"])
        served.setdefault(edge["bio"], []).append(place)
    for bio in _judged(reference):
        name, row = f"bio queued at {bio.queue}", queued.get(bio.queue)
        if row is None:
            yield f"{name} is not given"
            continue
        if row["certainty"] != Certainty.EXACT:
            yield f"{name}: is {Certainty(row['certainty']).name}"
        for column, value in bio_columns(bio).items():
            if row[column] != value and not (column == "status" and _several(bio)):
                yield f"{name}: {column} is {row[column]}, not {value}"
        given = {n: row[n] for n in TIMES}
        if given not in finals(bio, reference.requests):
            yield f"{name}: {given} is not of {finals(bio, reference.requests)}"
        if sorted(served.get(row["number"], [])) != edges(bio):
            yield f"{name}: edges are {served.get(row['number'])}, not {edges(bio)}"
        above = rows.get(row["parent"])
        parent = NEVER if bio.parent is None else bio.parent.queue
        if parent != (NEVER if above is None else above["queue"]):
            yield f"{name}: parent is {above and above['queue']}, not {parent}"


def _unlike_requests(
    reference: IdentityReference, tables: Tables, time: list[int]
) -> Iterator[str]:
    begun = {time[r["number"]]: r for r in tables.requests}
    for rq in _ended(reference):
        name, row = f"request begun at {rq.first}", begun.get(rq.first)
        if row is None:
            yield f"{name} is not given"
            continue
        taker, parent = (
            NEVER if row[n] == NEVER else time[row[n]] for n in ("absorbed_by", "parent")
        )
        for column, value in request_columns(rq).items():
            given = taker if column == "absorbed_by" else row[column]
            if given != value:
                yield f"{name}: {column} is {given}, not {value}"
        if parent != (NEVER if rq.parent is None else rq.parent.first):
            yield f"{name}: parent is {parent}"


def _several(bio: KnownBio) -> bool:
    """Whether several parts failed: which one's status is given is not said."""
    return len({p.status for p in bio.pieces if p.status} | {bio.status} - {0}) > 1
