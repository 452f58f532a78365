# SPDX-License-Identifier: Apache-2.0
"""Reads a log's bytes by file offset, from a file or a pipe, and walks from frame to frame."""

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
from biotrail.recorder.schema.file_kinds import no_regular_file

_BLOCK = 1 << 20

MOST_OVERLAP = 2
"""Most payload bytes read of overlapping frames, as a multiple of the log's size."""


class Source:
    """Reads a log by file offset, in bounded memory.

    A pipe is read forward only and buffered: bytes before the last `release`d offset are gone.

    Attributes:
        name: path of the log, or the stream's name, for messages.
        seekable: whether the log is a file; False for a pipe.
    """

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Open `path`, or use an open stream, whose current position is the log's start.

        Of a file, finds its size. Raises LogNotFoundError where the path does not exist,
        LogFormatError where it cannot be opened, or its size cannot be found.
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
        """Return the bytes from the log's start to the end of the file.

        Raises LogFormatError where the file cannot seek to its end.
        """
        try:
            end = self._stream.seek(0, os.SEEK_END)
        except OSError as error:  # a file of /proc
            raise LogFormatError(
                f"{self.name}: not a biotrail log: its size cannot be found ({error.strerror}); "
                "give a file that `biotrail record` wrote"
            ) from error
        return max(0, end - self._base)

    @property
    def size(self) -> int:
        """Bytes in the log; for a pipe, the bytes read so far."""
        return self._start + len(self._kept) if self._size is None else self._size

    def read_at(self, offset: int, count: int) -> bytes:
        """Return the `count` bytes at `offset`, fewer where the log ends before.

        `offset`: from the log's start; of a file, bytes outside are none. Of a pipe, `offset` must
        not be below the last `release`d one; waits for the bytes, and keeps all from the last
        released one. Raises LogFormatError where reading fails.
        """
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
        """Return whether the log has all bytes before the offset `end`; reads a pipe up to it.

        Raises LogFormatError where reading fails.
        """
        if not self.seekable:
            self._fill(end)
        return end <= self.size

    def release(self, offset: int) -> None:
        """Drop a pipe's buffered bytes before `offset`, which cannot be read again.

        Reads the pipe up to `offset` first. Does nothing to a file. Raises LogFormatError where
        reading fails.
        """
        if self.seekable:
            return
        self._fill(offset)
        drop = min(offset - self._start, len(self._kept))
        if drop > 0:
            del self._kept[:drop]
            self._start += drop

    def _fill(self, end: int) -> None:
        """Read the pipe into `_kept` up to offset `end`, or to the pipe's end.

        Does nothing where `_kept` reaches that far. Raises LogFormatError where reading fails.
        """
        missing = end - self._start - len(self._kept)
        if missing <= 0:
            return
        try:
            self._kept += _read_all(self._stream, missing)
        except OSError as error:
            raise self._failed(self.size, error) from error

    def _failed(self, offset: int, error: OSError) -> LogFormatError:
        """Return the exception to raise for a read at `offset` that failed."""
        return LogFormatError(
            f"{self.name}: cannot be read at offset {offset}: {error.strerror or error}; "
            "check the disk it is on, or copy what can be read elsewhere (e.g. with ddrescue)"
        )

    def close(self) -> None:
        """Close the file, unless it was given as an open stream."""
        if self._own:
            self._stream.close()


def _open(path: str) -> BinaryIO:
    """Return the file at `path`, open for reading, unbuffered.

    Raises LogNotFoundError where it does not exist, LogFormatError where it cannot be opened.
    """
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
    """Return the next `count` bytes of the stream, fewer only at its end.

    Waits where the stream is non-blocking and has no data yet. Raises OSError.
    """
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
    """A range of file offsets, [`offset`, `end`), that holds no whole frame.

    `tail`: no whole frame follows the range either. `offset` equals `end` where the frame before
    the gap lacks bytes, so that the next frame starts inside its extent.
    """

    offset: int
    end: int
    tail: bool


def frame_at(
    source: Source, offset: int, tag: int | None, header: bytes | None = None
) -> Frame | None:
    """Return the frame at file offset `offset`, or None where no whole frame is there.

    None: the header there is not intact, the log ends within the payload, or the frame has another
    tag (CRC-32 of the log's header JSON) than `tag` (None: frames of any log count). The payload's
    checksum is not computed. `header`: the frame's first FRAME_BYTES bytes, where the caller has
    them already. Raises LogFormatError where reading fails.
    """
    data = source.read_at(offset, FRAME_BYTES) if header is None else header
    frame = decode_frame(data, offset)
    if frame is None or tag not in (None, frame.tag):
        return None
    return frame if source.reaches(frame.next) else None


