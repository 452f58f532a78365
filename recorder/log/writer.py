# SPDX-License-Identifier: Apache-2.0
"""Writes a log, front to back, to a file or a pipe; what fails halfway is cut off a file again."""

import errno
import io
import os
import select
import stat
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from biotrail.recorder.log import frames, names
from biotrail.recorder.log.chunks import Segment
from biotrail.recorder.log.frames import INDEX_ENTRY, INDEX_FRAMES, Codec, FrameType
from biotrail.recorder.log.packing import Packed, Packer
from biotrail.recorder.schema.errors import OutputError, ReaderGoneError

_MOST_NAMES = 128 << 10
"""Bytes of name records that are collected before they are repeated in a note."""
_JOINED = 64 << 10
"""Payloads below this many bytes are joined with their frame header and written in one call.

Copying a larger one costs more than a second call.
"""


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
        self._stream = _unbuffered(stream)
        self._name = name or _name(stream)
        self._level = level
        self._packer = self.new_packer()
        self._sync = sync
        if sync and not _is_file(stream):
            raise OutputError(f"{self._name}: only a regular file can be synced; leave out --sync")
        self._failure: OutputError | None = None
        self._sequence = 0
        self._index = bytearray()
        self._last_index = 0
        self._names: dict[int, list[bytes]] = {}
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
            self._frame(FrameType.HEADER, payload)

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

        `clock`: reading after the drain, ns by CLOCK_KEYS name. More than 8 MiB of records become
        several chunks, cut between records; without any record there is one empty chunk. The bytes
        include a note of names, if one was due (see `write_packed`). `packed`: the chunks, from a
        packer of this log; None: they are packed here.
        """
        before = self.size
        for one in self._packer.chunks(segments, clock) if packed is None else packed:
            self.write_packed(one)
        return self.size - before

    def write_packed(self, chunk: Packed) -> None:
        """Write a chunk that `Packer.chunks` encoded; and a note of names, if enough are due.

        Adds to `chunks` and `raw_bytes`. The chunk's name records are collected; once they have
        _MOST_NAMES bytes, a note repeats them.
        """
        words = (chunk.first_ns, chunk.last_ns)
        self._frame(FrameType.CHUNK, chunk.stored, words, packed=(chunk.codec, chunk.raw))
        self.chunks += 1
        self.raw_bytes += chunk.records
        for kind, records in names.for_notes(chunk.names).items():
            self._names.setdefault(kind, []).append(records)
            self._names_bytes += len(records)
        self._named_at = chunk.last_ns
        if self._names_bytes >= _MOST_NAMES:
            self._write_names()

    def write_loss(self, windows: list[dict[str, int]]) -> None:
        """Write a LOSS frame of loss windows, in which records were lost.

        A window is {"start", "end" (ns of CLOCK_MONOTONIC), "cpu", "level", "kind", "count"};
        level: of nesting on the cpu (0 task, 1 softirq, 2 hardirq; LEVELS: nested too deep); kind:
        of the lost records, 0: unknown; count: records lost.
        """
        self._frame(FrameType.LOSS, frames.encode_json(windows))

    def write_note(self, name: str, payload: Mapping[str, Any]) -> None:
        """Write a NOTE frame: facts learned while recording, by a name such as "cgroups"."""
        self._frame(FrameType.NOTE, frames.encode_json({"name": name, "payload": payload}))

    def close(self, end: Mapping[str, Any]) -> None:
        """Write the names still due, the END frame, the index and the trailer.

        The END frame is `end` (statistics, clocks) with "log" added: {"chunks", "raw_bytes" (of
        records), "bytes" (of the file before the frame), "names" (records repeated in notes)}. The
        stream stays open.
        """
        if self._names:
            self._write_names()
        log = {
            "chunks": self.chunks,
            "raw_bytes": self.raw_bytes,
            "bytes": self.size,
            "names": self._noted,
        }
        self._frame(FrameType.END, frames.encode_json({**end, "log": log}))
        self._write_index()
        self._emit(FrameType.TRAILER, b"", (self._last_index, self._sequence))
        self._flush_to_disk()

    def _write_names(self) -> None:
        """Write the collected name records as a note, and forget them.

        The kernel writes a name once; a reader of a part of the log finds it in the note.
        """
        note = names.note(self._names, self._named_at)
        self.write_note(names.NOTE, note)
        self._noted += note["count"]
        self._names, self._names_bytes = {}, 0

    def _frame(
        self,
        kind: FrameType,
        payload: bytes | memoryview,
        words: tuple[int, int] = (0, 0),
        packed: tuple[Codec, int] | None = None,
    ) -> None:
        """Write a frame and add it to the index; write an INDEX frame when that is full.

        `kind`: neither INDEX nor TRAILER. `words`: the frame header's word 0 and 1 (frames.py).
        `packed`: codec and decompressed bytes of a `payload` that is compressed already; None: it
        is compressed here. With `sync`, the frame is on the disk when the call returns.
        """
        entry = INDEX_ENTRY.pack(self.size, *words, self._sequence & 0xFFFFFFFF, kind)
        if packed is None:
            self._emit(kind, payload, words)
        else:
            self._emit_stored(kind, payload, *packed, words)
        self._index += entry
        if len(self._index) >= INDEX_FRAMES * INDEX_ENTRY.size:
            self._write_index()
        self._flush_to_disk()

    def _write_index(self) -> None:
        """Write the entries of `_index` as an INDEX frame, which points to the one before.

        Sets `_last_index` to its file offset, and clears `_index`. An empty index is written too.
        """
        offset = self.size
        count = len(self._index) // INDEX_ENTRY.size
        self._emit(FrameType.INDEX, bytes(self._index), (self._last_index, count))
        self._last_index = offset
        self._index.clear()

    def _emit(self, kind: FrameType, payload: bytes | memoryview, words: tuple[int, int]) -> None:
        """Compress `payload` and write its frame, without an entry in the index.

        `words`: the frame header's word 0 and 1. Raises OutputError where `payload` is over MAX_RAW
        bytes.
        """
        if len(payload) > frames.MAX_RAW:
            raise OutputError(
                f"{self._name}: a {kind.name} frame of {len(payload)} bytes is more than the "
                f"{frames.MAX_RAW} that a log's frame may hold; record fewer devices (-d)"
            )
        self._emit_stored(kind, *self._packer.compress(payload), len(payload), words)

    def _emit_stored(
        self,
        kind: FrameType,
        stored: bytes | memoryview,
        codec: Codec,
        raw: int,
        words: tuple[int, int],
    ) -> None:
        """Write a frame around `stored`, a payload compressed by `codec`; advance `_sequence`.

        `raw`: bytes of the payload when decompressed. `words`: the frame header's word 0 and 1.
        """
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

    def _write(self, *parts: bytes | memoryview) -> None:
        """Write all `parts` to the stream, flush it, and add their length to `size`.

        Waits where the stream is a full pipe. Raises OutputError where the stream fails, and the
        same again in every later call, which writes nothing. A call that fails leaves `size` as it
        was; what it wrote is cut off a file again.
        """
        if self._failure is not None:
            raise self._failure
        written = 0
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    done = self._some(view)
                    view = view[done:]
                    written += done
            self._stream.flush()
        except OSError as error:
            self._cut_off(written)
            raise self._failed(error) from error
        self.size += written

    def _cut_off(self, written: int) -> None:
        """Take the last bytes off a file again, unless another writer's came behind them."""
        if written and _is_file(self._stream):
            with suppress(OSError):  # the reader leaves them out, too
                end = self._stream.seek(0, os.SEEK_CUR)
                if end == self._stream.seek(0, os.SEEK_END):
                    self._stream.truncate(end - written)

    def _some(self, view: memoryview) -> int:
        """Write a part of `view`; return its length: 0 after waiting for room in a full pipe."""
        done = self._stream.write(view)
        if not done:
            select.select([], [self._stream], [])
        return done or 0

    def _flush_to_disk(self) -> None:
        """Call fdatasync if the log is written with `sync`. Raises OutputError."""
        if not self._sync:
            return
        try:
            os.fdatasync(self._stream.fileno())
        except OSError as error:
            raise self._failed(error) from error

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


def _unbuffered(stream: BinaryIO) -> BinaryIO | io.RawIOBase:
    """Return the raw stream below a buffered one, so that no frame waits in the buffer.

    The buffer is flushed first. A stream that is no io.BufferedWriter is returned itself.
    """
    if not isinstance(stream, io.BufferedWriter):
        return stream
    stream.flush()
    raw: io.RawIOBase = stream.raw
    return raw


def _name(stream: BinaryIO) -> str:
    """Return the stream's name for messages; "the output" where it has none that is text."""
    name = getattr(stream, "name", None)
    return name if isinstance(name, str) else "the output"


def _is_file(stream: BinaryIO | io.RawIOBase) -> bool:
    """Return whether the stream is a regular file; False where it has no descriptor."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:
        return False
