# SPDX-License-Identifier: Apache-2.0
"""Lines of blkparse as blktrace's records: what a block of text says, and what it leaves out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, U64
from biotrail.converters.inputs.blkparse import line_loops as loops
from biotrail.converters.inputs.blktrace.files import Batch
from biotrail.converters.inputs.blktrace.format import (
    ACT_MASK,
    CATEGORY_SHIFT,
    HEAD,
    REMAP,
    Act,
    Category,
)
from biotrail.converters.inputs.tracepoints.rows import THREAD_NAMES, TracepointRows

_AT: dict[str, int] = loops.COLUMNS
_WIDTH: int = loops.WIDTH
_LEAST_RECORD_BYTES = 24
"""Fewer bytes than any line of a record has."""
_COMM_BYTES = 16
_NO_NAMES = (b"(null)", b"unknown")
"""What blkparse prints for a thread whose name was not recorded."""
_NUMBER_WORD = np.dtype(">u8")


@dataclass(frozen=True)
class OtherLine:
    """A line that is no record: its number in the block, whether it looks like one, its text."""

    line: int
    bad: bool
    text: bytes


@dataclass
class Lines:
    """The records of a block of text, in the order of its lines.

    table: (NUMBERS, n), columns as in `line_loops.COLUMNS`. lines: how many lines the block has.
    """

    data: bytes
    table: U64
    others: list[OtherLine]
    lines: int

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def column(self, name: str) -> U64:
        """Return a column, a view (n,)."""
        column: U64 = self.table[_AT[name]]
        return column

    @property
    def act(self) -> I64:
        """Each record's action (`Act`), (n,); of a message -1."""
        action = self.column("action")
        act = (action & np.uint64(ACT_MASK)).astype(np.int64)
        act[self.is_message] = -1
        return act

    @property
    def is_message(self) -> NDArray[np.bool_]:
        """Which are messages, (n,)."""
        bit = np.uint64(int(Category.NOTIFY) << CATEGORY_SHIFT)
        found: NDArray[np.bool_] = (self.column("action") & bit) != 0
        return found

    def before(self, row: int) -> "Lines":
        """Return the records before a row, and the lines that are none before its line."""
        line = int(self.column("line")[row])
        others = [other for other in self.others if other.line < line]
        return Lines(self.data, self.table[:, :row], others, line)


class LineReader:
    """Reader of blocks of lines, with room that is used again."""

    def __init__(self) -> None:
        self._row = np.zeros(_WIDTH, np.uint64)
        self._counts = np.zeros(3, np.int64)
        self._records = np.zeros(0, np.uint64)
        self._others = np.zeros(0, np.int64)

    def read(self, data: bytes) -> Lines:
        """Return the records of whole lines."""
        self._make_room(len(data))
        views: tuple[NDArray[Any], ...] = (self._row, self._records, self._others, self._counts)
        # Uncompiled, memoryviews give and take Python's own integers.
        loops.read_lines(memoryview(data), *(view.data for view in views))
        found, other, lines = self._counts.tolist()
        table = self._records[: found * _WIDTH].reshape(found, _WIDTH)
        others = self._others[: other * 4].reshape(other, 4).tolist()
        bad = int(loops.KINDS["bad record"])
        return Lines(
            data,
            np.ascontiguousarray(table.T),
            [OtherLine(line, kind == bad, data[at : at + size]) for kind, at, size, line in others],
            lines,
        )

    def _make_room(self, size: int) -> None:
        """Have room for what a block of `size` bytes can hold."""
        records = (size // _LEAST_RECORD_BYTES + 1) * _WIDTH
        others = (size // 2 + 1) * 4
        if len(self._records) < records:
            self._records = np.zeros(records, np.uint64)
        if len(self._others) < others:
            self._others = np.zeros(others, np.int64)


def batch_of(lines: Lines) -> Batch:
    """Return the records as blktrace's would be: what stands in the text in place of payloads.

    The action has no category of FS, and an A is of the device in column dev.
    """
    head = np.zeros(len(lines), HEAD)
    for name, column in (
        ("sequence", "number"),
        ("time", "time"),
        ("sector", "sector"),
        ("bytes", "bytes"),
        ("action", "action"),
        ("pid", "pid"),
        ("device", "dev"),
        ("cpu", "cpu"),
    ):
        head[name] = lines.column(column)
    head["error"] = lines.column("error").astype(np.uint16).view(np.int16)
    words, length = _payloads(lines)
    messages = np.flatnonzero(lines.is_message)
    at = np.arange(len(lines)) * REMAP.itemsize
    at[messages] = words.size + lines.column("text_at")[messages].astype(np.int64)
    length[messages] = np.minimum(lines.column("text_length")[messages], 0xFFFF)
    head["pdu_len"] = length
    data = np.concatenate([words, np.frombuffer(lines.data, np.uint8)])
    return Batch(data, "<", head, at, [])


def _payloads(lines: Lines) -> tuple[U8, NDArray[np.uint16]]:
    """Return (payloads of X, U and A, 16 bytes for each record, their lengths (n,))."""
    act = lines.act
    words = np.zeros((len(lines), REMAP.itemsize), np.uint8)
    length = np.zeros(len(lines), np.uint16)
    one = np.isin(act, (Act.SPLIT, Act.UNPLUG_IO, Act.UNPLUG_TIMER))
    first = lines.column("first")[one].astype(_NUMBER_WORD)
    words[one, :8] = first.view(np.uint8).reshape(-1, 8)
    length[one] = 8
    remap = act == Act.REMAP
    where = np.zeros(int(np.count_nonzero(remap)), REMAP)
    where["device_from"] = lines.column("first")[remap]
    where["device_to"] = lines.column("command")[remap]
    where["sector_from"] = lines.column("second")[remap]
    words[remap] = where.view(np.uint8).reshape(-1, REMAP.itemsize)
    length[remap] = REMAP.itemsize
    return words.ravel(), length


def names_of(lines: Lines) -> list[TracepointRows]:
    """Return the threads' names in the lines, as rows of THREAD_NAMES, for those that have one."""
    named = np.flatnonzero((lines.column("text_length") > 0) & ~lines.is_message)
    comm = _texts(lines.data, lines.column("text_at")[named], lines.column("text_length")[named])
    known = ~np.isin(comm, np.array(_NO_NAMES, f"S{_COMM_BYTES}"))
    named, comm = named[known], comm[known]
    time = lines.column("time")[named].astype(np.int64)
    return [
        TracepointRows(
            THREAD_NAMES,
            time,
            lines.column("cpu")[named],
            lines.column("pid")[named],
            named.astype(np.int64),
            {"comm": comm},
        )
    ]


def _texts(data: bytes, at: U64, length: U64) -> NDArray[np.bytes_]:
    """Return texts at offsets, NUL-padded to a name's 16 bytes, cut there, (n,) S16."""
    letters = np.frombuffer(data + bytes(_COMM_BYTES), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(letters, _COMM_BYTES)
    taken = windows[at.astype(np.int64)]
    taken[np.arange(_COMM_BYTES) >= length[:, None].astype(np.int64)] = 0
    return np.ascontiguousarray(taken).view(f"S{_COMM_BYTES}")[:, 0]
