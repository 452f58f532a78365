# SPDX-License-Identifier: Apache-2.0
"""`biotrail verify`: checks of every checksum and count of logs and archives."""

import os
from dataclasses import asdict
from pathlib import Path

import click

from biotrail.cli.archiving.checking import Finding, check
from biotrail.cli.options.ending import ERROR_STATUS
from biotrail.cli.options.recordings import logs_argument
from biotrail.converters.inputs.beginning import is_url
from biotrail.text import units
from biotrail.text.printing import StatusLine, say, say_json


@click.command()
@logs_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file.")
def command(logs: tuple[str, ...], as_json: bool) -> int:
    """Check every checksum and count of logs and archives.

    Reads all of each file: headers, chunks, index and counts. Prints a line for each file:
    whether it is whole and, if not, what is damaged at which offset and how much can be read.
    The exit status is 1 if a file is damaged or missing. Of a dataset's directory, or a folder's
    URL in object storage, every archive is checked. An interrupted log counts as whole up to the
    interruption. LOG - reads standard input.

    \b
    biotrail verify /var/log/biotrail/*.biotrail archive/
    biotrail verify --json disk.parquet | jq .events
    biotrail verify s3://logs/fleet/events/host=db7
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    intact = True
    status = StatusLine()
    paths: list[str] = []
    for log in logs:
        if is_url(log):
            from biotrail.converters.inputs.parquet.locations import expand

            paths += expand(log)
            continue
        inside = []
        for found_path in Path(log).rglob("*.parquet") if os.path.isdir(log) else ():
            inside.append(str(found_path))
            status.show(f"looking for files in {log}: {units.count(len(inside))}")
        paths += sorted(inside) or [log]
    status.clear()
    for place, path in enumerate(paths, 1):
        status.show(f"verifying {place} of {len(paths)}: {path}")
        found = check(path)
        intact &= found.intact
        status.clear()
        if as_json:
            say_json(asdict(found))
        else:
            say(_line(found))
    return 0 if intact else ERROR_STATUS


def _line(found: Finding) -> str:
    rows = units.plural(found.events, "row" if found.kind == "table" else "event")
    what = f"{found.kind} of {rows}" if found.kind else "nothing can be read"
    if found.chunks:
        what += f" in {units.plural(found.chunks, 'chunk')}"
    size = f" ({units.size(found.bytes)})" if found.bytes else ""
    if found.missing:
        return f"{found.path}: NO SUCH FILE"
    if found.intact:
        text = f"{found.path}: whole: {what}{size}"
    else:
        readable = f"{rows} can be read" if found.kind else what
        text = f"{found.path}: DAMAGED: {readable}{size}: " + "; ".join(found.problems)
    return "; ".join([text, *found.notes])
