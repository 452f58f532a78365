# SPDX-License-Identifier: Apache-2.0
"""Pooled lanes: slices that overlap go to different lanes, a free lane is used again.

A track cannot hold slices that overlap, so each pool (a device's bios, say) has as many
lanes as were ever needed at once. A lane is free for a slice that starts strictly after
the lane's last one ended. The lane freed last is taken first, and whenever a pool falls
idle it starts again from lane 0, so that the first lanes are the busy ones.

Taking the newest free lane is matching parentheses: a slice's start closes what the newest
unmatched end opened. So a window's lanes come from sorting, without a loop over slices.
"""

from dataclasses import dataclass, field

import numpy as np

from converters.model.tables import I64, Bool

FOREVER = np.iinfo(np.int64).max
"""An end that is not known yet."""


def _empty() -> I64:
    return np.zeros(0, dtype=np.int64)


@dataclass
class _Assigned:
    """Lanes of a window's new slices, and what is left when it is over."""

    lane: I64
    free: I64
    period: int


@dataclass
class LanePool:
    """The lanes of one group of slices, from window to window."""

    last_end: I64 = field(default_factory=_empty)
    """When each lane's last slice ended: shape (lanes,), ns."""
    _busy_number: I64 = field(default_factory=_empty)
    _busy_lane: I64 = field(default_factory=_empty)
    _stuck: I64 = field(default_factory=_empty)
    """Lanes of slices that never end."""
    _free: I64 = field(default_factory=_empty)
    """Free lanes of the busy period, the one to take next at the end."""
    _period: int = 0
    """Lanes of the busy period: 0 to _period - 1, busy or free."""
    frontier: int = -1
    """The latest end of an earlier window's slice."""

    def __len__(self) -> int:
        return len(self.last_end)

    def assign(self, number: I64, start: I64, end: I64, stays: Bool) -> I64:
        """Lanes for the slices of one window: shape (n,), int64.

        number: whose slice, to know one again that was FOREVER in the window before; start,
        end: ns, in the order of (start, number); stays: it will never end. A slice that is
        given with FOREVER keeps its lane until it is given again with its end; one that is
        neither given again nor stays frees its lane.
        """
        lane = np.full(len(number), -1, dtype=np.int64)
        self._carry(number, start, end, lane)
        self._late(number, start, lane)
        new = lane < 0
        held = np.concatenate([self._stuck, lane[~new]])
        held_end = np.concatenate([np.full(len(self._stuck), FOREVER), end[~new]])
        result = _match(start[new], end[new], held, held_end, self._free, self._period)
        lane[new] = result.lane
        self._close(number, lane, end, stays, result)
        return lane

    def _carry(self, number: I64, start: I64, end: I64, lane: I64) -> None:
        """Slices that were under way keep their lanes; lanes of vanished ones are free."""
        if not len(self._busy_number):
            return
        order = np.argsort(self._busy_number, kind="stable")
        known = self._busy_number[order]
        at = np.minimum(np.searchsorted(known, number), len(known) - 1)
        same = known[at] == number
        held = self._busy_lane[order[at]]
        # A start that moved before the lane's last slice cannot keep the lane.
        keeps = same & (start > self.last_end[held])
        lane[keeps] = held[keeps]
        gone = ~np.isin(self._busy_lane, lane[keeps])
        self._free = np.concatenate([self._busy_lane[gone], self._free])

    def _late(self, number: I64, start: I64, lane: I64) -> None:
        """Slices that began before an earlier window's end: the first lane that has room."""
        for row in np.flatnonzero((lane < 0) & (start <= self.frontier)).tolist():
            lane[row] = self._first_fit(int(start[row]))

    def _first_fit(self, start: int) -> int:
        fits = self._free[self.last_end[self._free] < start]
        if len(fits):
            taken = int(fits.min())
            self._free = self._free[self._free != taken]
            return taken
        while True:
            lane = self._period
            self._period += 1
            if lane >= len(self.last_end) or self.last_end[lane] < start:
                return lane
            self._free = np.concatenate([np.array([lane]), self._free])

    def _close(self, number: I64, lane: I64, end: I64, stays: Bool, result: _Assigned) -> None:
        self._free, self._period = result.free, result.period
        lanes = int(lane.max()) + 1 if len(lane) else 0
        if lanes > len(self.last_end):
            more = np.full(lanes - len(self.last_end), -1, dtype=np.int64)
            self.last_end = np.concatenate([self.last_end, more])
        over = end != FOREVER
        np.maximum.at(self.last_end, lane[over], end[over])
        waits = ~over & ~stays
        self._busy_number, self._busy_lane = number[waits], lane[waits]
        self._stuck = np.concatenate([self._stuck, lane[stays]])
        if over.any():
            self.frontier = max(self.frontier, int(end[over].max()))


