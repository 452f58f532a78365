# SPDX-License-Identifier: Apache-2.0
"""I/O and queue depth over time in a bounded number of columns, however long the log is.

Nobody knows a log's length before it was read. So columns begin narrow, and whenever there
would be too many, two neighbours become one: counts add up, nothing is lost.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.groups import OTHERS
from biotrail.converters.analysis.distributions.samples import COUNTERS, Samples
from biotrail.converters.analysis.distributions.sketch import Distribution, buckets_of
from biotrail.converters.analysis.report.devices import Devices
from biotrail.converters.events.tables import I64, Lifecycles

MOST_COLUMNS = 256
FIRST_INTERVAL = 1_000
"""ns: the narrowest a column is."""
MOST_PLACES = 64
"""Devices with an operation that are kept apart; later ones are added up as OTHERS."""

_IOS, _BYTES = COUNTERS.index("ios"), COUNTERS.index("bytes")
_COLUMN, _ROW = 16, 32
"""Where a key's column and its row begin; below the column is the bucket."""
_MOST_WAITING = 500_000
_NONE = np.iinfo(np.int64).max


@dataclass
class Course:
    """What became of one place (or several) over time; arrays by column, int64."""

    ios: I64
    bytes: I64
    latency: dict[int, Distribution] = field(default_factory=dict)
    """By column, where any I/O ended."""

    def merge(self, other: "Course") -> None:
        """Adds another one's."""
        self.ios, self.bytes = self.ios + other.ios, self.bytes + other.bytes
        for column, times in other.latency.items():
            self.latency.setdefault(column, Distribution()).merge(times)


class Timeline:
    """I/O by the column in which it ended, and how much was in flight then.

    interval: ns, the width of a column; it grows. origin: ns where the first one begins.
    """

    def __init__(self, most: int = MOST_COLUMNS) -> None:
        """most: columns, an even number."""
        self.interval = FIRST_INTERVAL
        self.origin = -1
        self.devices = Devices(self.interval)
        """With intervals like the columns; to be given each window after `add`."""
        self._most = most
        self._rows: dict[int, int] = {OTHERS: 0}
        shape = (MOST_PLACES + 1, most)
        self._ios, self._bytes, self._ns, self._max = np.zeros((4, *shape), dtype=np.int64)
        self._min = np.full(shape, _NONE)
        self._keys = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int64)
        self._waiting: list[I64] = []
        self._last = -1

    def add(self, window: Lifecycles, bios: Samples) -> None:
        """The next window's bios."""
        if self.origin < 0:
            self.origin = window.begin
        last = max(window.end - 1, int(bios.end.max(initial=0)))
        while (last - self.origin) // self.interval >= self._most:
            self._widen()
        self._last = max(self._last, last)
        if not len(bios):
            return
        row = self._rows_of(bios.place)
        column = np.maximum(bios.end - self.origin, 0) // self.interval
        np.add.at(self._ios, (row, column), bios.counters[_IOS])
        np.add.at(self._bytes, (row, column), bios.counters[_BYTES])
        ended = bios.latency >= 0
        self._add_latency(row[ended], column[ended], bios.latency[ended])

    @property
    def columns(self) -> int:
        """How many there are."""
        return (self._last - self.origin) // self.interval + 1 if self.origin >= 0 else 0

    def courses(self) -> dict[int, Course]:
        """By Samples.place; OTHERS: of those that were too many."""
        self._fold()
        width = self.columns
        places = {row: place for place, row in self._rows.items() if self._ios[row].any()}
        found = {
            place: Course(self._ios[row, :width], self._bytes[row, :width])
            for row, place in places.items()
        }
        cell = self._keys >> _COLUMN
        edges = np.flatnonzero(np.diff(cell, prepend=-1, append=-1)).tolist()
        for begin, end in itertools.pairwise(edges):
            row, column = divmod(int(cell[begin]), 1 << (_ROW - _COLUMN))
            bucket = self._keys[begin:end] & ((1 << _COLUMN) - 1)
            counts = np.zeros(int(bucket[-1] - bucket[0]) + 1, dtype=np.int64)
            counts[bucket - bucket[0]] = self._counts[begin:end]
            at = (row, column)
            total, least, most = (int(of[at]) for of in (self._ns, self._min, self._max))
            found[places[row]].latency[column] = Distribution.of_counts(
                total, least, most, int(bucket[0]), counts
            )
        return found

    def _rows_of(self, place: I64) -> I64:
        names, which = np.unique(place, return_inverse=True)
        rows = np.array([self._row(one) for one in names.tolist()], dtype=np.int64)
        return np.asarray(rows[which])

    def _row(self, place: int) -> int:
        full = len(self._rows) > MOST_PLACES and place not in self._rows
        return 0 if full else self._rows.setdefault(place, len(self._rows))

    def _add_latency(self, row: I64, column: I64, latency: I64) -> None:
        np.add.at(self._ns, (row, column), latency)
        np.minimum.at(self._min, (row, column), latency)
        np.maximum.at(self._max, (row, column), latency)
        self._waiting.append(row << _ROW | column << _COLUMN | buckets_of(latency))
        if sum(map(len, self._waiting)) > _MOST_WAITING:
            self._fold()

    def _fold(self) -> None:
        """Counts what waits."""
        if self._waiting:
            self._keys, self._counts = _counted(
                np.concatenate([self._keys, *self._waiting]),
                np.concatenate([self._counts, *(np.ones_like(one) for one in self._waiting)]),
            )
            self._waiting = []

    def _widen(self) -> None:
        """Two columns become one."""
        self._fold()
        self.interval *= 2
        self.devices.widen()
        for of in (self._ios, self._bytes, self._ns):
            _halve(of, of[:, ::2] + of[:, 1::2], 0)
        _halve(self._max, np.maximum(self._max[:, ::2], self._max[:, 1::2]), 0)
        _halve(self._min, np.minimum(self._min[:, ::2], self._min[:, 1::2]), _NONE)
        column = (self._keys & ((1 << _ROW) - 1)) >> _COLUMN
        self._keys -= (column - column // 2) << _COLUMN
        self._keys, self._counts = _counted(self._keys, self._counts)


def _halve(of: I64, pairs: I64, nothing: int) -> None:
    width = pairs.shape[1]
    of[:, :width], of[:, width:] = pairs, nothing


def _counted(keys: I64, counts: I64) -> tuple[I64, I64]:
    """Each key once, in order, with the sum of its counts."""
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.add.reduceat(counts, first)
