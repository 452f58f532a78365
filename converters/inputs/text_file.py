# SPDX-License-Identifier: Apache-2.0
"""A file or stream of text, plain, gzip or zstd, as blocks of whole lines."""

import os
from collections.abc import Iterator

from biotrail.converters.inputs.beginning import PathOrStream, begin, open_file
from biotrail.converters.inputs.unpacking import UNPACKING_ERRORS, Allowance, unpacked
from biotrail.recorder.schema.strings import shown

BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 16
_SHOWN = 60
_KEPT, _LONGEST_KEPT = 20, 300
_WHOLE = (b"]", b" cmd=", b" */")
"""What the lines of most events end with: a last line that does, too, is not cut off."""


class TextFile:
    """The lines of a text, read once.

    size: bytes of the file, -1 unknown. first: its first bytes. unreadable: bytes of a last line
    without end. problems: what could not be read, met so far.
    """

    def __init__(self, given: PathOrStream, name: str) -> None:
        """Open the file. name: for messages. Raises LogFormatError: it cannot be opened."""
        beginning = begin(given)
        self.first = beginning.first
        self._owned = beginning.path is not None
        self._name = name
        self._file = open_file(beginning.given, "a file with printed events")
        self.size = (os.fstat(self._file.fileno()).st_size or -1) if self._owned else -1
        self._allowance = Allowance()
        self._stream = unpacked(self._file, beginning.first, self._allowance)
        self._lines = 0
        self._gained = 0
        self.unreadable = 0
        self.problems: list[str] = []

    @property
    def offset(self) -> int:
        """Bytes of the file that were read so far."""
        return self._allowance.stored

    def blocks(self) -> Iterator[bytes]:
        """Yield whole lines, about BLOCK_BYTES at a time; a last one that may be cut is left out.

        A line that is longer than any event's is cut off, and counts as no event. Closes the file
        at the end, but not a stream passed in.
        """
        rest = b""
        while data := self._next():
            data = rest + data
            end = data.rfind(b"\n") + 1
            if not end and len(data) > _LONGEST_LINE:
                data, end = data + b"\n", len(data) + 1
            rest = data[end:]
            if end:
                self._lines += data.count(b"\n", 0, end)
                yield data[:end]
        if rest.rstrip().endswith(_WHOLE):
            yield rest + b"\n"
        elif rest:
            self.unreadable += len(rest)
            self.problems.append(
                f"{self._name}: line {self._lines + 1} has no end: the file is cut off there; left "
                "out"
            )
        if self._owned:
            self._file.close()

    def use(self, count: int) -> None:
        """Count events that were found in what was read, which lets more be unpacked."""
        self._allowance.use(count)

    def _next(self) -> bytes:
        """Return the next bytes, about BLOCK_BYTES; empty at the end.

        A compressed file that is damaged, or holds little of use, ends there, with a problem.
        """
        try:
            data = self._stream.read(BLOCK_BYTES)
        except (OSError, *UNPACKING_ERRORS) as error:
            self.problems.append(
                f"{self._name}: cannot be read on behind byte {self._gained} of the text "
                f"({error}): copy the file again; what is before is kept"
            )
            return b""
        self._gained += len(data)
        return data


class Examples:
    """How many lines were left out, the first one, and the beginnings of some."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.texts: list[bytes] = []

    def add(self, number: int, text: bytes) -> None:
        """Count a line, of a number from 1 on."""
        if not self.count:
            words = text[:_SHOWN].decode("utf-8", "backslashreplace")
            self.first = f"the first in line {number}: {shown(words)!r}"
        if len(self.texts) < _KEPT:
            self.texts.append(text[:_LONGEST_KEPT])
        self.count += 1
