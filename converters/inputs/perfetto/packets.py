# SPDX-License-Identifier: Apache-2.0
"""The packets of a Perfetto trace, block by block, with what is compressed in them.

A trace is one protobuf message, Trace, whose field 1 is repeated: its TracePackets
(protos/perfetto/trace/trace.proto, trace_packet.proto). A file or stream may be gzip or zstd.
Fields of messages are columns: one row per message, without an object for any.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from biotrail.converters.events.tables import I64, U8
from biotrail.converters.inputs.perfetto import wire_loops as loops
from biotrail.converters.inputs.unpacking import (
    EVENT_BYTES,
    UNPACKING_ERRORS,
    ZSTD,
    Allowance,
    TooLargeError,
    Unpacked,
    beginning,
    unpacked,
)

MISSING, NUMBER = -1, -2
"""Lengths (`Fields.length`) of a field that does not occur, and of one that is a number."""


@dataclass(frozen=True)
class Messages:
    """Messages in a buffer: begin[i] to end[i] are the bytes of the i-th."""

    data: memoryview
    begin: I64
    end: I64

    def __len__(self) -> int:
        return len(self.begin)

    def take(self, rows: I64) -> "Messages":
        return Messages(self.data, self.begin[rows], self.end[rows])

    def bytes(self, row: int) -> bytes:
        return bytes(self.data[int(self.begin[row]) : int(self.end[row])])

    def fields(self, numbers: Sequence[int]) -> "Fields":
        """Return the fields with these numbers of every message, each field's last."""
        slots = np.full(max(numbers) + 1, -1, dtype=np.int64)
        slots[list(numbers)] = np.arange(len(numbers))
        shape = (len(numbers), len(self))
        value, length = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        found = Fields(self.data, tuple(numbers), value, length)
        found.broken = loops.single_fields(
            self.data, self.begin, self.end, slots, value, length, np.zeros(4, dtype=np.int64)
        )
        return found

    def repeated(self, number: int) -> "tuple[I64, Messages]":
        """Return (owner, messages): every field of bytes with this number, each's row."""
        # A field has two bytes at least; pages that are not written take no memory.
        most = int((self.end - self.begin).sum()) // 2
        owner, begin, end = (np.empty(most, dtype=np.int64) for _ in range(3))
        scratch = np.zeros(4, dtype=np.int64)
        count = loops.repeated_fields(
            self.data, self.begin, self.end, number, owner, begin, end, scratch
        )
        return owner[:count].copy(), Messages(self.data, begin[:count].copy(), end[:count].copy())


@dataclass
class Fields:
    """Fields of n messages, a row of the arrays per field number."""

    data: memoryview
    numbers: tuple[int, ...]
    value: I64
    """(fields, n): the number, as signed 64 bits; of bytes where they begin."""
    length: I64
    """(fields, n): length of bytes, else MISSING or NUMBER."""
    broken: int = field(default=0)
    """Messages that end in something that is no field."""

    def values(self, number: int) -> I64:
        """Return a field's numbers (n,), 0 where it does not occur or is bytes."""
        row = self.numbers.index(number)
        found: I64 = np.where(self.length[row] == NUMBER, self.value[row], 0)
        return found

    def messages(self, number: int) -> tuple[I64, Messages]:
        """Return (rows, messages): a field of bytes, of the rows that have it."""
        row = self.numbers.index(number)
        rows = np.flatnonzero(self.length[row] >= 0)
        begin = self.value[row][rows]
        return rows, Messages(self.data, begin, begin + self.length[row][rows])

    def texts(self, number: int, width: int) -> U8:
        """Return a field of text as bytes of `width` (n, width), filled with zeros; longer: cut."""
        row = self.numbers.index(number)
        out = np.zeros((self.length.shape[1], width), dtype=np.uint8)
        loops.copy_texts(self.data, self.value[row], self.length[row], out)
        return out


PACKET, COMPRESSED = 1, 50
"""Field numbers: Trace.packet, TracePacket.compressed_packets."""
_PACKET_TAG = 0x0A
"""A packet's first byte: the number of the field, and that it is bytes."""
_TAG_BYTE = bytes([_PACKET_TAG])
_ENOUGH = 4096

_KNOWN_FIELDS = 1024
"""TracePacket's fields have lower numbers, but for those of tests and extensions."""
_BLOCK = 4 << 20
_MOST_PACKETS = 1 << 16
_LARGEST = 64 << 20

_MOST_INFLATED = 16 << 20
"""Bytes of packets that are compressed in one packet; Perfetto's recorder puts some MB in one."""
_ENDS = "does not decompress further: {}"
_LONGEST_HEAD = 20


