# SPDX-License-Identifier: Apache-2.0
"""The framing of a log: preamble, frame header, payload codec. The format is on this one page.

A log is a preamble and then frames, one after the other, up to the TRAILER:

    preamble | HEADER | HEADER (twin) | CHUNK, LOSS, NOTE, INDEX ... | END | INDEX | TRAILER

A frame is a header of 48 bytes and `stored` bytes of payload. The header has a sync marker
and a checksum of its own, so that after damage a reader finds the next frame by scanning.
All numbers are little endian. `docs/log-format.md` explains every field.
"""

import json
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import zstandard

MAJOR = 1
"""Changes when an older reader would misread; a reader refuses a newer one."""

MINOR = 0
"""Changes when something was added that an older reader may skip."""

MAGIC = b"\x89biotrail\r\n\x1a"
SYNC = b"\xfaBT\xce"

# Preamble, the same in every version to come:
#
#   0                                   12      14      16          20          24
#   | magic                             | major | minor | crc32     | zero      |
#   |                                   |       |       | of 0..15  |           |
_PREAMBLE = struct.Struct("<12sHHII")
PREAMBLE_BYTES = _PREAMBLE.size

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
_TAG_AT, _STORED_AT = 12, 36
FRAME_BYTES = _FRAME.size + _CRC.size

MAX_CHUNK_DATA = 8 << 20
"""Most bytes of records in one chunk: what one flipped bit can cost."""

MAX_RAW = 32 << 20
"""Most bytes that a payload may have when decompressed."""

MAX_STORED = MAX_RAW + (1 << 20)
"""Most bytes that a payload may have in the file."""

MAX_RATIO = 256
"""Most bytes that a byte of a compressed frame, its header counted, may become.

Records compress to a tenth, rarely a thirtieth: their times alone take a byte each. So what a
file can ask a reader to decompress is bounded by the file's size.
"""

MAX_JSON_VALUES = 2_000_000
"""Most values in a JSON payload, each of which costs about 100 bytes of memory when read."""

INDEX_ENTRY = struct.Struct("<QQQIB3x")
# INDEX payload: one entry of 32 bytes for every frame but INDEX and TRAILER, in file order:
#
#   0          8          16         24         28     29    32
#   | offset   | word 0   | word 1   | sequence | type | zero |

INDEX_FRAMES = 4096
"""Frames that one INDEX frame covers: bounds the writer's memory however long it records."""


class FrameType(IntEnum):
    """Frame types. Numbers are for ever: never reuse one."""

    HEADER = 1
    CHUNK = 2
    LOSS = 3
    NOTE = 4
    END = 5
    INDEX = 6
    TRAILER = 7


class Codec(IntEnum):
    """How a payload is stored (flags, bits 0-3)."""

    NONE = 0
    ZSTD = 1


class DamagedError(Exception):
    """A payload that does not hold what its frame says. Never leaves the log modules."""


@dataclass(frozen=True)
class Frame:
    """A frame's header, decoded; `offset` is where it stands in the file, in bytes."""

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

    @property
    def payload(self) -> int:
        """File offset of the payload."""
        return self.offset + FRAME_BYTES

    @property
    def next(self) -> int:
        """File offset of what follows the payload."""
        return self.payload + self.stored


def encode_preamble(major: int = MAJOR, minor: int = MINOR) -> bytes:
    """Encode the first PREAMBLE_BYTES bytes of a log."""
    crc = zlib.crc32(_PREAMBLE.pack(MAGIC, major, minor, 0, 0)[:16])
    return _PREAMBLE.pack(MAGIC, major, minor, crc, 0)


def decode_preamble(data: bytes) -> tuple[int, int] | None:
    """(major, minor), or None where the bytes are no intact preamble."""
    if len(data) < PREAMBLE_BYTES:
        return None
    magic, major, minor, crc, _ = _PREAMBLE.unpack_from(data)
    if magic != MAGIC or crc != zlib.crc32(data[:16]):
        return None
    return major, minor


