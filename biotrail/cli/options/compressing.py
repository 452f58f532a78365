# SPDX-License-Identifier: Apache-2.0
"""Compression of outputs whose names end in .gz or .zst, by a thread; decompression of zstd."""

import gzip
import io
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import zstandard

from biotrail.recorder.schema.errors import LogFormatError

_PIECE = 1 << 20
_WAITING = 4
"""Pieces that wait at most: who writes faster than the stream takes them has to wait as well."""


@contextmanager
def in_thread(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a stream that can only be written to; a thread writes the same bytes to `stream`.

    Its exceptions come from a later write or the end of the block. Up to 6 MiB wait.
    """
    writer = _ThreadWriter(stream)
    try:
        yield cast(BinaryIO, writer)
        writer.pieces.put(writer.piece)
    except BaseException:  # Ctrl-C, too: or the thread would end the stream
        writer.given_up = True
        raise
    finally:
        writer.pieces.put(None)
        writer.thread.join()
    if writer.error is not None:
        raise writer.error


class _ThreadWriter(io.RawIOBase):
    """Collects what is written in pieces, which its thread writes to a stream in their order."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.piece = bytearray()
        self.pieces: queue.Queue[bytearray | None] = queue.Queue(_WAITING)
        self.error: BaseException | None = None
        self.given_up = False
        self.thread = threading.Thread(target=self._pass_on, name="compress", daemon=True)
        self.thread.start()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Take a copy of the bytes; return how many. Raises what the stream raised meanwhile."""
        if self.error is not None:
            raise self.error
        before = len(self.piece)
        self.piece += data
        taken = len(self.piece) - before
        if len(self.piece) >= _PIECE:
            self.pieces.put(self.piece)
            self.piece = bytearray()
        return taken

    def _pass_on(self) -> None:
        while (piece := self.pieces.get()) is not None:
            if self.error is None and not self.given_up:
                try:
                    self._stream.write(piece)
                except BaseException as error:  # raised where the bytes come from
                    self.error = error


GZIP, ZSTD = ".gz", ".zst"
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 9
"""Takes as long as gzip at _GZIP_LEVEL, and is a seventh smaller."""


def plain(path: str) -> str:
    return path.removesuffix(GZIP).removesuffix(ZSTD)


@contextmanager
def compressed(stream: BinaryIO, path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a stream that compresses as the ending of `path` says: equal input, equal output."""
    ending = os.fspath(path)
    if ending.endswith(GZIP):
        packer = gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0)
        with packer as packed, in_thread(cast(BinaryIO, packed)) as taken:
            yield taken
    elif ending.endswith(ZSTD):
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        with compressor.stream_writer(stream, closefd=False) as writer, in_thread(writer) as taken:
            yield taken
    else:
        yield stream


def unpack(stream: BinaryIO, out: BinaryIO, name: str) -> None:
    try:
        zstandard.ZstdDecompressor().copy_stream(stream, out)
    except zstandard.ZstdError as error:
        raise LogFormatError(
            f"{name}: does not decompress ({error}): convert the log again"
        ) from None
