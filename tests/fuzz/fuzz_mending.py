# SPDX-License-Identifier: Apache-2.0
"""Logs with their checksums set right again, so that changed bytes get past them."""

import struct
import zlib

from biotrail.recorder.log.frames import FRAME_BYTES, MAGIC, PREAMBLE_BYTES, SYNC, Codec, FrameType

_CRC = struct.Struct("<I")
_TAG_AT, _RAW_AT, _STORED_AT, _PAYLOAD_CRC_AT, _HEAD_CRC_AT = 12, 32, 36, 40, 44
_FLAGS_AT, _TYPE_AT = 5, 4


def mended(data: bytes) -> bytes:
    """The same log with right checksums, tags and lengths, where there are frames at all.

    A payload goes up to the next sync marker, so that bytes can come and go.
    """
    if data[: len(MAGIC)] != MAGIC or len(data) < PREAMBLE_BYTES:
        return data
    preamble = data[:16] + _CRC.pack(zlib.crc32(data[:16])) + data[20:PREAMBLE_BYTES]
    starts = _starts(data)
    frames = [data[a:b] for a, b in zip(starts, [*starts, len(data)][1:], strict=True)]
    tag = next((zlib.crc32(f[FRAME_BYTES:]) for f in frames if f[_TYPE_AT] == FrameType.HEADER), 0)
    between = data[PREAMBLE_BYTES : starts[0]] if starts else data[PREAMBLE_BYTES:]
    return preamble + between + b"".join(_frame(frame, tag) for frame in frames)


def _starts(data: bytes) -> list[int]:
    found, at = [], data.find(SYNC, PREAMBLE_BYTES)
    while 0 <= at <= len(data) - FRAME_BYTES:
        found.append(at)
        at = data.find(SYNC, at + FRAME_BYTES)
    return found


def _frame(data: bytes, tag: int) -> bytes:
    head, payload = bytearray(data[:FRAME_BYTES]), data[FRAME_BYTES:]
    _CRC.pack_into(head, _TAG_AT, tag)
    _CRC.pack_into(head, _STORED_AT, len(payload))
    if head[_FLAGS_AT] & 0xF == Codec.NONE:
        _CRC.pack_into(head, _RAW_AT, len(payload))
    _CRC.pack_into(head, _PAYLOAD_CRC_AT, zlib.crc32(payload))
    _CRC.pack_into(head, _HEAD_CRC_AT, zlib.crc32(head[:_HEAD_CRC_AT]))
    return bytes(head) + payload


def plain(data: bytes) -> bytes:
    """A log whose payloads are stored as they are: its bytes mean something to a fuzzer."""
    import zstandard

    starts = _starts(data)
    out = [data[:PREAMBLE_BYTES]]
    for a, b in zip(starts, [*starts, len(data)][1:], strict=True):
        head, payload = bytearray(data[a : a + FRAME_BYTES]), data[a + FRAME_BYTES : b]
        if head[_FLAGS_AT] & 0xF == Codec.ZSTD:
            head[_FLAGS_AT] = Codec.NONE
            payload = zstandard.decompress(payload)
        out += [bytes(head), payload]
    return mended(b"".join(out))
