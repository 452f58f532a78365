# SPDX-License-Identifier: Apache-2.0
"""Reads numbers and strings one after the other from bytes that may be cut off or wrong."""

from typing import Literal

from biotrail.recorder.schema.errors import LogFormatError

ByteOrder = Literal["<", ">"]


class Cursor:
    """A position in bytes; every method returns what is there and goes on behind it.

    All raise LogFormatError where the bytes end before; `where` says of what file and part.
    """

    def __init__(self, data: bytes, order: ByteOrder, where: str) -> None:
        self._data, self._where = data, where
        self._endian: Literal["little", "big"] = "little" if order == "<" else "big"
        self.at = 0

    @property
    def rest(self) -> int:
        """Number of bytes that are left."""
        return len(self._data) - self.at

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        if count > self.rest:
            raise LogFormatError(
                f"{self._where}: {count} bytes are needed at offset {self.at}, {self.rest} are "
                "there: the file is cut off or damaged; record again, or copy it again"
            )
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, size: int) -> int:
        """Return the next unsigned integer of `size` bytes."""
        return int.from_bytes(self.take(size), self._endian)

    def text_until_nul(self) -> str:
        """Return the text up to the next NUL, and skip that."""
        end = self._data.find(b"\0", self.at)
        text = self.take((end if end >= 0 else len(self._data) + 1) - self.at)
        self.take(1)
        return text.decode("utf-8", "replace")

    def padded_text(self) -> str:
        """Return a text of perf's headers: a length of 4 bytes, and as many, NUL-padded."""
        return self.take(self.number(4)).split(b"\0")[0].decode("utf-8", "replace")
