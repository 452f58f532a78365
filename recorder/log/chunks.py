# SPDX-License-Identifier: Apache-2.0
"""The payload of a CHUNK frame: one clock reading, a table of segments, their bytes."""

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from biotrail.recorder.log.columns import kinds_of, pack, unpack
from biotrail.recorder.log.frames import MAX_CHUNK_DATA, DamagedError
from biotrail.recorder.log.validation import MAX_NS
from biotrail.recorder.schema.records import BLOCK_BYTES, TIMESTAMP_BITS, Kind

CLOCK_KEYS = ("monotonic", "boottime", "realtime", "uncertainty")

# Chunk payload:
#
#   0            8            16           24            32       36     40
#   | monotonic  | boottime   | realtime   | uncertainty | count  | zero |
#   40, `count` times 24 bytes:
#   | position (8) | length (4) | bytes here (4) | cpu (2) | level (1) | layout (1) | zero (4) |
#   then the segments' bytes, in the table's order, without gaps
#
# length: of the records in the ring.   layout: 0 as in the ring, 1 columns (log_columns.py).
_META = struct.Struct("<QQQQII")
_ENTRY = struct.Struct("<QIIHBBI")
_MAX_SEGMENTS = 1 << 16
"""Above what 8192 CPUs of 3 levels have: what a chunk costs to read is bounded."""
_ROWS = 0
_COLUMNS = 1
_HEAD = struct.Struct("<Q")
_TIME_MASK = (1 << TIMESTAMP_BITS) - 1
_HALF = 1 << (TIMESTAMP_BITS - 1)


@dataclass(frozen=True)
class Segment:
    """Whole records of one ring, contiguous.

    `position` is the ring's running byte position of `data[0]`. In a ring no record crosses
    a multiple of 4096 of the position; a PAD record there means: go on at the next multiple.
    """

    cpu: int
    level: int
    position: int
    data: bytes | memoryview


@dataclass(frozen=True)
class Chunk:
    """What one drain of the rings gave. Times in ns of CLOCK_MONOTONIC.

    Every record in it has first_ns <= time <= last_ns. `offset`: of its frame in the file.
    """

    offset: int
    sequence: int
    first_ns: int
    last_ns: int
    clock: dict[str, int]
    segments: list[Segment]


def unwrap(low: int, near: int) -> int:
    """Extend the low 56 bits of a CLOCK_MONOTONIC time to the whole time closest to `near`."""
    delta = (low - near) & _TIME_MASK
    return max(0, near + (delta - (1 << TIMESTAMP_BITS) if delta >= _HALF else delta))


def first_time(segments: Sequence[Segment], monotonic: int) -> int:
    """Earliest time in `segments`, ns: the least of their first records', at most `monotonic`.

    A ring's records are in the order of their times, so no other record is looked at.
    """
    first = monotonic
    for segment in segments:
        head = _first_head(segment)
        if head is not None:
            first = min(first, unwrap(head & _TIME_MASK, monotonic))
    return first


def _first_head(segment: Segment) -> int | None:
    """First word of the segment's first record that is no PAD; None where there is none."""
    at = 0
    while at + _HEAD.size <= len(segment.data):
        head: int = _HEAD.unpack_from(segment.data, at)[0]
        if head >> TIMESTAMP_BITS != Kind.PAD:
            return head
        at += BLOCK_BYTES - (segment.position + at) % BLOCK_BYTES
    return None


def split(segments: Sequence[Segment], limit: int = MAX_CHUNK_DATA) -> Iterator[list[Segment]]:
    """Group segments so that each group holds at most `limit` bytes of records.

    A segment is cut only at a multiple of 4096 of its position, where no record crosses.
    Gives one empty group where there is nothing to write.
    """
    group: list[Segment] = []
    room = limit
    for segment in segments:
        rest = segment
        while len(rest.data) > room:
            cut = (rest.position + room) // BLOCK_BYTES * BLOCK_BYTES - rest.position
            if cut > 0:
                head, rest = _cut(rest, cut)
                group.append(head)
            yield group
            group, room = [], limit
        if len(rest.data):
            group.append(rest)
            room -= len(rest.data)
    if group or not segments:
        yield group


