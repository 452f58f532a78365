# SPDX-License-Identifier: Apache-2.0
"""Reads the start of a log: checks magic and version, decodes the header from either copy."""

import zlib
from typing import Any

from biotrail.recorder.log import validation
from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    MAGIC,
    MAJOR,
    MINOR,
    PREAMBLE,
    PREAMBLE_BYTES,
    DamagedError,
    FrameType,
    decode_frame,
    decode_json,
)
from biotrail.recorder.log.source import FrameFinder, Source
from biotrail.recorder.schema.errors import LogFormatError, NotALogError
from biotrail.recorder.schema.payloads import Header

_RECORD_AGAIN = "record again (the recorder was stopped before it had begun, or a copy broke off)"

COMPRESSED = {
    b"\x1f\x8b": "gzip: decompress it first (gunzip)",
    b"\x28\xb5\x2f\xfd": "zstd: decompress it first (zstd -d)",
    b"\xfd7zXZ": "xz: decompress it first (unxz)",
    b"BZh": "bzip2: decompress it first (bunzip2)",
    b"\x04\x22\x4d\x18": "lz4: decompress it first (unlz4)",
    b"PK\x03\x04": "zip: decompress it first (unzip)",
    b"7z\xbc\xaf\x27\x1c": "7z: decompress it first (7z x)",
}
"""By its first bytes, what a file is compressed by, and what to do."""


def read_opening(source: Source, problems: dict[int, str]) -> tuple[dict[str, Any], int, int]:
    """Read the preamble and the header, from its second copy where the first is damaged.

    Returns the HEADER frame's JSON, its CRC-32, which every frame of the log repeats as its tag,
    and the file offset of the first frame behind both copies. Adds a sentence for each damage on
    the way to `problems`, by file offset. Raises LogFormatError where the log is empty, foreign,
    cut within its header, newer than this reader, damaged in both copies of the header, or has a
    header of another shape.
    """
    _check_version(source, problems)
    frame = FrameFinder(source, None).first(PREAMBLE_BYTES)
    while frame is not None and frame.type == FrameType.HEADER:
        where = f"header at offset {frame.offset}"
        try:
            payload = source.payload(frame)
            header = decode_json(payload, dict)
        except DamagedError as error:
            problems[frame.offset] = f"{where} {error}"
        else:
            if zlib.crc32(payload) == frame.tag:
                break
            problems[frame.offset] = f"{where} has another checksum than its frame's tag"
        frame = FrameFinder(source, None).first(frame.next)
    if frame is None or frame.type != FrameType.HEADER:
        first = decode_frame(source.read_at(PREAMBLE_BYTES, FRAME_BYTES), PREAMBLE_BYTES)
        cut = source.size < (PREAMBLE_BYTES + FRAME_BYTES if first is None else first.next)
        if cut and not any(offset > 0 for offset in problems):
            raise LogFormatError(
                f"{source.name}: ends within its header, after {source.size} bytes: {_RECORD_AGAIN}"
            )
        raise LogFormatError(
            f"{source.name}: both copies of the header, from offset {PREAMBLE_BYTES} on, are "
            "damaged, and nothing can be read without one; look for another copy of the file"
        )
    try:
        header = validation.plain(header)
        validation.check(header, Header)
    except DamagedError as error:
        raise LogFormatError(
            f"{source.name}: the {where} {error}: no recorder writes that; record again, or read "
            "it with the biotrail that wrote it"
        ) from None
    if frame.sequence > 0:  # the second copy
        problems.setdefault(PREAMBLE_BYTES, f"header at offset {PREAMBLE_BYTES} is damaged")
        problems[PREAMBLE_BYTES] += f"; its copy at offset {frame.offset} was used"
        return header, frame.tag, frame.next
    # A second copy of the same length is assumed, also where it is damaged; it is not checked if
    # the log ends within it.
    length = FRAME_BYTES + frame.stored
    copy = source.read_at(frame.next, length)
    twin = decode_frame(copy, frame.next)
    intact = twin is not None and (twin.crc, twin.tag) == (frame.crc, frame.tag)
    if len(copy) == length and not (intact and zlib.crc32(copy[FRAME_BYTES:]) == frame.crc):
        problems[frame.next] = (
            f"the header's copy at offset {frame.next} is damaged; the header itself is intact"
        )
    return header, frame.tag, frame.next + length


def _check_version(source: Source, problems: dict[int, str]) -> None:
    """Raise LogFormatError unless this reader reads the log's version."""
    data = source.read_at(0, PREAMBLE_BYTES)
    if not data:
        raise LogFormatError(f"{source.name}: is empty (0 bytes): {_RECORD_AGAIN}")
    magic, major, minor, crc, _ = PREAMBLE.unpack(data.ljust(PREAMBLE_BYTES, b"\0"))
    if len(data) < PREAMBLE_BYTES and MAGIC.startswith(data[: len(MAGIC)]):
        raise LogFormatError(
            f"{source.name}: ends within its preamble, after {len(data)} bytes: {_RECORD_AGAIN}"
        )
    if len(data) < PREAMBLE_BYTES or magic != MAGIC or crc != zlib.crc32(data[:16]):
        frame = decode_frame(source.read_at(PREAMBLE_BYTES, FRAME_BYTES), PREAMBLE_BYTES)
        if frame is None or frame.type != FrameType.HEADER:
            formats = [what for magic, what in COMPRESSED.items() if data.startswith(magic)]
            known = f", which is {formats[0]}" if formats else ""
            raise NotALogError(
                f"{source.name}: is not a biotrail log: it begins with {data[:8]!r}"
                + (known or "; give a file that `biotrail record` wrote")
            )
        problems[0] = "preamble at offset 0 is damaged; the header was found behind it"
        major, minor = frame.major, 0
    if major > MAJOR:
        raise LogFormatError(
            f"{source.name}: is a log of format {major}.{minor}, and this biotrail reads "
            f"up to {MAJOR}.{MINOR}; read it with a newer biotrail (pip install -U biotrail)"
        )
