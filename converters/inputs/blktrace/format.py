# SPDX-License-Identifier: Apache-2.0
"""blktrace's binary records: `struct blk_io_trace`, and `blk_io_trace2` of Linux 6.19.

A record is a header and `pdu_len` bytes of payload, without alignment, in the byte order
of the machine that was traced. The header's first word is a magic number and a version.
Numbers are those of include/uapi/linux/blktrace_api.h.
"""

from enum import IntEnum, IntFlag
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, U32, U64, Bool
from biotrail.converters.inputs.foreign import records_at
from biotrail.recorder.schema.errors import LogFormatError

ByteOrder: TypeAlias = Literal["<", ">"]

MAGIC = 0x65617400
VERSION = 7
VERSION_2 = 8
MAGIC_BYTES = 4
_BYTES_1, _BYTES_2 = 48, 64
MAX_RECORD_BYTES = _BYTES_2 + 0xFFFF
ACT_MASK = 0xFF
CGROUP = 1 << 8
"""Bit of `action`: the payload begins with a cgroup's id, 8 bytes."""
CGROUP_BYTES = 8
CATEGORY_SHIFT = 16
MINOR_BITS = 20


class Act(IntEnum):
    """Event of a record: the low byte of `action` (enum blktrace_act)."""

    QUEUE = 1
    BACKMERGE = 2
    FRONTMERGE = 3
    GETRQ = 4
    SLEEPRQ = 5
    REQUEUE = 6
    ISSUE = 7
    COMPLETE = 8
    PLUG = 9
    UNPLUG_IO = 10
    UNPLUG_TIMER = 11
    INSERT = 12
    SPLIT = 13
    BOUNCE = 14
    REMAP = 15
    ABORT = 16
    DRV_DATA = 17
    ZONE_PLUG = 18
    ZONE_UNPLUG = 19


class Note(IntEnum):
    """Kind of a note: the low byte of `action` if Category.NOTIFY is set (blktrace_notify)."""

    PROCESS = 0
    TIMESTAMP = 1
    MESSAGE = 2


class Category(IntFlag):
    """Bits of `action` from CATEGORY_SHIFT on. The zone operations exist in version 2 only."""

    READ = 1 << 0
    WRITE = 1 << 1
    FLUSH = 1 << 2
    SYNC = 1 << 3
    QUEUE = 1 << 4
    REQUEUE = 1 << 5
    ISSUE = 1 << 6
    COMPLETE = 1 << 7
    FS = 1 << 8
    PC = 1 << 9
    NOTIFY = 1 << 10
    AHEAD = 1 << 11
    META = 1 << 12
    DISCARD = 1 << 13
    DRV_DATA = 1 << 14
    FUA = 1 << 15
    ZONE_APPEND = 1 << 16
    ZONE_RESET = 1 << 17
    ZONE_RESET_ALL = 1 << 18
    ZONE_FINISH = 1 << 19
    ZONE_OPEN = 1 << 20
    ZONE_CLOSE = 1 << 21
    WRITE_ZEROES = 1 << 22


RECORD = np.dtype(
    [
        ("magic", "u4"),
        ("sequence", "u4"),
        ("time", "u8"),
        ("sector", "u8"),
        ("bytes", "u4"),
        ("action", "u4"),
        ("pid", "u4"),
        ("device", "u4"),
        ("cpu", "u4"),
        ("error", "i2"),
        ("pdu_len", "u2"),
    ]
)
"""`struct blk_io_trace`. time: ns; sector: 512 bytes; error: 0 or a negative errno."""

RECORD_2 = np.dtype(
    [
        ("magic", "u4"),
        ("sequence", "u4"),
        ("time", "u8"),
        ("sector", "u8"),
        ("bytes", "u4"),
        ("pid", "u4"),
        ("action", "u8"),
        ("device", "u4"),
        ("cpu", "u4"),
        ("error", "i2"),
        ("pdu_len", "u2"),
        ("pad", "V12"),
    ]
)
"""`struct blk_io_trace2`: as RECORD, with room for more categories."""

CUT = np.dtype(
    [(name, RECORD_2.fields[name][0]) for name in (RECORD_2.names or ())[:9]]  # type: ignore[index]
)
"""The truncated RECORD_2 that the ftrace blk tracer of Linux 6.19 and later writes.

It has version 1's number and only as many bytes of the fields as version 1 has: error and pdu_len
are missing. As many bytes as the payload has follow; they are not the payload but the next bytes
of the record: error, pdu_len, padding.
"""
CUT_PDU_LEN_AT = 2


HEAD = np.dtype([(n, "u8" if n == "action" else RECORD.fields[n][0]) for n in RECORD.names or ()])  # type: ignore[index]


REMAP = np.dtype([("device_from", ">u4"), ("device_to", ">u4"), ("sector_from", ">u8")])
"""Payload of REMAP: `struct blk_io_trace_remap`. Big-endian on every machine."""


def categories(action: U64) -> U32:
    return (action >> np.uint64(CATEGORY_SHIFT)).astype(np.uint32)


def has(category: U32, bits: Category) -> Bool:
    some: Bool = (category & np.uint32(bits)) != 0
    return some


