# SPDX-License-Identifier: Apache-2.0
"""Printed events as columns: a block of lines of ftrace, trace-cmd or perf."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
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
_RWBS_BYTES = 8
_COMM_BYTES = 16
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


@dataclass(frozen=True)
class OtherLine:
    """A line that is no event of the block layer's: number in the block, kind, and its text.

    kind: of `line_loops.KINDS`; of "other event" the text is the event's name.
    """

    line: int
    kind: int
    text: bytes


@dataclass
class Lines:
    """The lines of a block. rows: its events. lines: how many lines it has.

    decimals: digits behind the point of the events' times, of the least exact one; -1 without
    events. time, cpu: ns and CPU of each event in the order of the lines; line: its number in the
    block.
    """

    rows: list[TracepointRows]
    others: list[OtherLine]
    lines: int
    decimals: int
    time: I64
    cpu: I64
    line: I64


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

    def read(self, data: bytes, before: int) -> Lines:
        """Return the events of whole lines. before: number of lines before this block."""
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
        if loops.COMPILED:
            loops.read_lines(data, *views)
        else:
            loops.read_lines(memoryview(data), *(view.data for view in views))
        found, other, lines = self._counts.tolist()
        table = self._events[: found * loops.WIDTH].reshape(found, loops.WIDTH)
        others = self._others[: other * 4].reshape(other, 4).tolist()
        return Lines(
            _rows(data, table, before),
            [OtherLine(line, kind, data[at : at + size]) for kind, at, size, line in others],
            lines,
            int(table[:, _AT["decimals"]].min()) if found else -1,
            table[:, _AT["time"]].astype(np.int64),
            table[:, _AT["cpu"]].astype(np.int64),
            table[:, _AT["line"]].astype(np.int64),
        )

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
    letters = np.frombuffer(data + bytes(_COMM_BYTES), np.uint8)
    rows = []
    for index in np.flatnonzero(np.bincount(table[:, _AT["event"]].astype(np.int64))).tolist():
        part = np.ascontiguousarray(table[table[:, _AT["event"]] == np.uint64(index)].T)
        columns = {
            name: _column(letters, part, name)
            for name in _COLUMNS[_SHAPES[KIND_OF[_EVENTS[index]]]]
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


def _column(letters: NDArray[np.uint8], part: U64, name: str) -> Column:
    """Return a field of rows. part: (NUMBERS, n)."""
    if name == "rwbs":
        return _text(letters, part[_AT[name]], part[_AT[name] + 1], _RWBS_BYTES)
    if name == "comm":
        return _text(letters, part[_AT[name]], part[_AT[name] + 1], _COMM_BYTES)
    number = part[_AT[name]]
    signed: Column = number.view(np.int64)
    return signed if name == "error" else number


def _text(letters: NDArray[np.uint8], at: U64, length: U64, size: int) -> Column:
    """Return texts at offsets, NUL-padded to `size` bytes and cut there, (n,) S."""
    windows = np.lib.stride_tricks.sliding_window_view(letters, size)
    taken = windows[at.astype(np.int64)]
    taken[np.arange(size) >= length[:, None].astype(np.int64)] = 0
    return np.ascontiguousarray(taken).view(f"S{size}")[:, 0]