class FrameFinder:
    """Finds whole frames by scanning forward for the marker; no byte is scanned twice.

    The markers of a block are filtered by tag and stored length with numpy before any checksum is
    computed, so that a file of nothing but markers costs about as much as any other.
    """

    def __init__(self, source: Source, tag: int | None) -> None:
        """Find frames of `source` with the log's `tag`; None: of any log. Reads nothing yet.

        `tag`: CRC-32 of the log's header JSON.
        """
        self._source = source
        self._tag = tag
        self._block = b""
        self._at = 0
        self._candidates: list[int] = []
        """Offsets in `_block` where a frame header may stand, descending: pop gives the next."""

    def first(self, offset: int) -> Frame | None:
        """Return the first whole frame at or after file offset `offset`; None: the log has none.

        `offset` must not be below that of an earlier call. Releases what a pipe buffered before the
        scanned block. Payloads' checksums are not computed. Raises LogFormatError where reading
        fails.
        """
        # An intact frame right at `offset` must not wait until a pipe has filled a whole block.
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
        """First file offset at which a frame header would not lie in the block entirely."""
        return self._at + max(0, len(self._block) - FRAME_BYTES + 1)

    def _header(self, place: int) -> bytes:
        """Return the FRAME_BYTES bytes at file offset `place`, from the block."""
        return self._block[place - self._at : place - self._at + FRAME_BYTES]

    def _load(self, offset: int) -> bool:
        """Set `_block` to one that holds a whole frame header at `offset`, and its candidates.

        Keeps the present block where it holds that; else reads one that begins at `offset` (`_at`),
        finds `_candidates` in it, and releases a pipe's bytes before. Returns False where the log
        ends within this header.
        """
        if self._at <= offset < self._end:
            return True
        if 0 < len(self._block) < _BLOCK:  # a short block is the log's last
            return False
        self._source.release(offset)
        self._block, self._at = self._source.read_at(offset, _BLOCK), offset
        self._candidates = possible_frames(self._block, self._tag)[::-1]
        return len(self._block) >= FRAME_BYTES


class _Overlaps:
    """Bounds the bytes read of frames that lie within the extent of an earlier frame.

    A frame that lacks bytes extends over the frames behind it, so overlapping frames have to be
    read. A file in which most frames overlap was made up, or cannot be salvaged.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._reach = 0
        self._spent = 0

    def allow(self, frame: Frame, tag: int) -> bool:
        """Return whether `frame` may be read, and add it to the account of overlaps.

        A frame that begins within an earlier one, and that no whole frame follows directly, adds
        its stored bytes to `_spent`. False for such a frame once these exceed MOST_OVERLAP times
        the log's size (of a pipe, the bytes read so far); any other frame may always be read.
        `tag`: CRC-32 of the log's header JSON. Frames have to come in file order.
        """
        inside = frame.offset < self._reach
        if inside and frame_at(self._source, frame.next, tag) is None:
            self._spent += frame.stored
            if self._spent > MOST_OVERLAP * self._source.size:
                return False
        self._reach = max(self._reach, frame.next)
        return True


def find_frame(source: Source, offset: int, tag: int | None) -> Frame | None:
    """Return the first whole frame at or after file offset `offset`; None where the log has none.

    `tag`: of the log whose frames count; None: frames of any log.
    """
    return FrameFinder(source, tag).first(offset)


def walk(source: Source, offset: int, tag: int) -> Iterator[Frame | Gap]:
    """Yield the whole frames from `offset` on in file order, and a Gap where there is damage.

    `offset`: of the first frame behind the header. `tag`: CRC-32 of the header's JSON, which the
    log's frames have. Ends after the TRAILER, at the end of the bytes, or with a Gap that is the
    tail. A yielded frame's payload can be read from a pipe until the generator is advanced; its
    checksum is for the caller to check. Raises LogFormatError where reading fails.

    The cost is bounded by the file's size: each byte is scanned at most once for markers. Before a
    gap, the payload of the frame in front of it is read, to see whether that frame lacks bytes:
    once where frames do not overlap, at most MOST_OVERLAP times the file's size in all where they
    do; overlapping frames beyond that are skipped (_Overlaps).
    """
    finder, overlaps = FrameFinder(source, tag), _Overlaps(source)
    before: Frame | None = None
    while source.read_at(offset, 1):
        frame = frame_at(source, offset, tag)
        if frame is None:
            # If the frame before lacks bytes, the next frame starts inside its extent.
            intact = before is None or _is_intact(source, before)
            frame = finder.first(offset if intact or before is None else before.payload)
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


def _is_intact(source: Source, frame: Frame) -> bool:
    """Return whether the payload in the file has the checksum in the frame's header."""
    return zlib.crc32(source.read_at(frame.payload, frame.stored)) == frame.crc
