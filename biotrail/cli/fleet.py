# SPDX-License-Identifier: Apache-2.0
"""`biotrail fleet`: recordings of any number of hosts, read where the workers are."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

import click

from biotrail.cli.options.blaming import WithBlame, blame_option
from biotrail.cli.options.cuts import Cut, choice_options
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.opening import Reading, csv_lines, reading_options
from biotrail.converters.analysis.diff.diff import CONFIDENCE
from biotrail.converters.analysis.fleet.part import WORDS
from biotrail.converters.inputs.beginning import is_url
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import units, values
from biotrail.text.printing import StatusLine, say, say_json
from biotrail.text.rows import limit_option

if TYPE_CHECKING:
    from biotrail.converters.analysis.fleet.tree import FleetReport

_TABLE = re.compile(r"(?:^|/)(?:bios|requests)/host=[^/]*/")
"""In the paths of a dataset's tables, which are made from its archives."""
ENDINGS = (".parquet", ".biotrail")
"""Of the files that are taken from a directory; from a folder of a URL only the first."""


def find(places: Sequence[str]) -> list[str]:
    """Return the files at paths, globs, directories and URLs; of a dataset its archives alone."""
    from biotrail.converters.inputs.parquet.locations import expand  # pyarrow

    found: set[str] = set()
    for place in places:
        there = os.path.lexists(place)
        if is_url(place):
            files = expand(place)
        else:
            # Also what only has an archive's name, so that it is reported.
            files = []
            paths = [place] if there or not has_magic(place) else glob(place, recursive=True)
            for path in map(Path, paths):
                if path.is_dir():
                    alone = [str(path)] if not there and path.suffix in ENDINGS else []
                    files += _inside(path) or alone
                elif os.path.lexists(path):
                    files.append(str(path))
        if not files:
            no = "a directory without archives" if Path(place).is_dir() else "no archive there"
            raise ConversionError(
                f"{place}: {no}: give a file, a directory or glob with archives "
                f"({' or '.join('*' + end for end in ENDINGS)}), or a URL such as "
                "s3://bucket/*.parquet"
            )
        found.update(one for one in files if len(files) == 1 or not _TABLE.search(one))
    return sorted(found)


def _inside(directory: Path) -> list[str]:
    named = [one for one in directory.rglob("*") if one.suffix in ENDINGS]
    return [str(one) for one in named if not (one.is_dir() and _inside(one))]


HOST = "host"


HostsTable = dict[str, dict[str, str]]
"""Host → column, but HOST, → value."""


def read_table(path: str) -> tuple[list[str], HostsTable]:
    """Return a CSV file's columns but HOST, which its first line names, and its lines by host."""
    rows: HostsTable = {}
    names: list[str] = []
    for number, line in csv_lines(path, "the table of hosts"):
        if not names:
            names = [cell.strip() for cell in line]
            if HOST not in names:
                raise ConversionError(
                    f"{path}: the first line must name the columns, one of them {HOST!r}; it has "
                    f"{', '.join(map(repr, names))}"
                )
            continue
        row = dict(zip(names, (cell.strip() for cell in line), strict=False))
        host = row.pop(HOST, "")
        if host in rows:
            raise ConversionError(f"{path}:{number}: the host {host!r} is in the table twice")
        rows[host] = row
    return [name for name in names if name != HOST], rows


@click.group()
def command() -> None:
    """Analyse the recordings of many hosts as one, on the workers of a Dask cluster."""


@dataclass(frozen=True)
class FleetOptions:
    cut: Cut = added(choice_options)
    by: str = option(
        "--by",
        type=values.text,
        default="host",
        show_default=True,
        metavar="WORD",
        help=f"Group I/O by this: {', '.join(WORDS)}, or a column of --hosts.",
    )
    hosts: str | None = option(
        "--hosts",
        type=values.FileName(),
        metavar="TABLE.csv",
        help="Table with a column host, and others (rack, role, …) to group by.",
    )
    scheduler: str | None = option(
        "--scheduler",
        type=values.text,
        metavar="tcp://HOST:PORT",
        help="Dask scheduler whose workers read. Default: workers on this machine.",
    )
    workers: int | None = option(
        "--workers",
        type=units.Count(1, 4096),
        metavar="N",
        help="Workers on this machine, of at most 512 MiB each.  [default: one a CPU]",
    )
    seed: int = option("--seed", type=units.Count(0), default=0, help="Of the random draws.")
    blame: str | None = added(
        blame_option("Also add up who waited for whom, by name: victims and culprits")
    )
    limit: int | None = added(limit_option("15; --json has all"))
    reading: Reading = added(reading_options())
    page: str | None = option(
        "-o",
        "--html",
        metavar="OUT",
        type=values.FileName(),
        help="Write the report as an HTML page, which needs no network.",
    )
    force: bool = option(
        "-f", "--force", is_flag=True, help="With --html: replace OUT if it exists."
    )
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object.")

    def check(self) -> None:
        if self.scheduler is not None and self.workers is not None:
            raise click.UsageError(
                "--workers is for this machine's own cluster: leave it out with --scheduler"
            )
        if self.as_json and self.page is not None:
            raise click.UsageError("--json and --html: give one of them")

    def table(self) -> HostsTable:
        """Return the user's table of hosts. Raises click.UsageError if it has no column `by`."""
        columns, table = ([], {}) if self.hosts is None else read_table(self.hosts)
        if self.by not in (*WORDS, *columns):
            known = ", ".join((*WORDS, *columns))
            hint = "" if self.hosts else "; --hosts TABLE.csv adds the table's columns"
            raise click.UsageError(f"--by {self.by}: must be one of {known}{hint}")
        return table


