# SPDX-License-Identifier: Apache-2.0
"""Settling of plain I/O: histories that are mostly plain, with and without it; bugs seeded in it.

Every history's tables and account have to be those of the column model alone, row by row. Each
seeded bug has to make a difference, so that what is compared is known to be enough.
"""

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import click

from biotrail.converters import pipeline
from biotrail.converters.settling import settler
from tests.prove.claims import Claim, failed, table
from tests.prove.plain_bugs import BUGS, Bug
from tests.simulation.check import SHORT_HOLD_NS
from tests.simulation.delivery import log_of
from tests.simulation.plain_loads import plain_history
from tests.support.paths import ROOT
from tests.support.settling import differences, windows_of

PART = "plain"
COUNT = 10_000
FIRST = int(os.environ.get("PROVE_FIRST", "0"))
SURVIVES = 120
"""Histories that a bug may survive before it counts as not caught."""
LEAST_SHARE = 0.9
"""Of the events of all histories that have to be settled."""
SOURCE = ROOT / "converters" / "settling" / "plain.py"


@dataclass
class Outcome:
    """What differs in the history of a seed; settled: how many of its events were plain."""

    seed: int
    different: list[str]
    settled: int
    events: int


def outcome(seed: int, module: ModuleType | None = None) -> Outcome:
    """Read one history with and without settling. module: the pass; None: the compiled one."""
    made = plain_history(random.Random(seed))
    pipeline.HOLD_NS = pipeline.SETTLE_NS = SHORT_HOLD_NS
    settled = [0]
    settle = settler.Settler.settle

    def counted(self, events, before):
        found = settle(self, events, before)
        settled[0] += 0 if found is None else sum(found.counts.values())
        return found

    settler.Settler.settle = counted
    try:
        alone = windows_of(log_of(made), None, made.window_events, "identity")
        used = module or settler.compiled
        with_it = windows_of(log_of(made), used, made.window_events, "identity")
        different = differences(alone, with_it)
    except Exception as error:
        different = [f"breaks: {error!r}"]
        return Outcome(seed, different, settled[0], 0)
    finally:
        settler.Settler.settle = settle
    return Outcome(seed, different, settled[0], alone[0].account.total)


def outcomes(first: int, count: int, jobs: int) -> Iterator[Outcome]:
    """Those of `count` seeds, as they come."""
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(outcome, range(first, first + count), chunksize=8)


def run(first: int, count: int, jobs: int) -> Claim:
    """Compare all histories; progress on a terminal."""
    bad: list[Outcome] = []
    settled = events = done = 0
    begun = time.monotonic()
    for found in outcomes(first, count, jobs):
        done, settled, events = done + 1, settled + found.settled, events + found.events
        if found.different:
            bad.append(found)
            print(f"seed {found.seed}: {found.different[:3]}", file=sys.stderr, flush=True)
        if sys.stderr.isatty() and done % 20 == 0:
            rate = done / (time.monotonic() - begun)
            print(f"\r{done} of {count}, {rate:.0f}/s ", end="", file=sys.stderr, flush=True)
    share = settled / max(events, 1)
    what = f"histories that are mostly plain, seeds {first:,} to {first + count - 1:,}"
    return Claim(
        PART,
        f"{what} ({events:,} events, {share:.1%} settled): different with settling",
        f"{len(bad)} of {count:,}",
        f"0, {LEAST_SHARE:.0%} settled",
        not bad and share >= LEAST_SHARE,
    )


def broken(bug: Bug) -> ModuleType:
    """Return the pass with a bug, uncompiled. Raises ValueError: what it replaces is not there."""
    text = SOURCE.read_text(encoding="utf-8")
    if text.count(bug.right) < 1:
        raise ValueError(f"{bug.name}: {bug.right!r} is not in {SOURCE.name}")
    module = ModuleType(f"plain with {bug.name}")
    exec(compile(text.replace(bug.right, bug.wrong, 1), str(SOURCE), "exec"), module.__dict__)
    return module


def hunt(bug: Bug) -> tuple[str, int, str]:
    """Return (name, the number of the history that shows a bug (0: none), what differs)."""
    module = broken(bug)
    for seed in range(SURVIVES):
        if found := outcome(seed, module).different:
            return bug.name, seed + 1, found[0]
    return bug.name, 0, ""


def hunt_all(jobs: int) -> Claim:
    """Hunt all bugs and print how each was caught."""
    with multiprocessing.Pool(jobs) as pool:
        found = pool.map(hunt, BUGS, chunksize=1)
    rows = [f"| {name} | {after or 'not caught'} | {by} |" for name, after, by in found]
    click.echo("\n".join(["| bug | caught by history | by |", "|---|---|---|", *rows]))
    caught = [after for _, after, _ in found if after]
    latest = f", the last after {max(caught)}" if caught else ""
    what = "bugs seeded in the pass that settles plain I/O: caught"
    return Claim(
        PART, what, f"{len(caught)} of {len(found)}{latest}", "all", len(caught) == len(found)
    )


def prove(count: int = COUNT, jobs: int = 0) -> list[Claim]:
    """Compare the histories, hunt the bugs, and return both claims."""
    jobs = jobs or os.cpu_count() or 1
    return [run(FIRST, count, jobs), hunt_all(jobs)]


@click.command()
@click.option("--count", default=COUNT, show_default=True, help="Histories.")
@click.option("--jobs", default=0, help="Processes; by default one for each processor.")
def main(count: int, jobs: int) -> None:
    """Print the table; exit 1 when something differs or a bug is not caught."""
    found = prove(count, jobs)
    click.echo(f"\n{table(found)}")
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
