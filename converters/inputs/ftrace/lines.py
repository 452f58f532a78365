# SPDX-License-Identifier: Apache-2.0
"""Printed events as columns: a block of lines of ftrace, trace-cmd or perf."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64, Bool
from biotrail.converters.inputs.ftrace import line_loops as loops
from biotrail.converters.inputs.tracepoints.rows import Column, TracepointRows
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.records import Kind

_REQUESTS = (Kind.I, Kind.D, Kind.RQ_MERGE, Kind.START, Kind.DONE)
_SHAPES = {
    **dict.fromkeys((Kind.Q, Kind.G, Kind.M, Kind.F), "bio"),
    Kind.BIO_COMPLETE: "bio error",
    **dict.fromkeys(_REQUESTS, "request"),
    **dict.fromkeys((Kind.C, Kind.E, Kind.R), "request error"),
    Kind.X: "split",
    **dict.fromkeys((Kind.A, Kind.RQ_REMAP), "remap"),
    Kind.P: "plug",
    Kind.U: "unplug",
}
"""How the fields of each kind of event are printed, on all kernels since 4.11."""
_EVENTS = [name for name, kind in KIND_OF.items() if kind in _SHAPES]
_TEXTS = {"rwbs": 8, "comm": 16}
"""Bytes of the fields that are text."""
_LEAST_EVENT_BYTES = 20
"""Fewer bytes than any line with an event has."""

_WITH_RWBS = ("dev", "rwbs", "sector")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "bio": (*_WITH_RWBS, "nr_sector", "comm"),
    "bio error": (*_WITH_RWBS, "nr_sector", "error"),
    "request": (*_WITH_RWBS, "nr_sector", "bytes", "comm"),
    "request error": (*_WITH_RWBS, "nr_sector", "error"),
    "split": (*_WITH_RWBS, "new_sector", "comm"),
    "remap": (*_WITH_RWBS, "nr_sector", "old_dev", "old_sector"),
    "plug": ("comm",),
    "unplug": ("comm", "nr_rq"),
}
_AT = loops.COLUMNS
_MOST_BUFFERS = 64
"""With more names before its lines, a text has something else there."""
_LOST_OF_BUFFER = re.compile(rb"([^\s:\[\]]+): +CPU:\d+ \[")
_BUFFER = re.compile(rb"([^\s:\[\]]+): +(?=\S)")
_BUFFER_BELOW = re.compile(rb"\n([^\s:\[\]]+): +(?=\S)")
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_IDENTIFYING = (
    *("time", "cpu", "pid", "event", "dev", "sector", "nr_sector"),
    *("bytes", "old_dev", "old_sector", "error"),
)
"""Columns by which an event is known again."""


@dataclass(frozen=True)
class OtherLine:
    """A line that is no event of the block layer's: number in the block, kind, and its text.

    kind: of `line_loops.KINDS`; of "other event" the text is the event's name. at: the text's
    offset in the block.
    """

    line: int
    kind: int
    text: bytes
    at: int


class Lines:
    """The lines of a block. lines: how many it has. others: those that are no events of the table.

    decimals: digits behind the point of the events' times, of the least exact one; -1 without
    events. time, cpu: ns and CPU of each event, (n,), in the order of the lines; line: its number
    in the block.
    """

    def __init__(self, data: bytes, table: U64, others: list[OtherLine], lines: int) -> None:
        """data: the block. table: (n, NUMBERS), its events."""
        self.others, self.lines = others, lines
        self.decimals = int(table[:, _AT["decimals"]].min()) if len(table) else -1
        self.time: I64 = table[:, _AT["time"]].astype(np.int64)
        self.cpu: I64 = table[:, _AT["cpu"]].astype(np.int64)
        self.line: I64 = table[:, _AT["line"]].astype(np.int64)
        self._data, self._table = data, table

    @property
    def keys(self) -> U64:
        """A number for each event, (n,), of its time, CPU, thread, name and place on the device.

        Not of its thread's name, which ftrace forgets.
        """
        keys = np.zeros(len(self._table), np.uint64)
        for name in _IDENTIFYING:
            keys = (keys ^ self._table[:, _AT[name]]) * _PRIME
            keys ^= keys >> np.uint64(29)
        return keys

    def buffers(self) -> tuple[list[bytes], I64]:
        """Return the names of ftrace's buffers, and which one each event, (n,), is of.

        trace-cmd writes an instance's name and a colon before its lines, but not before the one
        that follows its line on lost events; the top buffer is b"".
        """
        of = np.zeros(len(self.line), np.int64)
        if _BUFFER.match(self._data) is None and _BUFFER_BELOW.search(self._data) is None:
            return [b""], of
        names: dict[bytes, int] = {}
        lines = self._data.split(b"\n")
        for row, line in enumerate(self.line.tolist()):
            match = _BUFFER.match(lines[line]) or _LOST_OF_BUFFER.match(lines[max(line - 1, 0)])
            of[row] = names.setdefault(match[1] if match else b"", len(names))
        if len(names) > _MOST_BUFFERS:
            return [b""], np.zeros_like(of)
        return list(names), of

    def rows(self, before: int, without: Bool) -> list[TracepointRows]:
        """Return the events by tracepoint, without those of the mask, (n,).

        before: number of lines before this block.
        """
        table = self._table[~without] if without.any() else self._table
        return _rows(self._data, table, before)


class LineReader:
    """Reader of blocks of lines, with room that is used again."""

    def __init__(self) -> None:
        self._hashes = np.array([_hash(name) for name in _EVENTS], np.uint64)
        self._shapes = np.array(
            [loops.SHAPES[_SHAPES[KIND_OF[name]]] for name in _EVENTS], np.int64
        )
        self._row = np.zeros(loops.WIDTH, np.uint64)
        self._counts = np.zeros(3, np.int64)
        self._events = np.zeros(0, np.uint64)
        self._others = np.zeros(0, np.int64)

    def read(self, data: bytes) -> Lines:
        """Return what whole lines hold; the events are those of the lines until the next call."""
        self._make_room(len(data))
        # Uncompiled, memoryviews give and take Python's own integers.
        views: tuple[NDArray[Any], ...] = (
            self._hashes,
            self._shapes,
            self._row,
            self._events,
            self._others,
            self._counts,
        )
        loops.read_lines(memoryview(data), *(view.data for view in views))
        found, other, lines = self._counts.tolist()
        table = self._events[: found * loops.WIDTH].reshape(found, loops.WIDTH)
        others = self._others[: other * 4].reshape(other, 4).tolist()
        found_others = [
            OtherLine(line, kind, data[at : at + size], at) for kind, at, size, line in others
        ]
        return Lines(data, table, found_others, lines)

    def _make_room(self, size: int) -> None:
        """Have room for what a block of `size` bytes can hold."""
        events = (size // _LEAST_EVENT_BYTES + 1) * loops.WIDTH
        others = (size // 2 + 1) * 4
        if len(self._events) < events:
            self._events = np.zeros(events, np.uint64)
        if len(self._others) < others:
            self._others = np.zeros(others, np.int64)


def _hash(name: str) -> int:
    """Return the number by which an event's name is recognised."""
    data = name.encode()
    return int(loops.name_hash(data, 0, len(data)))


