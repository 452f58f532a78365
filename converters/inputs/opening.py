# SPDX-License-Identifier: Apache-2.0
"""Opening of a path or stream as the source that fits: a log, or what another tool recorded."""

import os
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, cast

from biotrail.converters.inputs.beginning import Beginning, Given, begin, is_url
from biotrail.converters.inputs.log import LogSource, Source
from biotrail.converters.inputs.plain_text import is_text
from biotrail.converters.inputs.unpacking import beginning as unpacked
from biotrail.recorder.log.frames import MAGIC
from biotrail.recorder.schema.errors import LogFormatError, NotALogError

_PARQUET = b"PAR1"
_MAYBE_PERFETTO = (b"\x0a", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""A packet's tag, and the magic numbers of gzip and zstd."""
PERF_MAGIC = b"PERFILE2"
_RECOGNISED_TEXT = 1 << 12
"""Bytes of a text by which it is recognised."""


class Format(NamedTuple):
    """A format that is read besides logs: how it is recognised, and opened as a Source.

    Both import the format's modules, which reading logs must not need.
    """

    name: str
    recognises: Callable[[Beginning], bool]
    open: Callable[[Given], Source]


def open_source(path: str | os.PathLike[str] | BinaryIO | Source) -> Source:
    """Return the source that reads `path`: a log, an archive, or another tool's recording.

    path: a file, a dataset's directory, a set `DEV.blktrace.CPU` (by DEV or by one of its files),
    an archive's URL, or a binary stream; a Source is returned unchanged. A log is recognised by
    its magic number, other formats by the first of FORMATS that recognises the first bytes; what
    none recognises is opened as a log.
    Text is taken for printed events, and may turn out to be none when it is read.
    An existing file takes precedence over a set of the same name, that over a directory. Raises
    LogFormatError: not of a known format, empty, of a newer format, or not readable.
    """
    if not isinstance(path, str | os.PathLike) and not hasattr(path, "read"):
        return path
    if is_url(path):
        return _archive(cast(str, path))
    beginning = begin(cast(Given, path))
    for form in () if beginning.first.startswith(MAGIC) else FORMATS:
        if form.recognises(beginning):
            return form.open(beginning.given)
    try:
        return LogSource(beginning.given)
    except NotALogError as error:
        from biotrail.converters.inputs import unknown

        name = beginning.path or str(getattr(beginning.given, "name", "the stream"))
        raise unknown.refusal(name, beginning.first) from error


def _is_blktrace(beginning: Beginning) -> bool:
    """Return whether it is blktrace's data: it begins with a record, or names a set.

    A path that is no file names a set if there are files of it.
    """
    from biotrail.converters.inputs.blktrace.files import find
    from biotrail.converters.inputs.blktrace.format import MAGIC_BYTES, byte_order

    if byte_order(beginning.first[:MAGIC_BYTES]) is not None:
        return True
    path = beginning.path
    return path is not None and not os.path.isfile(path) and bool(find(path))


def _is_archive(beginning: Beginning) -> bool:
    """Return whether it is a directory, or begins as Parquet files do."""
    path = beginning.path
    return beginning.first.startswith(_PARQUET) or (path is not None and os.path.isdir(path))


def _blktrace(given: Given) -> Source:
    """Return the source of blktrace's data: a set's files, one of them, or a stream.

    Raises LogFormatError.
    """
    from biotrail.converters.inputs.blktrace.source import BlktraceSource

    return BlktraceSource(given)


def _is_lttng(beginning: Beginning) -> bool:
    """Return whether it is LTTng's: a trace's or session's directory, or a trace's file."""
    from biotrail.converters.inputs.lttng.directories import is_lttng, is_part

    if beginning.first:
        return beginning.path is not None and is_part(beginning.first)
    return beginning.path is not None and is_lttng(beginning.path)


def _lttng(given: Given) -> Source:
    """Return the source of LTTng's traces. Raises LogFormatError (see LttngSource)."""
    from biotrail.converters.inputs.lttng.source import LttngSource

    return LttngSource(cast(str, given))


def _archive(given: Given) -> Source:
    """Return the source of an archive (Parquet), given by its path or as an open file.

    Raises LogFormatError: the file cannot seek, as a pipe, or it is no archive that can be read
    (see ArchiveSource).
    """
    from biotrail.converters.inputs.parquet.source import ArchiveSource

    if not isinstance(given, str | os.PathLike) and not given.seekable():
        raise LogFormatError(
            "an archive cannot be read from a pipe, because its metadata is at its end: give its "
            "path"
        )
    return ArchiveSource(given)


def _is_perfetto(beginning: Beginning) -> bool:
    """Return whether it begins as a Perfetto trace does, or as a compressed one."""
    first = beginning.first
    if not first.startswith(_MAYBE_PERFETTO) or is_text(first):
        return False
    from biotrail.converters.inputs.perfetto.recognising import is_perfetto

    return is_perfetto(first)


def _perfetto(given: Given) -> Source:
    """Return the source of a Perfetto trace. Raises LogFormatError: it has no block events."""
    from biotrail.converters.inputs.perfetto.source import PerfettoSource

    return PerfettoSource(given)


def _is_perf(beginning: Beginning) -> bool:
    """Return whether it begins with perf.data's magic number, in either byte order.

    Or a directory (`perf record --threads`) has a file `data` that does, which is refused later.
    """
    first, path = beginning.first, beginning.path
    if path is not None and os.path.isdir(path):
        first = begin(os.path.join(path, "data")).first
    return first[: len(PERF_MAGIC)] in (PERF_MAGIC, PERF_MAGIC[::-1])


def _perf(given: Given) -> Source:
    """Return the source of a file or stream of `perf record`. Raises LogFormatError."""
    from biotrail.converters.inputs.perf.source import PerfSource

    return PerfSource(given)


def _is_trace_dat(beginning: Beginning) -> bool:
    """Return whether it begins as trace-cmd's trace.dat does."""
    from biotrail.converters.inputs.ftrace.recording import MAGIC as TRACE_DAT

    return beginning.first.startswith(TRACE_DAT)


def _trace_dat(given: Given) -> Source:
    """Return the source of a trace.dat. Raises LogFormatError."""
    from biotrail.converters.inputs.ftrace.trace_dat import TraceDatSource

    return TraceDatSource(given)


def _is_blkparse(beginning: Beginning) -> bool:
    """Return whether it is the text of blkparse, plain or compressed."""
    from biotrail.converters.inputs.blkparse.layouts import is_blkparse

    return is_blkparse(unpacked(beginning.first, _RECOGNISED_TEXT))


def _blkparse(given: Given) -> Source:
    """Return the source of blkparse's text. Raises LogFormatError: its layout is not clear."""
    from biotrail.converters.inputs.blkparse.source import BlkparseSource

    return BlkparseSource(given)


def _is_ftrace_text(beginning: Beginning) -> bool:
    """Return whether it is text, of a gzip or zstd file, too: only reading it shows what it is.

    Much of something else may stand before the first event: perf's header, a page's scripts.
    """
    return is_text(unpacked(beginning.beyond_zeros(), _RECOGNISED_TEXT))


def _ftrace_text(given: Given) -> Source:
    """Return the source of printed events. Raises LogFormatError."""
    from biotrail.converters.inputs.ftrace.text import TextSource

    return TextSource(given)


FORMATS: tuple[Format, ...] = (
    Format("perf", _is_perf, _perf),
    Format("trace.dat", _is_trace_dat, _trace_dat),
    Format("blktrace", _is_blktrace, _blktrace),
    Format("lttng", _is_lttng, _lttng),
    Format("Perfetto trace", _is_perfetto, _perfetto),
    Format("archive", _is_archive, _archive),
    Format("blkparse text", _is_blkparse, _blkparse),
    Format("ftrace text", _is_ftrace_text, _ftrace_text),
)
"""Formats in the order in which they are tried: those with a magic number first, an archive's
directory after directories of other formats."""


def says_time(reader: Source) -> bool:
    """Return whether a source says from when to when was recorded: biotrail's own logs do.

    Other tools' clocks may be of their first event, and none of them has the end.
    """
    known = reader.header.get("backend", "core") in ("core", "bcc")
    return known and "monotonic" in reader.header.get("clocks", {})


def has_pointers(reader: Source) -> bool:
    """Return whether the source's events have kernel pointers.

    bcc's stable tracepoint formats, which other tools record too, and blktrace's records have none.
    """
    return bool(reader.header.get("backend", "core") == "core")
