# SPDX-License-Identifier: Apache-2.0
"""Checks of one file: every checksum and count of a log, an archive or a dataset's table."""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biotrail.cli.options.opening import open_log
from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.log import LogSource, Source
from biotrail.recorder.schema.errors import LogNotFoundError, TraceError
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.text import units


@dataclass
class Finding:
    path: str
    kind: str = ""
    """log, archive, table, blktrace's files or e.g. perf's recording; empty: nothing was read."""
    intact: bool = True
    bytes: int = 0
    """Size of the file; 0: not known."""
    events: int = 0
    chunks: int = 0
    missing: bool = False
    damaged: list[dict[str, int]] = field(default_factory=list)
    """Damaged ranges: offsets in the file, and the time (ns) in which events are missing."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Remarks that are no damage: an interrupted log, records of unknown kinds."""


def check(path: str) -> Finding:
    """Read all of a file (`-`: standard input) and return what was found; raise no TraceError."""
    found = Finding(path)
    try:
        if path.endswith(".parquet") and (is_url(path) or os.path.isfile(path)):
            from biotrail.converters.inputs.parquet.source import check_table

            if (table := check_table(path)) is not None:
                found.kind = "table"
                found.bytes, found.events, found.problems = table
                found.intact = not found.problems
                return found
        source = open_log(path)
        found.bytes = max(0, source.size)
        if isinstance(source, LogSource):
            _check_log(source, found)
        elif hasattr(source, "metadata"):
            archive: Any = source
            account = archive.metadata.account
            found.kind = "archive"
            kinds = _count(source, found)
            found.problems += source.problems[len(account.problems) :]
            found.damaged += source.damaged[len(account.damaged) :]
            if not found.problems:
                found.problems += archive.wrong_blocks()
            if not found.problems and kinds != account.kinds:
                found.problems.append("has other kinds of events than its account says")
            found.notes += [f"its log was damaged: {problem}" for problem in account.problems]
            _notes(source, found)
        else:
            tool = source.header.get("backend")
            found.kind = f"{tool}'s {'files' if tool == 'blktrace' else 'recording'}"
            _count(source, found)
            found.problems += source.problems
    except LogNotFoundError:
        found.missing = True
        found.problems.append("no such file")
    except TraceError as error:
        found.problems.append(str(error).removeprefix(f"{path}: "))
    found.intact = not found.problems
    return found


def _check_log(source: LogSource, found: Finding) -> None:
    """Read all chunks of a log, and compare their number and size with those of its end."""
    found.kind = "log"
    raw = 0
    for chunk in source.chunks():
        part = source.part(chunk)
        raw += sum(len(segment.data) for segment in chunk.segments)
        found.chunks += 1
        found.events += len(part.events)
    found.problems += source.problems
    found.damaged += source.damaged
    if source.unreadable_bytes:
        found.problems.append(f"{source.unreadable_bytes} bytes of records are none of its schema")
    counts_at_end = (source.end or {}).get("log", {})
    if not found.problems and counts_at_end:
        for name, there in (("chunks", found.chunks), ("raw_bytes", raw)):
            if counts_at_end.get(name) not in (None, there):
                found.problems.append(
                    f"has {there} {name} where its end says {counts_at_end[name]}"
                )
    _notes(source, found)


def _count(source: Source, found: Finding) -> dict[str, int]:
    """Read all events, add them to `found`, and return their number by kind: {letter: n}."""
    counts = np.zeros(256, np.int64)
    for part in source.parts():
        counts += np.bincount(part.events.kind, minlength=256)
        found.chunks += 1
        found.events += len(part.events)
    return {BY_KIND[Kind(k)].letter: int(counts[k]) for k in np.flatnonzero(counts).tolist()}


def _notes(source: Source, found: Finding) -> None:
    if source.interrupted:
        found.notes.append("interrupted: whole up to there")
    for kind, count in sorted(source.unknown.items()):
        found.notes.append(f"{units.plural(count, 'record')} of unknown kind {kind}")
