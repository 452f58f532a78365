# SPDX-License-Identifier: Apache-2.0
"""The thorough proof of association: all parts, and one table at the end. `make prove`."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import btt_table
import click
import histories
import live_agreement
import mutants
from claims import Claim, failed, not_run, table

OUT = "PROVE_OUT"
"""Environment: the file that gets the closing table."""


def live(seconds: int = 5) -> list[Claim]:
    """Real loads, by identity and by intervals; what each row must show is its own to say."""
    rows = []
    for row in live_agreement.rows(seconds):
        said = f"{row.bios:,} bios, {row.agree:.3%} agree, {row.marked:.3%} marked"
        click.echo(f"{row.load}: {said}")
        rows.append(row)
    if not rows:
        return [not_run("live", "no load ran")]
    wrong = sum(r.served_wrong + r.stages_wrong + r.unmarked for r in rows)
    agree, marked = min(r.agree for r in rows), max(r.marked for r in rows)
    least, most = live_agreement.AGREE, live_agreement.MARKED
    bios = sum(r.bios for r in rows)
    return [
        Claim(
            "live",
            f"bios of {len(rows)} loads ({bios:,}) not served once, with stages that do not "
            "add up, or that differ and are not marked",
            f"{wrong}",
            "0",
            not wrong,
        ),
        Claim(
            "live", "intervals agree with identity", f"{agree:.3%}", f"{least:.1%}", agree >= least
        ),
        Claim("live", "marked, at most", f"{marked:.3%}", f"{most:.1%}", marked <= most),
    ]


PARTS: dict[str, Callable[[], list[Claim]]] = {
    "histories": histories.prove,
    "mutants": mutants.prove,
    "live": live,
    "btt": btt_table.prove,
}


def run(part: str) -> list[Claim]:
    """One part; what it could not do, it says in the table too."""
    click.echo(f"\n{part}\n")
    try:
        return PARTS[part]()
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        return [not_run(part, why.replace("|", "/"))]


def write(path: Path, text: str) -> None:
    """Writes a file in one go."""
    with tempfile.NamedTemporaryFile("w", dir=path.resolve().parent, delete=False) as out:
        out.write(text)
    os.replace(out.name, path)


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
def main(parts: tuple[str, ...]) -> None:
    """Run PARTS (all of them unless named); exit 1 when anything does not hold."""
    found = [claim for part in parts or PARTS for claim in run(part)]
    text = table(found)
    click.echo(f"\n{text}")
    if os.environ.get(OUT):
        write(Path(os.environ[OUT]), f"{text}\n")
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
