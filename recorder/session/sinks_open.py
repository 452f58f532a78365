# SPDX-License-Identifier: Apache-2.0
"""Opens what a recording is written to, as its options ask."""

import os
from contextlib import ExitStack
from typing import Any, BinaryIO

from biotrail.recorder.host.own_io import tell_files
from biotrail.recorder.output.flight_buffer import KeptLog
from biotrail.recorder.output.held_directory import HeldDirectory, identity
from biotrail.recorder.output.output import create, create_at
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import Limit, PlainLog, RotatingLog, Sink
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.session.session_types import Probes, RecordOptions

_STDOUT = 1
KEEP_BYTES = 1 << 30
"""What a flight recorder takes at most where it is limited by time alone."""


def reserve(options: RecordOptions, stack: ExitStack, undo: ExitStack) -> BinaryIO | HeldDirectory:
    """The one file or pipe of a plain log, or the directory of several files.

    It is there before anything is loaded. `stack` closes it, `undo` removes the file. Raises
    OutputError.
    """
    path = options.output
    if options.rotate is not None or options.keep is not None:
        if path is None:
            raise OutputError("standard output takes one log: give a file name (-o)")
        return _directory_of(path, stack)
    if path is None:
        return stack.enter_context(open(_STDOUT, "wb", buffering=0, closefd=False))
    directory, name = os.path.split(path)
    if name in ("", ".", ".."):
        return stack.enter_context(create(path, force=options.force))  # says what is wrong
    held = _hold(directory, path, stack)
    stream = stack.enter_context(create_at(held.fd, name, force=options.force, shown=path))
    undo.callback(held.remove, name, identity(stream.fileno()))
    return stream


def _hold(directory: str, path: str, stack: ExitStack) -> HeldDirectory:
    held = HeldDirectory(directory, shown=path)
    stack.callback(held.close)
    return held


def _directory_of(path: str, stack: ExitStack) -> HeldDirectory:
    """What would fail at the first dump, hours from now, shall fail at once."""
    directory = os.path.dirname(path)
    called = directory or "."
    if not os.path.isdir(called):
        raise OutputError(f"{called} is no directory: make it, or give another path (-o)")
    held = _hold(directory, path, stack)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=held.fd):
        raise OutputError(f"{called} may not be written to: give another path (-o)")
    return held


def memory_limit(limit: Limit) -> Limit:
    """A limit in bytes as well: time alone would let memory grow with the load."""
    if limit.bytes is not None:
        return limit
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limit(min(KEEP_BYTES, total // 8), limit.seconds)


def open_sink(
    options: RecordOptions,
    place: BinaryIO | HeldDirectory,
    header: dict[str, Any],
    probes: Probes,
) -> Sink:
    """The log, its header written. `place`: what `reserve` gave. Raises OutputError.

    The probes are told of every file before it is written to.
    """
    programs, on_file = probes.programs, tell_files(probes)
    if not isinstance(place, HeldDirectory):
        on_file(place)
        return PlainLog(place, options.output, header, options.level, options.sync)
    series = Series(
        options.output or "",
        options.max_files,
        force=options.force,
        on_file=on_file,
        directory=place,
    )
    if options.keep is not None:
        return KeptLog(series, header, memory_limit(options.keep), programs, options.level)
    limit = options.rotate or Limit()
    return RotatingLog(series, header, limit, programs, options.level, options.sync)