def _match(start: I64, end: I64, held: I64, held_end: I64, free: I64, period: int) -> _Assigned:
    """Lanes for slices sorted by start; `held` are busy at the window's begin until held_end."""
    n, carried = len(start), len(held)
    # Everything that gives a lane back, in order: held slices (they began first), then new.
    giver_end = np.concatenate([held_end, end])
    givers = np.flatnonzero(giver_end != FOREVER)
    givers = givers[np.argsort(giver_end[givers], kind="stable")]
    ends = giver_end[givers]
    given_before = np.searchsorted(ends, start, side="left")
    begun_before = np.searchsorted(start, ends, side="right")
    active = carried + np.arange(n) - given_before
    before, after = _period_sizes(active, period)
    opens = active >= before
    size_then = np.concatenate([[period], after])[begun_before]
    level_given = size_then - (carried + begun_before - np.arange(len(ends)) - 1)
    level_taken = before - active
    events = _stack_order(level_given, level_taken, given_before, begun_before, opens, len(free))
    lane = _inherit(events, givers, held, free, active, opens)
    size = int(after[-1]) if n else period
    left = carried + n - len(ends)
    if left == 0:
        return _Assigned(lane, _empty(), 0)
    return _Assigned(lane, _remaining(events, givers, held, free, lane, size - left), size)


def _period_sizes(active: I64, period: int) -> tuple[I64, I64]:
    """Lanes of the busy period before and after each start: the most slices at once so far."""
    fresh = active == 0
    which = np.cumsum(fresh)
    # Periods are kept apart by steps that no number of slices reaches.
    step = int(active.max(initial=0)) + period + 2
    peak = np.maximum.accumulate(np.concatenate([[period], active + 1 + which * step]))
    after = peak[1:] - which * step
    before = np.where(fresh, 0, peak[:-1] - which * step)
    return before, after


@dataclass
class _Stack:
    """What was put on and taken from the stack of free lanes, grouped by level, in time."""

    item: I64
    """Giver (index into givers), free lane (len(givers) + index), or -1 - slice that takes."""
    level: I64


def _stack_order(
    level_given: I64, level_taken: I64, given_before: I64, begun_before: I64, opens: Bool, free: int
) -> _Stack:
    n, m = len(level_taken), len(level_given)
    level = np.zeros(n + m, dtype=np.int64)
    item = np.zeros(n + m, dtype=np.int64)
    takes = np.arange(n) + given_before
    gives = np.arange(m) + begun_before
    level[takes], item[takes] = np.where(opens, 0, level_taken), -1 - np.arange(n)
    level[gives], item[gives] = level_given, np.arange(m)
    level = np.concatenate([np.arange(1, free + 1), level])
    item = np.concatenate([m + np.arange(free), item])
    used = level > 0
    level, item = level[used], item[used]
    small = level.astype(np.int16) if level.max(initial=0) < 1 << 15 else level
    order = np.argsort(small, kind="stable")
    return _Stack(item[order], level[order])


def _inherit(events: _Stack, givers: I64, held: I64, free: I64, active: I64, opens: Bool) -> I64:
    """Each slice's lane: that of the giver just before it on its level, and so on back."""
    lane = np.where(opens, active, -1)
    source = np.arange(len(active))
    takes = np.flatnonzero(events.item < 0)
    taker, given = -1 - events.item[takes], events.item[takes - 1]
    from_free = given >= len(givers)
    lane[taker[from_free]] = free[given[from_free] - len(givers)]
    taker, giver = taker[~from_free], givers[given[~from_free]]
    from_held = giver < len(held)
    lane[taker[from_held]] = held[giver[from_held]]
    source[taker[~from_held]] = giver[~from_held] - len(held)
    while True:
        further = source[source]
        if np.array_equal(further, source):
            return lane[source]
        source = further


def _remaining(events: _Stack, givers: I64, held: I64, free: I64, lane: I64, height: int) -> I64:
    """The free lanes when the window is over, bottom first."""
    last = np.searchsorted(events.level, np.arange(1, height + 1), side="right") - 1
    item = events.item[last]
    result = np.empty(height, dtype=np.int64)
    is_free = item >= len(givers)
    result[is_free] = free[item[is_free] - len(givers)]
    giver = givers[item[~is_free]]
    result[~is_free] = np.concatenate([held, lane])[giver]
    return result
