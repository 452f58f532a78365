# SPDX-License-Identifier: Apache-2.0
"""I/O and queue depth over time in a bounded number of columns, however long the log is.

A log's length is not known before it was read. So columns begin narrow, and whenever there would
be too many, each two neighbours are merged: counts add up, nothing is lost.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.groups import OTHERS
from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.distributions.sketch import Distribution, Mergeable, buckets_of
from biotrail.converters.analysis.report.devices import Devices
from biotrail.converters.events.tables import I64, Bool, Lifecycles

MOST_COLUMNS = 256
FIRST_INTERVAL = 1_000
LOWER = 1 << 48
"""Added to the place of bios that stacked devices queued for others (windows.queued_below)."""
MOST_PLACES = 64
"""Pairs of device and operation that are kept apart; I/O of later pairs is added to OTHERS."""

_COLUMN, _ROW = 16, 32
"""Bits of a key below its column and its row: `row << _ROW | column << _COLUMN | bucket`."""
_MOST_WAITING = 500_000
_NONE = np.iinfo(np.int64).max
"""Least latency of a row and column without I/O."""


@dataclass
class Course(Mergeable):
    """I/O of one place (or several together) over time; arrays are (columns,) int64."""

    ios: I64
    """Bios that ended in each column."""
    bytes: I64
    latency: dict[int, Distribution] = field(default_factory=dict)
    """Column → latencies, ns; columns without a latency are absent."""


class Timeline:
    def __init__(self, most: int = MOST_COLUMNS) -> None:
        self.interval = FIRST_INTERVAL
        self.origin = -1
        self.devices = Devices(self.interval)
        """Depths, with the columns as intervals. The caller of `add` has to add each window here,
        too, afterwards."""
        self._most = most
        self._rows: dict[int, int] = {OTHERS: 0}
        """Place (as in Samples.place) → row of the arrays below, which are by (row, column)."""
        shape = (MOST_PLACES + 1, most)
        self._ios, self._bytes, self._ns, self._max = np.zeros((4, *shape), dtype=np.int64)
        self._min = np.full(shape, _NONE)
        self._keys = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int64)
        self._waiting: list[I64] = []
        self._last = -1

    def add(self, window: Lifecycles, bios: Samples, lower: Bool) -> None:
        """lower: those of queued_below. The caller adds the window to `devices` afterwards."""
        if self.origin < 0:
            self.origin = window.begin
        last = max(window.end - 1, int(bios.end.max(initial=0)))
        while (last - self.origin) // self.interval >= self._most:
            self._widen()
        self._last = max(self._last, last)
        if not len(bios):
            return
        names, of = np.unique(np.where(lower, bios.place + LOWER, bios.place), return_inverse=True)
        for place in names.tolist():
            if len(self._rows) <= MOST_PLACES:
                self._rows.setdefault(place, len(self._rows))
        row = np.array([self._rows.get(one, 0) for one in names.tolist()], np.int64)[of]
        column = np.maximum(bios.end - self.origin, 0) // self.interval
        np.add.at(self._ios, (row, column), bios.counters["ios"])
        np.add.at(self._bytes, (row, column), bios.counters["bytes"])
        ended = bios.latency >= 0
        row, column, latency = row[ended], column[ended], bios.latency[ended]
        np.add.at(self._ns, (row, column), latency)
        np.minimum.at(self._min, (row, column), latency)
        np.maximum.at(self._max, (row, column), latency)
        self._waiting.append(row << _ROW | column << _COLUMN | buckets_of(latency))
        if sum(map(len, self._waiting)) > _MOST_WAITING:
            self._fold()

    @property
    def columns(self) -> int:
        return (self._last - self.origin) // self.interval + 1 if self.origin >= 0 else 0

    def courses(self) -> dict[int, Course]:
        """By place, LOWER added to that of bios queued below; arrays are views."""
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
            buckets = self._keys[begin:end] & ((1 << _COLUMN) - 1)
            total, least, most = (int(of[row, column]) for of in (self._ns, self._min, self._max))
            found[places[row]].latency[column] = Distribution.of_rows(
                total, least, most, buckets, self._counts[begin:end]
            )
        return found

    def _fold(self) -> None:
        keys = np.concatenate([self._keys, *self._waiting])
        counts = [self._counts, *(np.ones_like(one) for one in self._waiting)]
        self._waiting = []
        if len(keys):
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            self._keys = keys[first]
            self._counts = np.add.reduceat(np.concatenate(counts)[order], first)

    def _widen(self) -> None:
        """Double `interval`; waiting latencies, which have the old columns, are counted first."""
        self._fold()
        self.interval *= 2
        self.devices.interval *= 2
        for device in self.devices.by_dev.values():
            device.queue.widen()
            device.issued.widen()
        for of, joined, nothing in (
            *((of, np.add, 0) for of in (self._ios, self._bytes, self._ns)),
            *((self._max, np.maximum, 0), (self._min, np.minimum, _NONE)),
        ):
            pairs = joined(of[:, ::2], of[:, 1::2])
            width = pairs.shape[1]
            of[:, :width], of[:, width:] = pairs, nothing
        column = (self._keys & ((1 << _ROW) - 1)) >> _COLUMN
        self._keys -= (column - column // 2) << _COLUMN
        self._fold()
