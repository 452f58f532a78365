# SPDX-License-Identifier: Apache-2.0
"""Printed events as columns: a block of lines of ftrace, trace-cmd or perf."""

import re
from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.tables import I64, U64, Bool
from biotrail.converters.inputs.lines import Lines, texts
from biotrail.converters.inputs.tracepoints.rows import Column, TracepointRows
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.records import Kind

_SHAPE_OF = {
    **dict.fromkeys((Kind.Q, Kind.G, Kind.M, Kind.F), "bio"),
    Kind.BIO_COMPLETE: "bio error",
    **dict.fromkeys((Kind.I, Kind.D, Kind.RQ_MERGE, Kind.START, Kind.DONE), "request"),
    **dict.fromkeys((Kind.C, Kind.E, Kind.R), "request error"),
    Kind.X: "split",
    **dict.fromkeys((Kind.A, Kind.RQ_REMAP), "remap"),
    Kind.P: "plug",
    Kind.U: "unplug",
}
SHAPES = {name: _SHAPE_OF[kind] for name, kind in KIND_OF.items() if kind in _SHAPE_OF}
"""How the fields of each event are printed, on all kernels since 4.11."""
_EVENTS = list(SHAPES)
_TEXTS = {"rwbs": 8, "comm": 16}
"""Bytes of the fields that are text."""
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


@dataclass
class EventLines(Lines):
    """The lines of a block that ftrace, trace-cmd or perf printed."""

    @property
    def decimals(self) -> int:
        """Digits behind the point of the least exact time; -1 without events."""
        return int(self.column("decimals").min()) if len(self) else -1

    @property
    def keys(self) -> U64:
        """A number for each event, (n,), of its time, CPU, thread, name and place on the device.

        Not of its thread's name, which ftrace forgets.
        """
        keys = np.zeros(len(self), np.uint64)
        for name in _IDENTIFYING:
            keys = (keys ^ self.column(name)) * _PRIME
            keys ^= keys >> np.uint64(29)
        return keys

    def buffers(self) -> tuple[list[bytes], I64]:
        """Return the names of ftrace's buffers, and which one each event, (n,), is of.

        trace-cmd writes an instance's name and a colon before its lines, but not before the one
        that follows its line on lost events; the top buffer is b"".
        """
        of = np.zeros(len(self), np.int64)
        if _BUFFER.match(self.data) is None and _BUFFER_BELOW.search(self.data) is None:
            return [b""], of
        names: dict[bytes, int] = {}
        lines = self.data.split(b"\n")
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
        event = np.where(without, len(_EVENTS), self.column("event").view(np.int64))
        rows = []
        for index in np.flatnonzero(np.bincount(event)[: len(_EVENTS)]).tolist():
            at = np.flatnonzero(event == index)
            tgid, pid = self.column("tgid")[at], self.column("pid")[at].view(np.int64)
            rows.append(
                TracepointRows(
                    _EVENTS[index],
                    self.time[at],
                    self.column("cpu")[at],
                    pid,
                    self.line[at] + before,
                    {name: self._field(name, at) for name in _COLUMNS[SHAPES[_EVENTS[index]]]},
                    np.where(tgid == 0, pid, tgid) if tgid.any() else None,
                )
            )
        return rows

    def _field(self, name: str, at: I64) -> Column:
        if name in _TEXTS:
            return texts(self, name, _TEXTS[name], at)
        number = self.column(name)[at]
        return number.view(np.int64) if name == "error" else number
