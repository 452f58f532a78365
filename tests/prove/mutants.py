# SPDX-License-Identifier: Apache-2.0
"""Bugs seeded in a copy of the model: the generated histories must catch every one of them.

For each the printed table says after how many histories it was caught, and by what.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from tests.prove.claims import Claim, failed, table
from tests.prove.mutant_list import MUTANTS, Mutant
from tests.support.paths import ROOT

PART = "mutants"
PACKAGES = ("biotrail", "converters", "recorder", "tests")
MODEL = ("events", "inputs", "association", "lifecycles", "pipeline.py", "clocks")
COUNT = 2000
"""Histories that a bug may survive before it counts as not caught."""
CLEAN = "not caught"


@dataclass(frozen=True)
class Caught:
    """After how many histories (0: never), and the first thing that was wrong."""

    mutant: Mutant
    after: int
    by: str


def sources(root: Path) -> Iterator[Path]:
    """Files of the model."""
    for name in MODEL:
        place = root / "converters" / name
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


def place_of(mutant: Mutant, root: Path) -> Path:
    """The file that has the bug's place; ValueError where it is not there exactly once."""
    places = [p for p in sources(root) for _ in range(p.read_text().count(mutant.right))]
    if len(places) != 1:
        raise ValueError(
            f"'{mutant.name}': its text is {len(places)} times in the model, not once: "
            f"bring tests/prove/mutant_list.py up to date: {mutant.right!r}"
        )
    return places[0]


def seed(mutant: Mutant, root: Path) -> None:
    """Puts the bug into the copy."""
    place = place_of(mutant, root)
    place.write_text(place.read_text().replace(mutant.right, mutant.wrong))


def copy(directory: Path) -> None:
    """Copies what is under test."""
    for name in PACKAGES:
        skip = shutil.ignore_patterns("__pycache__", "corpus", "data")
        # Links stay links: biotrail/converters is the copy's converters.
        shutil.copytree(ROOT / name, directory / name, ignore=skip, symlinks=True)


def hunt(mutant: Mutant, count: int) -> Caught:
    """Runs histories on a copy with the bug until one shows it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        copy(directory)
        seed(mutant, directory)
        number = 0
        while number < count:
            number, by = wrong_after(mutant, directory, number, count)
            # What is wrong without the bug too does not catch it.
            if number and not wrong_after(mutant, ROOT, number - 1, number)[0]:
                return Caught(mutant, number, by)
            number = number or count
    return Caught(mutant, 0, "")


def wrong_after(mutant: Mutant, root: Path, first: int, count: int) -> tuple[int, str]:
    """Number of the next history that the model in `root` has wrong (0: none), and what."""
    command = [sys.executable, "-B", "-m", "tests.prove.mutant_child"]
    command += [str(root), str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode != 0:
        raise RuntimeError(f"'{mutant.name}': {done.stderr.strip()}")
    number, _, by = done.stdout.strip().partition(" ")
    return int(number), by


def hunt_all(count: int, jobs: int, only: str = "") -> list[Caught]:
    """All bugs, in the list's order; or those with `only` in their name."""
    chosen = [m for m in MUTANTS if only in m.name]
    for mutant in chosen:
        place_of(mutant, ROOT)
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda m: hunt(m, count), chosen))


def mutant_table(found: list[Caught]) -> str:
    """Each bug: after how many histories it was caught, and what was said."""
    rows = [f"| {c.mutant.name} | {c.after or CLEAN} | {c.by} |" for c in found]
    return "\n".join(["| bug | caught by history | by |", "|---|---|---|", *rows])


def prove(count: int = COUNT, jobs: int = 0, only: str = "") -> list[Claim]:
    """Hunts all bugs, prints the table, and gives the claim."""
    found = hunt_all(count, jobs or os.cpu_count() or 1, only)
    click.echo(mutant_table(found))
    caught = [c.after for c in found if c.after]
    latest = f", the last after {max(caught):,} histories" if caught else ""
    whole = len(caught) == len(found)
    what = "bugs seeded on purpose: caught"
    return [Claim(PART, what, f"{len(caught)} of {len(found)}{latest}", "all", whole)]


@click.command()
@click.option("--count", default=COUNT, show_default=True, help="Histories per bug, at most.")
@click.option("--jobs", default=0, help="Processes; by default one for each processor.")
@click.option("--only", default="", help="Bugs with this in their name.")
def main(count: int, jobs: int, only: str) -> None:
    """Print the table; exit 1 when a bug is not caught."""
    found = prove(count, jobs, only)
    click.echo(f"\n{table(found)}")
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
