# SPDX-License-Identifier: Apache-2.0
"""Opening of a path or stream as the source that fits: a log, or what another tool recorded."""

import os
from typing import BinaryIO, cast

from biotrail.converters.inputs.beginning import (
    PEEKED_BYTES,
    Beginning,
    PathOrStream,
    begin,
    is_text,
    is_url,
    name_of,
    refusal,
)
from biotrail.converters.inputs.log import LogSource, Source
from biotrail.converters.inputs.unpacking import GZIP, ZSTD
from biotrail.converters.inputs.unpacking import beginning as unpacked
from biotrail.recorder.log.frames import MAGIC
from biotrail.recorder.schema.errors import LogFormatError, NotALogError

PERF_MAGIC = b"PERFILE2"
_PARQUET = b"PAR1"
_MAYBE_PERFETTO = (b"\x0a", GZIP, ZSTD)  # 0x0a: a packet's tag
_RECOGNISED_TEXT = 1 << 12
_ZEROS_BYTES = 1 << 20


def open_source(path: str | os.PathLike[str] | BinaryIO | Source) -> Source:
    """Return the source that reads `path`: a log, an archive, or another tool's recording.

    path: a file, a dataset's directory, a set `DEV.blktrace.CPU` (by DEV or by one of its files),
    an archive's URL, or a binary stream; a Source is returned unchanged. Formats are recognised by
    the first bytes; what is of none is opened as a log. Text is taken for printed events, and may
    turn out to be none when it is read.
    An existing file takes precedence over a set of the same name, that over a directory. Raises
    LogFormatError: not of a known format, empty, of a newer format, or not readable.
    """
    if not isinstance(path, str | os.PathLike) and not hasattr(path, "read"):
        return path
    if is_url(path):
        return _archive(cast(str, path))
    beginning = begin(cast(PathOrStream, path))
    if not beginning.first.startswith(MAGIC) and (found := _no_log(beginning)) is not None:
        return found
    try:
        return LogSource(beginning.given)
    except NotALogError as error:
        raise refusal(name_of(beginning.given), beginning.first) from error


def _no_log(beginning: Beginning) -> Source | None:
    """Return the source of an archive or another tool's recording; None: of no known tool."""
    given, first, path = beginning.given, beginning.first, beginning.path
    is_directory = path is not None and os.path.isdir(path)

    # A directory of `perf record --threads` has such a file `data`, and is refused later.
    data = begin(f"{path}/data").first if is_directory else first
    if data.startswith((PERF_MAGIC, PERF_MAGIC[::-1])):
        from biotrail.converters.inputs.perf.source import PerfSource

        return PerfSource(given)

    from biotrail.converters.inputs.ftrace.recording import MAGIC as TRACE_DAT

    if first.startswith(TRACE_DAT):
        from biotrail.converters.inputs.ftrace.trace_dat import TraceDatSource

        return TraceDatSource(given)

    from biotrail.converters.inputs.blktrace.files import find
    from biotrail.converters.inputs.blktrace.format import MAGIC_BYTES, byte_order

    is_set = path is not None and not os.path.isfile(path) and bool(find(path))
    if byte_order(first[:MAGIC_BYTES]) is not None or is_set:
        from biotrail.converters.inputs.blktrace.source import BlktraceSource

        return BlktraceSource(given)

    if path is not None:
        from biotrail.converters.inputs.lttng.directories import is_lttng, is_part

        if is_part(first) if first else is_lttng(path):
            from biotrail.converters.inputs.lttng.source import LttngSource

            return LttngSource(path)

    if first.startswith(_MAYBE_PERFETTO) and not is_text(first):
        from biotrail.converters.inputs.perfetto.packets import is_perfetto

        if is_perfetto(first):
            from biotrail.converters.inputs.perfetto.source import PerfettoSource

            return PerfettoSource(given)

    if first.startswith(_PARQUET) or is_directory:
        return _archive(given)

    from biotrail.converters.inputs.blkparse.layouts import is_blkparse

    if is_blkparse(unpacked(first, _RECOGNISED_TEXT)):
        from biotrail.converters.inputs.blkparse.source import BlkparseSource

        return BlkparseSource(given)

    if path is not None and first and not first.strip(b"\0"):  # a lost page leaves zeros
        with open(path, "rb") as stream:
            first = stream.read(_ZEROS_BYTES).lstrip(b"\0")[:PEEKED_BYTES]
    # Much of something else may stand before the first event: perf's header, a page's scripts.
    if is_text(unpacked(first, _RECOGNISED_TEXT)):
        from biotrail.converters.inputs.ftrace.text import TextSource

        return TextSource(given)
    return None


def _archive(given: PathOrStream) -> Source:
    from biotrail.converters.inputs.parquet.source import ArchiveSource

    if not isinstance(given, str | os.PathLike) and not given.seekable():
        raise LogFormatError(
            "an archive cannot be read from a pipe, because its metadata is at its end: give its "
            "path"
        )
    return ArchiveSource(given)
