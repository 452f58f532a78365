# SPDX-License-Identifier: Apache-2.0
"""The payload of a CHUNK frame: one clock reading, a table of segments, the segments' bytes."""

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biotrail.recorder.log.columns import Found, Plan, kinds_of, plan, starts_of, unpack
from biotrail.recorder.log.frames import MAX_CHUNK_DATA, DamagedError
from biotrail.recorder.schema.payloads import MAX_NS
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
# length: bytes of the records in the ring.   layout: 0 as in the ring, 1 columns (columns.py).
_META = struct.Struct("<QQQQII")
_ENTRY = struct.Struct("<QIIHBBI")
_MAX_SEGMENTS = 1 << 16
"""More than 8192 CPUs with 3 levels have; bounds the cost of reading a chunk."""
_ROWS = 0
_COLUMNS = 1
_HEAD = struct.Struct("<Q")
_TIME_MASK = (1 << TIMESTAMP_BITS) - 1
_HALF = 1 << (TIMESTAMP_BITS - 1)


@dataclass(frozen=True)
class Segment:
    """Whole, contiguous records of one ring: of a `cpu` and its interrupt nesting `level`.

    `position`: running byte position of `data[0]` in the ring, which never wraps. No record crosses
    a multiple of 4096 of the position; a PAD record fills the rest up to the next one.
    """

    cpu: int
    level: int
    position: int
    data: bytes | memoryview


@dataclass(frozen=True)
class Chunk:
    """Records drained from the rings at one time. Times in ns of CLOCK_MONOTONIC.

    offset: file offset of the chunk's frame. sequence: the frame's number in the log.
    first_ns, last_ns: every record in `segments` has first_ns <= time <= last_ns.
    clock: reading after the drain, ns by CLOCK_KEYS name. segments: one or more for each ring
    that had records.
    """

    offset: int
    sequence: int
    first_ns: int
    last_ns: int
    clock: dict[str, int]
    segments: list[Segment]


def unwrap(low: int, near: int) -> int:
    """Return the CLOCK_MONOTONIC time near `near` (ns) whose low 56 bits are `low`."""
    delta = (low - near) & _TIME_MASK
    return max(0, near + (delta - (1 << TIMESTAMP_BITS) if delta >= _HALF else delta))


def first_time(segments: Sequence[Segment], monotonic: int) -> int:
    """Return the earliest time of a record but PADs, in ns, at most `monotonic`, of the drain.

    A ring's records are in the order of time, so the first of each segment is enough.
    """
    first = monotonic
    for segment in segments:
        at = 0
        while at + _HEAD.size <= len(segment.data):
            head: int = _HEAD.unpack_from(segment.data, at)[0]
            if head >> TIMESTAMP_BITS != Kind.PAD:
                first = min(first, unwrap(head & _TIME_MASK, monotonic))
                break
            at += BLOCK_BYTES - (segment.position + at) % BLOCK_BYTES
    return first


def split(segments: Sequence[Segment], limit: int = MAX_CHUNK_DATA) -> Iterator[list[Segment]]:
    """Yield groups of segments, in order, each with at most `limit` bytes, which are 4096 or more.

    A segment that does not fit into the rest of a group is cut at the last multiple of 4096 of its
    position that does, which no record crosses; the rest, or without such a place the whole
    segment, begins the next group. Parts share the segment's memory. Segments without bytes are
    left out. Yields one empty group where `segments` is empty.
    """
    group: list[Segment] = []
    room = limit
    for segment in segments:
        rest = segment
        while len(rest.data) > room:
            cut = (rest.position + room) // BLOCK_BYTES * BLOCK_BYTES - rest.position
            if cut > 0:
                data = memoryview(rest.data)
                group.append(replace(rest, data=data[:cut]))
                rest = replace(rest, position=rest.position + cut, data=data[cut:])
            yield group
            group, room = [], limit
        if len(rest.data):
            group.append(rest)
            room -= len(rest.data)
    if group or not segments:
        yield group


