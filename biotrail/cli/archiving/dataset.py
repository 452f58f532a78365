# SPDX-License-Identifier: Apache-2.0
"""Archives of recordings: one Parquet file, or a dataset by host, date and device."""

import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import click

from biotrail import __version__
from biotrail.cli.options.opening import Reading
from biotrail.cli.options.recordings import Recording, open_recordings
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.parquet.source import EVENTS, TABLE_KEY
from biotrail.converters.lifecycles.arrow.columns import BIO_SCHEMA, REQUEST_SCHEMA
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import OutputError
from biotrail.text import tallies, units
from biotrail.text.progress import working


def write_events(
    recording: Recording,
    target: str | os.PathLike[str],
    level: int,
    force: bool,
    shown: str | None = None,
) -> int:
    from biotrail.converters.outputs.parquet import archive

    source, log = recording.trace.reader, Path(recording.paths[0]).name
    with (
        output.replacing(target, force=force, shown=shown) as stream,
        working(source.size, "archiving") as reached,
    ):
        summary = archive.write(
            source, stream, level=level, created_by=__version__, log=log, on_progress=reached
        )
    return summary.events


def file_lines(target: str | os.PathLike[str], events: int, source: Source) -> list[str]:
    """Return lines about an archive. source: the log, read to its end."""
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


MARKER = "*/host=*"
"""Glob pattern by which a directory is recognised as a dataset."""


def add(
    recordings: list[Recording],
    target: Path,
    tables: Sequence[str],
    reading: Reading,
    level: int,
    force: bool,
) -> Iterator[str]:
    """Add recordings to a dataset, none if two have the same files; yield lines about each."""
    if {*tables} > {"events"} and any("-" in recording.paths for recording in recordings):
        raise click.UsageError("standard input is read once: give --tables events, or a file")
    names: dict[str, str] = {}  # blktrace's sets a/sda and b/sda have one
    for recording in recordings:
        other = names.setdefault(stem(recording), recording.paths[0])
        if other != recording.paths[0]:
            raise OutputError(
                f"{other} and {recording.paths[0]} would be one file: data without a log id go by "
                "their file's name; rename one of them"
            )
    for recording in recordings:
        name = stem(recording)
        there = next(iter(sorted(target.glob(f"*/host=*/**/{name}.parquet"))), None)
        if there is not None and not force:
            raise OutputError(
                f"{there} already exists: the recording is in {target}; --force writes it again"
            )
        with output.adding_to_directory(target, force=force, marker=MARKER) as part:
            lines = []
            if "events" in tables:
                folder = part / folder_of(recording.trace)
                folder.mkdir(parents=True)
                file = folder / f"{name}.parquet"
                events = write_events(recording, file, level, False)
                source = recording.trace.reader
                lines += [f"  {line}" for line in file_lines(file, events, source)]
            if derived := [table for table in tables if table != "events"]:
                trace = recording.trace
                if "events" in tables:  # the events' pass has read the log: open it again
                    trace = open_recordings(recording.paths, reading)[0].trace
                lines += _write_tables(trace, name, part, derived, level)
        more = len(recording.paths) - 1
        others = f" and {units.plural(more, 'file')} more of its recording" if more else ""
        yield f"{recording.paths[0]}{others}:"
        yield from (line.replace(str(part), str(target)) for line in lines)


def stem(recording: Recording) -> str:
    """Return the stem of a recording's file names: the log's id or, without one, its file name."""
    found = recording.trace.reader.header.get("log_id")
    return quote(str(found) if found else Path(recording.paths[0]).name, safe="")


def folder_of(trace: Trace) -> str:
    host = quote(trace.context.host, safe="")
    return f"{EVENTS}/host={host}/date={date_of(trace.reader)}"


def date_of(source: Source) -> str:
    """Return the UTC date of a recording's start, YYYY-MM-DD; 1970-01-01 without clocks."""
    ns = int(source.header.get("clocks", {}).get("realtime", 0))
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d}"


def _write_tables(
    trace: Trace, name: str, part: Path, tables: Sequence[str], level: int
) -> Iterator[str]:
    from biotrail.converters.lifecycles.arrow.tables import bios_table, requests_table
    from biotrail.converters.outputs.parquet.tables import Partitions

    schemas = {"bios": (BIO_SCHEMA, "queue_time"), "requests": (REQUEST_SCHEMA, "start_time")}
    made = {
        table: Partitions(
            part / table,
            *schemas[table],
            host=trace.context.host,
            stem=name,
            level=level,
            day=date_of(trace.reader),
        )
        for table in tables
    }
    try:
        with working(trace.reader.size, "associating") as reached:
            for window in trace.lifecycles(on_progress=reached):
                if "bios" in made:
                    made["bios"].write(bios_table(window, trace.context))
                if "requests" in made:
                    made["requests"].write(requests_table(window, trace.context))
            facts = {
                TABLE_KEY: "1",
                "biotrail.created_by": __version__,
                "biotrail.log_id": trace.context.log_id,
                "biotrail.missing": json.dumps(tallies.loss_lines(trace)),
            }
            for partitions in made.values():
                partitions.close(facts)
    except BaseException:  # Ctrl-C, too: no part of a dataset stays
        for partitions in made.values():
            partitions.abandon()
        raise
    for table, partitions in made.items():
        yield f"  {table}: {units.plural(partitions.rows, 'row')}"
    yield from (f"  {line}" for line in tallies.own_lines(trace))
    yield from (f"  {line}" for line in tallies.loss_lines(trace))
