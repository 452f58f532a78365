# SPDX-License-Identifier: Apache-2.0
"""The framing of a log: preamble, frame header, payload codec.

A log is a preamble and then frames, one after the other, up to the TRAILER:

    preamble | HEADER | HEADER (twin) | CHUNK, LOSS, NOTE, INDEX ... | END | INDEX | TRAILER

A frame is a header of 48 bytes and `stored` bytes of payload. The header has a sync marker
and a checksum of its own, so that after damage a reader finds the next frame by scanning.
All numbers are little endian. `docs/log-format.md` explains every field.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

MAJOR = 2
"""Raised when an older reader would misread the log; a reader refuses a higher number."""

MINOR = 0
"""Raised when something is added that an older reader may skip."""


def major_of(header: Mapping[str, Any]) -> int:
    """Return the major version that a log with this header needs; other logs stay as they were.

    2: timed calls have one CALL record, to which the Q of several bios refer (`path` has the parts
    call and time). 1: every other log.
    """
    path = header.get("path")
    parts = path.get("parts") if isinstance(path, Mapping) else None
    return 2 if isinstance(parts, list) and {"call", "time"} <= {*map(str, parts)} else 1


MAGIC = b"\x89biotrail\r\n\x1a"
SYNC = b"\xfaBT\xce"

# Preamble, the same in every version to come:
#
#   0                                   12      14      16          20          24
#   | magic                             | major | minor | crc32     | zero      |
#   |                                   |       |       | of 0..15  |           |
PREAMBLE = struct.Struct("<12sHHII")
PREAMBLE_BYTES = PREAMBLE.size

# Frame header:
#
#   0       4    5     6     7    8          12     16         24         32
#   | sync  |type|flags|major|zero| sequence | tag  | word 0   | word 1   |
#   32             36              40              44              48
#   | raw length   | stored length | payload crc32 | header crc32  |
#
# flags: bits 0-3 codec, 4-7 zero.   tag: crc32 of the HEADER's JSON, the same in all frames.
# word 0, 1: CHUNK first_ns, last_ns; INDEX offset of the INDEX before (0: none), entries;
#            TRAILER offset of the last INDEX, frames before this one; else zero.
# payload crc32: of the stored bytes.   header crc32: of bytes 0..43.
_FRAME = struct.Struct("<4sBBBBIIQQIII")
_CRC = struct.Struct("<I")
TAG_AT, STORED_AT = 12, 36
FRAME_BYTES = _FRAME.size + _CRC.size

MAX_CHUNK_DATA = 8 << 20
"""Most bytes of records in one chunk, and so the most that one flipped bit can destroy."""

MAX_RAW = 32 << 20
"""Most bytes of a decompressed payload."""

MAX_STORED = MAX_RAW + (1 << 20)
"""Most bytes of a payload as stored in the file."""

MAX_RATIO = 256
"""Most decompressed bytes per byte of a compressed frame, its header included.

Records compress to a tenth, rarely to a thirtieth: their times alone take a byte each. The limit
bounds what a file can make a reader decompress by the file's size.
"""

MAX_JSON_VALUES = 2_000_000
"""Most values in a JSON payload; a decoded value takes about 100 bytes of memory."""

INDEX_ENTRY = struct.Struct("<QQQIB3x")
# INDEX payload: one entry of 32 bytes for every frame but INDEX and TRAILER, in file order:
#
#   0          8          16         24         28     29    32
#   | offset   | word 0   | word 1   | sequence | type | zero |

INDEX_FRAMES = 4096
"""Most frames in one INDEX frame: bounds the writer's memory however long it records."""


class FrameType(IntEnum):
    """Frame types. A number is never reused, for old logs hold it."""

    HEADER = 1
    CHUNK = 2
    LOSS = 3
    NOTE = 4
    END = 5
    INDEX = 6
    TRAILER = 7


class Codec(IntEnum):
    """Compression of a payload (flags, bits 0-3)."""

    NONE = 0
    ZSTD = 1


class DamagedError(Exception):
    """A payload contradicts its frame; the message continues "chunk at offset N …"."""


@dataclass(frozen=True)
class Frame:
    """A decoded frame header, as drawn above; `offset`: of the frame in the file.

    `raw`, `stored`: bytes of the payload decompressed and in the file. `crc`: of the stored bytes.
    `payload`: the payload's file offset. `next`: that of the first byte behind it.
    """

    offset: int
    type: int
    codec: int
    major: int
    sequence: int
    tag: int
    word0: int
    word1: int
    raw: int
    stored: int
    crc: int
    payload: int
    next: int


def encode_preamble(major: int = 1, minor: int = MINOR) -> bytes:
    """Return the first PREAMBLE_BYTES bytes of a log."""
    crc = zlib.crc32(PREAMBLE.pack(MAGIC, major, minor, 0, 0)[:16])
    return PREAMBLE.pack(MAGIC, major, minor, crc, 0)


def encode_frame(
    kind: int,
    stored: bytes | memoryview,
    *,
    sequence: int,
    tag: int,
    codec: int = Codec.NONE,
    raw: int | None = None,
    words: tuple[int, int] = (0, 0),
    major: int = 1,
) -> bytes:
    """Return the header of a frame whose payload, as in the file, is `stored`.

    `kind`: a FrameType. `sequence`: taken modulo 2^32. `tag`: CRC-32 of the log's header JSON.
    `raw`: bytes of the payload when decompressed; None: it is not compressed. `words`: word 0 and
    1, which the drawing above lists by frame type.
    """
    head = _FRAME.pack(
        SYNC,
        kind,
        codec,
        major,
        0,
        sequence & 0xFFFFFFFF,
        tag,
        *words,
        len(stored) if raw is None else raw,
        len(stored),
        zlib.crc32(stored),
    )
    return head + _CRC.pack(zlib.crc32(head))


def decode_frame(data: bytes | memoryview, offset: int) -> Frame | None:
    """Return the intact frame header that `data`, at `offset` of the file, starts with."""
    if len(data) < FRAME_BYTES or data[:4] != SYNC:
        return None
    if _CRC.unpack_from(data, _FRAME.size)[0] != zlib.crc32(data[: _FRAME.size]):
        return None
    _, kind, flags, major, _, sequence, tag, w0, w1, raw, stored, crc = _FRAME.unpack_from(data)
    if stored > MAX_STORED:
        return None
    begin = offset + FRAME_BYTES
    words = (flags & 0xF, major, sequence, tag, w0, w1, raw, stored, crc)
    return Frame(offset, kind, *words, begin, begin + stored)


def most_raw(stored: int) -> int:
    """Return the most bytes that a zstd payload of `stored` bytes may decompress to."""
    return MAX_RATIO * (FRAME_BYTES + stored)


def encode_json(value: Any) -> bytes:
    """Return `value` as compact JSON in UTF-8; surrogate escapes become the bytes they encode."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogateescape"
    )


def decode_json(data: bytes, expected: type) -> Any:
    """Return the value of a JSON payload; bytes that are no UTF-8 become surrogate escapes.

    `expected`: list or dict. Raises DamagedError where `data` is no valid JSON or nested too
    deeply, is of another type, or may have more than MAX_JSON_VALUES values, by its commas and
    brackets.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise DamagedError(f"holds JSON of more than {MAX_JSON_VALUES} values")
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"holds no valid JSON ({error})") from None
    if not isinstance(value, expected):
        raise DamagedError(f"holds a JSON {type(value).__name__}, not a {expected.__name__}")
    return value