def runs(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Group segments that follow each other in their ring; return the groups by ring.

    Rings are in the order of their first segments; a gap begins another group. A chunk holds the
    segments of many polls, which are contiguous in each ring, so that one group per ring is left
    and the log saves the framing of the others.
    """
    rings: dict[tuple[int, int], list[list[Segment]]] = {}
    for segment in segments:
        groups = rings.setdefault((segment.cpu, segment.level), [])
        if groups and groups[-1][-1].position + len(groups[-1][-1].data) == segment.position:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [group for groups in rings.values() for group in groups]


def encode_chunk(
    groups: Sequence[Sequence[Segment]],
    clock: dict[str, Any],
    *,
    columns: bool = True,
    sought: Collection[int] = (),
) -> tuple[memoryview, list[Found]]:
    """Return a chunk's payload, and where records of the kinds `sought` are.

    `groups`: as `runs` returns; each is stored as one segment. `clock`: ns by CLOCK_KEYS name. With
    `columns`, records are stored as columns, except for groups that cannot be parsed. `sought`:
    kinds whose records are found on the way.
    """
    bodies: list[Plan | Sequence[bytes | memoryview]] = []
    layouts, sizes = [], []
    for group in groups:
        pieces = [segment.data for segment in group]
        made = plan(pieces, group[0].position) if columns else None
        body = pieces if made is None else made
        layouts.append(_ROWS if made is None else _COLUMNS)
        bodies.append(body)
        sizes.append(body.size if isinstance(body, Plan) else sum(map(len, body)))
    at = _META.size + len(groups) * _ENTRY.size
    payload = np.empty(at + sum(sizes), dtype=np.uint8)
    _META.pack_into(payload.data, 0, *(int(clock[key]) for key in CLOCK_KEYS), len(groups), 0)
    found: list[Found] = []
    for row, (group, stored) in enumerate(zip(groups, bodies, strict=True)):
        first, length = group[0], sum(len(segment.data) for segment in group)
        place = (sizes[row], first.cpu, first.level, layouts[row], 0)
        _ENTRY.pack_into(
            payload.data, _META.size + row * _ENTRY.size, first.position, length, *place
        )
        if isinstance(stored, Plan):
            found += stored.write(payload[at : at + stored.size], sought)
            at += stored.size
            continue
        for part in stored:
            payload[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
            at += len(part)
        found += find(group, sought)
    return payload.data, found


def find(segments: Sequence[Segment], sought: Collection[int]) -> list[Found]:
    """Return where records of the kinds `sought` are in segments that have any."""
    found = []
    for segment in segments if sought else ():
        words = np.frombuffer(segment.data, dtype="<u8", count=len(segment.data) // 8)
        if len(starts := starts_of(words, segment.position // 8, sought)):
            found.append(Found(words, starts))
    return found


def decode_chunk(payload: bytes) -> tuple[dict[str, int], list[Segment]]:
    """Return (clock reading: ns by CLOCK_KEYS name, segments) of a chunk's decompressed payload.

    Segments that are stored as in the ring share the payload's memory, columns are decoded to
    copies. Raises DamagedError where the segment table does not fit the bytes, a segment cannot be
    decoded, a clock is above MAX_NS, or the segments or their bytes are more than a chunk may have.
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
        raise DamagedError("has a clock reading out of range")
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
        at += stored
        if layout == _COLUMNS:
            body = unpack(body, length)
        elif layout != _ROWS:
            raise DamagedError(f"has segments of layout {layout}, which this biotrail cannot read")
        elif len(body) != length:
            raise DamagedError("has a segment that is not as long as declared")
        segments.append(Segment(cpu, level, position, body))
    if at != len(payload):
        raise DamagedError("has a segment table that does not fit its bytes")
    return dict(zip(CLOCK_KEYS, clock, strict=True)), segments


def may_hold(payload: bytes | memoryview, kinds: Collection[int]) -> bool:
    """Return whether a payload, perhaps damaged, may hold records of one of `kinds`."""
    count: int = _META.unpack_from(payload)[4] if len(payload) >= _META.size else 1
    at = _META.size + count * _ENTRY.size
    if at > len(payload):
        return True
    for _, _, stored, _, _, layout, _ in _ENTRY.iter_unpack(payload[_META.size : at]):
        body = memoryview(payload)[at : at + stored]
        if layout != _COLUMNS or not kinds_of(body).isdisjoint(kinds):
            return True
        at += stored
    return False
