# SPDX-License-Identifier: Apache-2.0
"""Histories of each kind by the machine: what it says is true, whenever it closes what is over.

What it gives does not depend on how early it closes what is over, nor on windows. It is held to the
simulator's truth; without pointers (`by intervals` below) its marks are, and to the reference of
intervals.
"""

import io
import multiprocessing
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click

from tests.prove.claims import Claim, failed, table
from tests.prove.histories import SIZE
from tests.reference.compare import comparable, differences
from tests.simulation.check import Checker
from tests.simulation.check_doubt import latency_problems
from tests.simulation.check_intervals import IntervalChecker
from tests.simulation.delivery import log_of
from tests.simulation.faults import MISSING, faulty
from tests.simulation.loads import history
from tests.simulation.model import History
from tests.simulation.plain_loads import plain_history
from tests.support.matching import Matched, as_rows, by_machine, unlike

PART = "machine"
COUNT = 10_000
FIRST = int(os.environ.get("PROVE_FIRST", "0"))
FAULTY = 2_000
NO_TASK = -1
SETTLE_NS = 2_500_000
"""Longer than any record arrives late (`delivery.LATE_NS`)."""


def ordinary(seed: int) -> History:
    """Any kind of I/O, most of it odd."""
    return history(random.Random(seed), SIZE)


def plain(seed: int) -> History:
    return plain_history(random.Random(seed), stacked=False)


def stacked(seed: int) -> History:
    """The same, on devices upon each other."""
    return plain_history(random.Random(seed), stacked=True)


def with_records_missing(seed: int) -> History:
    """One of eight records of a kind missing, and not counted."""
    rng = random.Random(seed)
    made = plain_history(rng, stacked=seed // len(MISSING) % 2 == 1)
    return faulty(made, MISSING[seed % len(MISSING)], rng)


KINDS: dict[str, Callable[[int], History]] = {
    "ordinary": ordinary,
    "mostly plain": plain,
    "stacked": stacked,
    "with records missing": with_records_missing,
}


BY_INTERVALS = " by intervals"
INTERVAL_KINDS = {f"{kind},{BY_INTERVALS}": KINDS[kind] for kind in ("ordinary", "stacked")}
"""Kinds of which the pointers are not used."""


@dataclass
class Outcome:
    """Of one history: what is wrong, and what differs where all is closed early."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    bios: int = 0


def outcome(seed: int, kind: str) -> Outcome:
    made = {**KINDS, **INTERVAL_KINDS}[kind](seed)
    log = log_of(made).getvalue()
    how = "intervals" if kind.endswith(BY_INTERVALS) else "identity"
    try:
        late = by_machine(io.BytesIO(log), associate=how)
        early = by_machine(io.BytesIO(log), SETTLE_NS, made.window_events, how)
    except Exception as error:
        return Outcome(seed, wrong=[f"breaks: {error!r}"])
    for read in (late, early):
        read.bios.task[:] = NO_TASK  # a name that is told late is there in time, or is not
    found = Outcome(seed, early=unlike(late, early), bios=len(late.bios))
    if "missing" not in kind:  # of what is missing and not counted the truth knows nothing
        said = interval_complaints if how == "intervals" else complaints
        found.wrong = said(made, late)
    return found


def complaints(made: History, tables: Matched) -> list[str]:
    """What is wrong with the tables of a history, held to the truth."""
    rows: Any = as_rows(tables)
    return Checker(made, rows).check()


def interval_complaints(made: History, tables: Matched) -> list[str]:
    """What is wrong with tables that were made without pointers, and is not marked."""
    if not comparable(made):
        return []
    rows: Any = as_rows(tables)
    checker = IntervalChecker(made, rows)
    said = differences(made, rows)
    return [*checker.check(), *latency_problems(checker), *said]


def run(kind: str, first: int, count: int, jobs: int) -> Claim:
    wrong = bios = early = 0
    with multiprocessing.Pool(jobs) as pool:
        seeds = range(first, first + count)
        for found in pool.imap_unordered(partial(outcome, kind=kind), seeds, chunksize=8):
            bios += found.bios
            early += bool(found.early)
            wrong += bool(found.wrong)
            if said := found.wrong or found.early:
                how = "wrong" if found.wrong else "early"
                print(f"seed {found.seed}, {kind}: {how}: {said[0][:300]}", file=sys.stderr)
    what = f"histories, {kind}, seeds {first:,} to {first + count - 1:,} ({bios:,} bios)"
    text = f"{wrong} of {count:,}; {early} depend on when they are closed"
    return Claim(PART, f"{what}: wrong", text, "0, 0 early", not wrong and not early)


def prove(count: int = COUNT, jobs: int = 0, first: int = FIRST, only: str = "") -> list[Claim]:
    jobs = jobs or os.cpu_count() or 1
    return [
        run(kind, first, min(count, FAULTY) if "missing" in kind else count, jobs)
        for kind in {**KINDS, **INTERVAL_KINDS}
        if only in kind
    ]


@click.command()
@click.option("--count", default=COUNT, show_default=True, help="Histories of each kind.")
@click.option("--first", default=FIRST, show_default=True, help="Seed of the first.")
@click.option("--jobs", default=0, help="Processes; by default one for each processor.")
@click.option("--only", default="", help="Kinds with this in their name.")
def main(count: int, first: int, jobs: int, only: str) -> None:
    """Print the table; exit 1 when something is wrong."""
    found = prove(count, jobs, first, only)
    click.echo(f"\n{table(found)}")
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
