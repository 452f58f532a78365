# SPDX-License-Identifier: Apache-2.0
"""perf's records, block by block: found in the data section or pipe, and decompressed."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import zstandard

from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.converters.inputs.beginning import read_some
from biotrail.converters.inputs.perf import walk_loops as loops
from biotrail.converters.inputs.perf.facts import Facts
from biotrail.converters.inputs.perf.layout import (
    ENDIAN,
    FIRST_OF_PERF,
    HEADER_BYTES,
    LAST_OF_PERF,
    ByteOrder,
    RecordType,
)
from biotrail.converters.inputs.unpacking import ZSTD, Allowance, TooLargeError
from biotrail.recorder.schema.errors import LogFormatError

BLOCK_BYTES = 1 << 20
_MOST_TRACING_BYTES = 256 << 20
_SLICE_BYTES = 256
"""Compressed bytes that are given to zstd at once: a few bytes can become 128 KiB."""
_FOLLOWED = (RecordType.TRACING_DATA, RecordType.AUXTRACE)
"""Records whose data follow behind the record."""
_LONGEST_FOLLOWED = 48
"""Bytes of the longest of these records: a longer one is none."""
PACKED = (RecordType.COMPRESSED, RecordType.COMPRESSED2)


@dataclass
class Block:
    """Whole records in the order of the recording.

    data: bytes, a multiple of 8, at an address that is one; `wide`, `half` and `size` read them as
    numbers at many offsets at once. at: offset of each record in `data`. rounds: offsets in `data`
    at which a round ended: records behind it are not older than what came before the round before.
    start: a number that grows from block to block by their lengths. offset: bytes of the recording
    read so far.
    """

    data: U8
    order: ByteOrder
    at: I64
    rounds: list[int]
    start: int
    offset: int

    def wide(self, at: I64) -> I64:
        """Return the 8 bytes at each offset, a multiple of 8, as int64."""
        found: I64 = self.data.view(f"{self.order}u8")[at >> 3].astype(np.int64)
        return found

    def half(self, at: I64) -> I64:
        found: I64 = self.data.view(f"{self.order}u4")[at >> 2].astype(np.int64)
        return found

    def size(self, at: I64) -> I64:
        """Return the size (bytes) of the record at each offset."""
        found: I64 = self.data.view(f"{self.order}u2")[(at >> 1) + 3].astype(np.int64)
        return found


class RecordStream:
    """The records of a data section or a pipe, read once.

    offset: bytes read so far, from the recording's start. problems, unreadable: descriptions of
    damage, and the bytes that it concerns. gave_up: whether the reading ended before the data.
    """

    def __init__(self, stream: BinaryIO, facts: Facts) -> None:
        """stream: at the first record. facts: get a pipe's formats of tracepoints."""
        self._stream, self._facts = stream, facts
        self._name, self._order = facts.where, facts.order
        self.offset = facts.data_at
        self._left = facts.data_bytes
        self.problems: list[str] = []
        self.unreadable = 0
        self.gave_up = False
        self._start = 0
        self._zstd = zstandard.ZstdDecompressor().decompressobj()
        self.allowance = Allowance()
        self._unpacked_rest = b""
        """The end of what was decompressed, that is no whole record yet."""

    def blocks(self) -> Iterator[Block]:
        """Yield all records; those that are compressed in blocks of their own.

        Raises LogFormatError: the recording cannot be read, or compressed data are damaged.
        """
        rest = b""
        while True:
            more = self._read(BLOCK_BYTES)
            data = rest + more
            found = walk(data, self._order)
            yield from self._blocks_of(data, found)
            rest = data[found.end :]
            if found.followed and not found.bad:
                rest = self._take_followed(rest)
            elif found.bad or not more:
                break
        lost = len(rest) + (self._left or 0)
        self.gave_up = lost > 0
        if found.bad:
            self.problems.append(
                f"{self._name}: no record of perf at offset {self.offset - len(rest)}: the file is "
                f"damaged there; {lost} bytes from there on were not read"
            )
        elif lost:
            lost = len(rest)
            self.problems.append(
                f"{self._name}: the recording is cut off at offset {self.offset}"
                + (f": {len(rest)} bytes left out" if rest else "")
            )
        self.unreadable += lost

    def _blocks_of(self, data: bytes, found: "Walk") -> Iterator[Block]:
        # COMPRESSED2 has its contents' size; the first of all begins a zstd frame.
        packed: Bool = np.isin(found.types, PACKED)
        begun = self.allowance.stored > 0
        for row in np.flatnonzero(packed).tolist():
            at, size = int(found.at[row]), int(found.sizes[row])
            record = data[at : at + size]
            if found.types[row] == RecordType.COMPRESSED2:
                (held,) = struct.unpack_from(f"{self._order}Q", record.ljust(16, b"\0"), 8)
                packed[row] = held > 0 and _padded(2 * HEADER_BYTES + held) == size
            elif not begun:
                packed[row] = record[HEADER_BYTES:].startswith(ZSTD)
            begun |= bool(packed[row])
        rounds = (found.types == RecordType.FINISHED_ROUND) & (found.sizes == HEADER_BYTES)
        if not packed.any():
            if len(found.at):
                yield self._block(data, found, found.at[rounds].tolist(), rounds)
            return
        if not (packed | rounds).all():
            yield self._block(data, found.take(~packed), [])
        inner, ends = self._unpack(data, found.take(packed | rounds))
        inside = walk(inner, self._order)
        yield self._block(inner, inside, ends)
        self._unpacked_rest = inner[inside.end :]
        if inside.bad or inside.followed:
            raise LogFormatError(
                f"{self._name}: the compressed data before offset {self.offset} hold no record of "
                "perf: the file is damaged there; record again"
            )

    def _block(
        self, data: bytes, found: "Walk", ends: list[int], rounds: Bool | None = None
    ) -> Block:
        """Return a block of records, and advance what counts the bytes of blocks.

        ends: offsets in `data` at which rounds ended; rounds: the records that end these.
        """
        at = found.at
        if (at & 7).any():
            # Only perf's own records, such as a pipe's features, have lengths like that: each is
            # padded to a multiple of 8 bytes.
            places = zip(at.tolist(), found.sizes.tolist(), strict=True)
            pieces = [
                data[begin : begin + size].ljust(_padded(size), b"\0") for begin, size in places
            ]
            lengths = np.array([len(piece) for piece in pieces], np.int64)
            data, at = b"".join(pieces), np.cumsum(lengths) - lengths
            ends = ends if rounds is None else at[rounds].tolist()
        end = int(at[-1]) + _padded(int(found.sizes[-1])) if len(at) else 0
        start, self._start = self._start, self._start + end
        filled = np.frombuffer(data.ljust(end, b"\0"), np.uint8, end)
        return Block(filled, self._order, at, ends, start, self.offset)

    def _read(self, count: int) -> bytes:
        """Return the next bytes, `count` at most; b"" at the section's or stream's end."""
        if self._left is not None:
            count = min(count, self._left)
        data = read_some(self._stream, count, self._name, self.offset) if count else b""
        self.offset += len(data)
        if self._left is not None:
            self._left -= len(data)
        return data

    def _take_followed(self, rest: bytes) -> bytes:
        """Read the data behind the record that `rest` begins with; return what is behind them.

        Formats of tracepoints are added to the facts, other data passed over.
        """
        kind, _, size = struct.unpack_from(f"{self._order}IHH", rest)
        # PERF_RECORD_TRACING_DATA has its data's size in 4 bytes, PERF_RECORD_AUXTRACE in 8.
        form = "Q" if kind == RecordType.AUXTRACE else "I"
        (length,) = struct.unpack_from(f"{self._order}{form}", rest[:size].ljust(16, b"\0"), 8)
        rest = rest[size:]
        if kind == RecordType.AUXTRACE:
            while length > len(rest) and (more := self._read(BLOCK_BYTES)):
                length, rest = length - len(rest), more
        else:
            pieces, have = [rest], len(rest)
            while have < min(length, _MOST_TRACING_BYTES) and (more := self._read(BLOCK_BYTES)):
                pieces.append(more)
                have += len(more)
            rest = b"".join(pieces)
        if length > len(rest):
            self.problems.append(
                f"{self._name}: {length - len(rest)} bytes of data that a record before offset "
                f"{self.offset} announces are missing: the recording is cut off or damaged"
            )
        if kind == RecordType.TRACING_DATA:
            self._facts.add_tracing_data(rest[:length])
        return rest[length:]

    def _unpack(self, data: bytes, found: "Walk") -> tuple[bytes, list[int]]:
        """Return (what packed records hold, behind the rest of before; where in it rounds ended).

        `perf record -z` writes one zstd stream in many records. found: the packed records and
        FINISHED_ROUND in `data`. Raises LogFormatError: the data are damaged, or grow beyond all
        measure.
        """
        pieces, length, rounds = [self._unpacked_rest], len(self._unpacked_rest), []
        columns = (found.at.tolist(), found.types.tolist(), found.sizes.tolist())
        for at, kind, size in zip(*columns, strict=True):
            if kind == RecordType.FINISHED_ROUND:
                rounds.append(length)
                continue
            packed = data[at + HEADER_BYTES : at + size]
            if kind == RecordType.COMPRESSED2:  # says how much there is, and is padded
                packed = packed[8:][: int.from_bytes(packed[:8], ENDIAN[self._order])]
            for begin in range(0, len(packed), _SLICE_BYTES):
                part = packed[begin : begin + _SLICE_BYTES]
                try:
                    pieces.append(self._zstd.decompress(part))
                    self.allowance.stored += len(part)
                    self.allowance.add(len(pieces[-1]))
                except zstandard.ZstdError as error:
                    raise LogFormatError(
                        f"{self._name}: its compressed data cannot be decompressed: {error}; the "
                        "file is damaged: record again"
                    ) from error
                except TooLargeError as error:
                    raise LogFormatError(
                        f"{self._name}: its compressed data grow as perf's never do ({error}): the "
                        "file is damaged, or made to do harm"
                    ) from None
                length += len(pieces[-1])
        return b"".join(pieces), rounds


