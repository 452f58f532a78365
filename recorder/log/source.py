# SPDX-License-Identifier: Apache-2.0
"""Reads a log's bytes by file offset, from a file or a pipe, and finds frames."""

import io
import os
import select
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import zstandard

from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    MAX_RATIO,
    MAX_RAW,
    MAX_STORED,
    STORED_AT,
    SYNC,
    TAG_AT,
    Codec,
    DamagedError,
    Frame,
    decode_frame,
    most_raw,
)
from biotrail.recorder.schema.errors import LogFormatError, LogNotFoundError
from biotrail.recorder.schema.file_kinds import no_regular_file

_BLOCK = 1 << 20


class Source:
    """Reads a log by file offset, in bounded memory.

    A pipe is read forward only and buffered: bytes before the last `release`d offset are gone.
    Every method raises LogFormatError where reading fails.
    """

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Open `path`, or use an open stream, whose current position is the log's start.

        Raises LogNotFoundError where the path does not exist, LogFormatError where it cannot be
        opened or its size cannot be found.
        """
        self._own: io.FileIO | None = None
        self._stream: BinaryIO
        if isinstance(path, str | os.PathLike):
            self.name = os.fspath(path)
            try:
                self._stream = self._own = io.FileIO(path)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not os.path.islink(path):
                    raise LogNotFoundError(self.name) from None
                what = no_regular_file(path)
                problem = f"is {what}" if what else f"cannot be opened: {error.strerror or error}"
                raise LogFormatError(
                    f"{self.name}: {problem}; give the path of a log that `biotrail record` wrote"
                ) from error
        else:
            self.name = str(getattr(path, "name", "the stream"))
            self._stream = path
        self.seekable = self._stream.seekable()
        self.size = 0
        """Bytes in the log; for a pipe, the bytes read so far."""
        self._base = 0
        self._kept = bytearray()
        """Of a pipe: the bytes before `size` that were not released."""
        if self.seekable:
            self._base = self._stream.tell()
            try:
                end = self._stream.seek(0, os.SEEK_END)
            except OSError as error:  # a file of /proc
                raise LogFormatError(
                    f"{self.name}: not a biotrail log: its size cannot be found "
                    f"({error.strerror}); give a file that `biotrail record` wrote"
                ) from error
            self.size = max(0, end - self._base)

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes at `offset`, fewer at the log's end; not what a pipe released."""
        if self.seekable:
            return self._read(offset, min(count, self.size - offset)) if offset >= 0 else b""
        self._fill(offset + count)
        at = offset - self.size + len(self._kept)
        return bytes(self._kept[at : at + count])

    def release(self, offset: int) -> None:
        """Drop a pipe's buffered bytes before `offset`, which cannot be read again."""
        if not self.seekable:
            self._fill(offset)
            del self._kept[: max(0, offset - self.size + len(self._kept))]

    def frame_at(self, offset: int, tag: int | None, header: bytes | None = None) -> Frame | None:
        """Return the frame at file offset `offset`, or None where no whole frame is there.

        None: the header there is not intact, the log ends within the payload, or the frame has
        another tag than `tag` (None: frames of any log count). The payload's checksum is not
        computed. `header`: the frame's first FRAME_BYTES bytes, if the caller has them already.
        """
        frame = decode_frame(header or self.read_at(offset, FRAME_BYTES), offset)
        if frame is None or tag not in (None, frame.tag):
            return None
        if not self.seekable:
            self._fill(frame.next)
        return frame if frame.next <= self.size else None

    def payload(self, frame: Frame) -> bytes:
        """Return the decompressed payload of a frame.

        Raises DamagedError where it is cut short, fails its checksum, is larger than the format
        allows, has an unknown codec, or does not decompress to `frame.raw` bytes.
        """
        stored = self.read_at(frame.payload, frame.stored)
        if len(stored) != frame.stored:
            raise DamagedError("is cut short")
        if zlib.crc32(stored) != frame.crc:
            raise DamagedError("fails its checksum")
        raw = frame.raw
        if raw > MAX_RAW:
            raise DamagedError(f"declares {raw} bytes, more than a log's frames hold")
        if frame.codec == Codec.NONE:
            data = bytes(stored)
        elif frame.codec == Codec.ZSTD:
            try:
                if zstandard.frame_content_size(stored) != raw:
                    raise DamagedError("declares another length than its zstd frame")
                if raw > most_raw(len(stored)):
                    few = f"{raw} bytes from {len(stored)}"
                    raise DamagedError(f"declares {few}, more than {MAX_RATIO} times as many")
                data = zstandard.ZstdDecompressor().decompress(
                    stored, max_output_size=raw, allow_extra_data=False
                )
            except zstandard.ZstdError as error:
                raise DamagedError(f"does not decompress ({error})") from None
        else:
            raise DamagedError(
                f"is stored with codec {frame.codec}, which this biotrail cannot read"
            )
        if len(data) != raw:
            raise DamagedError(f"holds {len(data)} bytes where it declares {raw}")
        return data

    def _fill(self, end: int) -> None:
        """Read a pipe up to the offset `end`, or to its end."""
        if end > self.size:
            data = self._read(self.size, end - self.size)
            self._kept += data
            self.size += len(data)

    def _read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes of the file at `offset`, or the pipe's next; fewer at the end."""
        parts: list[bytes] = []
        read: Callable[[int], bytes | None] = self._stream.read
        try:
            if self.seekable and count > 0:
                self._stream.seek(self._base + offset)
            while count > 0:
                part = read(min(count, _BLOCK))
                if part is None:  # a non-blocking pipe, as ssh may leave standard input
                    select.select([self._stream], [], [])
                    continue
                if not part:
                    break
                parts.append(part)
                count -= len(part)
        except OSError as error:
            raise LogFormatError(
                f"{self.name}: cannot be read at offset {offset}: {error.strerror or error}; "
                "check the disk it is on, or copy what can be read elsewhere (e.g. with ddrescue)"
            ) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the file, unless it was given as an open stream."""
        if self._own is not None:
            self._own.close()


@dataclass
class FrameFinder:
    """Finds whole frames by scanning forward for the marker; no byte is scanned twice.

    The markers of a block are filtered by tag and stored length with numpy before any checksum is
    computed, so that a file of nothing but markers costs about as much as any other.
    """

    source: Source
    tag: int | None
    _block: bytes = b""
    _at: int = 0
    """File offset of the block."""
    _end: int = 0
    """That of the first header that would go past the block's end."""
    _candidates: list[int] = field(default_factory=list)
    """Offsets in `_block` where a frame header may stand, descending: pop gives the next."""

    def first(self, offset: int) -> Frame | None:
        """Return the first whole frame at or after `offset`; None: the log has none.

        `offset` must not be below that of an earlier call. Releases what a pipe buffered before the
        scanned block.
        """
        # An intact frame right at `offset` must not wait until a pipe has filled a whole block.
        if (frame := self.source.frame_at(offset, self.tag)) is not None:
            return frame
        while True:
            if not self._at <= offset < self._end:
                if 0 < len(self._block) < _BLOCK:  # a short block is the log's last
                    return None
                self.source.release(offset)
                self._block, self._at = self.source.read_at(offset, _BLOCK), offset
                self._end = offset + max(0, len(self._block) - FRAME_BYTES + 1)
                if len(self._block) < FRAME_BYTES:
                    return None
                self._candidates = _possible_frames(self._block, self.tag)[::-1]
            while self._candidates:
                at = self._candidates.pop()
                place, header = self._at + at, self._block[at : at + FRAME_BYTES]
                if place >= offset:
                    frame = self.source.frame_at(place, self.tag, header)
                    if frame is not None:
                        return frame
            offset = max(offset, self._end)


def _possible_frames(data: bytes, tag: int | None) -> list[int]:
    """Return the offsets in `data`, ascending, at which a whole frame header may stand.

    By marker, stored length and, unless None, tag; the header's checksum is not computed.
    """
    if SYNC not in data:
        return []
    view = np.frombuffer(data, dtype=np.uint8)
    starts = np.flatnonzero(view[: len(data) - FRAME_BYTES + 1] == SYNC[0])
    expected = {byte: value for byte, value in enumerate(SYNC) if byte}
    if tag is not None:
        expected |= {TAG_AT + byte: value for byte, value in enumerate(struct.pack("<I", tag))}
    for byte, value in expected.items():
        starts = starts[view[starts + byte] == value]
    lengths = np.zeros(len(starts), dtype=np.uint32)
    for byte in range(4):
        lengths |= view[starts + STORED_AT + byte].astype(np.uint32) << np.uint32(8 * byte)
    offsets: list[int] = starts[lengths <= MAX_STORED].tolist()
    return offsets
