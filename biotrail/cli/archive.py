# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive`: conversion of logs to Parquet, as single files or a dataset."""

from dataclasses import dataclass
from pathlib import Path

import click

from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import open_recordings, without_log_ending
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import units, values
from biotrail.text.printing import say_all

SUFFIX = ".parquet"
TABLES = ("events", "bios", "requests")


@dataclass(frozen=True)
class ArchiveOptions:
    target: str | None = option(
        "-o",
        "--output",
        metavar="OUT",
        type=values.FileName(),
        help="FILE.parquet, or a directory for a dataset. Default: LOG with the ending .parquet.",
    )
    tables: str | None = option(
        "--tables",
        type=values.text,
        metavar="T,..",
        help="Tables of a dataset: events, bios, requests (default: all). A file holds events "
        "only.",
    )
    level: int = option(
        "--level",
        type=units.Count(1, 19),
        default=3,
        show_default=True,
        help="zstd compression level: a higher one is smaller and slower.",
    )
    reading: Reading = added(reading_options(own_io=True))
    force: bool = option(
        "-f", "--force", is_flag=True, help="Replace OUT, or the recording in a dataset."
    )
    directory: str | None = option(
        "--watch",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="Ship the finished logs in DIR, and those that become finished. Needs --to.",
    )
    to: str | None = option(
        "--to",
        type=values.name,
        metavar="DESTINATION",
        help="Where --watch ships to: a directory, or a URL (s3://BUCKET/FOLDER, gs://, abfs://).",
    )
    once: bool = option(
        "--once", is_flag=True, help="With --watch: ship what is finished, and end."
    )
    keep_logs: bool = option(
        "--keep-logs", is_flag=True, help="With --watch: delete no log after it was shipped."
    )
    take_damaged: bool = option(
        "--take-damaged",
        is_flag=True,
        help="With --watch: delete damaged logs, too, when what can be read of them was shipped. "
        "Default: keep them.",
    )
    quiet: bool = option(
        "-q", "--quiet", is_flag=True, help="With --watch: print only what goes wrong."
    )

    def check(self, logs: tuple[str, ...]) -> None:
        only_shipping = (self.once, self.keep_logs, self.take_damaged, self.quiet)
        if self.directory is None:
            if self.to is not None or any(only_shipping):
                raise click.UsageError(
                    "--to, --once, --keep-logs, --take-damaged, -q need --watch DIR"
                )
            if not logs:
                raise click.UsageError("give LOGs, or --watch DIR --to DESTINATION")
            return
        if self.to is None:
            raise click.UsageError("--watch needs --to DESTINATION: a directory or a URL")
        if logs or self.target is not None or self.tables is not None or self.force:
            raise click.UsageError(
                "--watch takes no LOG, -o, --tables or -f: it names archives itself"
            )


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, type=values.FileName())
@gathered(ArchiveOptions, "asked")
def command(logs: tuple[str, ...], asked: ArchiveOptions) -> int:
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
    asked.check(logs)
    if asked.directory is not None and asked.to is not None:
        from biotrail.cli.archiving.shipping import watch

        return watch(asked.directory, asked.to, asked)
    if asked.target is None and "-" in logs:
        raise click.UsageError("a log from standard input needs -o OUT")
    recordings = open_recordings(logs, asked.reading)
    target = asked.target
    if target is None:
        target = without_log_ending(recordings[0].paths[0]) + SUFFIX
    with terminated_as_interrupted():
        tables = chosen(asked.tables)
        from biotrail.cli.archiving.dataset import add, file_lines, write_events

        if not target.endswith(SUFFIX):
            say_all(add(recordings, Path(target), tables, asked.reading, asked.level, asked.force))
            return 0
        if asked.tables is not None and tables != ("events",):
            raise click.UsageError(
                "a file holds events; give -o a directory for bios and requests, or use "
                "`biotrail export`"
            )
        if len(recordings) > 1:
            raise ConversionError(
                f"{recordings[0].paths[0]} and {recordings[1].paths[0]} are of two recordings, and "
                "a file holds one: give -o a directory, or archive them one by one"
            )
        events = write_events(recordings[0], target, asked.level, asked.force)
        say_all(file_lines(target, events, recordings[0].trace.reader))
    return 0


def chosen(tables: str | None) -> tuple[str, ...]:
    """Split `events,bios` into table names; None: all."""
    names = TABLES if tables is None else tuple(n.strip() for n in tables.split(","))
    if unknown := [name for name in names if name not in TABLES]:
        raise click.UsageError(f"{unknown[0]!r} is no table; there are: {', '.join(TABLES)}")
    return names
