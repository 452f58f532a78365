# SPDX-License-Identifier: Apache-2.0
"""Opening of a path or stream as the source that fits: a log, an archive, or blktrace's data."""

import os
from typing import BinaryIO, cast

from biotrail.converters.inputs.blktrace.files import find, is_blktrace, peek
from biotrail.converters.inputs.blktrace.format import byte_order
from biotrail.converters.inputs.log import LogSource, Source
from biotrail.recorder.schema.errors import LogFormatError

_PARQUET = b"PAR1"


def open_source(path: str | os.PathLike[str] | BinaryIO | Source) -> Source:
    """Return the source that reads `path`: a log, an archive, or blktrace's data.

    path: a file, a dataset's directory, a set `DEV.blktrace.CPU` (by DEV or by one of its files),
    or a binary stream; a Source is returned unchanged. The format is recognised by the first bytes;
    what is no archive and no blktrace data is opened as a log. An existing file takes precedence
    over a set of the same name, that over a directory. Raises LogFormatError: not of a known
    format, empty, of a newer format, or not readable.
    """
    if not isinstance(path, str | os.PathLike):
        if not hasattr(path, "read"):
            return path
        first, stream = peek(cast(BinaryIO, path))
        if first == _PARQUET:
            return _archive(stream)
        return _blktrace(stream) if byte_order(first) is not None else LogSource(stream)
    if is_blktrace(path) or (not os.path.isfile(path) and find(path)):
        return _blktrace(path)
    return _archive(path) if _is_archive(path) else LogSource(path)


def _is_archive(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a directory, or a file that begins as Parquet files do.

    False if the file cannot be read.
    """
    if os.path.isdir(path):
        return True
    try:
        with open(path, "rb") as stream:
            return stream.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False


def _blktrace(path: str | os.PathLike[str] | BinaryIO) -> Source:
    """Return the source of blktrace's data: a set's files, one of them, or a stream.

    Raises LogFormatError.
    """
    from biotrail.converters.inputs.blktrace.source import (
        BlktraceSource,  # imported here because few logs are blktrace's
    )

    return BlktraceSource(path)


def _archive(path: str | os.PathLike[str] | BinaryIO) -> Source:
    """Return the source of an archive (Parquet), given by its path or as an open file.

    Raises LogFormatError: the file cannot seek, as a pipe, or it is no archive that can be read
    (see ArchiveSource).
    """
    from biotrail.converters.inputs.parquet.source import (
        ArchiveSource,  # imported here because reading logs must not need pyarrow
    )

    if not isinstance(path, str | os.PathLike) and not path.seekable():
        raise LogFormatError(
            "an archive cannot be read from a pipe, because its metadata is at its end: give its "
            "path"
        )
    return ArchiveSource(path)


def has_pointers(reader: Source) -> bool:
    """Return whether the source's events have kernel pointers.

    bcc's stable tracepoint formats and blktrace's records have none.
    """
    return bool(reader.header.get("backend", "core") == "core")
