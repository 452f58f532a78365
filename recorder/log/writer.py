# SPDX-License-Identifier: Apache-2.0
"""Writes a log, front to back, to a file or a pipe; what fails halfway is cut off a file again.

Chunks are compressed before they have a place in a file, as a flight recorder keeps them.
"""

import errno
import io
import os
import select
import stat
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

import zstandard

from biotrail.recorder.log import frames, names
from biotrail.recorder.log.chunks import Segment, encode_chunk, first_time, runs, split
from biotrail.recorder.log.frames import INDEX_ENTRY, INDEX_FRAMES, Codec, FrameType
from biotrail.recorder.log.names import NameRecords
from biotrail.recorder.schema.errors import OutputError, ReaderGoneError

_WINDOW_LOG = (frames.MAX_CHUNK_DATA - 1).bit_length()
_HASH_LOG = 16  # a table of 256 KiB, which fits a core's second-level cache
# At level 1, zstd's fast strategy steps by five bytes instead of two and looks for matches of six
# bytes or more: in columns of 8-byte words most matches are long.
_FAST_LEVEL = 1
_FAST = {"target_length": 4, "min_match": 6}
_MOST_NAMES = 128 << 10
"""Bytes of name records that are collected before they are repeated in a note."""
_JOINED = 64 << 10
"""Payloads below this many bytes are joined with their frame header and written in one call.

Copying a larger one costs more than a second call.
"""


class Packed(NamedTuple):
    """A CHUNK frame's payload as stored, with what its frame header and later notes need."""

    first_ns: int
    last_ns: int
    """CLOCK_MONOTONIC: every record has first_ns <= time <= last_ns."""
    stored: bytes | memoryview
    codec: Codec
    raw: int
    """Bytes of the payload when decompressed."""
    records: int
    """Bytes of records in the payload, as in the rings."""
    clock: dict[str, Any]
    """Clock reading after the drain, ns by CLOCK_KEYS name."""
    names: NameRecords
    """The chunk's name records."""


class Packer:
    """Encodes and compresses payloads. Not thread-safe."""

    def __init__(self, level: int) -> None:
        """Set zstd's `level`; 0 stores without compression, and records as in the ring."""
        self._compressor: zstandard.ZstdCompressor | None = None
        if level:
            # A window holds a whole chunk: each column can match any other.
            parameters = zstandard.ZstdCompressionParameters.from_level(
                level,
                source_size=frames.MAX_CHUNK_DATA,
                window_log=_WINDOW_LOG,
                hash_log=_HASH_LOG,
                **(_FAST if level == _FAST_LEVEL else {}),
            )
            self._compressor = zstandard.ZstdCompressor(compression_params=parameters)

    def compress(self, payload: bytes | memoryview) -> tuple[bytes | memoryview, Codec]:
        """Return the payload as a frame stores it, and its codec: NONE, not compressed."""
        if self._compressor is None or not payload:
            return payload, Codec.NONE
        stored = self._compressor.compress(payload)
        if len(payload) > frames.most_raw(len(stored)):  # a reader would refuse it
            return payload, Codec.NONE
        return stored, Codec.ZSTD

    def chunks(self, segments: Sequence[Segment], clock: dict[str, Any]) -> list[Packed]:
        """Return the segments of one or more drains of the rings as compressed chunks, in order.

        Segments that follow each other in their ring become one (`chunks.runs`). `clock`: reading
        after the drain, ns by CLOCK_KEYS name. More than 8 MiB of records become several chunks,
        cut between records; without any record there is one empty chunk.
        """
        last = int(clock["monotonic"])
        packed = []
        for group in split([s for s in segments if len(s.data)]):
            rings = runs(group)
            payload, found = encode_chunk(
                rings, clock, columns=self._compressor is not None, sought=names.KINDS
            )
            records = sum(len(s.data) for s in group)
            first = first_time(group, last)
            named = names.records_at(found)
            stored = self.compress(payload)
            packed.append(Packed(first, last, *stored, len(payload), records, clock, named))
        return packed


