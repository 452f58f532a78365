# SPDX-License-Identifier: Apache-2.0
"""Event files: the bytes that the OTF2 library writes for events, a batch at once, in chunks.

A record is: a time stamp, unless the time is that of the record before; the attributes, if there
are any; the event's kind, length and fields. A number is a byte that says how many bytes follow,
and these, the lowest first. Every record of a batch is laid out in a row that has room for all of
it; the bytes that a record does not use are left out when the rows are joined.

`tests/unit/converters/outputs/test_otf2_records.py` compares every byte with what the library
writes.
"""

import errno
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.recorder.schema.errors import OutputError

Column = NDArray[Any]
"""Unsigned numbers, shape (n,)."""

TIME_STAMP_BYTES = 9
_TIME_STAMP, _ATTRIBUTES = 5, 6
_ENTRY_BYTES = 15
"""Bytes that the library reserves for an attribute, whatever it takes."""


@dataclass(frozen=True)
class Field:
    """A part of a record: a number of at most `width` bytes, or one byte as it is."""

    name: str
    width: int
    compressed: bool = True
    """Whether the value has its size before it, and no leading zeros."""

    @property
    def most(self) -> int:
        """Most bytes that it takes."""
        return self.width + self.compressed


@dataclass(frozen=True)
class Attribute:
    """An attribute: its number and OTF2 type in the archive, and the field of its value."""

    number: int
    type: int
    value: Field


@dataclass(frozen=True)
class Records:
    """The encoded records of a batch."""

    data: U8
    """The records' bytes, one after the other."""
    start: I64
    """Offset of each record in `data`, and the end: shape (n + 1,)."""
    time: I64
    """ns, shape (n,)."""
    timed: Bool
    """Whether each record begins with its time stamp: shape (n,)."""
    most: I64
    """Bytes that the library would reserve for each record, its time stamp aside: shape (n,)."""


@dataclass(frozen=True)
class Shape:
    """A kind of event: its number in OTF2, and the fields of its record in their order."""

    kind: int
    fields: tuple[Field, ...]
    measured: bool = True
    """Whether the record says how long its fields are. Enter and Leave do not."""

    @property
    def most(self) -> int:
        """Bytes that the library reserves for the record, attributes aside."""
        return 1 + self.measured + sum(field.most for field in self.fields)


_SHOWN = np.array([sum(1 << 8 * at for at in range(size)) for size in range(9)], "<u8")
"""Per 0 to 8: a number whose so many lowest bytes are 1."""


class _Rows:
    """Rows with room for every part of a record, and which bytes of each row are used."""

    def __init__(self, dtype: np.dtype[np.void], count: int) -> None:
        self.bytes = np.zeros(count, dtype=dtype)
        self.used = np.zeros(count, dtype=dtype)

    def constant(self, name: str, value: int, used: Bool | U8 | int) -> None:
        self.bytes[name] = value
        self.used[name] = used

    def put(self, field: Field, values: Column, used: Bool) -> Column:
        """Set a field's values (n,) where `used` (n,); return how many bytes each takes (n,)."""
        self.bytes[field.name] = values
        if not field.compressed:
            self.used[field.name] = used
            return used.view(np.uint8)
        # How many bytes each number takes without leading zeros, 0 for 0.
        size = np.zeros(len(values), dtype=np.uint8)
        largest = int(values.max(initial=0))
        for at in range(field.width):
            if largest >> 8 * at:
                size += values >= values.dtype.type(1 << 8 * at)
        self.bytes[field.name + " size"] = size
        self.used[field.name + " size"] = used
        size *= used
        self.used[field.name] = _SHOWN[size]
        return size + used