@dataclass
class Walk:
    """Records found in some bytes: the offset, type and size (bytes) of each.

    end: offset behind the last. bad: whether the bytes at `end` are no record's header. followed:
    whether a record of `_FOLLOWED` is there.
    """

    at: I64
    types: I64
    sizes: I64
    end: int
    bad: bool
    followed: bool

    def take(self, rows: Bool) -> "Walk":
        """Return the records of the mask `rows`, (n,), with the same end."""
        at, types, sizes = self.at[rows], self.types[rows], self.sizes[rows]
        return Walk(at, types, sizes, self.end, self.bad, self.followed)


def walk(data: bytes, order: ByteOrder) -> Walk:
    """Return the whole records at the beginning of `data`, up to the first of `_FOLLOWED`."""
    found = np.empty((3, len(data) // HEADER_BYTES), np.int64)
    followed = np.array(_FOLLOWED, np.int64)
    limits = np.array([FIRST_OF_PERF, LAST_OF_PERF, _LONGEST_FOLLOWED], np.int64)
    count, end, bad, stopped = loops.find(memoryview(data), order == ">", limits, followed, found)
    return Walk(found[0, :count], found[1, :count], found[2, :count], end, bad, stopped)


def _padded(size: int) -> int:
    return size + 7 & ~7