@command.command(cls=WithBlame)
@click.argument("places", metavar="WHERE...", nargs=-1, required=True, type=values.FileName())
@gathered(FleetOptions, "fleet")
def report(places: tuple[str, ...], fleet: FleetOptions) -> None:
    """Show where the I/O time of a fleet goes, and which hosts differ from the others.

    WHERE is a file, a directory, a glob, or a URL (s3://bucket/2026-11/*.parquet) of archives or
    logs of any number of hosts. Each recording is read by the model of report; distributions add up
    exactly, so that the figures are those of one report over all of it. Files that cannot be read,
    are damaged or miss a part are named and counted, and never end the run.

    Hosts are compared with the median of their peers, by the intervals of diff; an outlier also is
    far from where most hosts are (docs/fleet.md). Needs the extra fleet: pip install
    'biotrail[fleet]'.

    \b
    biotrail fleet report archives/
    biotrail fleet report --by model 'archives/*.parquet'
    biotrail fleet report --blame=unit archives/
    biotrail fleet report --hosts racks.csv --by rack --json archives/
    biotrail fleet report --from 2026-11-23T14:00Z --to 2026-11-23T15:00Z archives/
    biotrail fleet report --scheduler tcp://dask:8786 's3://logs/2026-11/*.parquet'
    biotrail fleet report -o fleet.html archives/
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    fleet.check()
    if fleet.page is not None:
        output.ensure_free(fleet.page, fleet.force)
    table = fleet.table()
    made = _made(places, fleet, table)
    if fleet.as_json:
        from biotrail.converters.analysis.fleet.tree import as_dict

        say_json(as_dict(made), indent=2)
    elif fleet.page is not None:
        from biotrail import __version__
        from biotrail.converters.analysis.page.data import fleet_data
        from biotrail.converters.analysis.page.html import page
        from biotrail.converters.lifecycles.meanings import MEANINGS
        from biotrail.text.fleet import head

        title = f"{units.plural(len(made.hosts), 'host')}: biotrail fleet report"
        about = "; ".join(head(made))
        words = {"version": __version__, "title": title, "about": about, "stages": MEANINGS}
        with output.replacing(fleet.page, force=fleet.force) as stream:
            text = page("fleet", title, {**fleet_data(made), "words": words})
            stream.write(text.encode("utf-8", "replace"))
        size = units.size(os.stat(fleet.page).st_size)
        say(f"wrote {fleet.page} ({size}): open it in a browser; it needs no network")
    else:
        from biotrail.text.columns import console
        from biotrail.text.fleet import parts

        screen = console()
        for part in parts(made, screen.width, fleet.limit):
            screen.print(part)
            screen.print()


def _made(places: Sequence[str], fleet: FleetOptions, table: HostsTable) -> "FleetReport":
    try:
        import distributed  # noqa: F401 - the extra's own library, asked for before any work
    except ImportError as error:
        raise ConversionError(
            f"fleet needs the extra fleet ({error}): pip install 'biotrail[fleet]'"
        ) from error
    from biotrail.cli.cluster import ReadOptions, analyse, client_of
    from biotrail.converters.analysis.fleet.closing import make_report

    files = find(places)
    asked = ReadOptions(fleet.by, fleet.cut, fleet.reading, fleet.seed, fleet.blame)
    status = StatusLine()
    with client_of(fleet.scheduler, fleet.workers) as client:
        try:
            part = analyse(client, files, table, asked, status.show)
        finally:
            status.clear()
    if not part.recordings:
        first, more = part.left_out[0], len(part.left_out) - 1
        others = f"; {units.plural(more, 'more file')} likewise" if more else ""
        raise ConversionError(f"none of the files could be read: {first.file}: {first.why}{others}")
    return make_report(part, fleet.by, CONFIDENCE, fleet.blame)
