# SPDX-License-Identifier: Apache-2.0
"""Opening of a command's log: a path, or - for standard input; options on how it is read."""

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO

import click

from biotrail.cli.options.gathering import Decorator, added, flag, gathered, option
from biotrail.converters.events.files import Labels
from biotrail.converters.inputs.beginning import PIPE, is_pipe, open_file
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import values


def csv_lines(path: str, what: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a CSV file, which messages call `what`, with their numbers; none empty."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            lines = csv.reader(stream)
            for line in lines:
                if any(cell.strip() for cell in line):
                    yield lines.line_num, line
    except (OSError, UnicodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise ConversionError(f"{path}: {what} cannot be read: {why}") from error


def read_labels(path: str) -> Labels:
    """Return the labels in a CSV file with a pattern and a label in each line that is not empty."""
    pairs: list[tuple[str, str]] = []
    for number, line in csv_lines(path, "the labels"):
        cells = [cell.strip() for cell in line]
        if len(cells) != 2 or not all(cells):
            raise ConversionError(
                f"{path}:{number}: a line of labels has a pattern of paths, a comma and a label; "
                f"this one has {line!r}"
            )
        pairs.append((cells[0], cells[1]))
    return Labels(pairs)


log_argument: Callable[[Any], Any] = click.argument("log", metavar="LOG", type=values.FileName())


include_ambiguous_option: Decorator = click.option(
    "--include-ambiguous",
    is_flag=True,
    help="Count latencies that are in doubt, as several I/Os fit one completion, as known. "
    "Default: leave them out of all figures and say how many they are.",
)


@dataclass(frozen=True)
class Reading:
    """How a log's bios and requests are read; the fields are parameters of Trace."""

    associate: str = option(
        "--associate",
        type=click.Choice(["auto", "identity", "intervals"]),
        default="auto",
        show_default=True,
        help="How to match bios with the requests that served them: identity, by kernel pointers; "
        "intervals, by sectors alone; auto, by pointers where the log has them.",
    )
    own_io: bool = flag(
        "--own-io", "Include the recorder's own I/O, marked. Default: leave it out and count it."
    )
    include_ambiguous: bool = added(include_ambiguous_option, usual=False)
    labels: Labels | None = option(
        "--labels",
        type=values.FileName(),
        callback=lambda _context, _option, path: None if path is None else read_labels(path),
        metavar="FILE",
        help="Names of files for people: CSV with a pattern of paths and a label in each line, "
        "such as base/16384/16397,accounts.",
    )
    """What people call files; no parameter of Trace."""

    def trace(self, source: str | BinaryIO | Source) -> Trace:
        trace = Trace(
            source, self.associate, own_io=self.own_io, include_ambiguous=self.include_ambiguous
        )
        trace.context.files.labels = self.labels
        return trace


USUAL = Reading()


def reading_options(*, own_io: bool = False, labels: bool = False) -> Decorator:
    wanted = {"own_io": own_io, "labels": labels}
    return gathered(Reading, "reading", without=[one for one, is_in in wanted.items() if not is_in])


def open_log(log: str) -> Source:
    return open_source(log if log != "-" else _standard_input())


def _standard_input() -> BinaryIO:
    if sys.stdin.isatty():
        raise click.UsageError("- reads a log from standard input: connect a file or a pipe")
    return sys.stdin.buffer


@contextmanager
def opener(log: str, reading: Reading, *, twice: bool) -> Iterator[Callable[[], Trace]]:
    """Yield a function that opens the log's trace; with `twice` each time from its beginning.

    For that a pipe's contents, or those of `-`, are kept in an unnamed temporary file.
    """
    if not twice or (log != "-" and not is_pipe(log)):
        yield lambda: reading.trace(open_log(log))
        return
    import shutil  # tempfile imports much, and a log mostly has a path
    import tempfile

    with tempfile.TemporaryFile() as copy:
        with nullcontext(_standard_input()) if log == "-" else open_file(log, PIPE) as stream:
            shutil.copyfileobj(stream, copy)

        def again() -> Trace:
            copy.seek(0)
            return reading.trace(copy)

        yield again
