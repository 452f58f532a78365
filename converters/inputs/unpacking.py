# SPDX-License-Identifier: Apache-2.0
"""Compressed recordings, gzip or zstd, and how much decompressing a recording may cost.

A few megabytes can unpack to gigabytes of nothing. Recordings compress to a tenth, rarely to a
thirtieth: what goes beyond `RATIO` has to hold events that are of use.
"""

import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""The magic numbers."""
RATIO = 64
"""Bytes that each stored byte may unpack to, whatever they are."""
SLACK = 16 << 20

EVENT_BYTES = 4096
"""Bytes that an event may take: a page of a ring that has one event, or its call chain as text."""
ZSTD_BLOCK = 1 << 17
"""Most bytes of a block of zstd, stored and unpacked: nothing of it can be read before its end."""
_PIECE = 1 << 18
_PACKED_PIECE = 1 << 16
_SKIPPED = b"\x50\x2a\x4d\x18"
"""Magic number of a zstd frame that holds no data; its lower 4 bits are anything."""
_REPEATED = 1

_CUT_OFF = "it is cut off"


class TooLargeError(ValueError):
    """More was unpacked than `Allowance` allows."""


UNPACKING_ERRORS = (EOFError, zlib.error, zstandard.ZstdError, TooLargeError)


class Allowance:
    """How much may be unpacked of one recording, counted as it is read.

    stored: bytes of the file that were read, for the caller to add to. gained: bytes that they
    were unpacked to, nested ones too. used: bytes of these in which something of use was found.
    """

    def __init__(self) -> None:
        self.stored = self.gained = self.used = 0

    def add(self, gained: int) -> None:
        if self.gained + gained > SLACK + RATIO * self.stored + self.used:
            raise TooLargeError(
                f"{self.stored} bytes unpack to more than {self.gained}, with little of use among "
                "them"
            )
        self.gained += gained

    def use(self, count: int) -> None:
        self.used += count * EVENT_BYTES


def beginning(first: bytes, most: int) -> bytes:
    """Return up to `most` bytes that a recording's first bytes unpack to; "" if damaged."""
    allowance = Allowance()
    try:
        return unpacked(io.BytesIO(first), first, allowance).read(most)
    except UNPACKING_ERRORS:
        return b""


def unpacked(stream: BinaryIO, first: bytes, allowance: Allowance) -> "Unpacked":
    """Return what a stream stores, as gzip, zstd or plain, by its first bytes."""
    counted = _Counted(stream, allowance)
    if first.startswith(GZIP):
        return Unpacked(_gzip(counted), allowance)
    if first.startswith(ZSTD):
        return Unpacked(_zstd(counted), allowance)
    return Unpacked(iter(lambda: counted.read(_PIECE), b""), None)


class Unpacked:
    """A stream of pieces; what it gains is counted in an allowance, if there is one."""

    def __init__(self, pieces: Iterator[bytes], allowance: Allowance | None) -> None:
        self._pieces, self._allowance = pieces, allowance
        self._rest = b""
        self._error: Exception | None = None

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer at the end, or before damage.

        Raises of UNPACKING_ERRORS where there is damage and nothing before it is left.
        """
        pieces, length = [self._rest], len(self._rest)
        while length < size and self._error is None:
            try:
                piece = next(self._pieces, None)
                if piece is not None and self._allowance is not None:
                    self._allowance.add(len(piece))
            except UNPACKING_ERRORS as error:
                self._error = error
                break
            if piece is None:
                break
            pieces.append(piece)
            length += len(piece)
        data = b"".join(pieces)
        self._rest = data[size:]
        if not data and self._error is not None:
            raise self._error
        return data[:size]


class _Counted:
    """A stream that counts what is read of it as stored, and keeps what is given back."""

    def __init__(self, stream: BinaryIO, allowance: Allowance) -> None:
        self._stream, self._allowance = stream, allowance
        self.back = b""

    def read(self, size: int) -> bytes:
        if self.back:
            data, self.back = self.back[:size], self.back[size:]
            return data
        data = self._stream.read(size)
        self._allowance.stored += len(data)
        return data

    def whole(self, size: int) -> bytes:
        data = self.read(size)
        while 0 < len(data) < size and (more := self.read(size - len(data))):
            data += more
        if len(data) < size:
            raise EOFError(_CUT_OFF)
        return data


def _gzip(stream: _Counted) -> Iterator[bytes]:
    """Yield what gzip's members hold; NULs behind them are padding. Raises zlib.error, EOFError."""
    while data := stream.read(_PACKED_PIECE):
        if not (data := data.lstrip(b"\0")):
            continue
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            if piece := inflater.decompress(data, _PIECE):
                yield piece
            data = inflater.unconsumed_tail
            if not (data or piece or inflater.eof or (data := stream.read(_PACKED_PIECE))):
                raise EOFError(_CUT_OFF)
        stream.back = inflater.unused_data + stream.back


def _zstd(stream: _Counted) -> Iterator[bytes]:
    """Yield what the frames of a zstd file hold, block by block. Raises ZstdError, EOFError.

    Blocks are at most 128 KiB, whatever they are stored as; the library alone would take as much
    memory as a frame asks for.
    """
    while magic := stream.read(len(ZSTD)):
        magic += stream.whole(len(ZSTD) - len(magic)) if len(magic) < len(ZSTD) else b""
        if magic[1:] == _SKIPPED[1:] and magic[0] & 0xF0 == _SKIPPED[0]:
            left = int.from_bytes(stream.whole(4), "little")
            while left:
                left -= len(stream.whole(min(left, _PACKED_PIECE)))
            continue
        # A frame's header and blocks: RFC 8878, 3.1.1.
        head = magic + stream.whole(1)
        form = head[4]
        single = form >> 5 & 1
        sizes = (1 - single) + (0, 1, 2, 4)[form & 3] + ((single, 2, 4, 8)[form >> 6])
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        yield decompressor.decompress(head + (stream.whole(sizes) if sizes else b""))
        last = False
        while not last:
            head = stream.whole(3)
            block = int.from_bytes(head, "little")
            last = bool(block & 1)
            stored = 1 if block >> 1 & 3 == _REPEATED else block >> 3
            if stored > ZSTD_BLOCK:
                raise zstandard.ZstdError("a block is longer than zstd's are")
            yield decompressor.decompress(head + (stream.whole(stored) if stored else b""))
        if form >> 2 & 1:
            yield decompressor.decompress(stream.whole(4))
