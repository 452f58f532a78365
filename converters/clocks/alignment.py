# SPDX-License-Identifier: Apache-2.0
"""Several logs on one timeline: BOOTTIME of the first one's machine, led to by wall clocks.

Logs of one boot have the same clocks, so these line up exactly. Others are aligned by
their wall clocks, as far as these agree: how far two machines' clocks were apart no log tells.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from biotrail.converters.clocks.wall_clock import SLEPT, Reading, WallClock, readings
from biotrail.converters.events.tables import I64, Lifecycles, Table
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError

_TIMES = frozenset(
    {"queue", "getrq", "merge", "insert", "issue", "complete", "start", "end", "cut"}
)
"""Columns of tables that hold times."""
_ROUNDING = 2
"""ns: of two drifts."""


@dataclass
class Alignment:
    """How one log's times get onto the timeline.

    at, slept: BOOTTIME - MONOTONIC from each MONOTONIC time on, ns; the first from ever.
    """

    own: WallClock
    reference: WallClock
    at: I64
    slept: I64
    same_boot: bool
    span: tuple[int, int]
    """BOOTTIME of the log's first and last reading, ns."""

    @property
    def uncertainty(self) -> int:
        """ns: of `times`, as far as the logs tell. 0: they have the same clock."""
        if self.same_boot:
            return 0
        doubts = (self._doubt(boottime) for boottime in self.span)
        return min(_ROUNDING + max(doubts), np.iinfo(np.int64).max)

    def _doubt(self, boottime: int) -> int:
        there = self.reference.boottime(self.own.wall(boottime))
        return self.own.doubt_at(boottime) + self.reference.doubt_at(there)

    def times(self, monotonic: I64) -> I64:
        """Times of the log on the timeline, ns; negative ones (NEVER) stay as they are."""
        slept = self.slept[np.searchsorted(self.at, monotonic, side="right") - 1]
        boottime = monotonic + slept
        if not self.same_boot:
            boottime = self._by_wall_clock(boottime)
        found: I64 = np.where(monotonic < 0, monotonic, np.maximum(boottime, 0))
        return found

    def _by_wall_clock(self, boottime: I64) -> I64:
        own, to = self.own, self.reference
        # Whole numbers, but for what a drift adds: float64 holds no times of today to the ns.
        wall = boottime + own.offset + _scaled(boottime - own.origin, own.rate)
        since = wall - (to.offset + to.origin)
        found: I64 = to.origin + since - _scaled(since, to.rate / (1 + to.rate))
        return found

    def time(self, monotonic: int) -> int:
        """The same for one time."""
        return int(self.times(np.array([monotonic], dtype=np.int64))[0])

    def lifecycles(self, window: Lifecycles) -> Lifecycles:
        """A window with all its times on the timeline."""
        tables: dict[str, Any] = {
            f.name: self._table(value)
            for f in fields(window)
            if isinstance(value := getattr(window, f.name), Table)
        }
        begin, end = self.time(window.begin), self.time(window.end)
        return replace(window, begin=begin, end=end, **tables)

    def _table(self, table: Table) -> Table:
        names = [f.name for f in fields(table) if f.name in _TIMES]
        return replace(table, **{name: self.times(getattr(table, name)) for name in names})


def _scaled(values: I64, rate: float) -> I64:
    scaled: I64 = np.rint(values * rate).astype(np.int64)
    return scaled


@dataclass
class Clocks:
    """What a log's readings say."""

    boot: tuple[str, str]
    """Host and boot id; an empty id is not known."""
    readings: list[Reading]
    """In the order of time, at least one."""
    wall: WallClock

    @classmethod
    def of(cls, name: str, trace: Trace) -> "Clocks":
        """Of a log called `name`. Raises ConversionError: it has no readings."""
        found = readings(trace.reader)
        if not found:
            raise ConversionError(
                f"{name}: holds no reading of the clocks, so nothing tells where it belongs beside "
                "other logs: convert it alone"
            )
        host = trace.context.header.get("host", {})
        boot = trace.context.host, str(host.get("boot_id", ""))
        return cls(boot, found, WallClock.through(found))

    def same_boot(self, other: "Clocks") -> bool:
        """Whether it was the same machine between the same two starts."""
        return bool(self.boot[1]) and self.boot == other.boot

    @property
    def times(self) -> tuple[int, int]:
        """REALTIME of the first and the last reading, as the line has it, ns."""
        first, last = self.readings[0], self.readings[-1]
        return self.wall.wall(first.boottime), self.wall.wall(last.boottime)

    def learn(self, clocks: Iterable[Mapping[str, int]]) -> None:
        """Hold the line against all readings of the log, once these are known."""
        self.wall.hold(reading for found in clocks for reading in Reading.of(found))

    def onto(self, reference: "Clocks") -> Alignment:
        """How this log's times get onto the reference's timeline."""
        same = self.same_boot(reference)
        at, slept = _sleeps(self.readings, reference.readings[0].slept if same else None)
        span = (self.readings[0].boottime, self.readings[-1].boottime)
        return Alignment(self.wall, reference.wall, at, slept, same, span)


def _sleeps(taken: list[Reading], known: int | None) -> tuple[I64, I64]:
    """(times from when on, BOOTTIME - MONOTONIC): the first reading's until the machine slept.

    known: what is used in place of a difference that is the same but for the readings' width.
    """
    at, slept = [np.iinfo(np.int64).min], [taken[0].slept]
    for reading in taken[1:]:
        if reading.slept > slept[-1] + SLEPT:
            at.append(reading.monotonic)
            slept.append(reading.slept)
    if known is not None:
        slept = [known if abs(s - known) <= SLEPT else s for s in slept]
    return np.array(at, dtype=np.int64), np.array(slept, dtype=np.int64)


def choose_reference(logs: Sequence[Clocks]) -> int:
    """Whose machine's BOOTTIME is the timeline: the first one's that had been started by then.

    A log from before a machine's start would have times below zero there.
    """
    earliest = min(log.times[0] for log in logs)
    for index, log in enumerate(logs):
        if log.wall.boottime(earliest) >= 0:
            return index
    return min(range(len(logs)), key=lambda index: logs[index].wall.wall(0))
