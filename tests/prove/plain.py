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
from functools import partial
from types import ModuleType, SimpleNamespace

import click

from biotrail.converters import pipeline
from biotrail.converters.settling import settler
from tests.prove.claims import Claim, failed, table
from tests.prove.plain_bugs import BUGS, Bug
from tests.simulation.check import SHORT_HOLD_NS
from tests.simulation.delivery import log_of
from tests.simulation.faults import FAULTS, MISSING, Fault, faulty
from tests.simulation.model import History
from tests.simulation.plain_cases import CASES, history_of
from tests.simulation.plain_loads import plain_history
from tests.support.paths import ROOT
from tests.support.settling import Read, differences, windows_of

PART = "plain"
COUNT = 10_000
FIRST = int(os.environ.get("PROVE_FIRST", "0"))
FAULTY = 2_000
"""Histories of which records are missing."""
SURVIVES = 4 * len(FAULTS)
"""Histories with faults that a bug may survive before it counts as not caught."""
LEAST_SHARES = {False: 0.95, True: 0.90}
"""Of the events of all histories that have to be settled; True: of stacked devices.

On these flushes compete: of several in flight above, which one a clone is of is not known.
"""
SOURCE = ROOT / "converters" / "settling" / "plain.py"


@dataclass
class Outcome:
    """What differs in the history of a seed; settled: how many of its events were plain."""

    seed: int
    different: list[str]
    settled: int
    events: int


def outcome(seed: int, stacked: bool = False) -> Outcome:
    """Read one history with and without settling. stacked: of devices upon each other."""
    made = plain_history(random.Random(seed), stacked=stacked)
    pipeline.HOLD_NS = pipeline.SETTLE_NS = SHORT_HOLD_NS
    settled = [0]
    settle = settler.Settler.settle

    def counted(self, events, before, reused, *, holds):
        found = settle(self, events, before, reused, holds=holds)
        settled[0] += 0 if found is None else sum(found.counts.values())
        return found

    settler.Settler.settle = counted
    try:
        alone = windows_of(log_of(made), None, made.window_events, "identity")
        with_it = windows_of(log_of(made), settler.compiled, made.window_events, "identity")
        different = differences(alone, with_it)
    except Exception as error:
        different = [f"breaks: {error!r}"]
        return Outcome(seed, different, settled[0], 0)
    finally:
        settler.Settler.settle = settle
    return Outcome(seed, different, settled[0], alone[0].account.total)


def outcomes(first: int, count: int, jobs: int, stacked: bool) -> Iterator[Outcome]:
    """Those of `count` seeds, as they come."""
    read = partial(outcome, stacked=stacked)
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(read, range(first, first + count), chunksize=8)


def run(first: int, count: int, jobs: int, *, stacked: bool) -> Claim:
    """Compare all histories; progress on a terminal."""
    bad: list[Outcome] = []
    settled = events = done = 0
    begun = time.monotonic()
    for found in outcomes(first, count, jobs, stacked):
        done, settled, events = done + 1, settled + found.settled, events + found.events
        if found.different:
            bad.append(found)
            print(f"seed {found.seed}: {found.different[:3]}", file=sys.stderr, flush=True)
        if sys.stderr.isatty() and done % 20 == 0:
            rate = done / (time.monotonic() - begun)
            print(f"\r{done} of {count}, {rate:.0f}/s ", end="", file=sys.stderr, flush=True)
    share = settled / max(events, 1)
    least = LEAST_SHARES[stacked]
    what = f"histories that are mostly plain, seeds {first:,} to {first + count - 1:,}"
    what += ", on stacked devices" if stacked else ""
    return Claim(
        PART,
        f"{what} ({events:,} events, {share:.1%} settled): different with settling",
        f"{len(bad)} of {count:,}",
        f"0, {least:.0%} settled",
        not bad and share >= least,
    )


def broken(bug: Bug) -> ModuleType:
    """Return the pass with a bug, uncompiled. Raises ValueError: what it replaces is not there."""
    text = SOURCE.read_text(encoding="utf-8")
    for right, wrong in bug.replaced:
        if right not in text:
            raise ValueError(f"{bug.name}: {right!r} is not in {SOURCE.name}")
        text = text.replace(right, wrong, 1)
    module = ModuleType(f"plain with {bug.name}")
    exec(compile(text, str(SOURCE), "exec"), module.__dict__)
    return module


