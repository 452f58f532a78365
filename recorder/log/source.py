# SPDX-License-Identifier: Apache-2.0
"""Bytes of a log by file offset, from a file or a pipe, and the walk from frame to frame."""

import os
import select
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    Frame,
    FrameType,
    decode_frame,
    possible_frames,
)
from biotrail.recorder.schema.errors import LogFormatError, LogNotFoundError

_BLOCK = 1 << 20

MOST_OVERLAP = 2
"""Times a log's size that is read, at most, of frames within the extents of other frames."""


class Source:
    """Reads a log by offset, in bounded memory.

    A pipe goes forward only: bytes stay readable from the last `release`d offset on.
    """

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Open `path`, or take an open stream, whose current position is the log's start.

        Raises LogFormatError where the path cannot be opened.
        """
        if isinstance(path, str | os.PathLike):
            self.name = os.fspath(path)
            self._stream, self._own = _open(self.name), True
        else:
            self.name = str(getattr(path, "name", "the stream"))
            self._stream, self._own = path, False
        self.seekable = self._stream.seekable()
        self._base = self._stream.tell() if self.seekable else 0
        self._size = self._measure() if self.seekable else None
        self._kept = bytearray()
        self._start = 0

    def _measure(self) -> int:
        end = self._stream.seek(0, os.SEEK_END)
        return max(0, end - self._base)

    @property
    def size(self) -> int:
        """Bytes in the log; for a pipe, those seen so far."""
        return self._start + len(self._kept) if self._size is None else self._size

    def read_at(self, offset: int, count: int) -> bytes:
        """Read the `count` bytes at `offset`, fewer where the log ends before."""
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
        """Whether the log has all bytes up to the offset `end`."""
        if not self.seekable:
            self._fill(end)
        return end <= self.size

    def release(self, offset: int) -> None:
        """Let go of what stands before `offset`: nobody will read it again."""
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
        """Close what this opened itself."""
        if self._own:
            self._stream.close()


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        raise LogNotFoundError(path) from None
    except OSError as error:
        raise LogFormatError(
            f"{path}: cannot be opened: {error.strerror or error}; "
            "give the path of a log that `biotrail record` wrote"
        ) from error


def _read_all(stream: BinaryIO, count: int) -> bytes:
    """Read exactly `count` bytes, fewer at the end only."""
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


@dataclass(frozen=True)
class Gap:
    """Bytes from `offset` up to `end` that hold no whole frame; tail: none follows either."""

    offset: int
    end: int
    tail: bool


def frame_at(
    source: Source, offset: int, tag: int | None, header: bytes | None = None
) -> Frame | None:
    """Return the frame at `offset` if its header is intact and its payload all there.

    Only a frame of this log counts, unless `tag` is None. header: its bytes, where they were read.
    """
    data = source.read_at(offset, FRAME_BYTES) if header is None else header
    frame = decode_frame(data, offset)
    if frame is None or tag not in (None, frame.tag):
        return None
    return frame if source.reaches(frame.next) else None


class FrameFinder:
    """Finds whole frames by scanning for the marker, forward only: no byte is scanned twice.

    Markers in a block are judged by their tag and stored length in columns, before a checksum is
    computed: a file of nothing but markers costs about what any other costs.
    """

    def __init__(self, source: Source, tag: int | None) -> None:
        """`tag`: of the log whose frames count; None for frames of any log."""
        self._source = source
        self._tag = tag
        self._block = b""
        self._at = 0
        self._candidates: list[int] = []
        """Offsets in the block, the last one first."""

    def first(self, offset: int) -> Frame | None:
        """Return the first whole frame at or after `offset`; None where the log has none.

        `offset` is never below the one given before.
        """
        # Where it stands as it should, a pipe need not have given a whole block yet.
        if (frame := frame_at(self._source, offset, self._tag)) is not None:
            return frame
        while self._load(offset):
            while self._candidates:
                place = self._at + self._candidates.pop()
                if place >= offset:
                    frame = frame_at(self._source, place, self._tag, self._header(place))
                    if frame is not None:
                        return frame
            offset = max(offset, self._end)
        return None

    @property
    def _end(self) -> int:
        """The first offset whose header would not be all in the block."""
        return self._at + max(0, len(self._block) - FRAME_BYTES + 1)

    def _header(self, place: int) -> bytes:
        return self._block[place - self._at : place - self._at + FRAME_BYTES]

    def _load(self, offset: int) -> bool:
        """Have a block in which a header at `offset` is whole; False where the log ends before."""
        if self._at <= offset < self._end:
            return True
        if 0 < len(self._block) < _BLOCK:  # it was the last
            return False
        self._source.release(offset)
        self._block, self._at = self._source.read_at(offset, _BLOCK), offset
        self._candidates = possible_frames(self._block, self._tag)[::-1]
        return len(self._block) >= FRAME_BYTES


class _Overlaps:
    """Bounds what is spent on frames that stand within the extent of another.

    Bytes missing from a frame make it reach into the frames behind, so each of these is looked
    at. Where most frames of a file seem to, it was made up, or is past saving.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._reach = 0
        self._spent = 0

    def allow(self, frame: Frame, tag: int) -> bool:
        """Whether the frame is to be read; what is read of overlapping ones is counted."""
        inside = frame.offset < self._reach
        if inside and frame_at(self._source, frame.next, tag) is None:
            self._spent += frame.stored
            if self._spent > MOST_OVERLAP * self._source.size:
                return False
        self._reach = max(self._reach, frame.next)
        return True


def find_frame(source: Source, offset: int, tag: int | None) -> Frame | None:
    """Return the first whole frame at or after `offset`, by scanning for the marker."""
    return FrameFinder(source, tag).first(offset)


def walk(source: Source, offset: int, tag: int) -> Iterator[Frame | Gap]:
    """Yield the whole frames from `offset` on in file order, with a Gap where there is damage.

    Ends after the TRAILER, at the end of the bytes, or with a Gap that is the tail. The
    payload of a frame stays readable until the next is asked for.

    What it costs is bounded by the file's size: each byte is scanned once at most; the payloads
    of frames that do not overlap are read once to see where to go on; those of frames that do,
    MOST_OVERLAP times the file's size in all.
    """
    finder, overlaps = FrameFinder(source, tag), _Overlaps(source)
    before: Frame | None = None
    while source.read_at(offset, 1):
        frame = frame_at(source, offset, tag)
        if frame is None:
            # Bytes may be missing from the frame before: then the next stands inside its extent.
            whole = before is None or _is_whole(source, before)
            frame = finder.first(offset if whole or before is None else before.payload)
        while frame is not None and not overlaps.allow(frame, tag):
            frame = finder.first(frame.payload)
        if frame is None:
            yield Gap(offset, source.size, tail=True)
            return
        if frame.offset != offset:
            yield Gap(min(offset, frame.offset), frame.offset, tail=False)
        source.release(frame.payload)
        yield frame
        if frame.type == FrameType.TRAILER:
            return
        before, offset = frame, frame.next


def _is_whole(source: Source, frame: Frame) -> bool:
    """Whether the payload is the one that the frame's header tells of."""
    return zlib.crc32(source.read_at(frame.payload, frame.stored)) == frame.crc
