# SPDX-License-Identifier: Apache-2.0
"""What the records themselves rule out, whatever was lost: no mark excuses saying it.

`contradictions(history, bios, requests, edges, whose)` lists, in words:

- a bio on a request whose issue names its whole chain, and the bio's address is not in it;
- a bio or request said to be in flight at the end, whose address was later seen to begin anew.
"""

from collections.abc import Callable, Iterator

from biotrail.converters.events.tables import Certainty
from tests.simulation.model import Bio, History, Rec
from tests.simulation.recorded import NEVER, ns

Row = dict[str, int]
Whose = Callable[[Row], Bio | None]


def contradictions(
    history: History, bios: list[Row], requests: list[Row], edges: list[Row], whose: Whose
) -> Iterator[str]:
    """Everything that is said against the records. whose: the bio that a row is about."""
    recorded = sorted(history.recorded, key=lambda r: r.order)
    yield from _left_out(recorded, bios, requests, edges, whose)
    yield from _lives_again(recorded, bios, requests, whose)


def _left_out(
    recorded: list[Rec], bios: list[Row], requests: list[Row], edges: list[Row], whose: Whose
) -> Iterator[str]:
    chains = _whole_chains(recorded)
    rows = {row["number"]: row for row in requests}
    # Of several fragments some may be known by interval: those are no chain's to tell.
    owners = {row["number"]: whose(row) for row in bios if row["fragments"] == 1}
    for edge in edges:
        row, bio = rows[edge["request"]], owners.get(edge["bio"])
        chain = _chain_of(row, chains)
        if bio is not None and chain is not None and bio.pointer not in chain:
            yield f"bio {edge['bio']}: on request {row['number']}, whose whole chain leaves it out"


def _whole_chains(recorded: list[Rec]) -> dict[int, list[tuple[int, set[int] | None]]]:
    """Per request address its issues: (time, addresses of bios, None where it is cut)."""
    told: dict[tuple[int, int], set[int]] = {}
    for rec in recorded:
        if rec.letter in "Db":
            told.setdefault((rec.fields["rq"], rec.ts), set()).update(rec.bios)
    found: dict[int, list[tuple[int, set[int] | None]]] = {}
    for rec in recorded:
        if rec.letter == "D":
            whole = rec.held and set(rec.held) <= told[rec.fields["rq"], rec.ts]
            chain = {b.pointer for bio in rec.held for b in (bio, bio.root)} if whole else None
            found.setdefault(rec.fields["rq"], []).append((ns(rec.ts), chain))
    return found


def _chain_of(row: Row, chains: dict[int, list[tuple[int, set[int] | None]]]) -> set[int] | None:
    """Addresses in a row's first issue and of all after it; None where one is not known."""
    for issues in chains.values():
        if not any(at == row["issue"] for at, _ in issues):
            continue
        mine = [chain for at, chain in issues if at >= row["issue"]]
        return None if None in mine else set().union(*(c for c in mine if c))
    return None


def _lives_again(
    recorded: list[Rec], bios: list[Row], requests: list[Row], whose: Whose
) -> Iterator[str]:
    queued: dict[int, list[tuple[int, Bio]]] = {}
    started: dict[int, int] = {}
    address: dict[int, int] = {}
    absorbed: set[int] = set()
    for rec in recorded:
        if rec.letter == "Q":
            queued.setdefault(rec.bios[0].pointer, []).append((ns(rec.ts), rec.bios[0]))
        elif rec.letter == "s":
            started[rec.fields["rq"]] = ns(rec.ts)
            address[ns(rec.ts)] = rec.fields["rq"]
        elif rec.letter == "m":  # who absorbed it may be unknown: that is what the mark says
            absorbed.add(rec.fields["rq"])
    for row in bios:
        bio = whose(row)
        if bio is None or not _open(row, row["queue"]):
            continue
        for at, other in queued.get(bio.pointer, ()):
            if other is not bio and at > row["queue"]:
                yield f"bio {row['number']}: in flight at the end, its address is queued at {at}"
    for row in requests:
        pointer = address.get(row["start"], NEVER)
        again = started.get(pointer, NEVER)
        if pointer not in absorbed and _open(row, row["start"]) and again > row["start"]:
            yield f"request {row['number']}: in flight at the end, its address starts at {again}"


def _open(row: Row, begin: int) -> bool:
    incomplete = row["certainty"] == Certainty.INCOMPLETE and row["complete"] == NEVER
    return incomplete and begin != NEVER and row.get("absorbed_by", NEVER) == NEVER
