# SPDX-License-Identifier: Apache-2.0
"""`biotrail blame`: whose I/O made whose I/O wait, and what would be without it."""

from dataclasses import dataclass

import click

from biotrail.cli.options import report_scope
from biotrail.cli.options.blame_reading import Blaming
from biotrail.cli.options.cuts import Cut, choice_options, read_lines
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    as_one_object,
    headed,
    logs_argument,
    of_each,
    recordings,
)
from biotrail.converters.analysis import figures
from biotrail.converters.analysis.blame.blame import BlameOptions
from biotrail.converters.analysis.blame.parties import DIMENSIONS, OWNER
from biotrail.text import blame as blame_text
from biotrail.text import tallies, values
from biotrail.text.columns import console
from biotrail.text.printing import say_all, say_json
from biotrail.text.rows import limit_option

FORMAT = 1
_DIMENSION = click.Choice(DIMENSIONS)


@dataclass(frozen=True)
class Asked:
    by: str = option(
        "--by",
        type=_DIMENSION,
        default=OWNER,
        show_default=True,
        help="What victims and culprits are: owner is the container, else the unit, else the "
        "cgroup, else the process.",
    )
    victim_by: str | None = option(
        "--victim-by", type=_DIMENSION, help="What victims are, if not the same as culprits."
    )
    culprit_by: str | None = option(
        "--culprit-by", type=_DIMENSION, help="What culprits are, likewise."
    )
    victims: tuple[str, ...] = option(
        "--victim",
        multiple=True,
        type=values.name,
        metavar="NAME",
        help="Only this victim; NAME* matches a prefix. Can be repeated.",
    )
    culprits: tuple[str, ...] = option(
        "--culprit",
        multiple=True,
        type=values.name,
        metavar="NAME",
        help="Keep this culprit apart, however little it does; NAME* likewise. Can be repeated.",
    )
    limit: int | None = added(limit_option(f"{blame_text.MOST_ROWS}"))
    cut: Cut = added(choice_options)
    reading: Reading = added(reading_options())
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object (docs/blame.md).")


@click.command()
@logs_argument
@gathered(Asked, "asked")
def command(logs: tuple[str, ...], asked: Asked) -> None:
    """Show whose I/O made whose I/O wait in LOGs, and what would be without it.

    A row for each victim: how much of its I/Os' time was their own service, waiting behind its own
    other I/O, behind the I/O of each culprit, or the device's alone. Then who slowed whom, and
    what the mean would be without. Options that choose I/Os choose those of victims. What a worker
    writes back is its writer's, where the log has the path (record --path).

    LOG - reads standard input, which is copied to a temporary file, for a log is read twice.

    \b
    biotrail blame disk.biotrail
    biotrail blame --by process -d nvme0n1 --op read disk.biotrail
    biotrail blame --victim db.service disk.biotrail
    biotrail blame --victim-by file --culprit-by process files.biotrail
    biotrail blame --from 10s --to 20s --by cgroup disk.biotrail
    biotrail blame --json disk.biotrail | jq '.victims[] | [.name, .parts]'
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    options = BlameOptions(
        (asked.victim_by or asked.by, asked.culprit_by or asked.by),
        tuple(map(values.as_read, asked.victims)),
        tuple(map(values.as_read, asked.culprits)),
    )
    cut = asked.cut
    with recordings(logs, asked.reading, twice=True) as given:
        found = of_each(given, lambda one: Blaming(one.again, cut, options).finish())
    if asked.as_json:
        each = [
            (
                one,
                {
                    "log_id": trace.context.log_id,
                    **report_scope.facts(trace, cut),
                    **figures.as_json(blamed),
                    **tallies.losses_as_dict(trace),
                },
            )
            for one, (trace, blamed) in found
        ]
        say_json(as_one_object(each, format=FORMAT), indent=2)
        return
    screen = console()
    for trace, blamed in headed(found):
        if scope := report_scope.lines(report_scope.facts(trace, cut)):
            say_all([*scope, ""])
        path_parts = tuple(trace.context.path_parts)
        for number, part in enumerate(
            blame_text.parts(blamed, screen.width, asked.limit, path_parts)
        ):
            if number:
                screen.print()
            screen.print(part)
        say_all([*tallies.loss_lines(trace), *read_lines(trace)])
