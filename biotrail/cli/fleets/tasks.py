# SPDX-License-Identifier: Apache-2.0
"""What runs on the workers: a file is looked at, a recording read, parts are added up.

A file that cannot be read ends no task: it is named in the task's result.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from biotrail import __version__
from biotrail.cli.options.blame_reading import Blaming
from biotrail.cli.options.cuts import Cut, cut_of
from biotrail.cli.options.opening import USUAL, Reading
from biotrail.converters.analysis.fleet import closing
from biotrail.converters.analysis.fleet.part import Part, merged, read_part
from biotrail.converters.analysis.fleet.tree import LeftOut
from biotrail.converters.analysis.report.tree import Report
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.series import run_of
from biotrail.converters.inputs.series_indexed import series_of
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.schema.file_kinds import no_regular_file
from biotrail.text.report.verdict import SHOWN, as_dicts, verdict


@dataclass(frozen=True)
class Asked:
    """What the command's options say about how recordings are read."""

    by: str
    cut: Cut = field(default_factory=Cut)
    reading: Reading = USUAL
    seed: int = 0
    blame: str | None = None
    """What victims and culprits are; None: nobody is blamed."""


@dataclass(frozen=True)
class Seen:
    """What the header of a file says."""

    file: str
    """Path or URL."""
    host: str
    log_id: str
    run: str
    """Id of the rotated recording that the file is of; the log's id if it is a recording itself."""


def version() -> str:
    """Return the worker's version of biotrail."""
    return __version__


def look(file: str) -> Seen | LeftOut:
    """Return what the header of a file says, or why it cannot be read."""
    try:
        if not is_url(file) and (what := no_regular_file(file)):
            return LeftOut(file, f"is {what}")
        source = open_source(file)
        log_id = str(source.header.get("log_id", file))
        return Seen(file, Context(source.header).host, log_id, run_of(source) or log_id)
    except (TraceError, OSError) as error:
        return LeftOut(file, reason(file, error))


def read(files: Sequence[str], columns: dict[str, str], asked: Asked) -> Part:
    """Return what a recording adds to the report; of one that cannot be read, why.

    files: all files of the recording, in any order. columns: what the user's table says of its
    host. The Part has only `left_out` if the recording cannot be read.
    """

    def again() -> Trace:
        sources = [(name, open_source(name)) for name in files]
        source = sources[0][1] if len(sources) == 1 else series_of(sources)
        return asked.reading.trace(source)

    try:
        part = cut_of(again, asked.cut)
        every: Iterable[Lifecycles] = part.trace.lifecycles()
        blaming = None
        if asked.blame is not None:
            blaming = Blaming.by(again, asked.cut, asked.blame, shown=False)
            every = blaming.learn(part.trace, every)

        def told(report: Report) -> list[dict[str, Any]]:
            if blaming is not None:
                report.blamed = blaming.finish()[1]
            return as_dicts(verdict(report)[:SHOWN])

        windows = part.chosen(every)
        return read_part(part.trace, windows, asked.by, columns, list(files), told)
    except (TraceError, OSError) as error:
        return Part(left_out=[LeftOut(name, reason(name, error)) for name in files])


def close(parts: Sequence[Part], asked: Asked) -> Part:
    """Return all recordings of one host as one part, closed; without a recording as they are."""
    if not any(part.recordings for part in parts):
        return merged(parts)
    return closing.close_host(parts, asked.seed, asked.by)


def add_up(parts: Sequence[Part]) -> Part:
    """Return the sum of parts of several hosts."""
    return merged(parts)


def reason(file: str, error: Exception) -> str:
    """Return an error as a sentence that does not begin with the file's own name."""
    text = str(error) if isinstance(error, TraceError) else f"{type(error).__name__}: {error}"
    return " ".join(text.removeprefix(f"{file}: ").split())
