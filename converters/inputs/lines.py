# SPDX-License-Identifier: Apache-2.0
"""Lines of printed events (ftrace, trace-cmd, perf) or records (blkparse) as columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
from biotrail.converters.inputs import line_loops as loops

_LEAST_LINE_BYTES = 20
"""Fewer bytes than any line with an event or record has."""


@dataclass(frozen=True)
class OtherLine:
    """A line that is no event or record: number in the block, kind, and its text.

    kind: of `line_loops.KINDS`; of "other event" the text is the event's name. at: the text's
    offset in the block.
    """

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
        """Return a column, a view (n,)."""
        column: U64 = self.table[loops.COLUMNS[name]]
        return column

    @property
    def time(self) -> I64:
        """Time (ns) of each, (n,)."""
        return self.column("time").view(np.int64)

    @property
    def cpu(self) -> I64:
        """CPU of each, (n,)."""
        return self.column("cpu").view(np.int64)

    @property
    def line(self) -> I64:
        """Number of each one's line in the block, (n,)."""
        return self.column("line").view(np.int64)


L = TypeVar("L", bound=Lines)


class LineReader(Generic[L]):
    """Reader of blocks of lines, with room that is used again."""

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
        """Return what whole lines hold."""
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