def encode_frame(
    kind: int,
    stored: bytes,
    *,
    sequence: int,
    tag: int,
    codec: int = Codec.NONE,
    raw: int | None = None,
    words: tuple[int, int] = (0, 0),
) -> bytes:
    """Encode the header of a frame around the payload `stored` (without the payload)."""
    head = _FRAME.pack(
        SYNC,
        kind,
        codec,
        MAJOR,
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
    """Decode the frame header in `data`, or None where there is none that is intact."""
    if len(data) < FRAME_BYTES or data[:4] != SYNC:
        return None
    if _CRC.unpack_from(data, _FRAME.size)[0] != zlib.crc32(data[: _FRAME.size]):
        return None
    _, kind, flags, major, _, sequence, tag, w0, w1, raw, stored, crc = _FRAME.unpack_from(data)
    if stored > MAX_STORED:
        return None
    return Frame(offset, kind, flags & 0xF, major, sequence, tag, w0, w1, raw, stored, crc)


def possible_frames(data: bytes, tag: int | None) -> list[int]:
    """Return the offsets in `data` at which a whole header may stand, ascending.

    A header there has the marker, a stored length within its limit and, unless `tag` is None,
    that tag. Its checksum is not looked at.
    """
    if len(data) < FRAME_BYTES or SYNC not in data:
        return []
    view = np.frombuffer(data, dtype=np.uint8)
    count = len(data) - FRAME_BYTES + 1
    found = np.flatnonzero(view[:count] == SYNC[0])
    expected = {at: value for at, value in enumerate(SYNC) if at}
    if tag is not None:
        expected |= {_TAG_AT + at: value for at, value in enumerate(_CRC.pack(tag))}
    for at, value in expected.items():
        found = found[view[found + at] == value]
    lengths = np.zeros(len(found), dtype=np.uint32)
    for at in range(_CRC.size):
        lengths |= view[found + _STORED_AT + at].astype(np.uint32) << np.uint32(8 * at)
    places: list[int] = found[lengths <= MAX_STORED].tolist()
    return places


def most_raw(stored: int) -> int:
    """Return how many bytes a zstd payload of `stored` bytes may hold decompressed."""
    return MAX_RATIO * (FRAME_BYTES + stored)


def unpack_payload(frame: Frame, stored: bytes | memoryview) -> bytes:
    """Check and decompress the payload of `frame`, bounded by its declared raw length.

    Raises DamagedError with a phrase that says what is wrong.
    """
    if len(stored) != frame.stored:
        raise DamagedError("is cut short")
    if zlib.crc32(stored) != frame.crc:
        raise DamagedError("fails its checksum")
    if frame.raw > MAX_RAW:
        raise DamagedError(f"declares {frame.raw} bytes, more than a log's frames hold")
    if frame.codec == Codec.NONE:
        data = bytes(stored)
    elif frame.codec == Codec.ZSTD:
        data = _decompress(stored, frame.raw)
    else:
        raise DamagedError(f"is stored with codec {frame.codec}, which this biotrail cannot read")
    if len(data) != frame.raw:
        raise DamagedError(f"holds {len(data)} bytes where it declares {frame.raw}")
    return data


def _decompress(stored: bytes | memoryview, raw: int) -> bytes:
    """Decompress one zstd frame of exactly `raw` bytes, never allocating more than that."""
    try:
        if zstandard.frame_content_size(stored) != raw:
            raise DamagedError("declares another length than its zstd frame")
        if raw > most_raw(len(stored)):
            raise DamagedError(
                f"declares {raw} bytes from {len(stored)}, more than {MAX_RATIO} times as many"
            )
        return zstandard.ZstdDecompressor().decompress(
            stored, max_output_size=raw, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise DamagedError(f"does not decompress ({error})") from None


def encode_json(value: Any) -> bytes:
    """Encode a JSON payload: UTF-8, compact."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogateescape"
    )


def decode_json(data: bytes, expected: type) -> Any:
    """Decode a JSON payload whose outermost value is of the `expected` type.

    Raises DamagedError where it is anything else, or more than a reader's memory should bear.
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
