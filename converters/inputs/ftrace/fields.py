# SPDX-License-Identifier: Apache-2.0
"""Numbers, strings and blocks of a trace.dat file, read one after the other."""

import os
from typing import BinaryIO, Literal, TypeAlias

from biotrail.recorder.schema.errors import LogFormatError

ByteOrder: TypeAlias = Literal["little", "big"]
_STRING_BYTES = 4096
"""Most bytes of a string that ends with a null byte: names, clocks, versions."""
_STRING_PIECE = 16
"""Bytes read at once for a string, so that many short ones are not read many times."""


class Fields:
    """A position in a file or a decompressed section, which each read advances.

    name: shown in errors. order: of numbers; set once the file has said which.
    """

    def __init__(self, stream: BinaryIO, name: str, order: ByteOrder = "little") -> None:
        """stream: can seek; read from its present position on."""
        self.stream = stream
        self.name = name
        self.order: ByteOrder = order
        here = stream.tell()
        self.size = stream.seek(0, os.SEEK_END)
        stream.seek(here)

    @property
    def at(self) -> int:
        """Offset (bytes) of what is read next."""
        return self.stream.tell()

    def seek(self, offset: int) -> None:
        """Go to an offset (bytes). Raises LogFormatError: it is not in the file."""
        if not 0 <= offset <= self.size:
            raise LogFormatError(
                f"{self.name}: refers to offset {offset}, but ends at {self.size}: the file is "
                "cut off or damaged; copy it again, or record again"
            )
        self.stream.seek(offset)

    def skip(self, count: int) -> None:
        """Pass over `count` bytes. Raises LogFormatError: the file ends before."""
        self.seek(self.at + count)

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes. Raises LogFormatError: the file ends before."""
        at = self.at
        if count > self.size - at:
            raise LogFormatError(
                f"{self.name}: cut off: {count} bytes at offset {at} reach behind the end at "
                f"{self.size}; copy the file again, or record again"
            )
        try:
            return self.stream.read(count)
        except OSError as error:
            raise LogFormatError(
                f"{self.name}: cannot be read at offset {at}: {error.strerror or error}; copy "
                "what can be read elsewhere"
            ) from error

    def number(self, count: int) -> int:
        """Return an unsigned number of `count` bytes. Raises LogFormatError: the file ends."""
        return int.from_bytes(self.take(count), self.order)

    def string(self) -> str:
        """Return a string and pass over the null byte at its end.

        Raises LogFormatError: the string has no end within `_STRING_BYTES`.
        """
        at, text = self.at, b""
        while b"\0" not in text:
            more = self.stream.read(_STRING_PIECE)
            text += more
            if not more or len(text) > _STRING_BYTES:
                raise LogFormatError(
                    f"{self.name}: a string at offset {at} has no end: the file is cut off or "
                    "damaged; copy it again, or record again"
                )
        text = text.partition(b"\0")[0]
        self.stream.seek(at + len(text) + 1)
        return text.decode("utf-8", "replace")

    def block(self, length_bytes: int = 8) -> bytes:
        """Return what follows a length of `length_bytes` bytes. Raises LogFormatError: cut off."""
        return self.take(self.number(length_bytes))
