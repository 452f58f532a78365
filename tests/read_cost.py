# SPDX-License-Identifier: Apache-2.0
"""What reading a file cost, in bytes: counted, so that it is the same on any machine."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from recorder import log_frames
from recorder.log_source import Source


@dataclass
class Cost:
    """Bytes read from the file, checksummed, and gained by decompressing payloads."""

    read: int = 0
    checksummed: int = 0
    decompressed: int = 0

    @property
    def looked_at(self) -> int:
        """Bytes of the file that were handled, each as often as it was."""
        return self.read + self.checksummed


@contextmanager
def counted() -> Iterator[Cost]:
    """Count what logs that are read within cost."""
    cost = Cost()
    crc32, read_at, decompress = zlib.crc32, Source.read_at, log_frames._decompress

    def counting_crc32(data: bytes, value: int = 0) -> int:
        cost.checksummed += len(data)
        return crc32(data, value)

    def counting_read_at(source: Source, offset: int, count: int) -> bytes:
        data = read_at(source, offset, count)
        cost.read += len(data)
        return data

    def counting_decompress(stored: bytes, raw: int) -> bytes:
        data = decompress(stored, raw)
        cost.decompressed += len(data)
        return data

    with (
        mock.patch.object(zlib, "crc32", counting_crc32),
        mock.patch.object(Source, "read_at", counting_read_at),
        mock.patch.object(log_frames, "_decompress", counting_decompress),
    ):
        yield cost
