# SPDX-License-Identifier: Apache-2.0
"""What perf.data says of itself, file or pipe: its events, their formats, and the machine."""

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import BinaryIO, NamedTuple

import numpy as np

from biotrail.converters.inputs.beginning import PathOrStream, name_of
from biotrail.converters.inputs.foreign import MAX_NS, clocks_at
from biotrail.converters.inputs.perf.layout import (
    TRACEPOINT,
    Attr,
    ByteOrder,
    Cursor,
    read_attr,
)
from biotrail.converters.inputs.tracepoints import parse_format, record_dtype
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.errors import LogFormatError

_MAGIC = b"\x17\x08\x44tracing"
_PIPE_HEADER_BYTES = 16


class Tracepoint(NamedTuple):
    """dtype: of its record; None: it is none of the block layer's that are read."""

    system: str
    name: str
    dtype: np.dtype[np.void] | None


class Feature(IntEnum):
    """Sections of perf.data that are read (HEADER_*, tools/perf/util/header.h)."""

    TRACING_DATA = 1
    HOSTNAME = 3
    OSRELEASE = 4
    VERSION = 5
    ARCH = 6
    NRCPUS = 7
    CPUDESC = 8
    CMDLINE = 11
    EVENT_DESC = 12
    CLOCK_DATA = 29


_TEXTS = {
    Feature.HOSTNAME: "name",
    Feature.OSRELEASE: "release",
    Feature.VERSION: "version",
    Feature.ARCH: "machine",
    Feature.CPUDESC: "cpu_model",
}
_DESCRIBED = {
    Feature.HOSTNAME: "the host's name is",
    Feature.OSRELEASE: "the kernel's release is",
    Feature.VERSION: "perf's version is",
    Feature.ARCH: "the machine's architecture is",
    Feature.NRCPUS: "the number of CPUs is",
    Feature.CPUDESC: "the CPU's model is",
    Feature.CMDLINE: "perf's command line, and with it what it left out, is",
    Feature.EVENT_DESC: "names of events that are no tracepoints are",
    Feature.CLOCK_DATA: "the wall-clock time is",
}
_UNCERTAINTY_NS = 1_000


