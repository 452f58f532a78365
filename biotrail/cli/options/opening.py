# SPDX-License-Identifier: Apache-2.0
"""Opening of a command's log: a path, or - for standard input."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, BinaryIO

import click

from biotrail.converters.inputs.beginning import is_pipe, open_pipe
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace

log_argument: Callable[[Any], Any] = click.argument("log", metavar="LOG", type=click.Path())
"""The argument LOG. Its type click.Path lets shells complete file names."""


associate_option: Callable[[Any], Any] = click.option(
    "--associate",
    type=click.Choice(["auto", "identity", "intervals"]),
    default="auto",
    show_default=True,
    help="How to match bios with the requests that served them: identity, by kernel pointers; "
    "intervals, by sectors alone; auto, by pointers where the log has them.",
)


own_io_option: Callable[[Any], Any] = click.option(
    "--own-io",
    is_flag=True,
    help="Include the recorder's own I/O, marked. Default: leave it out and count it.",
)


def open_trace(log: str, associate: str = "auto", own_io: bool = False) -> Trace:
    """Open a log, an archive, another tool's recording, or standard input for `-`, as a trace.

    associate: "auto", "identity" or "intervals", as for Trace. own_io: whether to include the
    recorder's own I/O. Raises LogFormatError; click.UsageError for `-` on a terminal.
    """
    return Trace(open_log(log), associate, own_io=own_io)


def open_log(log: str) -> Source:
    """Open the source of events of a log, as `open_trace` does, with the same errors."""
    return open_source(log if log != "-" else _standard_input())


@contextmanager
def readable_twice(log: str) -> Iterator[str | BinaryIO]:
    """Yield the log's path or, for a pipe or `-`, its contents copied to an unnamed temporary file.

    Raises click.UsageError for `-` on a terminal, LogFormatError where a pipe cannot be opened.
    """
    if log != "-" and not is_pipe(log):
        yield log
        return
    import shutil  # tempfile imports much, and a log mostly has a path
    import tempfile

    with tempfile.TemporaryFile() as copy:
        with _stream(log) as stream:
            shutil.copyfileobj(stream, copy)
        yield copy


def _stream(log: str) -> AbstractContextManager[BinaryIO]:
    """Return a pipe, open for reading, or for `-` standard input, which stays open."""
    return nullcontext(_standard_input()) if log == "-" else open_pipe(log)


def _standard_input() -> BinaryIO:
    """Return standard input. Raises click.UsageError where that is a terminal."""
    if sys.stdin.isatty():
        raise click.UsageError("- reads a log from standard input: connect a file or a pipe")
    return sys.stdin.buffer


def open_again(source: str | BinaryIO, associate: str, own_io: bool = False) -> Trace:
    """Open the trace from its beginning. source: as `readable_twice` yields it; a file is rewound.

    Raises LogFormatError.
    """
    if isinstance(source, str):
        return open_trace(source, associate, own_io)
    source.seek(0)
    return Trace(source, associate, own_io=own_io)
