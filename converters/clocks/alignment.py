# SPDX-License-Identifier: Apache-2.0
"""Several logs on one timeline: CLOCK_BOOTTIME of one log's machine, the reference.

Logs of the same boot share that clock and align exactly. Others are aligned by their wall clocks
(CLOCK_REALTIME); by how much two machines' wall clocks differed, no log records. A guest's log is
aligned to its host's by requests that both recorded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from biotrail.converters.clocks.corridor import Line
from biotrail.converters.clocks.wall_clock import SLEPT, Reading, WallClock, readings
from biotrail.converters.events.path_tables import PathTables
from biotrail.converters.events.site_tables import SiteTables
from biotrail.converters.events.tables import (
    I64,
    Lifecycles,
    Table,
)
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError

_TIMES = frozenset(
    (
        *("queue", "getrq", "merge", "insert", "issue", "complete", "start", "end", "cut"),
        *("entry", "exit", "out", "woken", "run", "dirtied", "hard", "raised", "soft"),
        *("submitted", "queued", "began", "ended", "completed", "reaped", "time"),
    )
)
"""Names of table columns that hold times."""
_ROUNDING = 2
"""ns: error of rounding two drifts to whole ns."""


@dataclass
class Alignment:
    """Conversion of one log's CLOCK_MONOTONIC times to the reference's CLOCK_BOOTTIME.

    own, reference: the wall clocks of the log and of the reference. at, slept: from MONOTONIC
    time at[i] on, BOOTTIME - MONOTONIC is slept[i] (ns); at[0] is the least int64. same_boot:
    whether the log and the reference are of one boot.
    """

    own: WallClock
    reference: WallClock
    at: I64
    slept: I64
    same_boot: bool
    span: tuple[int, int]
    """CLOCK_BOOTTIME (ns) of the log's first and last reading."""
    slept_within: int = 0
    """Bound (ns) of the error of `slept`: the uncertainty of the readings that it comes from."""

    @property
    def uncertainty(self) -> int:
        """Bound (ns) of the error of `times` within `span`, by the logs' readings.

        0 for logs of one boot; at most the greatest int64.
        """
        if self.same_boot:
            return 0
        own, to = self.own, self.reference
        doubts = (
            own.uncertainty_at(time) + to.uncertainty_at(to.boottime(own.wall(time)))
            for time in self.span
        )
        return min(_ROUNDING + self.slept_within + max(doubts), np.iinfo(np.int64).max)

    def times(self, monotonic: I64) -> I64:
        """Return CLOCK_MONOTONIC times of the log on the timeline (ns, at least 0); NEVER stays."""
        slept = self.slept[np.searchsorted(self.at, monotonic, side="right") - 1]
        boottime = monotonic + slept
        if not self.same_boot:
            # When the reference's wall clock shows what the log's shows. Integers except for the
            # drift's share: float64 cannot hold today's times to the ns.
            own, to = self.own, self.reference
            wall = boottime + own.offset + _scaled(boottime - own.origin, own.rate)
            since = wall - (to.offset + to.origin)
            boottime = to.origin + since - _scaled(since, to.rate / (1 + to.rate))
        found: I64 = np.where(monotonic < 0, monotonic, np.maximum(boottime, 0))
        return found

    def time(self, monotonic: int) -> int:
        return int(self.times(np.array([monotonic], dtype=np.int64))[0])

    def lifecycles(self, window: Lifecycles) -> Lifecycles:
        """Return a copy of the window with all times converted, of path and sites too."""
        tables = self._tables(window)
        if window.path is not None:
            tables["path"] = replace(window.path, **self._tables(window.path))
        if window.sites is not None:
            tables["sites"] = replace(window.sites, **self._tables(window.sites))
        begin, end = self.time(window.begin), self.time(window.end)
        return replace(window, begin=begin, end=end, **tables)

    def _tables(self, holder: Lifecycles | PathTables | SiteTables) -> dict[str, Any]:
        """Return the tables that are fields of `holder`, with their times converted, by name."""
        found: dict[str, Any] = {}
        for f in fields(holder):
            table = getattr(holder, f.name)
            if isinstance(table, Table):
                names = [column.name for column in fields(table) if column.name in _TIMES]
                times = {name: self.times(getattr(table, name)) for name in names}
                found[f.name] = replace(table, **times)
        return found


