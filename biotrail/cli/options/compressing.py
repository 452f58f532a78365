# SPDX-License-Identifier: Apache-2.0
"""Outputs compressed as their names' endings say: .gz, .zst."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import zstandard

from biotrail.recorder.schema.errors import LogFormatError

GZIP, ZSTD = ".gz", ".zst"
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 9
"""As long as gzip takes, for a seventh less."""


def plain(path: str) -> str:
    """The path without such an ending."""
    return path.removesuffix(GZIP).removesuffix(ZSTD)


@contextmanager
def compressed(stream: BinaryIO, path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """What to write into so that it is compressed in `stream`, if the path's ending says so.

    The same bytes give the same file: it holds neither a name nor a time. `stream` stays open.
    """
    ending = os.fspath(path)
    if ending.endswith(GZIP):
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    elif ending.endswith(ZSTD):
        packer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        with packer.stream_writer(stream, closefd=False) as writer:
            yield writer
    else:
        yield stream


def first_bytes(stream: BinaryIO, count: int) -> bytes:
    """The first bytes that are in zstd data; none where it is damaged."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(stream, closefd=False) as reader:
            return reader.read(count)
    except zstandard.ZstdError:
        return b""


def unpack(stream: BinaryIO, out: BinaryIO, name: str) -> None:
    """Writes what is in zstd data. Raises LogFormatError where it is damaged."""
    try:
        zstandard.ZstdDecompressor().copy_stream(stream, out)
    except zstandard.ZstdError as error:
        raise LogFormatError(
            f"{name}: does not decompress ({error}): convert the log again"
        ) from None
