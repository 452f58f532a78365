# SPDX-License-Identifier: Apache-2.0
"""Compression of outputs whose names end in .gz or .zst, and decompression of zstd."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import zstandard

from biotrail.cli.options.beside import beside
from biotrail.recorder.schema.errors import LogFormatError

GZIP, ZSTD = ".gz", ".zst"
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 9
"""Takes as long as gzip at _GZIP_LEVEL, and is a seventh smaller."""


def plain(path: str) -> str:
    """Return the path without an ending .gz or .zst."""
    return path.removesuffix(GZIP).removesuffix(ZSTD)


@contextmanager
def compressed(stream: BinaryIO, path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a stream that compresses into `stream` as the ending of `path` says.

    .gz: gzip; .zst: zstd; any other ending: `stream` itself. Equal input gives equal output, for
    the gzip header gets neither a name nor a time. Compression is done by a thread, beside what
    writes to the stream; the bytes do not depend on that. Leaves `stream` open.
    """
    ending = os.fspath(path)
    if ending.endswith(GZIP):
        packer = gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0)
        with packer as packed, beside(cast(BinaryIO, packed)) as taken:
            yield taken
    elif ending.endswith(ZSTD):
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        with compressor.stream_writer(stream, closefd=False) as writer, beside(writer) as taken:
            yield taken
    else:
        yield stream


def first_bytes(stream: BinaryIO, count: int) -> bytes:
    """Return the first `count` bytes of decompressed zstd data; empty if it is damaged."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(stream, closefd=False) as reader:
            return reader.read(count)
    except zstandard.ZstdError:
        return b""


def unpack(stream: BinaryIO, out: BinaryIO, name: str) -> None:
    """Decompress zstd data from `stream` into `out`.

    Raises LogFormatError, which names the file `name`, if the data is damaged.
    """
    try:
        zstandard.ZstdDecompressor().copy_stream(stream, out)
    except zstandard.ZstdError as error:
        raise LogFormatError(
            f"{name}: does not decompress ({error}): convert the log again"
        ) from None
