# SPDX-License-Identifier: Apache-2.0
"""Printed events (ftrace, trace-cmd, perf) or records (blkparse): a text's lines as columns."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
from biotrail.converters.inputs import line_loops as loops
from biotrail.converters.inputs.beginning import PathOrStream, begin, open_file
from biotrail.converters.inputs.foreign import ForeignSource
from biotrail.converters.inputs.unpacking import UNPACKING_ERRORS, Allowance, unpacked
from biotrail.recorder.schema.strings import shown

BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 16
_SHOWN = 60
_KEPT, _LONGEST_KEPT = 20, 300
_WHOLE = (b"]", b" cmd=", b" */")
"""What the lines of most events end with: a last line that does, too, is not cut off."""


class TextFile:
    """The lines of a source's text, read once; what cannot be read is a problem of the source.

    first: its first bytes.
    """

    def __init__(self, given: PathOrStream, source: ForeignSource) -> None:
        beginning = begin(given)
        self.first = beginning.first
        self._owned = beginning.path is not None
        self._source = source
        self._file = open_file(beginning.given, "a file with printed events")
        source.size = (os.fstat(self._file.fileno()).st_size or -1) if self._owned else -1
        self._allowance = Allowance()
        self._stream = unpacked(self._file, beginning.first, self._allowance)
        self._lines = 0

    @property
    def offset(self) -> int:
        return self._allowance.stored

    def blocks(self) -> Iterator[bytes]:
        """Yield whole lines, about BLOCK_BYTES at a time; a last one that may be cut is left out.

        A line that is longer than any event's is cut off, and counts as no event. Closes the file
        at the end, but not a stream passed in.
        """
        rest, gained = b"", 0
        while True:
            try:
                data = self._stream.read(BLOCK_BYTES)
            except (OSError, *UNPACKING_ERRORS) as error:
                self._source.problem(
                    f"cannot be read on behind byte {gained} of the text ({error}): copy the file "
                    "again; what is before is kept"
                )
                break
            if not data:
                break
            gained += len(data)
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
            self._source.unreadable_bytes += len(rest)
            self._source.problem(
                f"line {self._lines + 1} has no end: the file is cut off there; left out"
            )
        if self._owned:
            self._file.close()

    def use(self, count: int) -> None:
        self._allowance.use(count)


class Examples:
    """How many lines were left out, the first one, and the beginnings of some."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.texts: list[bytes] = []

    def add(self, number: int, text: bytes) -> None:
        if not self.count:
            words = text[:_SHOWN].decode("utf-8", "backslashreplace")
            self.first = f"the first in line {number}: {shown(words)!r}"
        if len(self.texts) < _KEPT:
            self.texts.append(text[:_LONGEST_KEPT])
        self.count += 1


_LEAST_LINE_BYTES = 20
"""Fewer bytes than any line with an event or record has."""


@dataclass(frozen=True)
class OtherLine:
    line: int
    kind: int
    text: bytes
    at: int


@dataclass
class Lines:
    """What the lines of a block of text hold, in their order.

    table: (NUMBERS, n), columns as in `line_loops.COLUMNS`, of the events or records. others: the
    other lines that are not empty. lines: how many there are in all.
    """

    data: bytes
    table: U64
    others: list[OtherLine]
    lines: int

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def column(self, name: str) -> U64:
        column: U64 = self.table[loops.COLUMNS[name]]
        return column

    @property
    def time(self) -> I64:
        """Time (ns) of each, (n,)."""
        return self.column("time").view(np.int64)

    @property
    def cpu(self) -> I64:
        return self.column("cpu").view(np.int64)

    @property
    def line(self) -> I64:
        return self.column("line").view(np.int64)


L = TypeVar("L", bound=Lines)


class LineReader(Generic[L]):
    def __init__(
        self, made: type[L], shapes: Mapping[str, str] | None = None, acts: bytes = b""
    ) -> None:
        """made: what `read` returns. shapes: by event's name, how its fields are printed.

        acts: of records instead, the number of their action by its letter, 256 bytes.
        """
        self._made = made
        shapes = shapes or {}
        names = [name.encode() for name in shapes]
        hashes = [loops.name_hash(name, 0, len(name)) for name in names]
        self._hashes = np.array(hashes, np.uint64)
        self._shapes = np.array([loops.SHAPES[shape] for shape in shapes.values()], np.int64)
        self._acts = np.frombuffer(acts, np.uint8)
        self._row = np.zeros(loops.WIDTH, np.uint64)
        self._counts = np.zeros(3, np.int64)
        self._table = np.zeros(0, np.uint64)
        self._others = np.zeros(0, np.int64)

    def read(self, data: bytes) -> L:
        most = (len(data) // _LEAST_LINE_BYTES + 1) * loops.WIDTH
        if len(self._table) < most:
            self._table = np.zeros(most, np.uint64)
        if len(self._others) < (most := (len(data) // 2 + 1) * 4):
            self._others = np.zeros(most, np.int64)
        tables: tuple[NDArray[Any], ...] = (self._hashes, self._shapes, self._acts, self._row)
        filled = (self._table, self._others, self._counts)
        # Uncompiled, memoryviews give and take Python's own integers.
        loops.read_lines(memoryview(data), *(array.data for array in (*tables, *filled)))
        found, other, lines = self._counts.tolist()
        table = self._table[: found * loops.WIDTH].reshape(found, loops.WIDTH)
        others = self._others[: other * 4].reshape(other, 4).tolist()
        return self._made(
            data,
            np.ascontiguousarray(table.T),
            [OtherLine(line, kind, data[at : at + size], at) for kind, at, size, line in others],
            lines,
        )


def texts(lines: Lines, name: str, size: int, rows: I64) -> NDArray[np.bytes_]:
    """Return a column of texts at some rows, NUL-padded to `size` bytes and cut there, (n,) S."""
    at = loops.COLUMNS[name]
    begin, length = lines.table[at][rows].astype(np.int64), lines.table[at + 1][rows]
    letters = np.frombuffer(lines.data + bytes(size), np.uint8)
    taken = np.lib.stride_tricks.sliding_window_view(letters, size)[begin]
    taken[np.arange(size) >= length[:, None].astype(np.int64)] = 0
    return np.ascontiguousarray(taken).view(f"S{size}")[:, 0]