class Packets:
    """Reads the packets of a trace once, in order; memory is bounded by the largest packet.

    After the last block `whole` is the length of the trace (bytes, decompressed) up to the end of
    its last whole packet, and `problem` says why nothing behind it was read.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """stream: a trace at its beginning, plain, gzip or zstd; it stays the caller's."""
        self._allowance = Allowance()
        self._stream = plain(stream, self._allowance)
        self.whole = 0
        self.problem: str | None = None
        """What is wrong behind `whole`; None: nothing is there."""
        self.not_inflated = 0
        """Number of packets whose compressed packets cannot be read, or not all of them."""
        self.nested = 0
        """Number of packets that are compressed within compressed ones, which are not read."""
        self.elsewhere = 0
        """Bytes of fields beside the packets: a trace has no others."""
        self._pending = b""
        self._wanted = 0
        """Bytes that the packet at `whole` has; 0: not known."""

    def blocks(self) -> Iterator[Messages]:
        while True:
            size = max(_BLOCK, self._wanted - len(self._pending))
            try:
                more = self._stream.read(size)
            except UNPACKING_ERRORS as error:
                self.problem = _ENDS.format(error)
                return
            if not more:
                break
            data, at = self._pending + more, 0
            while True:
                found, used = self._whole(memoryview(data)[at:])
                at += used
                if len(found):
                    yield found
                    yield from self._inflated(found)
                if self.problem is not None:
                    return
                if len(found) < _MOST_PACKETS:
                    break
            self._pending = data[at:]
        if self._pending and self.problem is None:
            self.problem = f"its last packet is cut off after {len(self._pending)} bytes"

    def use(self, block: Messages, fields: Fields) -> None:
        """Count the packets of a block that have some of the fields that are looked for."""
        known = (fields.length != MISSING).any(axis=0)
        sizes = np.minimum(block.end - block.begin, EVENT_BYTES)
        self._allowance.used += int(sizes[known].sum())

    def _inflated(self, packets: Messages) -> Iterator[Messages]:
        _, compressed = packets.fields([COMPRESSED]).messages(COMPRESSED)
        for row in range(len(compressed)):
            inflater = zlib.decompressobj()
            try:
                data = inflater.decompress(compressed.bytes(row), _MOST_INFLATED)
            except zlib.error:
                data = b""
            try:
                self._allowance.add(len(data))
            except TooLargeError as error:
                self.not_inflated += not inflater.eof
                self.problem = _ENDS.format(error)
                return
            found, used = self._fields(memoryview(data), len(data) // 2 + 1)
            self.not_inflated += not inflater.eof or used < len(data)
            nested, _ = found.fields([COMPRESSED]).messages(COMPRESSED)
            self.nested += len(nested)
            for first in range(0, len(found), _MOST_PACKETS):
                yield found.take(np.arange(first, min(first + _MOST_PACKETS, len(found))))

    def _whole(self, data: memoryview) -> tuple[Messages, int]:
        """Return (packets, bytes used); advance `whole`, set `_wanted` or `problem`."""
        scratch = np.zeros(4, dtype=np.int64)
        found, used = self._fields(data, _MOST_PACKETS, scratch)
        count = len(found)
        self.whole += used
        self._wanted = 0
        left = len(data) - used
        if count < _MOST_PACKETS and left:
            length = int(scratch[3])
            if length > _LARGEST:
                self.problem = f"a packet of {length} bytes, more than {_LARGEST}"
            elif length >= 0:
                self._wanted = length + _LONGEST_HEAD
            elif left > _LONGEST_HEAD:
                self.problem = "what stands there is no packet"
        return found, used

    def _fields(
        self, data: memoryview, most: int, scratch: I64 | None = None
    ) -> tuple[Messages, int]:
        """Return (packets, bytes used) of a Trace, which may be cut off; `most` at most."""
        begin, end = (np.empty(most, dtype=np.int64) for _ in range(2))
        scratch = np.zeros(4, dtype=np.int64) if scratch is None else scratch
        count, used = loops.whole_fields(data, PACKET, begin, end, scratch)
        begin, end = begin[:count], end[:count]
        starts = np.concatenate([np.zeros(min(count, 1), dtype=np.int64), end[:-1]])
        tags = np.frombuffer(data, np.uint8)[starts]
        others = (tags != _PACKET_TAG) | (begin - starts > _LONGEST_HEAD)
        behind = used - int(end[-1]) if count else used
        heads = 2 + sum((end - begin >= 1 << 7 * size).astype(np.int64) for size in range(1, 5))
        self.elsewhere += int((begin - starts - heads)[others].sum()) + behind
        return Messages(data, begin, end), used


def plain(stream: BinaryIO, allowance: Allowance) -> Unpacked:
    first = stream.read(len(ZSTD))
    stream.seek(0)
    return unpacked(stream, first, allowance)


def is_perfetto(first: bytes) -> bool:
    """Return whether the first packet has fields that a TracePacket may have alone."""
    first = beginning(first, _ENOUGH)
    if not first.startswith(_TAG_BYTE):
        return False
    length, begin = _varint(first, 1)
    end = begin + length
    if length < 0 or not _is_packet(first[begin:end], end > len(first)):
        return False
    return len(first) >= _ENOUGH if end > len(first) else first[end : end + 1] in (b"", _TAG_BYTE)


def _is_packet(data: bytes, cut: bool) -> bool:
    """Return whether bytes are fields as a TracePacket may have. cut: the last is not whole."""
    at = fields = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag < 0:
            return cut
        kind, number = tag & 7, tag >> 3
        if not 0 < number < _KNOWN_FIELDS or kind not in (0, 1, 2, 5):
            return False
        fields += 1
        if kind in (0, 2):
            value, at = _varint(data, at)
            if value < 0:
                return cut
            at += value if kind == 2 else 0
        else:
            at += 8 if kind == 1 else 4
    return fields > 0 and (cut or at == len(data))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, end) of a varint; value -1: it is cut off or longer than 10 bytes."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return -1, len(data)
