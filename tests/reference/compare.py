# SPDX-License-Identifier: Apache-2.0
"""Production without pointers against the reference: the same bios, or both in doubt."""

from biotrail.converters.events.tables import Certainty
from tests.reference.intervals import IntervalReference, RefBio
from tests.simulation.check import Row, Tables
from tests.simulation.delivery import arrival
from tests.simulation.model import SECTOR, History
from tests.simulation.recorded import NEVER, ns
from tests.simulation.truth import Truth

COLUMNS = ("complete", "fragments", "requests", "requeues", "status", "done_bytes")
TIMES = ("getrq", "merge", "insert", "issue")


def reference_of(history: History) -> IntervalReference:
    """The reference, fed with all that was recorded."""
    queues = {d["dev"]: d.get("queue", {}).get("nr_hw_queues") for d in history.devices}
    single = [dev for dev, count in queues.items() if count == 1]
    reference = IntervalReference(single)
    for rec in arrival(history):
        reference.feed(rec.letter, ns(rec.ts), rec.fields)
    return reference


def comparable(history: History) -> bool:
    """Histories of which nothing is missing, but for completions that no program saw.

    Other losses are production's to mark.
    """
    features = history.features
    return not history.losses and not features["begins in flight"]


def _misses_completions(history: History) -> bool:
    return bool(history.features["C never seen, not counted"])


def _final(bio: RefBio) -> list[Row]:
    ends = [p.ended for p in bio.pieces]
    found = []
    for piece in bio.pieces:
        if piece.ended != max(ends):
            continue
        rq = piece.request
        t = {n: piece.times.get(n, NEVER) for n in TIMES}
        if t["merge"] != NEVER:
            t["getrq"] = NEVER
        if "insert" not in piece.times and rq is not None:
            t["insert"] = rq.times.get("insert", NEVER)
        begun = max(t["getrq"], t["merge"])
        wrong = begun == NEVER or t["insert"] < begun
        if wrong or (t["issue"] != NEVER and t["insert"] > t["issue"]):
            t["insert"] = NEVER
        found.append(t)
    return found or [dict.fromkeys(TIMES, NEVER)]


def _columns(bio: RefBio) -> Row:
    requests = {id(p.request): p.request for p in bio.pieces if p.request}
    sent = sum(p.piece for p in bio.pieces)
    ended = bool(bio.pieces) and all(p.ended >= 0 for p in bio.pieces) and sent >= bio.size
    complete = max(p.ended for p in bio.pieces) if ended else NEVER
    good = sum(p.good for p in bio.pieces)
    bad = [p.status for p in bio.pieces if p.status]
    if bio.own_end >= 0:
        complete = bio.own_end
        good = good if bio.pieces else 0 if bio.status else bio.size * SECTOR
        bad += [bio.status] if bio.status else []
    return {
        "complete": complete,
        "fragments": len(bio.pieces),
        "requests": len(requests),
        "requeues": sum(r.requeues for r in requests.values()),
        "status": bad[-1] if bad else 0,
        "done_bytes": good,
    }


def _doubtful(bio: RefBio) -> bool:
    pieces = [bio, *bio.pieces]
    return any(p.doubt or (p.request is not None and p.request.doubt) for p in pieces)


def differences(history: History, tables: Tables) -> list[str]:
    """What production says otherwise than the reference, of bios that both know to the end."""
    rows = {r["queue"]: r for r in tables.bios if r["queue"] != NEVER}
    found = []
    for bio in reference_of(history).bios:
        if bio.root is not None or bio.queue < 0:
            continue
        row = rows.get(bio.queue)
        if row is None:
            found.append(f"bio queued at {bio.queue} is not given")
            continue
        if row["certainty"] > Certainty.AMBIGUOUS and _misses_completions(history):
            continue  # production knows that something is missing; the reference does not
        found += _differences(bio, row)
    return found


def _differences(bio: RefBio, row: Row) -> list[str]:
    name = f"bio {row['number']}"
    wanted = _columns(bio)
    ambiguous = row["certainty"] == Certainty.AMBIGUOUS
    if _doubtful(bio):
        unmarked = row["certainty"] < Certainty.AMBIGUOUS
        return [f"{name}: several candidates, not marked"] if unmarked else []
    if wanted["complete"] == NEVER:
        return [f"{name}: complete, not in the reference"] if row["complete"] != NEVER else []
    if ambiguous:
        return [f"{name}: marked ambiguous, one candidate each time"]
    if row["certainty"] != Certainty.INTERVAL:
        return [f"{name}: is {Certainty(row['certainty']).name}, not by interval"]
    found = [f"{name}: {n} is {row[n]}, not {v}" for n, v in wanted.items() if row[n] != v]
    given = {n: row[n] for n in TIMES}
    if given not in _final(bio):
        found.append(f"{name}: {given} is not of {_final(bio)}")
    return found


def reference_problems(history: History) -> list[str]:
    """Where the reference itself is wrong and does not say so, held to the truth."""
    if _misses_completions(history):
        return []
    truth = Truth(history)
    found = []
    for bio in reference_of(history).bios:
        real = truth.queued.get(bio.queue)
        if bio.root is not None or real is None or _doubtful(bio):
            continue
        given, wanted = _columns(bio), truth.bio(real)
        if given["complete"] == NEVER:
            continue
        for name, value in given.items():
            right = wanted.statuses if name == "status" else {wanted.columns[name]}
            if value not in right:
                found.append(f"bio queued at {bio.queue}: {name} is {value}, not of {right}")
        finals = [{n: f[n] for n in TIMES} for f in wanted.finals]
        if not any(f in finals for f in _final(bio)):
            found.append(f"bio queued at {bio.queue}: {_final(bio)} is not of {finals}")
    return found
