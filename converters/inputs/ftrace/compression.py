# SPDX-License-Identifier: Apache-2.0
"""Compressed sections and chunks of trace.dat version 7: zstd and zlib."""

import zlib

import zstandard

from biotrail.converters.inputs.unpacking import Allowance, TooLargeError
from biotrail.recorder.log.frames import most_raw
from biotrail.recorder.schema.errors import LogFormatError

NONE = "none"
CODECS = ("zstd", "zlib", NONE)
_PAGE_BYTES = 1 << 16


class Decompressor:
    """Decompresses a file's sections and chunks, which must not be far larger than the file.

    codec: of CODECS.
    """

    def __init__(self, codec: str) -> None:
        self.codec = codec
        self.allowance = Allowance()

    def decompress(self, stored: bytes, size: int, where: str) -> bytes:
        """Return the `size` bytes that were stored compressed, allocating no more.

        where: file and offset, for the message. Raises LogFormatError: the data does not
        decompress, or to another size, or to more than the log format's ratio allows beside one
        page of 64 KiB, or with the data before to more than the allowance.
        """
        if size > most_raw(len(stored)) + _PAGE_BYTES:
            raise LogFormatError(
                f"{where}: {len(stored)} compressed bytes declare {size}: the file is damaged; "
                "copy it again"
            )
        self.allowance.stored += len(stored)
        try:
            self.allowance.add(size)
            data = _zstd(stored, size) if self.codec == "zstd" else _zlib(stored, size)
        except (zstandard.ZstdError, zlib.error, TooLargeError) as error:
            raise LogFormatError(
                f"{where}: does not decompress ({error}): the file is damaged; copy it again"
            ) from None
        if len(data) != size:
            raise LogFormatError(
                f"{where}: holds {len(data)} bytes where it declares {size}: the file is damaged; "
                "copy it again"
            )
        return data


def _zstd(stored: bytes, size: int) -> bytes:
    # trace-cmd leaves the content's size out; one that is there is trusted by the library.
    declared = zstandard.frame_content_size(stored)
    if declared not in (-1, size):
        raise zstandard.ZstdError(f"the frame declares {declared} bytes, its chunk {size}")
    return zstandard.ZstdDecompressor().decompress(stored, max_output_size=max(size, 1))


def _zlib(stored: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(stored, size + 1)
