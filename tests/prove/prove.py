# SPDX-License-Identifier: Apache-2.0
"""The thorough proof of association: all parts, and one table at the end. `make prove`."""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import click

from tests.prove import btt_table, histories, live_agreement, machine, mutants, programs
from tests.prove.claims import Claim, failed, not_run, table

OUT = "PROVE_OUT"
"""Environment: the file that gets the closing table."""


def live(seconds: int = 5) -> list[Claim]:
    """Real loads, by identity and by intervals."""
    rows = list(live_agreement.rows(seconds))
    if not rows:
        return [not_run("live", "no load ran")]
    click.echo(live_table(rows))
    wrong = sum(r.served_wrong + r.stages_wrong + r.unmarked for r in rows)
    agree, marked = min(r.agree for r in rows), max(r.marked for r in rows)
    least, most = live_agreement.AGREE, live_agreement.MARKED
    rarest = min(min(r.reads, r.writes, r.discards, r.flushes) for r in rows)
    bios = sum(r.bios for r in rows)
    odd = "not served once, with stages that do not add up, or different and not marked"
    return [
        Claim("live", f"bios of {len(rows)} loads ({bios:,}) {odd}", f"{wrong}", "0", not wrong),
        Claim(
            "live", "intervals agree with identity", f"{agree:.3%}", f"{least:.1%}", agree >= least
        ),
        Claim("live", "bios marked, at most", f"{marked:.3%}", f"{most:.1%}", marked <= most),
        Claim("live", "reads, writes, discards, flushes, each", f"{rarest:,}", "1", rarest > 0),
    ]


def live_table(rows: list[live_agreement.Row]) -> str:
    """Every load with all that was found."""
    names = [f.name for f in fields(live_agreement.Row)]
    lines = [" | ".join(n.replace("_", " ") for n in names), "|".join("---" for _ in names)]
    for row in rows:
        cells = [getattr(row, n) for n in names]
        lines.append(" | ".join(f"{c:.3%}" if isinstance(c, float) else str(c) for c in cells))
    return "\n".join(f"| {line} |" for line in lines)


PARTS: dict[str, Callable[[], list[Claim]]] = {
    "histories": histories.prove,
    "mutants": mutants.prove,
    "machine": machine.prove,
    "live": live,
    "btt": btt_table.prove,
    "programs": programs.prove,
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
