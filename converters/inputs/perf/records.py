# SPDX-License-Identifier: Apache-2.0
"""perf's records, block by block: found in the data section or pipe, and decompressed."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np
import zstandard

from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.converters.inputs.perf import walk_loops as loops
from biotrail.converters.inputs.perf.layout import (
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

    data: bytes, a multiple of 8, at an address that is one. at: offset of each record in `data`.
    rounds: offsets in `data` at which a round ended: records behind it are not older than what came
    before the round before. start: a number that grows from block to block by their lengths.
    offset: bytes of the recording read so far.
    """

    data: U8
    at: I64
    rounds: list[int]
    start: int
    offset: int


class RecordStream:
    """The records of a data section or a pipe, read once.

    offset: bytes read so far, from the recording's start. problems, unreadable: descriptions of
    damage, and the bytes that it concerns. gave_up: whether the reading ended before the data.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        order: ByteOrder,
        offset: int,
        size: int | None,
        on_tracing_data: Callable[[bytes], None],
    ) -> None:
        """stream: at the first record, at `offset`. size: of the section; None: to its end.

        name: of the recording, for messages. on_tracing_data: called with the formats of
        tracepoints where a pipe has them, after the blocks before.
        """
        self._on_tracing_data = on_tracing_data
        self._stream, self._name, self._order = stream, name, order
        self.offset = offset
        self._left = size
        self.problems: list[str] = []
        self.unreadable = 0
        self.gave_up = False
        self._start = 0
        self._unpacker = Unpacker(name, order)

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
            if found.bad:
                self._give_up(rest)
                return
            if found.followed:
                rest = self._take_followed(rest)
                continue
            if not more:
                self._end(rest)
                return

    def _blocks_of(self, data: bytes, found: "Walk") -> Iterator[Block]:
        packed = self._is_packed(data, found)
        rounds = (found.types == RecordType.FINISHED_ROUND) & (found.sizes == HEADER_BYTES)
        if not packed.any():
            if len(found.at):
                yield self._block(data, found, rounds)
            return
        if not (packed | rounds).all():
            yield self._block(data, found.take(~packed), None)
        inner, ends = self._unpacker.unpack(data, found.take(packed | rounds))
        inside = walk(inner, self._order)
        yield self._block(inner, inside, None, ends)
        self._unpacker.rest = inner[inside.end :]
        if inside.bad or inside.followed:
            raise LogFormatError(
                f"{self._name}: the compressed data before offset {self.offset} hold no record of "
                "perf: the file is damaged there; record again"
            )

    def _is_packed(self, data: bytes, found: "Walk") -> Bool:
        """Return which records (n,) hold compressed ones, by their types and what they begin with.

        COMPRESSED2 has its contents' size; the first of all begins a zstd frame.
        """
        packed: Bool = np.isin(found.types, PACKED)
        begun = self._unpacker.begun
        for row in np.flatnonzero(packed).tolist():
            at, size = int(found.at[row]), int(found.sizes[row])
            record = data[at : at + size]
            if found.types[row] == RecordType.COMPRESSED2:
                (held,) = struct.unpack_from(f"{self._order}Q", record.ljust(16, b"\0"), 8)
                packed[row] = held > 0 and _padded(2 * HEADER_BYTES + held) == size
            elif not begun:
                packed[row] = record[HEADER_BYTES:].startswith(ZSTD)
            begun |= bool(packed[row])
        return packed

    def _block(
        self, data: bytes, found: "Walk", rounds: Bool | None, ends: list[int] | None = None
    ) -> Block:
        """Return a block of records, and advance what counts the bytes of blocks.

        rounds: which records end a round; None: the rounds' `ends` in `data` are given instead.
        """
        at = found.at
        if (at & 7).any():
            # Only perf's own records, such as a pipe's features, have lengths like that.
            data, at = _aligned(data, found)
        end = int(at[-1]) + _padded(int(found.sizes[-1])) if len(at) else 0
        ends = (ends or []) if rounds is None else at[rounds].tolist()
        start, self._start = self._start, self._start + end
        return Block(
            np.frombuffer(data.ljust(end, b"\0"), np.uint8, end),
            at,
            ends,
            start,
            self.offset,
        )

    def use(self, count: int) -> None:
        """Count block events that were found, which lets more be unpacked."""
        self._unpacker.allowance.use(count)

    def _read(self, count: int) -> bytes:
        """Return the next bytes, `count` at most; b"" at the section's or stream's end."""
        if self._left is not None:
            count = min(count, self._left)
        try:
            data = self._stream.read(count) if count else b""
        except OSError as error:
            raise LogFormatError(
                f"{self._name}: cannot be read at offset {self.offset}: "
                f"{error.strerror or error}; copy what can be read elsewhere"
            ) from error
        self.offset += len(data)
        if self._left is not None:
            self._left -= len(data)
        return data

    def _take_followed(self, rest: bytes) -> bytes:
        """Read the data behind the record that `rest` begins with; return what is behind them.

        Tracing data are handed to `on_tracing_data`, others passed over.
        """
        kind, _, size = struct.unpack_from(f"{self._order}IHH", rest)
        # PERF_RECORD_TRACING_DATA has its data's size in 4 bytes, PERF_RECORD_AUXTRACE in 8.
        form = "Q" if kind == RecordType.AUXTRACE else "I"
        (length,) = struct.unpack_from(f"{self._order}{form}", rest[:size].ljust(16, b"\0"), 8)
        rest = rest[size:]
        if kind == RecordType.AUXTRACE:
            while length > len(rest) and (more := self._read(BLOCK_BYTES)):
                length, rest = length - len(rest), more
            self._note_missing(length - len(rest))
            return rest[length:]
        pieces = [rest]
        have = len(rest)
        while have < min(length, _MOST_TRACING_BYTES) and (more := self._read(BLOCK_BYTES)):
            pieces.append(more)
            have += len(more)
        rest = b"".join(pieces)
        self._note_missing(length - len(rest))
        self._on_tracing_data(rest[:length])
        return rest[length:]

    def _note_missing(self, count: int) -> None:
        if count > 0:
            self.problems.append(
                f"{self._name}: {count} bytes of data that a record before offset {self.offset} "
                "announces are missing: the recording is cut off or damaged"
            )

    def _give_up(self, rest: bytes) -> None:
        at = self.offset - len(rest)
        lost = len(rest) + (self._left or 0)
        self.unreadable += lost
        self.gave_up = True
        self.problems.append(
            f"{self._name}: no record of perf at offset {at}: the file is damaged there; "
            f"{lost} bytes from there on were not read"
        )

    def _end(self, rest: bytes) -> None:
        if rest or self._left:
            self.unreadable += len(rest)
            self.gave_up = True
            self.problems.append(
                f"{self._name}: the recording is cut off at offset {self.offset}"
                + (f": {len(rest)} bytes left out" if rest else "")
            )


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
    view = memoryview(data)
    own = (FIRST_OF_PERF, LAST_OF_PERF)
    limits = np.array([*own, _LONGEST_FOLLOWED], np.int64)
    count, end, bad, stopped = loops.find(view, order == ">", limits, followed, found)
    return Walk(found[0, :count], found[1, :count], found[2, :count], end, bad, stopped)


def _padded(size: int) -> int:
    return size + 7 & ~7


def _aligned(data: bytes, found: Walk) -> tuple[bytes, I64]:
    """Return (bytes, offsets) of the records, each padded to a multiple of 8 bytes."""
    places = zip(found.at.tolist(), found.sizes.tolist(), strict=True)
    pieces = [data[at : at + size].ljust(_padded(size), b"\0") for at, size in places]
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    return b"".join(pieces), np.cumsum(lengths) - lengths


class Unpacker:
    """Decompresses the records of `perf record -z`: one zstd stream in many records.

    rest: the end of what was decompressed, that is no whole record yet.
    """

    def __init__(self, name: str, order: ByteOrder) -> None:
        """name: of the recording, for messages."""
        self._name, self._order = name, order
        self._zstd = zstandard.ZstdDecompressor().decompressobj()
        self.allowance = Allowance()
        self.rest = b""

    @property
    def begun(self) -> bool:
        """Whether anything was unpacked so far."""
        return self.allowance.stored > 0

    def unpack(self, data: bytes, found: Walk) -> tuple[bytes, list[int]]:
        """Return (bytes, rounds): `rest` and what the packed records hold, and where rounds ended.

        found: the packed records and FINISHED_ROUND in `data`. Raises LogFormatError: the data are
        damaged, or grow beyond all measure.
        """
        pieces, length, rounds = [self.rest], len(self.rest), []
        columns = (found.at.tolist(), found.types.tolist(), found.sizes.tolist())
        for at, kind, size in zip(*columns, strict=True):
            if kind == RecordType.FINISHED_ROUND:
                rounds.append(length)
                continue
            for piece in self._unpacked(self._contents(data[at : at + size], kind)):
                pieces.append(piece)
                length += len(piece)
        return b"".join(pieces), rounds

    def _contents(self, record: bytes, kind: int) -> bytes:
        """Return what is compressed in a record; COMPRESSED2 says how much, and is padded."""
        if kind == RecordType.COMPRESSED:
            return record[HEADER_BYTES:]
        endian: Literal["little", "big"] = "little" if self._order == "<" else "big"
        size = int.from_bytes(record[HEADER_BYTES : HEADER_BYTES + 8], endian)
        return record[HEADER_BYTES + 8 :][:size]

    def _unpacked(self, packed: bytes) -> Iterator[bytes]:
        for start in range(0, len(packed), _SLICE_BYTES):
            given = packed[start : start + _SLICE_BYTES]
            try:
                taken = self._zstd.decompress(given)
            except zstandard.ZstdError as error:
                raise LogFormatError(
                    f"{self._name}: its compressed data cannot be decompressed: {error}; the file "
                    "is damaged: record again"
                ) from error
            self.allowance.stored += len(given)
            try:
                self.allowance.add(len(taken))
            except TooLargeError as error:
                raise LogFormatError(
                    f"{self._name}: its compressed data grow as perf's never do ({error}): the "
                    "file is damaged, or made to do harm"
                ) from None
            yield taken
