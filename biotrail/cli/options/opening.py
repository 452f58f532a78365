# SPDX-License-Identifier: Apache-2.0
"""Logs as the commands that read them take them: a path, or - for standard input."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace

log_argument: Callable[[Any], Any] = click.argument("log", metavar="LOG", type=click.Path())
"""Its type lets shells complete names of files."""


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
    """The trace in a log, an archive, blktrace data, or standard input for `-`.

    Raises LogFormatError.
    """
    return Trace(open_log(log), associate, own_io=own_io)


def open_log(log: str) -> Source:
    """What holds events: as open_trace. Raises LogFormatError."""
    if log != "-":
        return open_source(log)
    if sys.stdin.isatty():
        raise click.UsageError("- reads a log from standard input: connect a file or a pipe")
    return open_source(sys.stdin.buffer)


@contextmanager
def readable_twice(log: str) -> Iterator[str | BinaryIO]:
    """The log's path; standard input as a file without a name."""
    if log != "-":
        yield log
        return
    if sys.stdin.isatty():
        raise click.UsageError("- reads a log from standard input: connect a file or a pipe")
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        yield copy


def open_again(source: str | BinaryIO, associate: str, own_io: bool = False) -> Trace:
    """The trace from its beginning."""
    if isinstance(source, str):
        return open_trace(source, associate, own_io)
    source.seek(0)
    return Trace(source, associate, own_io=own_io)
