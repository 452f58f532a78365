# SPDX-License-Identifier: Apache-2.0
"""Opens the file, pipe or directory that a recording is written to, and makes its sink."""

import os
from contextlib import ExitStack
from typing import BinaryIO

from biotrail.recorder.host.own_io import own_file_marker
from biotrail.recorder.output.flight_buffer import FlightBuffer
from biotrail.recorder.output.held_directory import HeldDirectory
from biotrail.recorder.output.output import NewFile
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import Limit, PlainLog, RotatingLog, Sink
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.payloads import Header
from biotrail.recorder.session.session_types import RecordOptions

_STDOUT = 1
KEEP_BYTES = 1 << 30
"""Most bytes of chunks in a flight recorder's memory where the option limits only seconds."""


def reserve(options: RecordOptions, stack: ExitStack, undo: ExitStack) -> BinaryIO | HeldDirectory:
    """Open the file or pipe of a plain log, or the directory for a rotation or dumps; return it.

    Called before the programs are loaded, so that a wrong path fails at once. `stack` gets what
    closes the stream or directory; `undo` what deletes the file that was made, in case the
    recording cannot begin. With `options.force` an existing file is deleted at once, and made anew.
    Without `options.output` the stream is standard output, unbuffered, and stays open. In a
    directory no file is made yet. Raises OutputError: the file exists and `options.force` is not
    set, the path is wrong, or a rotation or dumps are to go to standard output.
    """
    path = options.output
    if options.rotate is not None or options.keep is not None:
        if path is None:
            raise OutputError("standard output takes one log: give a file name (-o)")
        return _directory_of(path, stack)
    if path is None:
        return stack.enter_context(open(_STDOUT, "wb", buffering=0, closefd=False))
    made = NewFile(path, force=options.force)
    stack.callback(made.close)
    undo.callback(made.discard)
    return made.stream


def _directory_of(path: str, stack: ExitStack) -> HeldDirectory:
    """Open the directory of the file `path`, which has to be writable; `stack` closes it.

    Checked when recording begins, as the first dump may be hours from then. Raises OutputError:
    there is no such directory, or files may not be made in it.
    """
    directory = os.path.dirname(path)
    called = directory or "."
    if not os.path.isdir(called):
        raise OutputError(f"{called} is no directory: make it, or give another path (-o)")
    place = HeldDirectory(directory, shown=path)
    stack.callback(place.close)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.fd):
        raise OutputError(f"{called} may not be written to: give another path (-o)")
    return place


def memory_limit(limit: Limit) -> Limit:
    """Return `limit`, with a limit of bytes if it has none: else memory would grow with the load.

    KEEP_BYTES (1 GiB), or an eighth of the machine's memory if that is less; `limit.seconds` stays.
    A limit with bytes, however many, is returned itself.
    """
    if limit.bytes is not None:
        return limit
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limit(min(KEEP_BYTES, total // 8), limit.seconds)


def open_sink(
    options: RecordOptions,
    place: BinaryIO | HeldDirectory,
    header: Header,
    probes: Probes,
) -> Sink:
    """Return the recording's sink: a plain log, a rotating log, or a flight recorder's.

    A FlightBuffer if `options.keep` is set, a RotatingLog if `options.rotate` is, else a PlainLog.
    The header is written to the log's first file, except by a FlightBuffer, which makes no file
    before its first dump and whose memory is limited as `memory_limit` says. `place`: what
    `reserve` returned. The probes get to know every file before it is written to (`own_file`), the
    later ones of a rotation or dumps too. Raises OutputError or OSError.
    """
    programs, on_file = probes.programs, own_file_marker(probes.own_file)
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
        return FlightBuffer(series, header, memory_limit(options.keep), programs, options.level)
    limit = options.rotate or Limit()
    return RotatingLog(series, header, limit, programs, options.level, options.sync)