@dataclass
class Facts:
    """What a recording says of itself; it grows while a pipe is read.

    data_at: offset of the first record; data_bytes: of the data section, None: up to the end. size:
    bytes of the file, -1 of a pipe. events: attrs in the file's order. ids: index in `events` by
    the id that samples have. names: of events that are no tracepoints, by index. texts: name,
    release, version (perf's), machine, cpu_model, as far as known. clocks: a reading as in a log's
    header; None: not known.
    """

    where: str
    order: ByteOrder
    data_at: int = _PIPE_HEADER_BYTES
    data_bytes: int | None = None
    size: int = -1
    events: list[Attr] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    tracepoints: dict[int, Tracepoint] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    cpus: int = 0
    command: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """What a part that only describes could not be read for, a sentence each."""
    clocks: dict[str, int] | None = None

    def add_event(self, attr: Attr, ids: Cursor) -> None:
        """Add an event. ids: those of its samples, 8 bytes each."""
        while ids.rest >= 8:
            self.ids[ids.number(8)] = len(self.events)
        self.events.append(attr)

    def add_tracing_data(self, data: bytes) -> None:
        """Add the tracepoints in `data` by ID (perf_event_attr.config).

        It is what tracing_data_get() of perf wrote, and the same as the beginning of trace-cmd's
        trace.dat, version 0.5 or 0.6. A format that cannot be read is left out: its event then has
        none. Raises LogFormatError: no tracing data, or cut off.
        """
        if not data.startswith(_MAGIC):
            raise LogFormatError(
                f"{self.where}: the formats of its events begin with {data[:10].hex(' ')}, which "
                "perf does not write: the file is damaged; record again"
            )
        endian_at = data.find(b"\0", len(_MAGIC)) + 1
        big = data[endian_at : endian_at + 1] == b"\x01"
        cursor = Cursor(data, ">" if big else "<", self.where)
        cursor.take(len(_MAGIC))
        cursor.text_until_nul()
        cursor.take(1 + 1 + 4)  # byte order, size of a long, size of a page
        for _ in ("header_page", "header_event"):
            cursor.text_until_nul()
            cursor.take(cursor.number(8))
        for _ in range(cursor.number(4)):  # ftrace's own events
            cursor.take(cursor.number(8))
        for _ in range(cursor.number(4)):
            system = cursor.text_until_nul()
            for _ in range(cursor.number(4)):
                text = cursor.take(cursor.number(8)).decode("utf-8", "replace")
                with suppress(LogFormatError):
                    form = parse_format(text, self.where)
                    is_read = system == "block" and form.name in KIND_OF
                    dtype = record_dtype(form, self.order) if is_read else None
                    self.tracepoints[form.number] = Tracepoint(system, form.name, dtype)

    def add_feature(self, number: int, data: bytes) -> None:
        """Add what a section says, by its number; sections that are not needed are passed over.

        One that is cut off or empty, as perf of some ARM machines wrote, costs what it describes,
        and is noted in `unread`. Raises LogFormatError: the formats of events cannot be read.
        """
        if number == Feature.TRACING_DATA:
            self.add_tracing_data(data)
            return
        if number not in _DESCRIBED:
            return
        try:
            cursor = Cursor(data, self.order, self.where)
            if number in _TEXTS:
                self.texts[_TEXTS[Feature(number)]] = cursor.padded_text()
            elif number == Feature.NRCPUS:
                self.cpus = cursor.number(4)
            elif number == Feature.CMDLINE:
                words = min(cursor.number(4), cursor.rest)
                self.command = [cursor.padded_text() for _ in range(words)]
            elif number == Feature.EVENT_DESC:
                # Each is an attr, the number of its ids, its name, and its ids.
                count, attr_bytes = cursor.number(4), cursor.number(4)
                for index in range(count):
                    cursor.take(attr_bytes)
                    ids = cursor.number(4)
                    self.names[index] = cursor.padded_text()
                    cursor.take(8 * ids)
            elif number == Feature.CLOCK_DATA:
                cursor.take(8)  # version, clockid
                wall, own = cursor.number(8), cursor.number(8)
                if max(wall, own) < MAX_NS:
                    self.clocks = clocks_at(own, wall, _UNCERTAINTY_NS)
        except LogFormatError:
            self.add_unread(Feature(number), f"{len(data)} bytes")

    def add_unread(self, section: Feature, why: str) -> None:
        """Note that a section could not be read. Raises LogFormatError: it is needed."""
        if section == Feature.TRACING_DATA:
            raise LogFormatError(
                f"{self.where}: the section with the formats of events cannot be read ({why}): the "
                "file is cut off or damaged; record again, or copy it again"
            )
        self.unread.append(
            f"{self.where}: the section {section.name} is empty, cut off or damaged ({why}): "
            f"{_DESCRIBED[section]} not known"
        )

    def tracepoint(self, index: int) -> Tracepoint | None:
        """Return the tracepoint of an event by its index; None: it is none, or has no format."""
        attr = self.events[index]
        return self.tracepoints.get(attr.config) if attr.type == TRACEPOINT else None

    def name(self, index: int) -> str:
        """Return an event's name by its index: "sched_switch", "cpu-clock:u", "event 1:9".

        A tracepoint's is without its system. What is behind other names' colons are modifiers.
        """
        tracepoint = self.tracepoint(index)
        if tracepoint is not None:
            return tracepoint.name
        attr = self.events[index]
        name = self.names.get(index, "")
        if attr.type == TRACEPOINT:
            name = name.partition(":")[2] or name
        return name or f"event {attr.type}:{attr.config}"


_MAGICS: dict[bytes, ByteOrder] = {b"PERFILE2": "<", b"2ELIFREP": ">"}
"""The magic number by byte order of the machine that recorded."""
_FILE_HEADER_BYTES = 104
_SECTION_BYTES = 16
_FEATURES_AT, FEATURE_BITS = 72, 256
_MOST_EVENTS = 1 << 16
_MOST_SECTION_BYTES = 256 << 20
_FARTHEST = 1 << 60
"""A damaged offset beyond this would be none that a file can have."""


