# SPDX-License-Identifier: Apache-2.0
"""Reads a log from a file or a pipe; salvages damaged and interrupted ones."""

import base64
import os
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log import names, validation
from biotrail.recorder.log.chunks import Chunk, Segment, decode_chunk, may_hold
from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    INDEX_ENTRY,
    DamagedError,
    Frame,
    FrameType,
    decode_json,
)
from biotrail.recorder.log.opening import read_opening
from biotrail.recorder.log.source import FrameFinder, Source
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.payloads import End, LossWindow

_ENTRY = np.dtype(
    [
        ("offset", "<u8"),
        ("word0", "<u8"),
        ("word1", "<u8"),
        ("sequence", "<u4"),
        ("type", "u1"),
        ("zero", "V3"),
    ]
)
"""frames.INDEX_ENTRY: a frame's file offset, the words of its header, its number and type."""
_CALLED = {
    **{kind: f"frame of type {kind}" for kind in range(256)},
    FrameType.LOSS: "frame of loss windows",
    FrameType.NOTE: "note",
    FrameType.END: "end frame",
}
"""What a frame is called in messages, by its type."""
_FIRST_SEQUENCE = 2
"""Sequence number of the first frame behind the header, whose two copies have 0 and 1."""
MOST_OVERLAP = 2
"""Most payload bytes read of overlapping frames, as a multiple of the log's size.

A frame that lacks bytes extends over the frames behind it, so overlapping frames have to be read. A
file in which most frames overlap was made up, or cannot be salvaged.
"""


