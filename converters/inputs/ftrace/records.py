# SPDX-License-Identifier: Apache-2.0
"""Records in ring-buffer pages as columns, by the formats that stand in a trace.dat."""

import re
from collections import Counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8
from biotrail.converters.inputs.ftrace.pages import PageEvents
from biotrail.converters.inputs.ftrace.recording import Recording
from biotrail.converters.inputs.tracepoints.formats import parse_format, record_dtype
from biotrail.converters.inputs.tracepoints.rows import TracepointRows
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.errors import LogFormatError

_HEAD = re.compile(r"^name: *(\S+)\s*\nID: *(\d{1,5})\s*$", re.MULTILINE)
_IDS = 1 << 16
_ID_BYTES = 2
"""Size of common_type, with which every record begins."""


class Records:
    """Reader of records of the block layer's events; others are counted by name."""

    def __init__(self, recording: Recording, where: str) -> None:
        """Take the formats of the block layer's events; one that is damaged is left out, and noted.

        Raises LogFormatError: there is no format of an event.
        """
        self.problems: list[str] = []
        order: Literal["<", ">"] = "<" if recording.order == "little" else ">"
        self._id = np.dtype(f"{order}u2")
        self._names: dict[int, str] = {}
        self._dtypes: dict[int, np.dtype[np.void]] = {}
        for system, texts in recording.formats.items():
            for text in texts:
                if not (head := _HEAD.search(text)):
                    continue
                self._names[int(head[2])] = head[1]
                if system == "block" and head[1] in KIND_OF:
                    try:
                        form = parse_format(text, where)
                    except LogFormatError as error:
                        self.problems.append(f"{error}; {head[1]} is left out")
                        continue
                    self._dtypes[int(head[2])] = record_dtype(form, order)
        if not self._names:
            raise LogFormatError(
                f"{where}: has no formats of events: the file is damaged; copy it again"
            )

    def rows(
        self, block: U8, found: PageEvents, time: I64, cpu: int
    ) -> tuple[list[TracepointRows], Counter[str]]:
        """Return the block events as rows, and the number of other records by event.

        block: pages. found: the events in them. time: ns of each.
        """
        good = found.size >= _ID_BYTES
        ids = np.zeros(len(found.at), np.int64)
        ids[good] = _gather(block, found.at[good], _ID_BYTES).view(self._id)
        counts = np.bincount(ids, minlength=1)
        rows, passed_over = [], Counter[str]()
        for number in np.flatnonzero(counts).tolist():
            kind = self._dtypes.get(number)
            if kind is None:
                name = self._names.get(number, f"event {number}")
                passed_over[name] += int(counts[number])
                continue
            at = np.flatnonzero((ids == number) & (found.size >= kind.itemsize))
            short = int(counts[number]) - len(at)
            if short:
                passed_over[f"{self._names[number]} cut short"] += short
            rows.append(self._of_event(number, block, found.at[at], time[at], cpu))
        return rows, passed_over

    def _of_event(self, number: int, block: U8, at: I64, time: I64, cpu: int) -> TracepointRows:
        """Return one event's records as rows. at: offset of each in the block."""
        kind = self._dtypes[number]
        records = _gather(block, at, kind.itemsize).view(kind)
        names = kind.names or ()
        columns = {name: records[name] for name in names if not name.startswith("common_")}
        pid = records["common_pid"] if "common_pid" in names else np.full(len(at), -1)
        cpus = np.full(len(at), cpu, np.int64)
        return TracepointRows(self._names[number], time, cpus, pid, at, columns)


def _gather(data: U8, at: I64, count: int) -> NDArray[np.void]:
    """Return the `count` bytes at each offset as one void each, (n,), copied."""
    windows: NDArray[np.void] = np.ndarray(
        (len(data) - count + 1,), np.dtype((np.void, count)), data.data, strides=(1,)
    )
    return windows[at]