def byte_order(magic: bytes) -> ByteOrder | None:
    """Return the byte order by the magic number of a record, of any version; None: it is none."""
    if len(magic) < MAGIC_BYTES:
        return None
    if int.from_bytes(magic, "little") & ~0xFF == MAGIC:
        return "<"
    return ">" if int.from_bytes(magic, "big") & ~0xFF == MAGIC else None


def recognise(data: bytes, name: str) -> tuple[ByteOrder, bool]:
    """Return the byte order of a file, by its first bytes, and whether its records are CUT ones.

    Such a record's device is where version 1 has the CPU. Raises LogFormatError: no blktrace data,
    or an unknown version.
    """
    magic = data[:MAGIC_BYTES]
    order = byte_order(magic)
    if order is None:
        raise LogFormatError(
            f"{name}: no blktrace data: it begins with {magic.hex(' ') or 'nothing'}, not with "
            f"the magic number {MAGIC | VERSION:#x}; give files that blktrace wrote, or a stream "
            "of `blkparse -d` or of the ftrace blk tracer"
        )
    version = magic[0] if order == "<" else magic[3]
    if version not in (VERSION, VERSION_2):
        raise LogFormatError(
            f"{name}: blktrace format version {version}; this reader knows {VERSION} and "
            f"{VERSION_2}: get a newer biotrail"
        )
    if version == VERSION_2 or len(data) < CUT.itemsize:
        return order, False
    as_1 = np.frombuffer(data, RECORD.newbyteorder(order), 1)
    return order, bool(as_1["cpu"][0] >> MINOR_BITS)


class RecordPlaces(NamedTuple):
    """Where the whole records of some bytes are, ascending.

    gaps: (start, end) of ranges between them that belong to none. rest: the offset after the last
    record or gap.
    """

    at: I64
    gaps: list[tuple[int, int]]
    rest: int


def find_records(data: U8, order: ByteOrder, cut: bool = False) -> RecordPlaces:
    """Return where the whole records are in `data`, which should begin with one.

    Bytes before the first record and between records, up to the next magic number, are gaps; a
    record cut off at the end, and bytes with no magic number after them, are left as `rest`. cut:
    whether the records are CUT ones; the bytes that follow each are then gaps.
    """
    if len(data) < MAGIC_BYTES:
        return RecordPlaces(np.zeros(0, np.int64), [], 0)
    # The offsets of the magic number with a known version.
    first, version_at = (1, 0) if order == "<" else (0, 3)
    fixed = np.array([0x74, 0x61, 0x65] if order == "<" else [0x65, 0x61, 0x74], dtype=np.uint8)
    limit = len(data) - MAGIC_BYTES + 1
    at = np.flatnonzero(data[first + 2 : first + 2 + limit] == fixed[2])
    for back in (1, 0):
        at = at[data[at + first + back] == fixed[back]]
    version = data[at + version_at]
    at = at[(version == VERSION) | (version == VERSION_2)]
    # Where each record ends: behind `data` for a header that is cut off.
    second = data[at + version_at] == VERSION_2
    size = np.where(second, _BYTES_2, _BYTES_1)
    there = at + size <= len(data)
    length_at = np.where(there, at + np.where(second, 50, 46), 0)
    low, high = (0, 1) if order == "<" else (1, 0)
    payload = data[length_at + low].astype(np.int64) | data[length_at + high].astype(np.int64) << 8
    lengths = np.where(there, size + payload, MAX_RECORD_BYTES + 1)
    end = at + (CUT.itemsize if cut else lengths)
    whole = end <= len(data)
    if len(at) and at[0] == 0 and bool((end[:-1] == at[1:]).all()):
        count = int(whole.sum())
        return RecordPlaces(at[:count], [], int(end[count - 1]) if count else 0)
    following = dict(zip(at.tolist(), end.tolist(), strict=True))
    found: list[int] = []
    gaps: list[tuple[int, int]] = []
    place = 0
    while place < len(data):
        behind = following.get(place)
        if behind is None:
            later = int(np.searchsorted(at, place))
            if later == len(at):
                break
            gaps.append((place, int(at[later])))
            place = gaps[-1][1]
        elif behind > len(data):
            break
        else:
            found.append(place)
            place = behind
    return RecordPlaces(np.array(found, dtype=np.int64), gaps, place)


def heads(data: U8, at: I64, order: ByteOrder, cut: bool = False) -> tuple[NDArray[np.void], I64]:
    """Return (headers as HEAD, offset of each payload) of the records at offsets `at` in `data`.

    cut: whether version 1's number stands for a CUT record, whose error and pdu_len are then 0.
    """
    second = data[at + (0 if order == "<" else 3)] == VERSION_2
    result = np.zeros(len(at), dtype=HEAD)
    first = CUT if cut else RECORD
    for rows, layout in ((np.flatnonzero(~second), first), (np.flatnonzero(second), RECORD_2)):
        if len(rows):
            raw = records_at(data, at[rows], layout.newbyteorder(order))
            for name in set(HEAD.names or ()) & set(layout.names or ()):
                result[name][rows] = raw[name]
    return result, at + np.where(second, _BYTES_2, _BYTES_1)
