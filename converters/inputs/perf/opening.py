# SPDX-License-Identifier: Apache-2.0
"""Opening of perf.data: its file header, its sections, or the beginning of a pipe."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import BinaryIO

from biotrail.converters.inputs.beginning import PathOrStream, name_of
from biotrail.converters.inputs.perf.facts import Facts, Feature
from biotrail.converters.inputs.perf.layout import ByteOrder, Cursor, read_attr
from biotrail.recorder.schema.errors import LogFormatError

_MAGICS: dict[bytes, ByteOrder] = {b"PERFILE2": "<", b"2ELIFREP": ">"}
"""The magic number by byte order of the machine that recorded."""
_PIPE_HEADER_BYTES = 16
_FILE_HEADER_BYTES = 104
_SECTION_BYTES = 16
_FEATURES_AT, FEATURE_BITS = 72, 256
_MOST_EVENTS = 1 << 16
_MOST_SECTION_BYTES = 256 << 20
_FARTHEST = 1 << 60
"""A damaged offset beyond this would be none that a file can have."""


@dataclass
class Opened:
    """perf.data, opened: a stream that is at its first record.

    offset: of that record. data_bytes: of the data section; None: up to the end. size: bytes of the
    file, -1 of a pipe.
    """

    stream: BinaryIO
    name: str
    facts: Facts
    offset: int
    data_bytes: int | None
    size: int


def open_perf(given: PathOrStream) -> Opened:
    """Open a path or stream. Raises LogFormatError: no perf.data, cut off, or cannot be read.

    A file that comes through a pipe is copied to an unnamed temporary file, because what it says of
    itself is at its end.
    """
    name = name_of(given)
    if isinstance(given, str | os.PathLike):
        if os.path.isdir(name):
            raise LogFormatError(
                f"{name}: a directory of `perf record --threads`, which is not read: record "
                "without --threads"
            )
        try:
            stream: BinaryIO = open(name, "rb")  # noqa: SIM115 - closed with the source
        except OSError as error:
            raise LogFormatError(f"{name}: cannot be opened: {error.strerror or error}") from error
    else:
        stream = given
    try:
        return _opened(stream, name)
    except OSError as error:
        raise LogFormatError(
            f"{name}: cannot be read: {error.strerror or error}; copy what can be read elsewhere"
        ) from error


def _opened(stream: BinaryIO, name: str) -> Opened:
    first = _read(stream, _PIPE_HEADER_BYTES)
    order = _MAGICS.get(first[:8])
    if order is None:
        raise LogFormatError(f"{name}: no perf.data: it begins with {first[:8].hex(' ')}")
    facts = Facts(name, order)
    size = Cursor(first, order, name)
    size.take(8)
    if size.number(8) == _PIPE_HEADER_BYTES:
        return Opened(stream, name, facts, _PIPE_HEADER_BYTES, None, -1)
    if not stream.seekable():
        copy: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the source
        copy.write(first)
        shutil.copyfileobj(stream, copy)
        stream, start = copy, 0
    else:
        start = stream.tell() - _PIPE_HEADER_BYTES
    return _opened_file(stream, start, facts)


def _opened_file(stream: BinaryIO, start: int, facts: Facts) -> Opened:
    name, order = facts.where, facts.order
    size = stream.seek(0, os.SEEK_END) - start
    stream.seek(start)
    header = Cursor(_read(stream, _FILE_HEADER_BYTES), order, name)
    header.take(16)
    attr_bytes = header.number(8)
    attrs_at, attrs_bytes, data_at, data_bytes = (header.number(8) for _ in range(4))
    header.take(_FEATURES_AT - header.at)
    words = [header.number(8) for _ in range(FEATURE_BITS // 64)]
    features = [bit for bit in range(FEATURE_BITS) if words[bit // 64] >> bit % 64 & 1]
    _read_events(stream, start, (attrs_at, attrs_bytes, attr_bytes), facts)
    if not data_bytes:
        raise LogFormatError(
            f"{name}: perf did not finish this file (its data have no size), so the formats of its "
            "events are missing: end `perf record` by Ctrl-C or SIGTERM, not by SIGKILL"
        )
    _read_features(stream, start, data_at + data_bytes, features, facts)
    stream.seek(min(start + data_at, _FARTHEST))
    return Opened(stream, name, facts, data_at, data_bytes, size)


def _read_events(stream: BinaryIO, start: int, where: tuple[int, int, int], facts: Facts) -> None:
    """Read the attrs and the ids of their samples. where: offset and bytes of all, bytes of one."""
    offset, length, each = where
    if each < _SECTION_BYTES or length // max(each, 1) > _MOST_EVENTS:
        raise LogFormatError(
            f"{facts.where}: {length} bytes of events of {each} bytes each: the header is damaged"
        )
    stream.seek(min(start + offset, _FARTHEST))
    attrs = _read(stream, length)
    left = stream.seek(0, os.SEEK_END)
    for at in range(0, len(attrs) - each + 1, each):
        attr = read_attr(attrs[at : at + each], facts.order, facts.where)
        ids = Cursor(attrs[at + each - _SECTION_BYTES : at + each], facts.order, facts.where)
        ids_at, ids_bytes = ids.number(8), ids.number(8)
        left -= ids_bytes  # however many events share them, no more than the file is read
        if left < 0:
            raise LogFormatError(
                f"{facts.where}: more ids of samples than the file has room for: it is damaged"
            )
        stream.seek(min(start + ids_at, _FARTHEST))
        cursor = Cursor(_read(stream, ids_bytes), facts.order, facts.where)
        facts.add_event(attr, [cursor.number(8) for _ in range(cursor.rest // 8)])


def _read_features(
    stream: BinaryIO, start: int, at: int, features: list[int], facts: Facts
) -> None:
    """Read the sections behind the data: a table of offsets and sizes at `at`, then their contents.

    start: where the file begins in the stream. features: numbers of the sections, in the table's
    order.
    """
    stream.seek(min(start + at, _FARTHEST))
    table = Cursor(_read(stream, _SECTION_BYTES * len(features)), facts.order, facts.where)
    for number in features:
        if table.rest < _SECTION_BYTES:
            _check_needed(number, "the file ends before", facts)
            continue
        offset, length = table.number(8), table.number(8)
        if number not in set(Feature):
            continue
        if length > _MOST_SECTION_BYTES:
            _check_needed(number, f"{length} bytes", facts)
            continue
        stream.seek(min(start + offset, _FARTHEST))
        facts.add_feature(number, _read(stream, length))


def _check_needed(number: int, why: str, facts: Facts) -> None:
    if number == Feature.TRACING_DATA:
        raise LogFormatError(
            f"{facts.where}: the section with the formats of events cannot be read ({why}): the "
            "file is cut off or damaged; record again, or copy it again"
        )
    if number in set(Feature):
        facts.add_unread(Feature(number), why)


def _read(stream: BinaryIO, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0 and (more := stream.read(min(count, 1 << 20))):
        pieces.append(more)
        count -= len(more)
    return b"".join(pieces)
