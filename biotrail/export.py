# SPDX-License-Identifier: Apache-2.0
"""`biotrail export`: bios, requests or events as a table; bios for fio to replay."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from biotrail import tallies, units
from biotrail.opening import associate_option, log_argument, open_trace, own_io_option
from biotrail.terminating import terminated_as_interrupted
from biotrail.working import working
from converters.model.trace import Trace
from recorder import output

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


@click.command()
@log_argument
@click.option(
    "--what",
    type=click.Choice(["bios", "requests", "events"]),
    default="bios",
    show_default=True,
    help="A row for each.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Default: by the ending of OUT, else csv. iolog: for fio's --read_iolog.",
)
@click.option("-o", "--output", "target", metavar="OUT", default="-", help="Default: -, printed.")
@click.option("-d", "--device", metavar="DEV", help="Only this disk, by name or 8:0.")
@associate_option
@own_io_option
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
def command(
    log: str,
    what: str,
    form: str | None,
    target: str,
    device: str | None,
    associate: str,
    own_io: bool,
    force: bool,
) -> None:
    """Write the bios, requests or events of LOG as a table.

    As CSV, JSON lines, Parquet or Arrow IPC; docs/parquet.md lists columns and units. Or bios as an
    iolog (version 3) that fio replays with the times at which they were queued: what a device got
    from above; with --device, what that device got. LOG - reads standard input.

    \b
    biotrail export disk.biotrail -o bios.csv
    biotrail export --what requests disk.biotrail -o requests.parquet
    biotrail export --format jsonl disk.biotrail | jq 'select(.latency_ns > 5e6)'
    biotrail export -d nvme0n1 disk.biotrail -o disk.iolog
    fio --name=replay --read_iolog=disk.iolog --replay_redirect=/dev/nvme1n1 --direct=1
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    form = form or chosen(target)
    if form == IOLOG and what != "bios":
        raise click.UsageError("an iolog is made of bios")
    if target == "-" and form in BINARY and sys.stdout.isatty():
        raise click.UsageError(f"{form} is binary: give -o OUT, or send it to a pipe")
    trace = open_trace(log, associate, own_io)
    with terminated_as_interrupted():
        for line in export(trace, what, form, target, device, force):
            click.echo(line, err=True)


def chosen(target: str) -> str:
    """The format by the output's ending. Raises click.UsageError."""
    if target == "-":
        return "csv"
    if (ending := Path(target).suffix) in ENDINGS:
        return ENDINGS[ending]
    known = ", ".join(ENDINGS)
    raise click.UsageError(
        f"the ending of {target} names no format ({known}): give --format as well"
    )


def export(
    trace: Trace, what: str, form: str, target: str, device: str | None, force: bool
) -> Iterator[str]:
    """Write it, and give what to say of it. Raises TraceError."""
    if device is not None and what == "events":
        raise click.UsageError("--device chooses bios and requests; for events: biotrail dump -d")

    def into(stream: BinaryIO) -> list[str]:
        with working(trace.reader.size, "exporting") as reached:
            if form == IOLOG:
                return _iolog(trace, device, stream, reached)
            return _table(trace, what, form, device, stream, reached)

    if target == "-":
        lines = into(sys.stdout.buffer)
    else:
        with output.replacing(target, force=force) as stream:
            lines = into(stream)
        size = units.size(Path(target).stat().st_size)
        lines[0] = f"wrote {target} ({size}): {lines[0]}"
    yield from lines
    yield from (f"  {line}" for line in tallies.own_lines(trace))
    yield from (f"  {line}" for line in tallies.loss_lines(trace))


def _windows(trace: Trace, device: str | None, reached: Callable[[int], None] | None) -> Any:
    windows = trace.lifecycles(on_progress=reached)
    if device is None:
        return windows
    from converters.answers.select import of_devices

    return of_devices(windows, [device], trace.context)


def _table(
    trace: Trace,
    what: str,
    form: str,
    device: str | None,
    stream: BinaryIO,
    reached: Callable[[int], None] | None,
) -> list[str]:
    from converters import export as writer
    from converters.model.arrow_columns import BIO_SCHEMA, REQUEST_SCHEMA
    from converters.model.arrow_events import EVENT_SCHEMA, events_table
    from converters.model.arrow_tables import bios_table, requests_table

    context = trace.context
    if what == "events":
        tables: Iterator[pa.Table] = (events_table(e, context) for e, _ in trace.shown_events())
        schema = EVENT_SCHEMA
    else:
        make = bios_table if what == "bios" else requests_table
        schema = BIO_SCHEMA if what == "bios" else REQUEST_SCHEMA
        tables = (make(window, context) for window in _windows(trace, device, reached))
    rows = writer.write(tables, schema, form, stream)
    return [units.plural(rows, what.removesuffix("s"))]


def _iolog(
    trace: Trace, device: str | None, stream: BinaryIO, reached: Callable[[int], None] | None
) -> list[str]:
    from converters import export_iolog

    windows = _windows(trace, device, reached)
    made = export_iolog.write(windows, trace.context, stream, upper_only=device is None)
    lines = [f"{units.plural(made.ios, 'I/O')} on {', '.join(made.devices) or 'no device'}"]
    lines += [
        f"  left out: {units.plural(count, 'bio')}, {reason}"
        for reason, count in made.left_out.items()
        if count
    ]
    return lines
