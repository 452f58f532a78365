# SPDX-License-Identifier: Apache-2.0
"""Grouping of logs into recordings: the rotated files of one run are one recording."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from biotrail.cli.options.opening import USUAL, Reading, open_trace
from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.series import run_of
from biotrail.converters.inputs.series_indexed import series_of
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError

LOG_ENDINGS = (".biotrail", ".parquet", ".pftrace", ".perfetto-trace")

logs_argument: Callable[[Any], Any] = click.argument(
    "logs", metavar="LOG...", nargs=-1, required=True, type=click.Path()
)


@dataclass
class Recording:
    """An opened recording. `paths`: its files, in the order of their numbers in the run."""

    paths: list[str]
    trace: Trace

    @property
    def name(self) -> str:
        """The first file's name, without directory and ending."""
        return Path(self.paths[0]).stem


def open_recordings(logs: Sequence[str], reading: Reading = USUAL) -> list[Recording]:
    """Open logs and return their recordings, in the order of each one's first log.

    A URL stands for the archives that it means (`meant`). Raises LogFormatError if a log cannot be
    read or is given twice, click.UsageError if `-` is given with other logs.
    """
    logs = meant(logs)
    if len(logs) == 1:
        return [Recording([logs[0]], open_trace(logs[0], reading))]
    if "-" in logs:
        raise click.UsageError("- is one log from a pipe: save it to a file to read it with others")
    sources = [(log, open_source(log)) for log in logs]
    _all_different(sources)
    groups: dict[str, list[tuple[str, Source]]] = {}
    for log, source in sources:
        groups.setdefault(run_of(source) or log, []).append((log, source))
    return [_recording(files, reading) for files in groups.values()]


def meant(logs: Sequence[str]) -> list[str]:
    """Return logs with URLs of folders, and such with wildcards, replaced by their archives' URLs.

    Raises LocationError: the storage cannot be reached; LogFormatError: nothing matches a URL.
    """
    found: list[str] = []
    for log in logs:
        if not is_url(log):
            found.append(log)
            continue
        from biotrail.converters.inputs.parquet.locations import expand

        if not (inside := expand(log)):
            raise LogFormatError(f"{log}: no archive there; give another URL")
        found += inside
    return found


def _recording(files: list[tuple[str, Source]], reading: Reading) -> Recording:
    """Open the files (path, source) of one recording as one trace.

    Several are read in the order of their numbers in the run, whatever order they are given in.
    """
    if len(files) == 1:
        path, source = files[0]
        return Recording([path], reading.trace(source))
    series = series_of(files)
    return Recording(series.paths, reading.trace(series))


def _all_different(sources: Sequence[tuple[str, Source]]) -> None:
    """Raise LogFormatError if two sources have the same log id (without one: the same path)."""
    known: dict[str, str] = {}
    for log, source in sources:
        log_id = str(source.header.get("log_id", Path(log).resolve()))
        if log_id in known:
            raise LogFormatError(f"{known[log_id]} and {log} are the same log: give each once")
        known[log_id] = log


def without_log_ending(log: str) -> str:
    """Return the log's path without an ending of LOG_ENDINGS, and without slashes at its end.

    Of a URL the file's name alone, so that what is made of it goes to the working directory. Raises
    LocationError.
    """
    if is_url(log):
        from biotrail.converters.inputs.parquet.locations import locate

        log = locate(log).path.rpartition("/")[2]
    for suffix in LOG_ENDINGS:
        log = log.rstrip("/").removesuffix(suffix)
    return log
