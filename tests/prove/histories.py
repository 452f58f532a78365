# SPDX-License-Identifier: Apache-2.0
"""Thousands of generated histories, each held to everything that `layers_prove` knows.

Prints how often each feature occurred. A counterexample is made small and told as a story;
then the exit status is 1, as when a feature occurs too seldom for the count to mean much.
"""

import multiprocessing
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from tests.prove.claims import Claim, failed, table
from tests.simulation.check import story
from tests.simulation.loads import history
from tests.simulation.model import History
from tests.simulation.one_history import FEATURES, wrong
from tests.simulation.reduce import reduce

PART = "histories"
COUNT = 10_000
FIRST = int(os.environ.get("PROVE_FIRST", "0"))
"""Environment: the seed to begin with. What was learnt from proves less than what is new."""
SIZE = 12
"""Loads per history."""
LEAST = 500
"""Times that each feature must occur in COUNT histories."""
SHOWN = 3
"""Counterexamples that are made small; there is more than one reader of a long output."""


@dataclass
class Outcome:
    """What is wrong with the history of a seed; bios: how many it had."""

    seed: int
    wrong: list[str]
    features: Counter[str]
    bios: int = 0
    records: int = 0


@dataclass
class Total:
    """Of all histories. times: how often a feature occurred; among: in how many histories.

    first: the smallest seed.
    """

    first: int = 0
    histories: int = 0
    bios: int = 0
    records: int = 0
    times: Counter[str] = field(default_factory=Counter)
    among: Counter[str] = field(default_factory=Counter)
    bad: list[Outcome] = field(default_factory=list)

    def take(self, found: Outcome) -> None:
        """Adds one."""
        self.histories += 1
        self.bios += found.bios
        self.records += found.records
        self.times += found.features
        self.among.update(name for name, number in found.features.items() if number)
        if found.wrong:
            self.bad.append(found)


def said_wrong(found: History) -> list[str]:
    try:
        return wrong(found)
    except Exception:
        return ["breaks: " + traceback.format_exc(limit=-2).strip().replace("\n", " / ")]


def outcome(seed: int) -> Outcome:
    found = history(random.Random(seed), SIZE)
    texts = said_wrong(found)
    return Outcome(seed, texts, found.features, len(found.bios), len(found.recorded))


def outcomes(first: int, count: int, jobs: int) -> Iterator[Outcome]:
    seeds = range(first, first + count)
    if jobs == 1:
        yield from map(outcome, seeds)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(outcome, seeds, chunksize=8)


def run(first: int, count: int, jobs: int) -> Total:
    """All of them; progress on a terminal."""
    total, begun = Total(first), time.monotonic()
    for found in outcomes(first, count, jobs):
        total.take(found)
        if found.wrong:
            print(f"\rseed {found.seed}: {found.wrong[0]}", file=sys.stderr, flush=True)
        if sys.stderr.isatty() and total.histories % 20 == 0:
            rate = total.histories / (time.monotonic() - begun)
            said = f"{total.histories} of {count} histories, {rate:.0f}/s, {len(total.bad)} wrong"
            print(f"\r{said} ", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    total.bad.sort(key=lambda o: o.seed)
    return total


def least(count: int) -> int:
    """Times that each feature must occur among this many histories."""
    return LEAST * count // COUNT


def feature_table(total: Total) -> str:
    rows = [f"| {says} | {total.times[n]} | {total.among[n]} |" for n, says in FEATURES.items()]
    return "\n".join(["| feature | times | in histories |", "|---|---|---|", *rows])


def counterexample(found: Outcome) -> str:
    parts = {text.split(":")[0] for text in found.wrong}

    def bad(smaller: History) -> bool:
        found = {text.split(":")[0] for text in said_wrong(smaller)}
        return bool(found) and found <= parts

    small = reduce(history(random.Random(found.seed), SIZE), bad)
    lines = [f"seed {found.seed}:", *said_wrong(small), story(small)]
    return "\n".join(lines)


def claims_of(total: Total) -> list[Claim]:
    last = total.first + total.histories - 1
    rarest = min(FEATURES, key=lambda n: total.times[n])
    bound = least(total.histories)
    return [
        Claim(
            PART,
            f"generated histories, seeds {total.first:,} to {last:,} "
            f"({total.bios:,} bios, {total.records:,} records): wrong",
            f"{len(total.bad)} of {total.histories:,}",
            "0",
            not total.bad,
        ),
        Claim(
            PART,
            f"times that each of {len(FEATURES)} features occurred, at least",
            f"{total.times[rarest]:,} ({FEATURES[rarest]})",
            f"{bound:,}",
            total.times[rarest] >= bound,
        ),
    ]


def prove(count: int = COUNT, first: int = FIRST, jobs: int = 0) -> list[Claim]:
    """Runs the histories, prints the features and what is wrong, and gives the claims."""
    total = run(first, count, jobs or os.cpu_count() or 1)
    click.echo(feature_table(total))
    for found in total.bad[:SHOWN]:
        click.echo(f"\n{counterexample(found)}")
    for found in total.bad[SHOWN:]:
        click.echo(f"\nseed {found.seed}: {found.wrong[0]}")
    return claims_of(total)


@click.command()
@click.option("--count", default=COUNT, show_default=True, help="How many histories.")
@click.option("--first", default=FIRST, show_default=True, help="Seed of the first.")
@click.option("--jobs", default=0, help="Processes; by default one for each processor.")
def main(count: int, first: int, jobs: int) -> None:
    """Print the features' table; exit 1 when something is wrong or too seldom."""
    found = prove(count, first, jobs)
    click.echo(f"\n{table(found)}")
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
