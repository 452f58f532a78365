# SPDX-License-Identifier: Apache-2.0
"""Holds the latencies that are not said to be in doubt to what they truly were.

A latency may be off by a tenth, no more; what is off further must be marked (`Bios.doubtful`).
"""

from collections.abc import Iterator

from biotrail.converters.events.tables import Certainty
from tests.simulation.check import Checker, Row
from tests.simulation.model import Bio, Request
from tests.simulation.recorded import NEVER, ns


def latency_problems(checker: Checker) -> list[str]:
    """Every latency of a bio or request that is off by more than a tenth, and is not doubtful."""
    return [*_of_bios(checker), *_of_requests(checker)]


def _of_bios(checker: Checker) -> Iterator[str]:
    for row in checker.tables.bios:
        bio = checker.truth.queued.get(row["queue"])
        if bio is not None and row["complete"] != NEVER and not row["doubtful"]:
            yield from _off("bio", row, row["queue"], _end_of_bio(bio))


def _of_requests(checker: Checker) -> Iterator[str]:
    for row in checker.tables.requests:
        begun = NEVER not in (row["start"], row["complete"]) and row["absorbed_by"] == NEVER
        begun &= row["certainty"] != Certainty.INCOMPLETE  # else it starts with what was recorded
        rq = checker.whose_request(row["number"])
        if begun and rq is not None and not row["doubtful"]:
            yield from _off("request", row, row["start"], _end_of_request(rq))


def _off(kind: str, row: Row, begin: int, end: int | None) -> Iterator[str]:
    given = row["complete"] - begin
    true = None if end is None else end - begin
    if true is None or 10 * abs(given - true) > min(given, true):
        yield f"{kind} {row['number']}: latency is {given} ns, not {true}, and not doubtful"


def _end_of_bio(bio: Bio) -> int | None:
    """When the bio ended, recorded or not (ns); None: it did not."""
    ends = [p.end for p in bio.pieces] + ([bio.own_end] if bio.own_end else [])
    times = [end.ts for end in ends if end is not None]
    return ns(max(times)) if times and len(times) == len(ends) else None


def _end_of_request(rq: Request) -> int | None:
    """When a request's last completion was, recorded or not (ns); None: it has none."""
    while rq.absorbed_by is not None:
        rq = rq.absorbed_by
    times = [rec.ts for rec in rq.records if rec.letter == "C"]
    return ns(max(times)) if times else None