def _scaled(values: I64, rate: float) -> I64:
    scaled: I64 = np.rint(values * rate).astype(np.int64)
    return scaled


@dataclass
class Clocks:
    """A log's clock readings, and the wall clock drawn through them."""

    boot: tuple[str, str]
    """Host name and boot id; an empty boot id is not known."""
    readings: list[Reading]
    """In time order, at least one."""
    wall: WallClock

    @classmethod
    def from_trace(cls, name: str, trace: Trace) -> "Clocks":
        """Return the clocks of a log, of a file by some chunks. Raises ConversionError: none."""
        found = readings(trace.reader)
        if not found:
            raise ConversionError(
                f"{name}: holds no reading of the clocks, so its times cannot be aligned with "
                "other logs: convert it alone"
            )
        host = trace.context.header.get("host", {})
        boot = trace.context.host, str(host.get("boot_id", ""))
        return cls(boot, found, WallClock.fit(found))

    def same_boot(self, other: "Clocks") -> bool:
        return bool(self.boot[1]) and self.boot == other.boot

    @property
    def times(self) -> tuple[int, int]:
        first, last = self.readings[0], self.readings[-1]
        return self.wall.wall(first.boottime), self.wall.wall(last.boottime)

    def compare(self, clocks: Iterable[Mapping[str, int]]) -> None:
        """Raise `wall.strayed` to the largest error of these readings (name → ns)."""
        self.wall.compare(reading for found in clocks for reading in Reading.from_clocks(found))

    def align_to(self, reference: "Clocks") -> Alignment:
        """Return the conversion of this log's times to the timeline of the log `reference`."""
        first, *later = self.readings
        at, slept, within = [np.iinfo(np.int64).min], [first.slept], first.uncertainty
        for reading in later:
            if reading.slept > slept[-1] + SLEPT:
                at.append(reading.monotonic)
                slept.append(reading.slept)
                within = max(within, reading.uncertainty)
        same = self.same_boot(reference)
        if same:  # what both show within their errors is one sleep
            known = reference.readings[0].slept
            slept = [known if abs(s - known) <= SLEPT else s for s in slept]
        return Alignment(
            self.wall,
            reference.wall,
            np.array(at, dtype=np.int64),
            np.array(slept, dtype=np.int64),
            same,
            (first.boottime, self.readings[-1].boottime),
            within,
        )


def choose_reference(logs: Sequence[Clocks]) -> int:
    """Return the index of the log whose CLOCK_BOOTTIME is the timeline of all.

    The first log whose machine was already running at the earliest reading of all (by REALTIME), so
    that no time becomes negative; if there is none, the log whose machine was booted first. logs:
    at least one.
    """
    earliest = min(log.times[0] for log in logs)
    for index, log in enumerate(logs):
        if log.wall.boottime(earliest) >= 0:
            return index
    return min(range(len(logs)), key=lambda index: logs[index].wall.wall(0))


@dataclass
class ByRequests(Alignment):
    """Conversion of a guest's CLOCK_MONOTONIC times to the host's CLOCK_BOOTTIME."""

    line: Line = field(kw_only=True)
    """The host's CLOCK_MONOTONIC for the guest's."""

    @classmethod
    def on(cls, host: Clocks, line: Line) -> "ByRequests":
        own = replace(host.align_to(host), same_boot=True)
        return cls(own.own, own.reference, own.at, own.slept, True, own.span, line=line)

    @property
    def uncertainty(self) -> int:
        """Bound (ns) of the error of `times`, from the first to the last request of both logs."""
        return self.line.within

    def times(self, monotonic: I64) -> I64:
        """Return the guest's CLOCK_MONOTONIC times as the host's CLOCK_BOOTTIME (ns, int64)."""
        return super().times(self.line.times(monotonic))