def with_fault(seed: int, faults: tuple[Fault, ...]) -> History:
    """Return a history with one of the faults; of those in turn, every second one is stacked."""
    rng = random.Random(seed)
    made = plain_history(rng, stacked=seed // len(faults) % 2 == 1)
    return faulty(made, faults[seed % len(faults)], rng)


def unlike(history: History, modules: list[tuple[str, ModuleType]]) -> list[tuple[str, str]]:
    """Return (name, what differs) of those modules that read a history otherwise.

    Otherwise than the model alone.
    """
    pipeline.HOLD_NS = pipeline.SETTLE_NS = SHORT_HOLD_NS

    def read(module: ModuleType | None) -> Read:
        return windows_of(log_of(history), module, history.window_events, "identity")

    alone = read(None)
    found = []
    for name, module in modules:
        try:
            different = differences(alone, read(module))
        except Exception as error:
            different = [f"breaks: {error!r}"]
        if different:
            found.append((name, different[0]))
    return found


def with_faults(seed: int) -> list[tuple[str, str]]:
    """Return what differs in a history some of whose records are missing, by the compiled pass."""
    assert settler.compiled is not None
    found = unlike(with_fault(seed, MISSING), [("", settler.compiled)])
    return [(f"seed {seed}", different) for _, different in found]


def run_faulty(first: int, count: int, jobs: int) -> Claim:
    """Compare histories some of whose records are missing."""
    with multiprocessing.Pool(jobs) as pool:
        found = pool.imap_unordered(with_faults, range(first, first + count), chunksize=8)
        bad = [one for several in found for one in several]
    for name, different in bad:
        print(f"{name}, with records missing: {different}", file=sys.stderr, flush=True)
    what = "the same, one of eight records of a kind missing: different with settling"
    return Claim(PART, what, f"{len(bad)} of {count:,}", "0", not bad)


def hunt(seed: int, bugs: tuple[Bug, ...]) -> list[tuple[str, str]]:
    """Return (name, what differs) of the bugs that a history shows, by the pass uncompiled.

    seed: of a history with a fault; negative: of one made by hand. Where the pass without a bug
    differs, too, a history shows nothing.
    """
    history = history_of(CASES[seed]) if seed < 0 else with_fault(seed, FAULTS)
    # Uncompiled code takes ten times as long with numpy's records as with objects.
    settler._lives = lambda _, count: [SimpleNamespace() for _ in range(count)]
    modules = [("", broken(Bug("", ()))), *((b.name, broken(b)) for b in bugs)]
    found = unlike(history, modules)
    return [] if any(not name for name, _ in found) else found


def hunt_all(jobs: int) -> Claim:
    """Hunt all bugs and print how each was caught: each history for those not caught before.

    The histories made by hand come first.
    """
    caught: dict[str, tuple[int, str]] = {}
    with multiprocessing.Pool(jobs) as pool:
        for first in range(-len(CASES), SURVIVES, 2 * jobs):
            left = tuple(b for b in BUGS if b.name not in caught)
            if not left:
                break
            seeds = range(first, min(first + 2 * jobs, SURVIVES))
            for seed, found in zip(
                seeds, pool.starmap(hunt, [(s, left) for s in seeds], chunksize=1), strict=True
            ):
                for name, different in found:
                    caught.setdefault(name, (seed, different))
    rows = [(b.name, *caught.get(b.name, (None, ""))) for b in BUGS]
    lines = [f"| {name} | {_named(seed)} | {by} |" for name, seed, by in rows]
    click.echo("\n".join(["| bug | caught by history | by |", "|---|---|---|", *lines]))
    count = len(caught)
    latest = max((seed + 1 for seed, _ in caught.values()), default=0)
    what = "bugs seeded in the pass that settles plain I/O: caught"
    found = f"{count} of {len(BUGS)}, the last after {latest} histories"
    return Claim(PART, what, found, "all", count == len(BUGS))


def _named(seed: int | None) -> str:
    """Return what a history is called in the table; None: there is none."""
    if seed is None:
        return "not caught"
    return f"{seed + 1}" if seed >= 0 else CASES[seed].name


def prove(count: int = COUNT, jobs: int = 0) -> list[Claim]:
    """Compare the histories, hunt the bugs, and return all claims."""
    jobs = jobs or os.cpu_count() or 1
    faulty_ones = min(count, FAULTY)
    runs = [run(FIRST, count, jobs, stacked=stacked) for stacked in (False, True)]
    return [*runs, run_faulty(FIRST, faulty_ones, jobs), hunt_all(jobs)]


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