def open_perf(given: PathOrStream) -> tuple[BinaryIO, Facts]:
    """Return a stream that is at its first record, and what the recording says of itself.

    A file that comes through a pipe is copied to an unnamed temporary file, because what it says of
    itself is at its end. Raises LogFormatError: no perf.data, cut off, or cannot be read.
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
        first = _read(stream, _PIPE_HEADER_BYTES)
        order = _MAGICS.get(first[:8])
        if order is None:
            raise LogFormatError(f"{name}: no perf.data: it begins with {first[:8].hex(' ')}")
        facts = Facts(name, order)
        size = Cursor(first, order, name)
        size.take(8)
        if size.number(8) != _PIPE_HEADER_BYTES:
            if not stream.seekable():
                copy: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the source
                copy.write(first)
                shutil.copyfileobj(stream, copy)
                stream, start = copy, 0
            else:
                start = stream.tell() - _PIPE_HEADER_BYTES
            _read_file(stream, start, facts)
    except OSError as error:
        raise LogFormatError(
            f"{name}: cannot be read: {error.strerror or error}; copy what can be read elsewhere"
        ) from error
    return stream, facts


def _read_file(stream: BinaryIO, start: int, facts: Facts) -> None:
    """Read what a file, which begins at `start`, says of itself, and go to its first record."""
    name, order = facts.where, facts.order
    facts.size = stream.seek(0, os.SEEK_END) - start
    stream.seek(start)
    header = Cursor(_read(stream, _FILE_HEADER_BYTES), order, name)
    header.take(16)
    each, attrs_at, length, facts.data_at, data_bytes = (header.number(8) for _ in range(5))
    header.take(_FEATURES_AT - header.at)
    words = [header.number(8) for _ in range(FEATURE_BITS // 64)]

    # The events' attrs, each with the place of the ids of its samples.
    if each < _SECTION_BYTES or length // max(each, 1) > _MOST_EVENTS:
        raise LogFormatError(
            f"{name}: {length} bytes of events of {each} bytes each: the header is damaged"
        )
    stream.seek(min(start + attrs_at, _FARTHEST))
    attrs = _read(stream, length)
    left = stream.seek(0, os.SEEK_END)
    for at in range(0, len(attrs) - each + 1, each):
        attr = read_attr(attrs[at : at + each], order, name)
        ids = Cursor(attrs[at + each - _SECTION_BYTES : at + each], order, name)
        ids_at, ids_bytes = ids.number(8), ids.number(8)
        left -= ids_bytes  # however many events share them, no more than the file is read
        if left < 0:
            raise LogFormatError(
                f"{name}: more ids of samples than the file has room for: it is damaged"
            )
        stream.seek(min(start + ids_at, _FARTHEST))
        facts.add_event(attr, Cursor(_read(stream, ids_bytes), order, name))
    if not data_bytes:
        raise LogFormatError(
            f"{name}: perf did not finish this file (its data have no size), so the formats of its "
            "events are missing: end `perf record` by Ctrl-C or SIGTERM, not by SIGKILL"
        )
    facts.data_bytes = data_bytes

    # The table of sections, behind the data.
    features = [bit for bit in range(FEATURE_BITS) if words[bit // 64] >> bit % 64 & 1]
    stream.seek(min(start + facts.data_at + data_bytes, _FARTHEST))
    table = Cursor(_read(stream, _SECTION_BYTES * len(features)), order, name)
    for number in features:
        entry = table.take(min(_SECTION_BYTES, table.rest))
        if number not in set(Feature):
            continue
        if len(entry) < _SECTION_BYTES:
            facts.add_unread(Feature(number), "the file ends before")
            continue
        place = Cursor(entry, order, name)
        offset, length = place.number(8), place.number(8)
        if length > _MOST_SECTION_BYTES:
            facts.add_unread(Feature(number), f"{length} bytes")
            continue
        stream.seek(min(start + offset, _FARTHEST))
        facts.add_feature(number, _read(stream, length))
    stream.seek(min(start + facts.data_at, _FARTHEST))


def _read(stream: BinaryIO, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0 and (more := stream.read(min(count, 1 << 20))):
        pieces.append(more)
        count -= len(more)
    return b"".join(pieces)