def _cut(segment: Segment, at: int) -> tuple[Segment, Segment]:
    data = memoryview(segment.data)
    return (
        Segment(segment.cpu, segment.level, segment.position, data[:at]),
        Segment(segment.cpu, segment.level, segment.position + at, data[at:]),
    )


def encode_chunk(
    segments: Sequence[Segment], clock: dict[str, Any], *, columns: bool = True
) -> bytes:
    """Encode a chunk's payload: records as columns where they parse, else as in the ring.

    Without `columns`, all are as in the ring.
    """
    table: list[bytes] = []
    bodies: list[bytes | memoryview] = []
    for s in segments:
        packed = pack(s.data, s.position) if columns else None
        parts, layout = ([s.data], _ROWS) if packed is None else (packed, _COLUMNS)
        stored = sum(map(len, parts))
        table.append(_ENTRY.pack(s.position, len(s.data), stored, s.cpu, s.level, layout, 0))
        bodies += parts
    meta = _META.pack(*(int(clock[key]) for key in CLOCK_KEYS), len(segments), 0)
    return b"".join([meta, *table, *bodies])


def decode_chunk(payload: bytes) -> tuple[dict[str, int], list[Segment]]:
    """(clock reading, segments) of a chunk's payload.

    Raises DamagedError where the table does not fit the bytes.
    """
    if len(payload) < _META.size:
        raise DamagedError("is too short for a chunk")
    *clock, count, _ = _META.unpack_from(payload)
    if count > _MAX_SEGMENTS:
        raise DamagedError(f"has {count} segments, more than there can be rings")
    at = _META.size + count * _ENTRY.size
    if at > len(payload):
        raise DamagedError("has a segment table that goes past its end")
    if max(clock) > MAX_NS:
        raise DamagedError("has a clock reading that no clock gives")
    view = memoryview(payload)
    room = MAX_CHUNK_DATA
    segments = []
    for position, length, stored, cpu, level, layout, _ in _ENTRY.iter_unpack(
        view[_META.size : at]
    ):
        room -= length
        if room < 0:
            raise DamagedError(
                f"declares more than the {MAX_CHUNK_DATA} bytes of records that a chunk may hold"
            )
        body = view[at : at + stored]
        segments.append(Segment(cpu, level, position, _records(body, length, layout)))
        at += stored
    if at != len(payload):
        raise DamagedError("has a segment table that does not fit its bytes")
    return dict(zip(CLOCK_KEYS, clock, strict=True)), segments


def may_hold(payload: bytes, kinds: Collection[int]) -> list[int]:
    """Which of the segments in a chunk's payload may hold records of the kinds, by index.

    Columns tell it in their first bytes; segments as they were in the ring are among them, and so
    is all of what `decode_chunk` refuses.
    """
    count: int = _META.unpack_from(payload)[4] if len(payload) >= _META.size else 1
    at, found = _META.size + count * _ENTRY.size, []
    if at > len(payload):
        return list(range(count))
    for index, entry in enumerate(_ENTRY.iter_unpack(payload[_META.size : at])):
        _, _, stored, _, _, layout, _ = entry
        held = kinds_of(memoryview(payload)[at : at + stored]) if layout == _COLUMNS else None
        if held is None or not held.isdisjoint(kinds):
            found.append(index)
        at += stored
    return found


def _records(body: memoryview, length: int, layout: int) -> bytes | memoryview:
    if layout == _COLUMNS:
        return unpack(body, length)
    if layout != _ROWS:
        raise DamagedError(f"has segments of layout {layout}, which this biotrail cannot read")
    if len(body) != length:
        raise DamagedError("has a segment that is not as long as declared")
    return body
