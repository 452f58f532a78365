# SPDX-License-Identifier: Apache-2.0
"""The ring-buffer pages of one CPU in a trace.dat, read block by block."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from biotrail.converters.events.tables import U8
from biotrail.converters.inputs.ftrace.fields import Fields
from biotrail.converters.inputs.ftrace.recording import Buffer, CpuData, Recording
from biotrail.recorder.schema.errors import LogFormatError

BLOCK_BYTES = 1 << 20
_PAGES_AT_LEAST = 64
"""Pages of a block: many are walked as fast as one."""
_CHUNK_HEAD_BYTES = 8
"""Size of a chunk's stored size and that of its content, which precede it."""
COUNT_BYTES = 4
"""Size of the number of chunks, which the size of a CPU's compressed data leaves out."""


@dataclass
class CpuPages:
    """One CPU's pages of one buffer.

    reached: ns of the newest event that was read, the least int64 before any; left for the caller
    to set. read: bytes of the file read. events: found so far, left for the caller to count, too.
    missing: bytes that the file should have and has not.
    """

    stream: BinaryIO
    name: str
    recording: Recording
    buffer: Buffer
    where: CpuData
    reached: int = int(np.iinfo(np.int64).min)
    read: int = 0
    events: int = 0
    missing: int = 0
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)

    def blocks(self) -> Iterator[U8]:
        """Yield the pages, (pages * page_bytes,) uint8, about BLOCK_BYTES at a time.

        A last page that is not whole is left out, with a problem.
        """
        page = self.buffer.page_bytes
        wanted = max(BLOCK_BYTES, _PAGES_AT_LEAST * page)
        rest = b""
        for piece in self._chunks() if self.buffer.compressed else self._pieces(wanted):
            rest += piece
            if len(rest) >= wanted:
                whole = len(rest) // page * page
                yield np.frombuffer(rest[:whole], np.uint8)
                rest = rest[whole:]
        whole = len(rest) // page * page
        if whole:
            yield np.frombuffer(rest[:whole], np.uint8)
        if len(rest) > whole:
            self.unreadable += len(rest) - whole
            self.problems.append(
                f"{self.name}: {len(rest) - whole} bytes before offset "
                f"{self.where.offset + self.read} (CPU {self.where.cpu}) are no whole page; "
                "left out"
            )

    def first_page(self) -> U8:
        """Return the first page, (page_bytes,) uint8; empty if there is none.

        Advances as `blocks` does: for a CpuPages of its own.
        """
        page = self.buffer.page_bytes
        data = next(self._chunks() if self.buffer.compressed else self._pieces(page), b"")
        return np.frombuffer(data[:page] if len(data) >= page else b"", np.uint8)

    def _pieces(self, size: int) -> Iterator[bytes]:
        fields = Fields(self.stream, self.name, self.recording.order)
        end = self.where.offset + self.where.size
        self._note_missing(end - fields.size)
        end = min(end, fields.size)
        while (at := self.where.offset + self.read) < end:
            fields.seek(at)
            data = fields.take(min(size, end - at))
            self.read += len(data)
            yield data

    def _chunks(self) -> Iterator[bytes]:
        fields = Fields(self.stream, self.name, self.recording.order)
        end = self.where.offset + COUNT_BYTES + self.where.size
        self._note_missing(end - fields.size)
        end = min(end, fields.size)
        self.read = COUNT_BYTES
        announced = found = 0
        if self.where.offset + COUNT_BYTES <= fields.size:
            fields.seek(self.where.offset)
            announced = fields.number(COUNT_BYTES)
        while (at := self.where.offset + self.read) + _CHUNK_HEAD_BYTES <= end:
            fields.seek(at)
            stored, size = fields.number(4), fields.number(4)
            if not stored and not size and found >= announced:
                break  # zeros up to a page's end
            data = fields.take(min(stored, end - at - _CHUNK_HEAD_BYTES))
            self.read += _CHUNK_HEAD_BYTES + len(data)
            found += 1
            try:
                yield self.recording.decompressor.decompress(
                    data, size, f"{self.name}: chunk at offset {at}"
                )
            except LogFormatError as error:
                self.unreadable += len(data)
                self.problems.append(f"{error}; left out")
        if found != announced and not self.missing:
            self.problems.append(
                f"{self.name}: CPU {self.where.cpu} has {announced} chunks by its count at offset "
                f"{self.where.offset}, {found} by its size: the file is damaged; these were read"
            )

    def _note_missing(self, count: int) -> None:
        if count > 0:
            self.missing = min(count, self.where.size)
            self.problems.append(
                f"{self.name}: cut off: {self.missing} of {self.where.size} bytes of CPU "
                f"{self.where.cpu} are missing; copy the file again, or record again"
            )
