# SPDX-License-Identifier: Apache-2.0
"""Events that a text has twice, and times that go back on a CPU.

`cat trace >> all.txt` prints what is in the buffer anew each time. A CPU's events are printed in
the order of their times, so a second copy begins where they go back; an event from there on that
was there before, with all its fields, is the same one.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, U64, Bool
from biotrail.converters.inputs.ftrace.lines import Lines

_MOST_KEPT = 1 << 23
"""Events that are remembered: more than the buffers of a machine hold."""
_MOST_IN_RUN = 1 << 20
_NS_DIGITS = 9
_SOME = 3
_SHARE_BACK = 0.25
_AS_DIFFERENCES_NS = 1_000_000_000


@dataclass
class Back:
    """Events that are older than one of their CPU before them. first: the line (from 1) of one."""

    count: int = 0
    most_ns: int = 0
    first: int = 0

    def add(self, by: I64, line: I64) -> None:
        """Count events, (n,), by how many ns each is older, and its line."""
        if not len(by):
            return
        self.first = self.first or int(line[0]) + 1
        self.count += len(by)
        self.most_ns = max(self.most_ns, int(by.max()))


@dataclass
class _Seen:
    """Keys of the newest events: sorted runs, older first, and keys that are not sorted yet."""

    runs: list[U64] = field(default_factory=list)
    fresh: list[U64] = field(default_factory=list)
    count: int = 0

    def add(self, keys: U64) -> None:
        """Remember keys, (n,); beyond _MOST_KEPT the oldest are forgotten."""
        self.fresh.append(keys)
        self.count += len(keys)
        if sum(map(len, self.fresh)) >= _MOST_IN_RUN:
            self._sort()

    def has(self, keys: U64) -> Bool:
        """Return which keys, (n,), are remembered."""
        self._sort()
        found = np.zeros(len(keys), np.bool_)
        for run in self.runs:
            at = np.minimum(np.searchsorted(run, keys), len(run) - 1)
            found |= run[at] == keys
        return found

    def _sort(self) -> None:
        """Make a run of the fresh keys, and one of neighbours that are of like size."""
        fresh = np.concatenate(self.fresh) if self.fresh else np.zeros(0, np.uint64)
        self.fresh = []
        if len(fresh):
            self.runs.append(np.sort(fresh))
        while len(self.runs) > 1 and self._last_are_alike():
            last = self.runs.pop()
            self.runs.append(np.sort(np.concatenate([self.runs.pop(), last])))
        while self.count > _MOST_KEPT and len(self.runs) > 1:
            self.count -= len(self.runs.pop(0))

    def _last_are_alike(self) -> bool:
        one, other = map(len, self.runs[-2:])
        return one <= 2 * other and one + other <= _MOST_IN_RUN


class Snapshots:
    """Finds events that are there twice, and such that are older than others before them.

    repeated: number of events that were there before; first: the line (from 1) of one.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.first = 0
        self.back = Back()
        self._events = 0
        self._newest: dict[int, int] = {}
        """By CPU: time (ns) of its newest event so far."""
        self._behind: set[int] = set()
        """CPUs whose newest event was there before their last line, in an earlier copy."""
        self._seen = _Seen()

    def repeats(self, lines: Lines, before: int) -> Bool:
        """Return which events of a block, (n,), were there before.

        before: number of lines before the block. Of times with ns, two events of one CPU and time
        are one; others have to be behind a time that goes back.
        """
        by = np.zeros(len(lines.time), np.int64)
        again = np.zeros(len(lines.time), np.bool_)
        exact = lines.decimals == _NS_DIGITS
        for cpu in np.unique(lines.cpu).tolist():
            at = np.flatnonzero(lines.cpu == cpu)
            by[at], again[at] = self._behind_of(cpu, lines.time[at], exact)
        keys = lines.keys
        self._seen.add(keys[~again])
        rows = np.flatnonzero(again)
        if len(rows):
            again[rows] = self._seen.has(keys[rows])
            kept = rows[~again[rows]]
            self._seen.add(keys[kept])
            older = kept[by[kept] > 0]
            self.back.add(by[older], lines.line[older] + before)
        if again.any():
            self.first = self.first or int(lines.line[again][0]) + before + 1
            self.repeated += int(np.count_nonzero(again))
        self._events += len(again)
        return again

    def _behind_of(self, cpu: int, time: I64, exact: bool) -> tuple[I64, Bool]:
        """Return by how much (ns) a CPU's events, (n,), are older than its newest before them.

        And which may have been there before: those that are older, and those of the newest time
        behind an older one, or all of that time where times are `exact`.
        """
        newest = np.maximum.accumulate(np.concatenate([[self._newest.get(cpu, -1)], time]))
        by = newest[:-1] - time
        self._newest[cpu] = int(newest[-1])
        if (by < 0).all() and len(by):
            self._behind.discard(cpu)
            return np.zeros(len(by), np.int64), np.zeros(len(by), np.bool_)
        # A copy goes on with the events of the newest time; it is over with one that is newer.
        decided = np.maximum.accumulate(np.where(by != 0, np.arange(1, len(by) + 1), 0))
        behind = np.where(decided > 0, by[decided - 1] > 0, cpu in self._behind)
        (self._behind.add if behind[-1] else self._behind.discard)(cpu)
        return np.maximum(by, 0), (by > 0) | ((by == 0) & (behind | exact))

    def are_differences(self, lines: Lines) -> bool:
        """Return whether times seem to be differences: they go back everywhere, and are small.

        lines: the newest block, already passed to `repeats`.
        """
        often = self._events >= _SOME and self.back.count >= _SHARE_BACK * (self._events - 1)
        small = len(lines.time) > 0 and float(np.median(lines.time)) < _AS_DIFFERENCES_NS
        return often and small