@lru_cache(maxsize=64)
def _dtype(fields: tuple[Field, ...], attributes: tuple[Attribute, ...]) -> np.dtype[np.void]:
    """Return the layout of a row: a part per value that any record of the batch may have."""
    parts: list[tuple[str, str]] = [("stamp", "u1"), ("time", "<u8")]
    parts += [(name, "u1") for name in ("list", "list length", "count size", "count")]
    for attribute in attributes:
        name = attribute.value.name
        parts += [(f"{name} id size", "u1"), (f"{name} id", "u1"), (f"{name} type", "u1")]
        parts += _room(attribute.value)
    parts += [("kind", "u1"), ("length", "u1")]
    for field in fields:
        parts += _room(field)
    return np.dtype(parts)


def _room(field: Field) -> list[tuple[str, str]]:
    """Return a field's parts in a row: the size of its value if it is compressed, and the value."""
    value = (field.name, f"<u{field.width}")
    return [(f"{field.name} size", "u1"), value] if field.compressed else [value]


def encode(
    time: I64,
    timed: Bool,
    shape: Column,
    shapes: Mapping[int, Shape],
    columns: Mapping[str, Column],
    attributes: Iterable[tuple[Attribute, Column, Bool]],
) -> Records:
    """Return the records of a batch of n events of one location, as OTF2's event files have them.

    time: ns, ascending. timed: which events begin with a time stamp. shape: each event's key in
    `shapes`, the kinds of events. columns: per field name, each event's value; those that its kind
    lacks are ignored. attributes: (attribute, each event's value, which events have it); records
    have them in this order. Arrays have shape (n,).
    """
    present = [(attribute, values, has) for attribute, values, has in attributes if has.any()]
    fields = tuple(dict.fromkeys(field for kind in shapes.values() for field in kind.fields))
    rows = _Rows(_dtype(fields, tuple(attribute for attribute, _, _ in present)), len(time))
    rows.constant("stamp", _TIME_STAMP, timed)
    rows.bytes["time"], rows.used["time"] = time, np.where(timed, _SHOWN[8], 0)
    count, list_bytes = _attributes(rows, present)
    measured = np.zeros(max(shapes) + 1, dtype=np.bool_)
    measured[[key for key, kind in shapes.items() if kind.measured]] = True
    rows.used["kind"], rows.used["length"] = 1, measured[shape]
    length = np.zeros(len(time), dtype=np.uint8)
    for field in fields:
        has = np.zeros(max(shapes) + 1, dtype=np.bool_)
        has[[key for key, kind in shapes.items() if field in kind.fields]] = True
        length += rows.put(field, columns[field.name], has[shape])
    rows.bytes["length"] = length
    kinds, mosts = np.zeros((2, max(shapes) + 1), dtype=np.int64)
    for key, kind in shapes.items():
        kinds[key], mosts[key] = kind.kind, kind.most
    rows.bytes["kind"] = kinds[shape]
    most = mosts[shape] + np.where(count > 0, 7 + _ENTRY_BYTES * count.astype(np.int64), 0)
    data = rows.bytes.view(np.uint8)[rows.used.view(np.bool_)]
    start = np.zeros(len(time) + 1, dtype=np.int64)
    head = 1 + measured[shape]
    np.cumsum(TIME_STAMP_BYTES * timed + list_bytes + head + length, out=start[1:])
    return Records(data, start, time, timed, most)


def _attributes(rows: _Rows, present: list[tuple[Attribute, Column, Bool]]) -> tuple[U8, I64]:
    """Lay out the attributes in `rows`; return per row (n,) how many, and the bytes of their list.

    present: (attribute, its values (n,), which rows (n,) have it). The list's header of 4 bytes
    counts; a row without attributes gets none.
    """
    count = np.zeros(len(rows.bytes), dtype=np.uint8)
    length = np.zeros(len(rows.bytes), dtype=np.uint8)
    for attribute, values, has in present:
        name, number = attribute.value.name, attribute.number
        rows.constant(f"{name} id size", int(number > 0), has)
        rows.constant(f"{name} id", number, has & (number > 0))
        rows.constant(f"{name} type", attribute.type, has)
        count += has
        length += has * np.uint8(2 + (number > 0))
        length += rows.put(attribute.value, values, has)
    any_has = count > 0
    rows.constant("list", _ATTRIBUTES, any_has)
    rows.constant("count size", 1, any_has)
    rows.bytes["list length"], rows.used["list length"] = length + np.uint8(2), any_has
    rows.bytes["count"], rows.used["count"] = count, any_has
    return count, np.where(any_has, length + np.int64(4), 0)


