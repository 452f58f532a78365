# SPDX-License-Identifier: Apache-2.0
"""Walks over a log without its index, and accounts for every frame that is missing."""

from collections.abc import Iterator

from biotrail.recorder.log.frames import Frame, FrameType
from biotrail.recorder.log.opening import Opening
from biotrail.recorder.log.source import Gap, Source, walk

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
        """Survey the frames behind the header of `source`; reads nothing yet.

        `opening`: the log's decoded start. `start_ns`: CLOCK_MONOTONIC when recording began, ns,
        from which the first window of missing events counts; 0: not known, so that it begins at 0.
        """
        self._source = source
        self._opening = opening
        self._last_ns = start_ns
        self._expected = _FIRST_SEQUENCE
        self._gap: Gap | None = None
        self._open_windows: list[dict[str, int]] = []
        self._types: set[int] = set()
        self._log_end = 0
        self.problems: dict[int, str] = {}
        self.damaged: list[dict[str, int]] = []
        self.interrupted = False

    def frames(self) -> Iterator[Frame]:
        """Yield each whole frame once, except for HEADER, INDEX and TRAILER frames, in file order.

        Frames with a sequence number that was passed already are left out. Updates `problems` and
        `damaged` on the way. May be called once. Raises LogFormatError where reading fails.
        """
        for item in walk(self._source, self._opening.first, self._opening.tag):
            if isinstance(item, Gap):
                self._gap = item
            elif self._accept(item) and item.type not in (
                FrameType.HEADER,
                FrameType.INDEX,
                FrameType.TRAILER,
            ):
                yield item

    def finish(self, end_ns: int) -> None:
        """Set `interrupted`, end the windows of `damaged` still open, and report trailing bytes.

        Bytes behind the last frame or the trailer are added to `problems`, without a window in
        `damaged`. `end_ns`:
        CLOCK_MONOTONIC when recording ended, ns; 0: not known, so that a window still open ends
        where it starts. To be called once `frames` is exhausted.
        """
        for window in self._open_windows:
            window["end"] = max(window["start"], end_ns)
        ended = not self._types.isdisjoint((FrameType.END, FrameType.TRAILER))
        self.interrupted = not ended
        if self._gap is not None and self._gap.tail:
            where, count = self._gap.offset, self._gap.end - self._gap.offset
            self.problems[where] = (
                f"the last {count} bytes, from offset {where} on, hold no whole frame: left out"
            )
        elif self._log_end and self._source.read_at(self._log_end, 1):
            self.problems[self._log_end] = (
                f"bytes behind the log's end, from offset {self._log_end} on: left out"
            )

    def _accept(self, frame: Frame) -> bool:
        """Return whether `frame` is new, and record what is missing before it.

        False for a frame with a sequence number that was passed already; unless it is a HEADER, it
        is added to `problems`. A jump of the number is that many missing frames (see `_lose`);
        without one, a gap before the frame is bytes of another origin, and added to `problems`.
        Sets `_gap` to None in any case, so that a gap before a frame that is not new is not
        reported. If new, changes `_expected` and `_types`; a chunk ends open windows, the trailer
        sets `_log_end`.
        """
        gap, self._gap = self._gap, None
        # Modulo 2^32, between -2^31 and 2^31; negative: passed already.
        missing = (frame.sequence - self._expected + (1 << 31)) % (1 << 32) - (1 << 31)
        if missing < 0:
            if frame.type != FrameType.HEADER:
                what = f"frame at offset {frame.offset} repeats number {frame.sequence}: left out"
                self.problems[frame.offset] = what
            return False
        if missing:
            self._lose(frame.offset if gap is None else gap.offset, missing)
        elif gap is not None and gap.end > gap.offset:
            what = f"bytes {gap.offset} to {gap.end} are not this log's: left out"
            self.problems[gap.offset] = what
        self._expected = frame.sequence + 1
        self._types.add(frame.type)
        if frame.type == FrameType.CHUNK:
            self._close_windows(frame)
        elif frame.type == FrameType.TRAILER:
            self._log_end = frame.next
        return True

    def _lose(self, offset: int, missing: int) -> None:
        """Record lost frames; the next chunk, or `finish`, ends their window."""
        frames = "1 frame is" if missing == 1 else f"{missing} frames are"
        self.problems[offset] = f"{frames} damaged or missing from offset {offset} on: left out"
        window = {"offset": offset, "start": self._last_ns, "end": self._last_ns}
        self.damaged.append(window)
        self._open_windows.append(window)

    def _close_windows(self, chunk: Frame) -> None:
        """End the open windows at the first time of `chunk`; advance the time read so far."""
        for window in self._open_windows:
            window["end"] = max(window["start"], chunk.word0)
        self._open_windows.clear()
        self._last_ns = max(self._last_ns, chunk.word1)
