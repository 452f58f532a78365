# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive`: conversion of logs to Parquet, as single files or a dataset."""

from pathlib import Path
from typing import Any

import click

from biotrail.cli.archiving.file import file_lines, write_events
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import Recording, open_recordings, without_log_ending
from biotrail.cli.options.shipping import asked_shipping, shipping_options
from biotrail.cli.options.terminating import terminated_as_interrupted
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import units, values
from biotrail.text.printing import say_all

SUFFIX = ".parquet"
TABLES = ("events", "bios", "requests")


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, type=click.Path())
@click.option(
    "-o",
    "--output",
    "target",
    metavar="OUT",
    type=click.Path(),
    help="FILE.parquet, or a directory for a dataset. Default: LOG with the ending .parquet.",
)
@click.option(
    "--tables",
    type=values.Text(),
    metavar="T,..",
    help="Tables of a dataset: events, bios, requests (default: all). A file holds events only.",
)
@click.option(
    "--level",
    type=units.Count(1, 19),
    default=3,
    show_default=True,
    help="zstd compression level: a higher one is smaller and slower.",
)
@reading_options(own_io=True)
@click.option("-f", "--force", is_flag=True, help="Replace OUT, or the recording in a dataset.")
@shipping_options
def command(
    logs: tuple[str, ...],
    target: str | None,
    tables: str | None,
    level: int,
    reading: Reading,
    force: bool,
    **shipping: Any,
) -> int:
    """Convert LOGs to Parquet: small, and readable by DuckDB, Polars, pandas, Spark and others.

    An archive holds everything that the log holds: every command that reads a log reads an
    archive too, with the same result. A FILE.parquet holds one recording; of a rotated
    recording, give all files. A directory is a dataset of any number of recordings, with tables
    of bios and requests beside the events, partitioned by host, date and device; more
    recordings can be added later. docs/parquet.md lists columns and units, with queries.

    With --watch DIR --to DESTINATION the logs that `record --rotate` finishes in DIR are archived,
    stored at the destination (a directory, or object storage), verified there, and only then
    deleted. It goes on until a signal ends it; --once ships what is finished (docs/shipping.md).

    \b
    biotrail archive disk.biotrail                      # → disk.parquet
    biotrail archive db7-*.biotrail -o db7.parquet      # the files of a rotated recording
    biotrail archive *.biotrail -o archive/             # a dataset
    biotrail archive --watch /var/log/biotrail --to s3://logs/fleet
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if asked := asked_shipping(logs, target, tables, level, force, **shipping):
        from biotrail.cli.archiving.watching import watch

        return watch(asked)
    if target is None and "-" in logs:
        raise click.UsageError("a log from standard input needs -o OUT")
    recordings = open_recordings(logs, reading)
    if target is None:
        target = without_log_ending(recordings[0].paths[0]) + SUFFIX
    with terminated_as_interrupted():
        if target.endswith(SUFFIX):
            _file(recordings, target, tables, level, force)
        else:
            from biotrail.cli.archiving.dataset import Wanted, add

            wanted = Wanted(chosen(tables), level, reading, force)
            say_all(add(recordings, Path(target), wanted))
    return 0


def chosen(tables: str | None) -> tuple[str, ...]:
    """Split `events,bios` into table names; None: all. Raises click.UsageError for other names."""
    names = TABLES if tables is None else tuple(n.strip() for n in tables.split(","))
    if unknown := [name for name in names if name not in TABLES]:
        raise click.UsageError(f"{unknown[0]!r} is no table; there are: {', '.join(TABLES)}")
    return names


def _file(
    recordings: list[Recording], target: str, tables: str | None, level: int, force: bool
) -> None:
    """Archive one recording as the file `target`, and print lines about it.

    Raises click.UsageError for tables other than events, ConversionError for several recordings.
    """
    if tables is not None and chosen(tables) != ("events",):
        raise click.UsageError(
            "a file holds events; give -o a directory for bios and requests, or use "
            "`biotrail export`"
        )
    if len(recordings) > 1:
        raise ConversionError(
            f"{recordings[0].paths[0]} and {recordings[1].paths[0]} are of two recordings, and a "
            "file holds one: give -o a directory, or archive them one by one"
        )
    [recording] = recordings
    events = write_events(recording, target, level, force)
    say_all(file_lines(target, events, recording.trace.reader))