# A location's event file: records in chunks, as the library lays them out.

CHUNK_BYTES = 1 << 20
"""Size of a chunk. Readers load one chunk at a time; no record crosses a border."""

_CHUNK, _LITTLE_ENDIAN = 3, 0x42
"""First bytes of a chunk."""
_END = bytes((2, 1))
"""Last bytes: end of the file, and of the library's buffer."""
_HEADER_BYTES = 18
"""Bytes of a chunk's header: two, and the numbers of its first and last event."""
_LAST_EVENT = 10
"""Offset in the header of the number of the chunk's last event."""


class EventFile:
    """Events of one location. Up to a chunk is in memory; the file is open only during a write.

    It must not exist before the first full chunk, or `close`: its bytes would stay in front.
    """

    def __init__(self, path: Path) -> None:
        self.events = 0
        """Number of events written."""
        self.time: int | None = None
        """Time of the newest event, ns; None: no event yet."""
        self._path = path
        self._chunk = bytearray()
        self._begin_chunk()

    def write(self, records: Records) -> None:
        """Append encoded records of the location's next events, in order of time. Raises OSError.

        Each full chunk is written. The first record of a further chunk gets a time stamp record
        before it, in place of its own.
        """
        # Per record: offset in `data` up to which the chunk must have room for the library to put
        # the record there; the library sets aside `most` bytes whatever the record takes.
        needs = records.start[:-1] + records.most + TIME_STAMP_BYTES
        slack = int(records.most.max(initial=0))
        data = records.data.data
        at, skip = 0, 0
        while at < len(records.time):
            begin = int(records.start[at]) + skip
            room = CHUNK_BYTES - len(self._chunk) + begin
            near = int(np.searchsorted(records.start[:-1], room - slack - TIME_STAMP_BYTES))
            near = max(near, at)
            full = np.flatnonzero(needs[near : near + slack + TIME_STAMP_BYTES + 1] >= room)
            stop = near + int(full[0]) if len(full) else len(records.time)
            self._chunk += data[begin : int(records.start[stop])]
            self.events += stop - at
            at, skip = stop, 0
            if at < len(records.time):
                self._chunk += bytes(CHUNK_BYTES - len(self._chunk))
                self._flush()
                self._begin_chunk()
                self._chunk.append(_TIME_STAMP)
                self._chunk += int(records.time[at]).to_bytes(8, "little")
                skip = TIME_STAMP_BYTES if records.timed[at] else 0
        if len(records.time):
            self.time = int(records.time[-1])

    def close(self) -> None:
        """Write the last chunk. Raises OSError."""
        self._chunk += _END
        self._flush()

    def _begin_chunk(self) -> None:
        """Append a chunk's header, without the number of its last event."""
        self._chunk += bytes((_CHUNK, _LITTLE_ENDIAN))
        self._chunk += (self.events + 1).to_bytes(8, "little") + bytes(8)

    def _flush(self) -> None:
        """Append the chunk to the file, with the number of its last event."""
        self._chunk[_LAST_EVENT:_HEADER_BYTES] = self.events.to_bytes(8, "little")
        with self._path.open("ab") as file:
            file.write(self._chunk)
        self._chunk.clear()


def check_room(directory: Path, size: int) -> None:
    """Raise OutputError unless a file of `size` bytes can be allocated in `directory`."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            if size:  # posix_fallocate(3) refuses a length of 0
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OutputError(f"{directory}: {error.strerror}") from error
        raise OutputError(
            f"{directory}: {error.strerror}, {size >> 20} MiB more are needed there: "
            "free some space, or convert to another disk"
        ) from error
