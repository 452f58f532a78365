# SPDX-License-Identifier: Apache-2.0
"""Opens what a recording is written to, as its options ask."""

import os
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO

from recorder.errors import OutputError
from recorder.output import create
from recorder.series import Series
from recorder.session_types import RecordOptions
from recorder.sinks import PlainLog, Programs, RotatingLog, Sink

_STDOUT = 1


def reserve(options: RecordOptions, stack: ExitStack, undo: ExitStack) -> BinaryIO | None:
    """The one file or pipe of a plain log, before anything is loaded; None for several files.

    `stack` closes it, `undo` removes it. Raises OutputError.
    """
    path = options.output
    if options.rotate is not None:
        if path is None:
            raise OutputError("standard output takes one log: give a file name (-o) to rotate")
        return None
    if path is None:
        return stack.enter_context(open(_STDOUT, "wb", buffering=0, closefd=False))
    stream = stack.enter_context(create(path, force=options.force))
    undo.callback(_unlink, path)
    return stream


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def open_sink(
    options: RecordOptions, stream: BinaryIO | None, header: dict[str, Any], programs: Programs
) -> Sink:
    """The log, its header written. `stream`: what `reserve` gave. Raises OutputError."""
    if options.rotate is not None and options.output is not None:
        series = Series(options.output, options.max_files, force=options.force)
        return RotatingLog(series, header, options.rotate, programs, options.level, options.sync)
    if stream is None:
        raise OutputError("there is no output to write to")
    return PlainLog(stream, options.output, header, options.level, options.sync)
