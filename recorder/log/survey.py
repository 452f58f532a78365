# SPDX-License-Identifier: Apache-2.0
"""A walk over a log without its index, that accounts for every frame that is not there."""

from collections.abc import Iterator

from biotrail.recorder.log.frames import Frame, FrameType
from biotrail.recorder.log.opening import Opening
from biotrail.recorder.log.source import Gap, Source, walk

_FIRST_SEQUENCE = 2
"""Of the first frame behind the header: 0 and 1 are its copies."""


class Survey:
    """Frames of a log in file order, by their sequence numbers; what is missing is named.

    `problems` (by file offset), `damaged` and `interrupted` are complete after `finish()`.
    """

    def __init__(self, source: Source, opening: Opening, start_ns: int) -> None:
        """`start_ns`: when recording began, ns; no event is older."""
        self._source = source
        self._opening = opening
        self._known = start_ns
        self._expected = _FIRST_SEQUENCE
        self._gap: Gap | None = None
        self._waiting: list[dict[str, int]] = []
        self._seen: set[int] = set()
        self._behind = 0
        self.problems: dict[int, str] = {}
        self.damaged: list[dict[str, int]] = []
        self.interrupted = False

    def frames(self) -> Iterator[Frame]:
        """Yield every whole frame once, header and index frames left out."""
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
        """Close the account; `end_ns`: when recording ended, ns, 0 where that is not known."""
        for window in self._waiting:
            window["end"] = max(window["start"], end_ns)
        ended = not self._seen.isdisjoint((FrameType.END, FrameType.TRAILER))
        self.interrupted = not ended
        if self._gap is not None and self._gap.tail:
            where, count = self._gap.offset, self._gap.end - self._gap.offset
            self.problems[where] = (
                f"the last {count} bytes, from offset {where} on, hold no whole frame: left out"
            )
        elif self._behind and self._source.read_at(self._behind, 1):
            self.problems[self._behind] = (
                f"bytes behind the log's end, from offset {self._behind} on: left out"
            )

    def _accept(self, frame: Frame) -> bool:
        """Account for what is missing before `frame`; False where it stood before already."""
        gap, self._gap = self._gap, None
        missing = _ahead(frame.sequence, self._expected)
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
        self._seen.add(frame.type)
        if frame.type == FrameType.CHUNK:
            self._close_windows(frame)
        elif frame.type == FrameType.TRAILER:
            self._behind = frame.next
        return True

    def _lose(self, offset: int, missing: int) -> None:
        frames = "1 frame is" if missing == 1 else f"{missing} frames are"
        self.problems[offset] = f"{frames} damaged or missing from offset {offset} on: left out"
        window = {"offset": offset, "start": self._known, "end": self._known}
        self.damaged.append(window)
        self._waiting.append(window)

    def _close_windows(self, chunk: Frame) -> None:
        for window in self._waiting:
            window["end"] = max(window["start"], chunk.word0)
        self._waiting.clear()
        self._known = max(self._known, chunk.word1)


def _ahead(sequence: int, expected: int) -> int:
    """How far `sequence` is ahead of `expected`, both modulo 2^32; negative: behind."""
    return (sequence - expected + (1 << 31)) % (1 << 32) - (1 << 31)
