# SPDX-License-Identifier: Apache-2.0
"""`biotrail export`: bios, requests, events, calls, lives or other rows of a log as a table.

Bios can be written as an iolog, too.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from biotrail.cli.options.cuts import Cut, Opened, cut_options, opened
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.opening import Reading, log_argument, reading_options
from biotrail.converters.sites.pair_names import PairNames, pairs_in
from biotrail.converters.sites.tables import follows
from biotrail.recorder.output import output
from biotrail.recorder.schema.strings import guarded
from biotrail.text import tallies, units, values
from biotrail.text.printing import cells, guard_option, say_all
from biotrail.text.progress import size_of, working

if TYPE_CHECKING:
    import pyarrow as pa

IOLOG = "iolog"
ENDINGS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".iolog": IOLOG,
}
FORMATS = tuple(dict.fromkeys(ENDINGS.values()))
BINARY = ("parquet", "arrow")
FOLLOWED = ("lives", "spans", "hits")
WHAT = (
    "bios",
    "requests",
    "events",
    "calls",
    "waits",
    "commits",
    "submissions",
    "pairs",
    *FOLLOWED,
)
"""The tables that --what offers."""
_ONE = {"lives": "life"}
"""Table → what a row is, where that is not the table's name without its s."""
_PARTS = {"calls": {"time", "wait"}, "waits": {"wait"}, "commits": {"fs"}, "submissions": {"uring"}}
"""Table → parts of `record --path` of which it needs one."""


@click.command()
@log_argument
@click.option(
    "--what",
    type=click.Choice(WHAT),
    default="bios",
    show_default=True,
    help="The rows of the table. calls, waits, commits and submissions: of a log recorded with "
    "--path; pairs: of events (biotrail pairs); lives, spans and hits: of followed objects "
    "(biotrail follow).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of OUT; iolog is for fio's --read_iolog. Default: by the ending of OUT, else csv.",
)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="OUT",
    type=values.FileName(),
    default="-",
    help="The output. Default: -, standard output.",
)
@cut_options
@reading_options(own_io=True)
@guard_option
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
def command(
    log: str,
    what: str,
    form: str | None,
    target: str,
    cut: Cut,
    reading: Reading,
    guard: bool,
    force: bool,
) -> None:
    """Write the bios, requests, events, calls, lives or other rows of LOG as a table.

    Formats are CSV, JSON lines, Parquet and Arrow IPC; docs/parquet.md lists columns and units.
    Bios can also be written as an iolog (version 3), which fio replays with the times at which
    they were queued: those queued to the uppermost devices or, with --device, to that device.
    LOG - reads standard input.

    \b
    biotrail export disk.biotrail -o bios.csv
    biotrail export --what requests disk.biotrail -o requests.parquet
    biotrail export --what calls disk.biotrail -o calls.csv
    biotrail export --what spans request.biotrail -o spans.parquet
    biotrail export --format jsonl disk.biotrail | jq 'select(.latency_ns > 5e6)'
    biotrail export -d nvme0n1 disk.biotrail -o disk.iolog
    fio --name=replay --read_iolog=disk.iolog --replay_redirect=/dev/nvme1n1 --direct=1
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    form = form or chosen(target)
    if form == IOLOG and what != "bios":
        raise click.UsageError("an iolog is made of bios")
    if target == "-" and form in BINARY and sys.stdout.isatty():
        raise click.UsageError(f"{form} is binary: give -o OUT, or send it to a pipe")
    if what == "events" and cut.chooses:
        raise click.UsageError(
            "events can be chosen by time only; biotrail dump -d chooses records by device"
        )
    with terminated_as_interrupted(), opened(log, cut, reading) as source:
        cell = cells(guard, target == "-" and sys.stdout.isatty())
        say_all(export(source, what, form, target, force, cell), err=True)


def chosen(target: str) -> str:
    if target == "-":
        return "csv"
    if (ending := Path(target).suffix) in ENDINGS:
        return ENDINGS[ending]
    known = ", ".join(ENDINGS)
    raise click.UsageError(
        f"the ending of {target} names no format ({known}): give --format as well"
    )


def export(
    source: Opened,
    what: str,
    form: str,
    target: str,
    force: bool,
    cell: Callable[[str], str] = guarded,
) -> Iterator[str]:
    trace = source.trace

    def into(stream: BinaryIO) -> list[str]:
        with working(size_of(trace), "exporting") as reached:
            if form == IOLOG:
                return _iolog(source, stream, reached)
            return _table(source, what, form, stream, reached, cell)

    if target == "-":
        lines = into(sys.stdout.buffer)
    else:
        with output.replacing(target, force=force) as stream:
            lines = into(stream)
        size = units.size(Path(target).stat().st_size)
        lines[0] = f"wrote {target} ({size}): {lines[0]}"
    yield from lines
    yield from (f"  {line}" for line in source.lines())
    yield from (f"  {line}" for line in tallies.own_lines(trace))
    yield from (f"  {line}" for line in tallies.loss_lines(trace))


def _table(
    source: Opened,
    what: str,
    form: str,
    stream: BinaryIO,
    reached: Callable[[int], None] | None,
    cell: Callable[[str], str],
) -> list[str]:
    from biotrail.converters.outputs.tables import convert as writer

    context = source.trace.context
    tables, schema = _tables(source, what, reached)
    rows = writer.write(tables, schema, form, stream, cell)
    lines = [units.plural(rows, _ONE.get(what, what.removesuffix("s")), what)]
    parts = _PARTS.get(what)
    if parts and not context.path_parts & parts:
        lines.append(f"  {what} were not recorded: record again with biotrail record --path")
    if what in FOLLOWED and not follows(context.header):
        lines.append(f"  {what} are of followed objects: record with biotrail follow TYPE -o LOG")
    if what == "pairs" and not pairs_in(context.header):
        lines.append("  pairs are of two events: record with biotrail pairs NAME -o LOG")
    return lines


def _tables(
    source: Opened, what: str, reached: Callable[[int], None] | None
) -> "tuple[Iterator[pa.Table], pa.Schema]":
    from biotrail import library
    from biotrail.converters.lifecycles.arrow.events import EVENT_SCHEMA, events_table
    from biotrail.converters.sites.arrow import PAIR_SCHEMA, followed_tables, pairs_table

    context = source.trace.context
    if what == "events":
        events = source.trace.shown_events()
        return (events_table(e, context) for e, _ in events), EVENT_SCHEMA
    windows = source.chosen(source.trace.lifecycles(on_progress=reached))
    if what in FOLLOWED:
        followed, schema = library.FOLLOWED[what]
        made = followed_tables(windows, context, (followed,))
        return (tables[0] for tables in made), schema
    if what == "pairs":
        names = PairNames(context)
        names.finish(source.trace.reader.end)
        return (pairs_table(window, context, names) for window in windows), PAIR_SCHEMA
    make, schema = library.TABLES[what]
    return (make(window, context) for window in windows), schema


def _iolog(source: Opened, stream: BinaryIO, reached: Callable[[int], None] | None) -> list[str]:
    from biotrail.converters.outputs.tables import iolog as export_iolog

    windows = source.chosen(source.trace.lifecycles(on_progress=reached))
    upper = not source.cut.devices  # with devices chosen, their bios
    made = export_iolog.write(windows, source.trace.context, stream, upper_only=upper)
    lines = [f"{units.plural(made.ios, 'I/O')} on {', '.join(made.devices) or 'no device'}"]
    lines += [
        f"  left out: {units.plural(count, 'bio')}, {reason}"
        for reason, count in made.left_out.items()
        if count
    ]
    return lines
