# SPDX-License-Identifier: Apache-2.0
"""Reads a log's bytes by file offset, from a file or a pipe, and finds frames."""

import os
import select
from collections.abc import Callable
from typing import BinaryIO

from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    Frame,
    decode_frame,
    possible_frames,
    unpack_payload,
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
        if isinstance(path, str | os.PathLike):
            self.name = os.fspath(path)
            self._stream, self._own = _open(self.name), True
        else:
            self.name = str(getattr(path, "name", "the stream"))
            self._stream, self._own = path, False
        self.seekable = self._stream.seekable()
        self._base = self._stream.tell() if self.seekable else 0
        self._kept = bytearray()
        self._start = 0
        self._size: int | None = None
        if self.seekable:
            try:
                end = self._stream.seek(0, os.SEEK_END)
            except OSError as error:  # a file of /proc
                raise LogFormatError(
                    f"{self.name}: not a biotrail log: its size cannot be found "
                    f"({error.strerror}); give a file that `biotrail record` wrote"
                ) from error
            self._size = max(0, end - self._base)

    @property
    def size(self) -> int:
        """Bytes in the log; for a pipe, the bytes read so far."""
        return self._start + len(self._kept) if self._size is None else self._size

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes at `offset`, fewer at the log's end; not what a pipe released."""
        if not self.seekable:
            self._fill(offset + count)
            at = offset - self._start
            return bytes(self._kept[at : at + count])
        if not 0 <= offset < self.size:
            return b""
        try:
            self._stream.seek(self._base + offset)
            return _read_all(self._stream, min(count, self.size - offset))
        except OSError as error:
            raise self._failed(offset, error) from error

    def reaches(self, end: int) -> bool:
        """Return whether the log has all bytes before the offset `end`; reads a pipe up to it."""
        if not self.seekable:
            self._fill(end)
        return end <= self.size

    def release(self, offset: int) -> None:
        """Drop a pipe's buffered bytes before `offset`, which cannot be read again."""
        if self.seekable:
            return
        self._fill(offset)
        drop = min(offset - self._start, len(self._kept))
        if drop > 0:
            del self._kept[:drop]
            self._start += drop

    def _fill(self, end: int) -> None:
        missing = end - self._start - len(self._kept)
        if missing <= 0:
            return
        try:
            self._kept += _read_all(self._stream, missing)
        except OSError as error:
            raise self._failed(self.size, error) from error

    def _failed(self, offset: int, error: OSError) -> LogFormatError:
        return LogFormatError(
            f"{self.name}: cannot be read at offset {offset}: {error.strerror or error}; "
            "check the disk it is on, or copy what can be read elsewhere (e.g. with ddrescue)"
        )

    def close(self) -> None:
        """Close the file, unless it was given as an open stream."""
        if self._own:
            self._stream.close()


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb", buffering=0)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.islink(path):
            raise LogNotFoundError(path) from None
        what = no_regular_file(path)
        problem = f"is {what}" if what else f"cannot be opened: {error.strerror or error}"
        raise LogFormatError(
            f"{path}: {problem}; give the path of a log that `biotrail record` wrote"
        ) from error


def _read_all(stream: BinaryIO, count: int) -> bytes:
    """Return the next `count` bytes of a stream, non-blocking ones too, fewer only at its end."""
    parts: list[bytes] = []
    read: Callable[[int], bytes | None] = stream.read
    while count > 0:
        part = read(min(count, _BLOCK))
        if part is None:  # a non-blocking pipe, as ssh may leave standard input
            select.select([stream], [], [])
            continue
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def frame_at(
    source: Source, offset: int, tag: int | None, header: bytes | None = None
) -> Frame | None:
    """Return the frame at file offset `offset`, or None where no whole frame is there.

    None: the header there is not intact, the log ends within the payload, or the frame has another
    tag than `tag` (None: frames of any log count). The payload's checksum is not computed.
    `header`: the frame's first FRAME_BYTES bytes, where the caller has them already.
    """
    data = source.read_at(offset, FRAME_BYTES) if header is None else header
    frame = decode_frame(data, offset)
    if frame is None or tag not in (None, frame.tag):
        return None
    return frame if source.reaches(frame.next) else None


def read_payload(source: Source, frame: Frame) -> bytes:
    """Return a frame's payload, decompressed. Raises DamagedError, as `unpack_payload`."""
    return unpack_payload(frame, source.read_at(frame.payload, frame.stored))


class FrameFinder:
    """Finds whole frames by scanning forward for the marker; no byte is scanned twice.

    The markers of a block are filtered by tag and stored length with numpy before any checksum is
    computed, so that a file of nothing but markers costs about as much as any other.
    """

    def __init__(self, source: Source, tag: int | None) -> None:
        self._source = source
        self._tag = tag
        self._block = b""
        self._at = self._end = 0
        """File offsets of the block, and of the first header that would go past its end."""
        self._candidates: list[int] = []
        """Offsets in `_block` where a frame header may stand, descending: pop gives the next."""

    def first(self, offset: int) -> Frame | None:
        """Return the first whole frame at or after `offset`; None: the log has none.

        `offset` must not be below that of an earlier call. Releases what a pipe buffered before the
        scanned block.
        """
        # An intact frame right at `offset` must not wait until a pipe has filled a whole block.
        if (frame := frame_at(self._source, offset, self._tag)) is not None:
            return frame
        while self._load(offset):
            while self._candidates:
                at = self._candidates.pop()
                place, header = self._at + at, self._block[at : at + FRAME_BYTES]
                if place >= offset:
                    frame = frame_at(self._source, place, self._tag, header)
                    if frame is not None:
                        return frame
            offset = max(offset, self._end)
        return None

    def _load(self, offset: int) -> bool:
        """Have in `_block` a whole frame header at `offset`; False where the log ends within it."""
        if self._at <= offset < self._end:
            return True
        if 0 < len(self._block) < _BLOCK:  # a short block is the log's last
            return False
        self._source.release(offset)
        self._block, self._at = self._source.read_at(offset, _BLOCK), offset
        self._end = offset + max(0, len(self._block) - FRAME_BYTES + 1)
        self._candidates = possible_frames(self._block, self._tag)[::-1]
        return len(self._block) >= FRAME_BYTES