class LogReader:
    """A log, read in memory bounded by one chunk: its header at once, then chunk by chunk.

    The attributes of a file are complete once it is open, those of a pipe once `chunks()` is
    exhausted. Only damage within a chunk's payload is added when that chunk is read.

    Attributes:
        name: path of the log, or the stream's name, for messages.
        header: the HEADER frame's JSON, written when recording began.
        end: the END frame's JSON, written when recording ended; None where there is none.
        interrupted: the log has no end: the recorder was killed, or the rest is missing.
        losses: loss windows, as passed to `LogWriter.write_loss`, in file order.
        notes: (name, payload) of each NOTE frame, in file order.
        damaged: {"offset", "start", "end"} of each chunk or run of frames that cannot be read:
            file offset in bytes, window in ns. Events of unknown number are missing there.
    """

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Open a log and read its header; of a file also its index, or all frame headers.

        `path`: the log's path, or an open stream, whose current position is the log's start and
        which `close` leaves open. Raises LogFormatError where the file is empty, foreign, cut
        within its header, newer than this reader, damaged in both copies of the header, or cannot
        be read; LogNotFoundError where there is no such file.
        """
        self._source = Source(path)
        self.name = self._source.name
        self.end: dict[str, Any] | None = None
        self.interrupted = False
        self.losses: list[dict[str, Any]] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.damaged: list[dict[str, int]] = []
        self._problems: dict[int, str] = {}
        self._unknown: Counter[int] = Counter()
        self._entries: NDArray[np.void] | None = None
        self._ends: NDArray[np.uint64] | None = None
        """Per entry (n,): file offset of the next frame; None: `_entries` are not of the index."""
        self._consumed = False
        try:
            self.header, self._tag, self._first = read_opening(self._source, self._problems)
            if self._source.seekable:
                self._entries = self._load()
        except LogFormatError:
            self._source.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, unless it was given as a stream."""
        self._source.close()

    @property
    def size(self) -> int:
        """Bytes in the log; for a pipe, the bytes read so far."""
        return self._source.size

    @property
    def problems(self) -> list[str]:
        """What is wrong with the log: a sentence each, by file offset; then unknown frames.

        Chunks' damage is included once they were read; a pipe's, once `chunks()` is exhausted. That
        the log is `interrupted` gets no sentence.
        """
        sentences = [self._problems[offset] for offset in sorted(self._problems)]
        return sentences + [
            f"{count} frames of unknown type {kind} were passed over: a newer biotrail wrote them"
            for kind, count in sorted(self._unknown.items())
        ]

    @property
    def chunk_spans(self) -> list[tuple[int, int]] | None:
        """(first, last) time of each chunk's records in ns, in file order; None for a pipe."""
        if self._entries is None:
            return None
        chunks = self._entries[self._entries["type"] == FrameType.CHUNK]
        return list(zip(chunks["word0"].tolist(), chunks["word1"].tolist(), strict=True))

    def name_chunks(self, end_ns: int) -> Iterator[Chunk]:
        """Yield chunks that hold all TASK and FILE_NAME records of before `end_ns`.

        `end_ns`: CLOCK_MONOTONIC. They may hold other records too. Where the log's notes repeat all
        such records, by the number that the END frame counts, each note of names as a chunk at
        offset 0, whatever `end_ns` is. Otherwise (an older recorder's log, one without END, a note
        that is damaged) the file's own chunks that begin before `end_ns` and may hold such records,
        without damaged ones, which are added to `damaged`; of a pipe, nothing.
        """
        notes = [payload for name, payload in self.notes if name == names.NOTE]
        repeated = (self.end or {}).get("log", {}).get("names")
        if repeated is not None and sum(int(note["count"]) for note in notes) == repeated:
            for note in notes:
                near = int(note["monotonic"])
                segments = [
                    Segment(names.NO_CPU, level, 0, base64.b64decode(text))
                    for level, text in enumerate(note["records"].values())
                ]
                yield Chunk(0, 0, 0, near, {"monotonic": near}, segments)
        elif self._entries is not None and end_ns > 0:
            yield from self._chunks_of_file(0, end_ns - 1, names.NOTED)

    def chunks(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Chunk]:
        """Yield the chunks that overlap [start_ns, end_ns] (ns, both inclusive), in file order.

        CLOCK_MONOTONIC; None: no limit. Chunks outside are skipped without reading their payload.
        Damaged chunks are left out and added to `problems` and `damaged`. Of a pipe, reading to the
        end also completes all other attributes. Raises LogFormatError where a pipe is read a second
        time, or reading fails.
        """
        first = 0 if start_ns is None else max(0, start_ns)
        last = (1 << 64) - 1 if end_ns is None else end_ns
        if last < first:
            return
        if self._entries is not None:
            yield from self._chunks_of_file(first, last)
            return
        if self._consumed:
            raise LogFormatError(
                f"{self.name}: is a pipe and was read already; save it to a file to read it twice"
            )
        self._consumed = True
        for frame in self._survey():
            if frame.word0 <= last and frame.word1 >= first:
                chunk = self._decode(frame)
                if chunk is not None:
                    yield chunk

    def _chunks_of_file(
        self, first: int, last: int, holding: Collection[int] | None = None
    ) -> Iterator[Chunk]:
        """Yield the file's chunks that overlap [first, last] and may hold kinds of `holding`."""
        entries, ends = self._entries, self._ends
        assert entries is not None
        wanted = (entries["type"] == FrameType.CHUNK) & (entries["word0"] <= np.uint64(last))
        wanted &= entries["word1"] >= np.uint64(first)
        for row in np.flatnonzero(wanted):
            entry = entries[row]
            frame = self._frame_of(entry, None if ends is None else int(ends[row]))
            if frame is None:
                offset = int(entry["offset"])
                what = f"chunk at offset {offset} has no intact frame header"
                self._damage(offset, what, int(entry["word0"]), int(entry["word1"]))
            elif (chunk := self._decode(frame, holding)) is not None:
                yield chunk

    def _frame_of(self, entry: np.void, end: int | None) -> Frame | None:
        """Return an index entry's frame; None: another, or one that reaches past `end`."""
        frame = self._source.frame_at(int(entry["offset"]), self._tag)
        listed = int(entry["type"]), int(entry["sequence"])
        if frame is None or (frame.type, frame.sequence) != listed:
            return None
        return frame if end is None or frame.next <= end else None

    def _decode(self, frame: Frame, holding: Collection[int] | None = None) -> Chunk | None:
        """Return the chunk of a CHUNK frame; None: damaged, or holds none of `holding`."""
        try:
            payload = self._source.payload(frame)
            if holding is not None and not may_hold(payload, holding):
                return None
            clock, segments = decode_chunk(payload)
        except DamagedError as error:
            what = f"chunk at offset {frame.offset} {error}"
            self._damage(frame.offset, what, frame.word0, frame.word1)
            return None
        return Chunk(frame.offset, frame.sequence, frame.word0, frame.word1, clock, segments)

    def _damage(self, offset: int, what: str, start: int, end: int) -> None:
        """Record damage at a file offset, once: events are missing from `start` to `end` (ns)."""
        if offset not in self._problems:
            self._problems[offset] = f"{what}: left out"
            self.damaged.append({"offset": offset, "start": start, "end": max(start, end)})

    def _load(self) -> NDArray[np.void]:
        """Return an entry per frame of the index or, without one, per chunk found by a walk.

        (n,) of dtype _ENTRY, in file order. Absorbs the frames that are no chunks. With an index,
        `_ends` is set, and a chunk's header is checked when the chunk is read.
        """
        entries = self._read_index()
        if entries is None or self._ends is None:
            rows = bytearray()
            for f in self._survey():
                rows += INDEX_ENTRY.pack(f.offset, f.word0, f.word1, f.sequence, f.type)
            return np.frombuffer(bytes(rows), dtype=_ENTRY)
        for row in np.flatnonzero(entries["type"] != FrameType.CHUNK):
            entry, offset = entries[row], int(entries["offset"][row])
            frame = self._frame_of(entry, int(self._ends[row]))
            if frame is None:
                what = f"{_CALLED[int(entry['type'])]} at offset {offset}"
                self._problems.setdefault(offset, f"{what} has no intact frame header: left out")
            else:
                self._absorb(frame)
        return entries

    def _read_index(self) -> NDArray[np.void] | None:
        """Follow INDEX frames backwards from the trailer; return the entries, and set `_ends`.

        All frames but INDEX and TRAILER, in file order: (n,) of dtype _ENTRY. None: the log has no
        trailer at its end, an INDEX frame is damaged or not where it should be, entries and INDEX
        frames are not as many as the trailer counts, or the frames listed would overlap. The INDEX
        frame at fault, and an overlap, is added to `_problems`.
        """
        source = self._source
        trailer = source.frame_at(source.size - FRAME_BYTES, self._tag)
        if trailer is None or trailer.type != FrameType.TRAILER:
            return None
        parts: list[NDArray[np.void]] = []
        borders = [trailer.offset]
        offset, room = trailer.word0, source.size // FRAME_BYTES
        while offset:
            # It ends before the next INDEX frame, and the last right before the trailer.
            below, part = borders[-1], None
            frame = source.frame_at(offset, self._tag)
            if (
                frame is not None
                and frame.type == FrameType.INDEX
                and frame.word1 <= room
                and (frame.next == below if len(borders) == 1 else frame.next <= below)
            ):
                with suppress(DamagedError, ValueError):
                    part = np.frombuffer(source.payload(frame), dtype=_ENTRY)
            if frame is None or part is None:
                what = f"index at offset {offset} is damaged or not there: read without it"
                self._problems[offset] = what
                return None
            parts.append(part)
            borders.append(offset)
            room -= len(part)
            offset = frame.word0
        entries = np.concatenate(parts[::-1]) if parts else np.empty(0, dtype=_ENTRY)
        if len(entries) + len(parts) != trailer.word1:
            return None
        # The next frame of any type is where each frame listed has to end.
        offsets = entries["offset"]
        starts = np.sort(np.concatenate([offsets, np.array(borders, dtype=np.uint64)]))
        ends = starts[np.minimum(np.searchsorted(starts, offsets) + 1, len(starts) - 1)]
        ascending = (np.diff(offsets.astype(np.int64)) > 0).all()
        apart = len(starts) == 1 or np.diff(starts).min() >= FRAME_BYTES
        if not (ascending and apart and (ends > offsets).all()):
            self._problems[trailer.word0] = (
                f"index at offset {trailer.word0} has frames that overlap: read without it"
            )
            return None
        self._ends = ends
        return entries

    def _survey(self) -> Iterator[Frame]:
        """Walk over all frames without the index: yield CHUNK frames, absorb all others.

        A frame's payload can be read from a pipe until the generator is advanced. Missing frames
        are found by gaps in the sequence numbers; each run of them becomes a window of `damaged`,
        which the next chunk or the log's end closes. At the end adds what is wrong to `_problems`
        and `damaged`, and sets `interrupted`.
        """
        problems: dict[int, str] = {}
        damaged: list[dict[str, int]] = []
        open_windows: list[dict[str, int]] = []
        last_ns = self.header.get("clocks", {}).get("monotonic", 0)
        expected = _FIRST_SEQUENCE
        types: set[int] = set()
        for frame, offset in self._walk(problems):
            # Modulo 2^32, between -2^31 and 2^31; negative: passed already.
            missing = (frame.sequence - expected + (1 << 31)) % (1 << 32) - (1 << 31)
            if missing < 0:
                if frame.type != FrameType.HEADER:
                    what = f"frame at offset {frame.offset} repeats number {frame.sequence}"
                    problems[frame.offset] = f"{what}: left out"
                continue
            if missing:
                at = min(offset, frame.offset)
                lost = "1 frame is" if missing == 1 else f"{missing} frames are"
                problems[at] = f"{lost} damaged or missing from offset {at} on: left out"
                damaged.append({"offset": at, "start": last_ns, "end": last_ns})
                open_windows.append(damaged[-1])
            elif frame.offset > offset:
                what = f"bytes {offset} to {frame.offset} are not this log's: left out"
                problems[offset] = what
            expected = frame.sequence + 1
            types.add(frame.type)
            if frame.type == FrameType.CHUNK:
                for window in open_windows:
                    window["end"] = max(window["start"], frame.word0)
                open_windows.clear()
                last_ns = max(last_ns, frame.word1)
                yield frame
            elif frame.type == FrameType.TRAILER:
                if self._source.read_at(frame.next, 1):
                    what = f"bytes behind the log's end, from offset {frame.next} on: left out"
                    problems[frame.next] = what
            elif frame.type not in (FrameType.HEADER, FrameType.INDEX):
                self._absorb(frame)
        end_ns = (self.end or {}).get("clocks", {}).get("monotonic", 0)
        for window in open_windows:
            window["end"] = max(window["start"], end_ns)
        self._problems.update(problems)
        self.damaged += damaged
        self.interrupted = types.isdisjoint((FrameType.END, FrameType.TRAILER))

    def _walk(self, problems: dict[int, str]) -> Iterator[tuple[Frame, int]]:
        """Yield (whole frame, offset behind the one before) in file order, up to a TRAILER.

        A frame that lacks bytes ends before that offset. The cost is bounded by the file's size:
        each byte is scanned at most once for markers. Where a frame is missing, the payload of the
        one before is read, to see whether that lacks bytes: once where frames do not overlap, else
        as MOST_OVERLAP allows.
        """
        source, tag = self._source, self._tag
        finder = FrameFinder(source, tag)
        before: Frame | None = None
        offset, reach, overlapping = self._first, 0, 0
        while (before is None or before.type != FrameType.TRAILER) and source.read_at(offset, 1):
            frame = source.frame_at(offset, tag)
            if frame is None:
                # If the frame before lacks bytes, the next frame starts inside its extent.
                start = offset
                if before is not None:
                    stored = source.read_at(before.payload, before.stored)
                    start = offset if zlib.crc32(stored) == before.crc else before.payload
                frame = finder.first(start)
            while (
                frame is not None
                and frame.offset < reach
                and source.frame_at(frame.next, tag) is None
            ):
                overlapping += frame.stored
                if overlapping <= MOST_OVERLAP * source.size:
                    break
                frame = finder.first(frame.payload)
            if frame is None:
                problems[offset] = (
                    f"the last {source.size - offset} bytes, from offset {offset} on, hold no "
                    "whole frame: left out"
                )
                return
            reach = max(reach, frame.next)
            source.release(frame.payload)
            yield frame, offset
            before, offset = frame, frame.next

    def _absorb(self, frame: Frame) -> None:
        """Store a frame's content by its type.

        A damaged one, or one of type 0, is added to `_problems`; that of type 0 also to `damaged`,
        if its header has times.
        """
        try:
            if frame.type in (FrameType.LOSS, FrameType.NOTE, FrameType.END):
                expected = list if frame.type == FrameType.LOSS else dict
                payload = decode_json(self._source.payload(frame), expected)
                value = validation.plain(payload)
                if frame.type == FrameType.NOTE:
                    self.notes.append(validation.note(value))
                elif frame.type == FrameType.LOSS:
                    validation.check(value, list[LossWindow])
                    self.losses += value
                else:
                    validation.check(value, End)
                    self.end = value
            elif frame.type > max(FrameType):
                self._unknown[frame.type] += 1
            elif frame.type < min(FrameType):
                raise DamagedError("is of a type that no biotrail writes")
        except DamagedError as error:
            what = f"{_CALLED[frame.type]} at offset {frame.offset} {error}"
            if frame.type < min(FrameType) and frame.word1:  # only a CHUNK has times here
                self._damage(frame.offset, what, frame.word0, frame.word1)
            self._problems[frame.offset] = f"{what}: left out"
