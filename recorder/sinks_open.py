# SPDX-License-Identifier: Apache-2.0
"""Opens what a recording is written to, as its options ask."""

import os
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO

from recorder.errors import OutputError
from recorder.keeping import KeptLog
from recorder.output import create
from recorder.own_io import tell_files
from recorder.series import Series
from recorder.session_types import Probes, RecordOptions
from recorder.sinks import Limit, PlainLog, RotatingLog, Sink

_STDOUT = 1
KEEP_BYTES = 1 << 30
"""What a flight recorder takes at most where it is limited by time alone."""


def reserve(options: RecordOptions, stack: ExitStack, undo: ExitStack) -> BinaryIO | None:
    """The one file or pipe of a plain log, before anything is loaded; None for several files.

    `stack` closes it, `undo` removes it. Raises OutputError.
    """
    path = options.output
    if options.rotate is not None or options.keep is not None:
        if path is None:
            raise OutputError("standard output takes one log: give a file name (-o)")
        _look_at_directory(path)
        return None
    if path is None:
        return stack.enter_context(open(_STDOUT, "wb", buffering=0, closefd=False))
    stream = stack.enter_context(create(path, force=options.force))
    undo.callback(_unlink, path)
    return stream


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _look_at_directory(path: str) -> None:
    """What would fail at the first dump, hours from now, shall fail at once."""
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise OutputError(f"{directory} is no directory: make it, or give another path (-o)")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise OutputError(f"{directory} may not be written to: give another path (-o)")


def memory_limit(limit: Limit) -> Limit:
    """A limit in bytes as well: time alone would let memory grow with the load."""
    if limit.bytes is not None:
        return limit
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limit(min(KEEP_BYTES, total // 8), limit.seconds)


def open_sink(
    options: RecordOptions, stream: BinaryIO | None, header: dict[str, Any], probes: Probes
) -> Sink:
    """The log, its header written. `stream`: what `reserve` gave. Raises OutputError.

    The probes are told of every file before it is written to.
    """
    programs, on_file = probes.programs, tell_files(probes)
    if stream is None and options.output is not None:
        series = Series(options.output, options.max_files, force=options.force, on_file=on_file)
        if options.keep is not None:
            return KeptLog(series, header, memory_limit(options.keep), programs, options.level)
        limit = options.rotate or Limit()
        return RotatingLog(series, header, limit, programs, options.level, options.sync)
    if stream is None:
        raise OutputError("there is no output to write to")
    on_file(stream)
    return PlainLog(stream, options.output, header, options.level, options.sync)
