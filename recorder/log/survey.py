# SPDX-License-Identifier: Apache-2.0
"""Walks over a log without its index, and accounts for every frame that is missing."""

import zlib
from collections.abc import Iterator

from biotrail.recorder.log.frames import Frame, FrameType
from biotrail.recorder.log.opening import Opening
from biotrail.recorder.log.source import FrameFinder, Source, frame_at

MOST_OVERLAP = 2
"""Most payload bytes read of overlapping frames, as a multiple of the log's size.

A frame that lacks bytes extends over the frames behind it, so overlapping frames have to be read. A
file in which most frames overlap was made up, or cannot be salvaged.
"""
_FIRST_SEQUENCE = 2
"""Sequence number of the first frame behind the header, whose two copies have 0 and 1."""


class Survey:
    """Yields a log's frames in file order; finds missing ones by gaps in the sequence numbers.

    Attributes, complete after `finish()`:
        problems: what is wrong, a sentence by file offset.
        damaged: {"offset", "start", "end"} for each run of missing frames: file offset in bytes,
            and the window of time in ns in which their events lie.
        interrupted: neither an END nor a TRAILER frame was read.
    """

    def __init__(self, source: Source, opening: Opening, start_ns: int) -> None:
        """`start_ns`: CLOCK_MONOTONIC when recording began, where the first window begins, or 0."""
        self._source = source
        self._opening = opening
        self._last_ns = start_ns
        self._expected = _FIRST_SEQUENCE
        self._open_windows: list[dict[str, int]] = []
        self._types: set[int] = set()
        self._reach = self._overlapping = 0
        self.problems: dict[int, str] = {}
        self.damaged: list[dict[str, int]] = []
        self.interrupted = False

    def frames(self) -> Iterator[Frame]:
        """Yield each whole frame once, except for HEADER, INDEX and TRAILER frames, in file order.

        A frame's payload can be read from a pipe until the generator is advanced; its checksum is
        for the caller to check. Raises LogFormatError where reading fails.

        The cost is bounded by the file's size: each byte is scanned at most once for markers. Where
        a frame is missing, the payload of the one before is read, to see whether that lacks bytes:
        once where frames do not overlap, else as `_may_read` allows.
        """
        source, tag = self._source, self._opening.tag
        finder = FrameFinder(source, tag)
        before: Frame | None = None
        offset = self._opening.first
        while source.read_at(offset, 1):
            frame = frame_at(source, offset, tag)
            if frame is None:
                # If the frame before lacks bytes, the next frame starts inside its extent.
                start = offset
                if before is not None:
                    stored = source.read_at(before.payload, before.stored)
                    start = offset if zlib.crc32(stored) == before.crc else before.payload
                frame = finder.first(start)
            while frame is not None and not self._may_read(frame):
                frame = finder.first(frame.payload)
            if frame is None:
                self.problems[offset] = (
                    f"the last {source.size - offset} bytes, from offset {offset} on, hold no "
                    "whole frame: left out"
                )
                return
            source.release(frame.payload)
            is_new = self._accept(frame, offset)
            if frame.type == FrameType.TRAILER:
                if is_new and source.read_at(frame.next, 1):
                    self.problems[frame.next] = (
                        f"bytes behind the log's end, from offset {frame.next} on: left out"
                    )
                return
            if is_new and frame.type not in (FrameType.HEADER, FrameType.INDEX):
                yield frame
            before, offset = frame, frame.next

    def finish(self, end_ns: int) -> None:
        """Once `frames` has ended: set `interrupted`, and end open windows at `end_ns`."""
        for window in self._open_windows:
            window["end"] = max(window["start"], end_ns)
        self.interrupted = self._types.isdisjoint((FrameType.END, FrameType.TRAILER))

    def _may_read(self, frame: Frame) -> bool:
        """Return whether overlapping frames leave room to read `frame`, too."""
        inside = frame.offset < self._reach
        if inside and frame_at(self._source, frame.next, self._opening.tag) is None:
            self._overlapping += frame.stored
            if self._overlapping > MOST_OVERLAP * self._source.size:
                return False
        self._reach = max(self._reach, frame.next)
        return True

    def _accept(self, frame: Frame, expected_at: int) -> bool:
        """Return whether `frame` is new, and record what is missing before it.

        A jump of the sequence number is that many missing frames, whose window the next chunk or
        `finish` ends; bytes without a jump are of another origin. `expected_at`: file offset behind
        the frame before, which is above the frame's own where that one lacks bytes.
        """
        # Modulo 2^32, between -2^31 and 2^31; negative: passed already.
        missing = (frame.sequence - self._expected + (1 << 31)) % (1 << 32) - (1 << 31)
        if missing < 0:
            if frame.type != FrameType.HEADER:
                what = f"frame at offset {frame.offset} repeats number {frame.sequence}: left out"
                self.problems[frame.offset] = what
            return False
        if missing:
            offset = min(expected_at, frame.offset)
            lost = "1 frame is" if missing == 1 else f"{missing} frames are"
            self.problems[offset] = f"{lost} damaged or missing from offset {offset} on: left out"
            window = {"offset": offset, "start": self._last_ns, "end": self._last_ns}
            self.damaged.append(window)
            self._open_windows.append(window)
        elif frame.offset > expected_at:
            what = f"bytes {expected_at} to {frame.offset} are not this log's: left out"
            self.problems[expected_at] = what
        self._expected = frame.sequence + 1
        self._types.add(frame.type)
        if frame.type == FrameType.CHUNK:
            for window in self._open_windows:
                window["end"] = max(window["start"], frame.word0)
            self._open_windows.clear()
            self._last_ns = max(self._last_ns, frame.word1)
        return True
