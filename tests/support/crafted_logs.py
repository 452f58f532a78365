# SPDX-License-Identifier: Apache-2.0
"""Logs with right checksums that ask for more work than their size should cost."""

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

from biotrail.recorder.log import LogWriter
from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    INDEX_ENTRY,
    MAX_RAW,
    SYNC,
    FrameType,
    encode_frame,
)

_HEADER: dict[str, Any] = {"log_id": "7" * 32}
_CLOCK = struct.pack("<4Q", 10**12, 10**12, 10**18, 40)
_FRAME = struct.Struct("<4sBBBBIIQQIII")


def _begun() -> tuple[bytes, int]:
    """A log's bytes behind its header, and the tag of its frames."""
    stream = io.BytesIO()
    writer = LogWriter(stream, _HEADER)
    return stream.getvalue(), writer._tag


def _head(tag: int, sequence: int, stored: int, crc: int, kind: int = FrameType.CHUNK) -> bytes:
    """A frame's header with a right checksum of its own, whatever its payload's is."""
    head = _FRAME.pack(SYNC, kind, 0, 1, 0, sequence, tag, 10**12, 10**12, stored, stored, crc)
    return head + struct.pack("<I", zlib.crc32(head))


def markers(size: int) -> bytes:
    """Nothing but sync markers."""
    begun, _ = _begun()
    return begun + SYNC * ((size - len(begun)) // len(SYNC))


def headers(size: int) -> bytes:
    """Headers that are not intact, but for their checksum, one behind the other."""
    begun, tag = _begun()
    head = bytearray(_head(tag, 2, 0, 0))
    head[-1] ^= 1
    return begun + bytes(head) * ((size - len(begun)) // FRAME_BYTES)


def nested(size: int, *, right: bool, gap: int = 0) -> bytes:
    """Chunk headers with `gap` bytes between, each of which takes what follows for its payload.

    right: the payloads' checksums too. What stands behind all payloads is no frame.
    """
    begun, tag = _begun()
    step = FRAME_BYTES + gap
    count = min((size - len(begun)) // 2 // step, 2000)
    body = bytes(size - len(begun) - count * step)
    end = body
    for number in reversed(range(count)):
        stored = bytes(gap) + end
        crc = zlib.crc32(stored) if right else 5
        end = _head(tag, 2 + number, min(len(stored), MAX_RAW), crc) + stored
    return begun + end + bytes(99)


def _end_frame(
    kind: FrameType, payload: bytes, sequence: int, tag: int, words: tuple[int, int]
) -> bytes:
    return encode_frame(kind, payload, sequence=sequence, tag=tag, words=words) + payload


def indexed(size: int, *, same: bool = False) -> bytes:
    """Chunk headers whose payloads overlap, each with right checksums, in an intact index.

    same: the index names one chunk again and again.
    """
    data = nested(size, right=True)
    begun, tag = _begun()
    count = min((size - len(begun)) // 2 // FRAME_BYTES, 2000)
    place = [len(begun) + (0 if same else number * FRAME_BYTES) for number in range(count)]
    entries = b"".join(
        INDEX_ENTRY.pack(at, 10**12, 10**12, 2 if same else 2 + number, FrameType.CHUNK)
        for number, at in enumerate(place)
    )
    offset = len(data)
    data += _end_frame(FrameType.INDEX, entries, 2 + count, tag, (0, count))
    return data + _end_frame(FrameType.TRAILER, b"", 3 + count, tag, (offset, count + 1))


def repeated(size: int) -> bytes:
    """Small chunks that all have one number, each whole."""
    begun, tag = _begun()
    payload = _CLOCK + struct.pack("<II", 0, 0)
    frame = encode_frame(FrameType.CHUNK, payload, sequence=2, tag=tag) + payload
    return begun + frame * ((size - len(begun)) // len(frame))


MADE: dict[str, Callable[[int], bytes]] = {
    "markers": markers,
    "headers": headers,
    "nested-right": lambda size: nested(size, right=True),
    "nested-wrong": lambda size: nested(size, right=False),
    "nested-apart": lambda size: nested(size, right=False, gap=7),
    "indexed": indexed,
    "indexed-again": lambda size: indexed(size, same=True),
    "repeated": repeated,
}
"""By name: what makes such a log of about so many bytes."""