class LogWriter:
    """Writes one log. When a call returns, its frames are with the operating system.

    Not thread-safe. Every method raises OutputError where the stream fails (ReaderGoneError:
    a pipe without a reader), and again on each later call; the frames written before read back
    as an interrupted log.

    Attributes:
        size: bytes written. chunks: CHUNK frames written. raw_bytes: bytes of records in them,
            as in the rings.
    """

    def __init__(
        self,
        stream: BinaryIO,
        header: Mapping[str, Any],
        *,
        level: int = 1,
        sync: bool = False,
        name: str | None = None,
    ) -> None:
        """Write the preamble, and the header twice.

        `stream`: open for writing at the log's start; buffering is bypassed, and closing it is left
        to the caller. `header`: JSON values; a copy with the key "format" is written. `level`:
        zstd's; 0 stores without compression. `sync`: call fdatasync after every frame; raises
        OutputError where the stream is no regular file. `name`: the log's name in messages, if not
        the stream's.
        """
        self._stream: BinaryIO | io.RawIOBase = stream
        if isinstance(stream, io.BufferedWriter):  # no frame shall wait in its buffer
            stream.flush()
            self._stream = stream.raw
        own_name = getattr(stream, "name", None)  # a number, of a stream opened by its descriptor
        self._name = name or (own_name if isinstance(own_name, str) else "the output")
        self._level = level
        self._packer = self.new_packer()
        self._sync = sync
        if sync and not _is_file(stream):
            raise OutputError(f"{self._name}: only a regular file can be synced; leave out --sync")
        self._failure: OutputError | None = None
        self._sequence = 0
        self._index = bytearray()
        self._last_index = 0
        self._names: list[NameRecords] = []
        self._names_bytes = self._named_at = 0
        self._noted = 0
        self.size = 0
        self.chunks = 0
        self.raw_bytes = 0
        self._major = frames.major_of(header)
        head = {**header, "format": {"major": self._major, "minor": frames.MINOR}}
        payload = frames.encode_json(head)
        self._tag = zlib.crc32(payload)
        self._write(frames.encode_preamble(self._major))
        for _ in range(2):
            self._write_payload(FrameType.HEADER, payload)

    def new_packer(self) -> Packer:
        """Return what packs chunks as this log has them, for a thread of its own."""
        return Packer(self._level)

    def write_chunk(
        self,
        segments: Sequence[Segment],
        clock: dict[str, Any],
        packed: Sequence[Packed] | None = None,
    ) -> int:
        """Write the segments of one drain of the rings as chunks; return the bytes written.

        `clock`: reading after the drain, ns by CLOCK_KEYS name. `packed`: the chunks, from a packer
        of this log; None: they are packed here (see Packer.chunks). The bytes include a note of
        names, if one was due.
        """
        before = self.size
        for one in self._packer.chunks(segments, clock) if packed is None else packed:
            self.write_packed(one)
        return self.size - before

    def write_packed(self, chunk: Packed) -> None:
        """Write a chunk that `Packer.chunks` encoded; and a note of names, if enough are due."""
        words = (chunk.first_ns, chunk.last_ns)
        self._write_frame(FrameType.CHUNK, chunk.stored, chunk.codec, chunk.raw, words)
        self.chunks += 1
        self.raw_bytes += chunk.records
        named = chunk.names.tasks.nbytes + chunk.names.files.nbytes
        if named:
            self._names.append(chunk.names)
            self._names_bytes += named
        self._named_at = chunk.last_ns
        if self._names_bytes >= _MOST_NAMES:
            self._write_names()

    def write_loss(self, windows: list[dict[str, int]]) -> None:
        """Write a LOSS frame of loss windows, in which records were lost.

        A window is {"start", "end" (ns of CLOCK_MONOTONIC), "cpu", "level", "kind", "count"};
        level: of nesting on the cpu (0 task, 1 softirq, 2 hardirq; LEVELS: nested too deep); kind:
        of the lost records, 0: unknown; count: records lost.
        """
        self._write_payload(FrameType.LOSS, frames.encode_json(windows))

    def write_note(self, name: str, payload: Mapping[str, Any]) -> None:
        """Write a NOTE frame: facts learned while recording, by a name such as "cgroups"."""
        self._write_payload(FrameType.NOTE, frames.encode_json({"name": name, "payload": payload}))

    def close(self, end: Mapping[str, Any]) -> None:
        """Write the names still due, the END frame, the index and the trailer.

        The stream stays open. The END frame is `end` (statistics, clocks) with "log" added:
        {"chunks", "raw_bytes" (of records), "bytes" (of the file before the frame), "names"
        (records repeated in notes)}.
        """
        if self._names:
            self._write_names()
        log = {
            "chunks": self.chunks,
            "raw_bytes": self.raw_bytes,
            "bytes": self.size,
            "names": self._noted,
        }
        self._write_payload(FrameType.END, frames.encode_json({**end, "log": log}))
        self._write_index()
        self._write_payload(FrameType.TRAILER, b"", (self._last_index, self._sequence))

    def _write_names(self) -> None:
        """Write the collected names as a note, for readers of a part of the log; forget them."""
        note = names.note(self._names, self._named_at)
        self.write_note(names.NOTE, note)
        self._noted += note["count"]
        self._names, self._names_bytes = [], 0

    def _write_payload(
        self, kind: FrameType, payload: bytes | memoryview, words: tuple[int, int] = (0, 0)
    ) -> None:
        if len(payload) > frames.MAX_RAW:
            raise OutputError(
                f"{self._name}: a {kind.name} frame of {len(payload)} bytes is more than the "
                f"{frames.MAX_RAW} that a log's frame may hold; record fewer devices (-d)"
            )
        self._write_frame(kind, *self._packer.compress(payload), len(payload), words)

    def _write_frame(
        self,
        kind: FrameType,
        stored: bytes | memoryview,
        codec: Codec,
        raw: int,
        words: tuple[int, int],
    ) -> None:
        """Write a frame around `stored`; list it in the index, and write that when it is full.

        `raw`: bytes of the payload when decompressed. `words`: the frame header's word 0 and 1.
        With `sync`, the frame is on the disk when the call returns.
        """
        entry = INDEX_ENTRY.pack(self.size, *words, self._sequence & 0xFFFFFFFF, kind)
        head = frames.encode_frame(
            kind,
            stored,
            sequence=self._sequence,
            tag=self._tag,
            codec=codec,
            raw=raw,
            words=words,
            major=self._major,
        )
        if len(stored) < _JOINED:
            self._write(b"".join((head, stored)))
        else:
            self._write(head, stored)
        self._sequence += 1
        if kind == FrameType.INDEX:
            return
        if kind != FrameType.TRAILER:
            self._index += entry
            if len(self._index) >= INDEX_FRAMES * INDEX_ENTRY.size:
                self._write_index()
        if self._sync:
            try:
                os.fdatasync(self._stream.fileno())
            except OSError as error:
                raise self._failed(error) from error

    def _write_index(self) -> None:
        """Write the entries of `_index`, also none, as an INDEX frame, which points to the last."""
        offset = self.size
        count = len(self._index) // INDEX_ENTRY.size
        self._write_payload(FrameType.INDEX, bytes(self._index), (self._last_index, count))
        self._last_index = offset
        self._index.clear()

    def _write(self, *parts: bytes | memoryview) -> None:
        """Write all `parts` to the stream, flush it, and add their length to `size`.

        Waits where the stream is a full pipe. Raises OutputError where the stream fails, and the
        same again in every later call, which writes nothing. What a failed call wrote is cut off a
        file again.
        """
        if self._failure is not None:
            raise self._failure
        written = 0
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    done = self._stream.write(view)
                    if not done:  # a full pipe
                        select.select([], [self._stream], [])
                        continue
                    view = view[done:]
                    written += done
            self._stream.flush()
        except OSError as error:
            if written and _is_file(self._stream):
                with suppress(OSError):  # the reader leaves it out, too
                    end = self._stream.seek(0, os.SEEK_CUR)
                    if end == self._stream.seek(0, os.SEEK_END):  # not behind another writer's
                        self._stream.truncate(end - written)
            raise self._failed(error) from error
        self.size += written

    def _failed(self, error: OSError) -> OutputError:
        """Return the exception for `error`, which every later write raises, too."""
        if error.errno == errno.EPIPE:
            advice = "the reader of the pipe has closed it: see to its error and record again"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "make room, or record to another file system (-o)"
        else:
            advice = "check the device that it is on, or record to another place (-o)"
        kept = (
            f"{self.chunks} chunk{'' if self.chunks == 1 else 's'} ({self.size} bytes) before it "
            "are kept and read back as an interrupted log; "
        )
        text = (
            f"{self._name}: cannot be written at offset {self.size}: {error.strerror or error}; "
            f"{kept if self.size else ''}{advice}"
        )
        reader_closed = error.errno == errno.EPIPE
        self._failure = ReaderGoneError(text) if reader_closed else OutputError(text)
        return self._failure


def _is_file(stream: BinaryIO | io.RawIOBase) -> bool:
    """Return whether the stream is a regular file; False where it has no descriptor."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:
        return False