def _rows(data: bytes, table: U64, before: int) -> list[TracepointRows]:
    """Return the events of a table, (n, NUMBERS), as rows by tracepoint."""
    rows = []
    for index in np.flatnonzero(np.bincount(table[:, _AT["event"]].astype(np.int64))).tolist():
        part = np.ascontiguousarray(table[table[:, _AT["event"]] == np.uint64(index)].T)
        columns = {
            name: _column(data, part, name) for name in _COLUMNS[_SHAPES[KIND_OF[_EVENTS[index]]]]
        }
        tgid = part[_AT["tgid"]]
        pid = part[_AT["pid"]].view(np.int64)
        rows.append(
            TracepointRows(
                _EVENTS[index],
                part[_AT["time"]].astype(np.int64),
                part[_AT["cpu"]],
                pid,
                part[_AT["line"]].astype(np.int64) + before,
                columns,
                np.where(tgid == 0, pid, tgid) if tgid.any() else None,
            )
        )
    return rows


def _column(data: bytes, part: U64, name: str) -> Column:
    """Return a field of rows. part: (NUMBERS, n)."""
    if name in _TEXTS:
        return _letters(data, part, name)
    number = part[_AT[name]]
    signed: Column = number.view(np.int64)
    return signed if name == "error" else number


def _letters(data: bytes, part: U64, name: str) -> Column:
    """Return a text of rows, NUL-padded to the size of _TEXTS and cut there, (n,) S.

    part: (NUMBERS, n).
    """
    size, at, length = _TEXTS[name], part[_AT[name]], part[_AT[name] + 1]
    letters = np.frombuffer(data + bytes(size), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(letters, size)
    taken = windows[at.astype(np.int64)]
    taken[np.arange(size) >= length[:, None].astype(np.int64)] = 0
    return np.ascontiguousarray(taken).view(f"S{size}")[:, 0]
