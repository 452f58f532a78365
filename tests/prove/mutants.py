# SPDX-License-Identifier: Apache-2.0
"""Bugs seeded in the machine: the generated histories must catch every one of them.

For each the printed table says after how many histories it was caught, and by what. Each bug is
put into processes of its own (`mutant_child`).
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import click

from biotrail.converters.match import rules
from tests.prove.claims import Claim, failed, table
from tests.prove.mutant_list import MUTANTS
from tests.support.paths import ROOT

PART = "mutants"
COUNT = 2000
"""Histories that a bug may survive before it counts as not caught."""
CLEAN = "not caught"


@dataclass(frozen=True)
class Caught:
    """After how many histories a bug was caught (0: never), and the first thing that was wrong."""

    bug: str
    after: int
    by: str


def hunt(bug: str, count: int) -> Caught:
    """Run histories with the bug until one shows it, `count` at most; they begin with seed 0."""
    number = 0
    while number < count:
        number, by = wrong_after(bug, number, count)
        # What is wrong without the bug too does not catch it.
        if number and not wrong_after("", number - 1, number)[0]:
            return Caught(bug, number, by)
        number = number or count
    return Caught(bug, 0, "")


def wrong_after(bug: str, first: int, count: int) -> tuple[int, str]:
    """Return the number of the next history that comes out wrong (0: none), and what is wrong.

    bug: as `mutant_child` takes it. first, count: seeds from `first` to `count` - 1 are run.
    RuntimeError: the child process failed.
    """
    command = [sys.executable, "-B", "-m", "tests.prove.mutant_child", bug]
    command += [str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"'{bug}': {done.stderr.strip()}")
    number, _, by = done.stdout.strip().partition(" ")
    return int(number), by


def hunt_all(bugs: list[str], count: int, jobs: int) -> list[Caught]:
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda bug: hunt(bug, count), bugs))


def mutant_table(found: list[Caught]) -> str:
    rows = [f"| {c.bug} | {c.after or CLEAN} | {c.by} |" for c in found]
    return "\n".join(["| bug | caught by history | by |", "|---|---|---|", *rows])


def prove(count: int = COUNT, jobs: int = 0, only: str = "") -> list[Claim]:
    bugs = [mutant.name for mutant in MUTANTS if only in mutant.name]
    found = hunt_all(bugs, count, jobs or os.cpu_count() or 1)
    click.echo(mutant_table(found))
    caught = [c.after for c in found if c.after]
    latest = f", the last after {max(caught):,} histories" if caught else ""
    complete = len(caught) == len(found)
    what = "bugs seeded on purpose: caught"
    return [Claim(PART, what, f"{len(caught)} of {len(found)}{latest}", "all", complete)]


@click.command()
@click.option("--count", default=COUNT, show_default=True, help="Histories per bug, at most.")
@click.option("--jobs", default=0, help="Processes; by default one for each processor.")
@click.option("--only", default="", help="Bugs with this in their name.")
@click.option("--rules", "each_rule", is_flag=True, help="Switch each rule off in turn instead.")
def main(count: int, jobs: int, only: str, each_rule: bool) -> None:
    """Print the table; exit 1 when a bug is not caught."""
    if each_rule:
        bugs = [name for name in rules.RULES if only in name]
        click.echo(mutant_table(hunt_all(bugs, count, jobs or os.cpu_count() or 1)))
        return
    found = prove(count, jobs, only)
    click.echo(f"\n{table(found)}")
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
