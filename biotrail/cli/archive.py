# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive`: conversion of logs to Parquet, as single files or a dataset."""

import os
from pathlib import Path

import click

from biotrail import __version__
from biotrail.cli.convert import stem
from biotrail.cli.options.opening import associate_option, own_io_option
from biotrail.cli.options.recordings import Recording, logs_argument, open_recordings
from biotrail.cli.options.terminating import terminated_as_interrupted
from biotrail.converters.inputs.log import Source
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import units
from biotrail.text.printing import say_all
from biotrail.text.progress import working

SUFFIX = ".parquet"
TABLES = ("events", "bios", "requests")


@click.command()
@logs_argument
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
    metavar="T,..",
    help="Tables of a dataset: events, bios, requests (default: all). A file holds events only.",
)
@click.option(
    "--level",
    type=click.IntRange(1, 19),
    default=3,
    show_default=True,
    help="zstd compression level: a higher one is smaller and slower.",
)
@associate_option
@own_io_option
@click.option("-f", "--force", is_flag=True, help="Replace OUT, or the recording in a dataset.")
def command(
    logs: tuple[str, ...],
    target: str | None,
    tables: str | None,
    level: int,
    associate: str,
    own_io: bool,
    force: bool,
) -> None:
    """Convert LOGs to Parquet: small, and readable by DuckDB, Polars, pandas, Spark and others.

    An archive holds everything that the log holds: every command that reads a log reads an
    archive too, with the same result. A FILE.parquet holds one recording; of a rotated
    recording, give all files. A directory is a dataset of any number of recordings, with tables
    of bios and requests beside the events, partitioned by host, date and device; more
    recordings can be added later. docs/parquet.md lists columns and units, with queries.

    \b
    biotrail archive disk.biotrail                      # → disk.parquet
    biotrail archive db7-*.biotrail -o db7.parquet      # the files of a rotated recording
    biotrail archive *.biotrail -o archive/             # a dataset
    biotrail convert disk.parquet
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if target is None and "-" in logs:
        raise click.UsageError("a log from standard input needs -o OUT")
    recordings = open_recordings(logs, associate, own_io)
    if target is None:
        target = stem(recordings[0].paths[0]) + SUFFIX
    with terminated_as_interrupted():
        if target.endswith(SUFFIX):
            _file(recordings, target, tables, level, force)
        else:
            from biotrail.cli.archiving.dataset import Wanted, add

            wanted = Wanted(chosen(tables), level, associate, own_io, force)
            say_all(add(recordings, Path(target), wanted))


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
    say_all(told(target, events, recording.trace.reader))


def write_events(
    recording: Recording, target: str | os.PathLike[str], level: int, force: bool
) -> int:
    """Archive a recording as the file `target` and return its number of events.

    level: zstd's, 1 to 19. Raises TraceError.
    """
    from biotrail.converters.outputs.parquet import archive

    source, log = recording.trace.reader, Path(recording.paths[0]).name
    with (
        output.replacing(target, force=force) as stream,
        working(source.size, "archiving") as reached,
    ):
        summary = archive.write(
            source, stream, level=level, created_by=__version__, log=log, on_progress=reached
        )
    return summary.events


def told(target: str | os.PathLike[str], events: int, source: Source) -> list[str]:
    """Return lines about an archive: file, size and events, then damage and what was left out."""
    size = os.stat(target).st_size
    each = f", {size / events:.2f} bytes per event" if events else ""
    lines = [f"wrote {target} ({units.size(size)}): {units.plural(events, 'event')}{each}"]
    lines += [f"  damaged: {problem}" for problem in source.problems]
    if source.interrupted:
        lines.append("  interrupted: the log has no end; up to a second before it may be missing")
    for kind, count in sorted(source.unknown.items()):
        lines.append(
            f"  left out: {units.plural(count, 'record')} of unknown kind {kind}, written by a "
            "newer biotrail: archive with that"
        )
    return lines
