# SPDX-License-Identifier: Apache-2.0
"""Reads a log from a file or a pipe; salvages damaged and interrupted ones."""

import os
from collections import Counter
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log import names, validation
from biotrail.recorder.log.chunks import Chunk, decode_chunk, may_hold
from biotrail.recorder.log.facts import read_note
from biotrail.recorder.log.frames import (
    INDEX_ENTRY,
    DamagedError,
    Frame,
    FrameType,
    decode_json,
    unpack_payload,
)
from biotrail.recorder.log.index import ENTRY, read_index
from biotrail.recorder.log.opening import read_opening
from biotrail.recorder.log.source import Source, frame_at
from biotrail.recorder.log.survey import Survey
from biotrail.recorder.log.validation import Shape
from biotrail.recorder.schema.errors import LogFormatError


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
            self._opening = read_opening(self._source)
            self._tag = self._opening.tag
            self.header = self._opening.header
            self._problems.update(self._opening.problems)
            if self._source.seekable:
                self._entries = self._load()
        except LogFormatError:
            self._source.close()
            raise

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, unless it was given as a stream."""
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
        """What is wrong with the log: a sentence each, in order of file offset.

        Then a sentence for each type of frame that this reader does not know. Chunks' damage is
        included once they were read; a pipe's, once `chunks()` is exhausted. That the log is
        `interrupted` gets no sentence.
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

    @property
    def has_names(self) -> bool:
        """Whether the log's notes repeat all TASK and FILE_NAME records that the chunks hold.

        True if the notes called "names" have together as many records as the END frame counts.
        False where the log has no END frame or one without this number (an older recorder's), or
        such a note is missing or damaged.
        """
        repeated = (self.end or {}).get("log", {}).get("names")
        counts = (int(payload["count"]) for name, payload in self.notes if name == names.NOTE)
        return repeated is not None and sum(counts) == repeated

    def name_chunks(self, end_ns: int) -> Iterator[Chunk]:
        """Yield chunks that hold all TASK and FILE_NAME records of before `end_ns`.

        `end_ns`: CLOCK_MONOTONIC. They may hold other records too. With `has_names`, each note of
        names as a chunk, whatever `end_ns` is, in the order of writing. Otherwise the file's own
        chunks that begin before `end_ns`, skipping those without such records before they are
        decoded, and damaged ones, which are added to `damaged`; of a pipe, nothing.
        """
        if self.has_names:
            yield from (names.chunk_of(note) for name, note in self.notes if name == names.NOTE)
        elif self._entries is not None and end_ns > 0:
            yield from self._chunks_of_file(0, end_ns - 1, names.NOTED)

    def chunks(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Chunk]:
        """Yield the chunks that overlap [start_ns, end_ns] (ns, both inclusive), in file order.

        CLOCK_MONOTONIC; None: no limit. Nothing is yielded, and no pipe read, where `end_ns` is
        below `start_ns` or 0. Chunks outside are skipped by the times in their frame
        header or index entry, without reading their payload. Damaged chunks are left out and added
        to `problems` and `damaged`. Of a pipe, reading to the end also completes all other
        attributes. Raises LogFormatError where a pipe is read a second time, or reading fails.
        """
        first = 0 if start_ns is None else max(0, start_ns)
        last = (1 << 64) - 1 if end_ns is None else end_ns
        if last < first:
            return
        if self._entries is None:
            yield from self._chunks_of_pipe(first, last)
            return
        yield from self._chunks_of_file(first, last)

    def _chunks_of_file(
        self, first: int, last: int, holding: Collection[int] | None = None
    ) -> Iterator[Chunk]:
        """Yield the file's chunks that overlap [first, last] (ns, both inclusive), in file order.

        The log is no pipe. `holding`: only chunks that may hold records of one of these kinds;
        None: all. Damaged chunks are left out and added to `_problems` and `damaged`. Raises
        LogFormatError where reading fails.
        """
        entries, ends = self._entries, self._ends
        assert entries is not None
        wanted = (entries["type"] == FrameType.CHUNK) & (entries["word0"] <= np.uint64(last))
        wanted &= entries["word1"] >= np.uint64(first)
        for row in np.flatnonzero(wanted):
            chunk = self._chunk_at(entries[row], None if ends is None else int(ends[row]), holding)
            if chunk is not None:
                yield chunk

    def _chunks_of_pipe(self, first: int, last: int) -> Iterator[Chunk]:
        """Yield the pipe's chunks that overlap [first, last] (ns, inclusive), in order of writing.

        Damaged ones are left out and added to `_problems` and `damaged`. Other frames are absorbed
        on the way; at the pipe's end, what is missing is added to `_problems` and `damaged`, and
        `interrupted` is set. Sets `_consumed` first; raises LogFormatError where it is set already,
        or reading fails.
        """
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

    def _chunk_at(
        self, entry: np.void, end: int | None, holding: Collection[int] | None
    ) -> Chunk | None:
        """Return the chunk of an index entry; None: damaged, or no kind of `holding`."""
        frame = self._frame_of(entry, end)
        if frame is not None:
            return self._decode(frame, holding)
        offset, window = int(entry["offset"]), (int(entry["word0"]), int(entry["word1"]))
        self._damage(offset, f"chunk at offset {offset} has no intact frame header", window)
        return None

    def _frame_of(self, entry: np.void, end: int | None) -> Frame | None:
        """Return the frame of an index entry; None where no whole frame is at its offset.

        `entry`: of dtype ENTRY. None too where the frame is another log's, its type or sequence
        number differs from the entry's, or it extends past `end`, the next frame's offset (None:
        not checked): frames never overlap, so each byte is read once at most.
        """
        frame = frame_at(self._source, int(entry["offset"]), self._tag)
        listed = int(entry["type"]), int(entry["sequence"])
        if frame is None or (frame.type, frame.sequence) != listed:
            return None
        return frame if end is None or frame.next <= end else None

    def _decode(self, frame: Frame, holding: Collection[int] | None = None) -> Chunk | None:
        """Return the chunk of a CHUNK frame; None where it is damaged or holds none of `holding`.

        `holding`: record kinds, None: not checked. Damage is added to `_problems` and `damaged`.
        """
        try:
            payload = self._payload(frame)
            if holding is not None and not may_hold(payload, holding):
                return None
            clock, segments = decode_chunk(payload)
        except DamagedError as error:
            window = frame.word0, frame.word1
            self._damage(frame.offset, f"chunk at offset {frame.offset} {error}", window)
            return None
        return Chunk(frame.offset, frame.sequence, frame.word0, frame.word1, clock, segments)

    def _payload(self, frame: Frame) -> bytes:
        return unpack_payload(frame, self._source.read_at(frame.payload, frame.stored))

    def _damage(self, offset: int, what: str, window: tuple[int, int]) -> None:
        """Record damage at a file offset, once: `what`, and the `window` (ns) of missing events."""
        if offset in self._problems:
            return
        self._problems[offset] = f"{what}: left out"
        start, end = window
        self.damaged.append({"offset": offset, "start": start, "end": max(start, end)})

    def _load(self) -> NDArray[np.void]:
        """Return an entry per frame from the index or, where it is not usable, per chunk by a walk.

        (n,) of dtype ENTRY, in file order. Absorbs the frames that are no chunks (see `_absorb`),
        adds their damaged headers to `_problems`, and sets `_ends`; a chunk's header is checked
        when the chunk is read, and `interrupted` stays False. Without a usable index (see
        `read_index`), follows the frame headers: `_ends` stays None, and `_survey` reports what is
        missing and sets `interrupted`.
        """
        index = read_index(self._source, self._tag, self._problems)
        if index is None:
            rows = bytearray()
            for f in self._survey():
                rows += INDEX_ENTRY.pack(f.offset, f.word0, f.word1, f.sequence, f.type)
            return np.frombuffer(bytes(rows), dtype=ENTRY)
        entries, self._ends = index
        for row in np.flatnonzero(entries["type"] != FrameType.CHUNK):
            entry, offset = entries[row], int(entries["offset"][row])
            frame = self._frame_of(entry, int(self._ends[row]))
            if frame is None:
                what = f"{_called(int(entry['type']))} at offset {offset}"
                self._problems.setdefault(offset, f"{what} has no intact frame header: left out")
            else:
                self._absorb(frame)
        return entries

    def _survey(self) -> Iterator[Frame]:
        """Walk over all frames behind the header: yield CHUNK frames, absorb the others.

        At its end, adds what is missing to `_problems` and `damaged`, and sets `interrupted`. A
        CHUNK frame's payload has to be read before the next frame is asked for, if the log is a
        pipe.
        """
        survey = Survey(self._source, self._opening, _monotonic(self.header))
        for frame in survey.frames():
            if frame.type == FrameType.CHUNK:
                yield frame
            else:
                self._absorb(frame)
        survey.finish(_monotonic(self.end or {}))
        self._problems.update(survey.problems)
        self.damaged += survey.damaged
        self.interrupted = survey.interrupted

    def _json(self, frame: Frame, expected: type, shape: Shape | None = None) -> Any:
        """Return a frame's JSON, of type `expected` and, if given, `shape`. Raises DamagedError."""
        value = validation.plain(decode_json(self._payload(frame), expected))
        if shape is not None:
            shape(value, "")
        return value

    def _absorb(self, frame: Frame) -> None:
        """Store the content of a frame by its type, in `losses`, `notes` or `end`.

        A further END replaces the one before. HEADER, CHUNK, INDEX and TRAILER frames are ignored.
        A frame of a type that this reader does
        not know is counted in `_unknown`. A damaged one, or one of type 0, is added to `_problems`;
        that of type 0 also to `damaged`, if its header has times (word 1), as only a CHUNK's has.
        """
        try:
            if frame.type == FrameType.LOSS:
                self.losses += self._json(frame, list, validation.losses)
            elif frame.type == FrameType.NOTE:
                self.notes.append(read_note(self._json(frame, dict)))
            elif frame.type == FrameType.END:
                self.end = self._json(frame, dict, validation.end)
            elif frame.type > max(FrameType):
                self._unknown[frame.type] += 1
            elif frame.type < min(FrameType):
                raise DamagedError("is of a type that no biotrail writes")
        except DamagedError as error:
            what = f"{_called(frame.type)} at offset {frame.offset} {error}"
            if frame.type < min(FrameType) and frame.word1:  # only a CHUNK has times here
                self._damage(frame.offset, what, (frame.word0, frame.word1))
            self._problems[frame.offset] = f"{what}: left out"


_CALLED: dict[int, str] = {
    FrameType.LOSS: "frame of loss windows",
    FrameType.NOTE: "note",
    FrameType.END: "end frame",
}


def _called(kind: int) -> str:
    return _CALLED.get(kind, f"frame of type {kind}")


def _monotonic(owner: dict[str, Any]) -> int:
    """Return CLOCK_MONOTONIC (ns) from the "clocks" of a header or END frame; 0: there is none."""
    clocks = owner.get("clocks")
    value = clocks.get("monotonic") if isinstance(clocks, dict) else None
    return value if isinstance(value, int) else 0
