# SPDX-License-Identifier: Apache-2.0
"""Bytes of a log by file offset, from a file or a pipe, and the walk from frame to frame."""

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from recorder.errors import LogFormatError, LogNotFoundError
from recorder.log_frames import FRAME_BYTES, SYNC, Frame, FrameType, decode_frame

_BLOCK = 1 << 20


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


def frame_at(source: Source, offset: int, tag: int | None) -> Frame | None:
    """Give the frame at `offset` if its header is intact and its payload all there.

    Only a frame of this log counts, unless `tag` is None.
    """
    frame = decode_frame(source.read_at(offset, FRAME_BYTES), offset)
    if frame is None or tag not in (None, frame.tag):
        return None
    return frame if source.read_at(frame.next - 1, 1) else None


def find_frame(source: Source, offset: int, tag: int | None) -> Frame | None:
    """Give the first whole frame at or after `offset`, by scanning for the marker."""
    # Where it stands as it should, a pipe need not have given a whole block yet.
    if (frame := frame_at(source, offset, tag)) is not None:
        return frame
    while block := source.read_at(offset, _BLOCK):
        at = block.find(SYNC)
        while at >= 0:
            frame = frame_at(source, offset + at, tag)
            if frame is not None:
                return frame
            at = block.find(SYNC, at + 1)
        if len(block) < _BLOCK:
            return None
        # The marker may stand across two blocks.
        offset += len(block) - len(SYNC) + 1
        source.release(offset)
    return None


def walk(source: Source, offset: int, tag: int) -> Iterator[Frame | Gap]:
    """Yield every whole frame from `offset` on in file order, with a Gap where there is damage.

    Ends after the TRAILER, at the end of the bytes, or with a Gap that is the tail. The
    payload of a frame stays readable until the next is asked for.
    """
    scan_from = offset
    while source.read_at(offset, 1):
        frame = frame_at(source, offset, tag)
        if frame is None:
            # Bytes may be missing from the frame before, so the scan starts inside it.
            frame = find_frame(source, scan_from, tag)
            if frame is None:
                yield Gap(offset, source.size, tail=True)
                return
            yield Gap(min(offset, frame.offset), frame.offset, tail=False)
        scan_from = frame.payload
        source.release(scan_from)
        yield frame
        if frame.type == FrameType.TRAILER:
            return
        offset = frame.next
