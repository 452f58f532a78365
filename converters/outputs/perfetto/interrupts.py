# SPDX-License-Identifier: Apache-2.0
"""Slices of the interrupts that led to recorded completions, below their devices."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U32,
    Bool,
    Lifecycles,
    Table,
)
from biotrail.converters.outputs.perfetto.columns import Slices, StageColumns
from biotrail.converters.outputs.perfetto.names import (
    HARD_IRQ,
    INTERRUPT,
    RAISED,
    SOFTIRQ,
    Interned,
)
from biotrail.converters.outputs.perfetto.ranking import Ranking

_IN_SOFTIRQ, _IN_INTERRUPT = 1, 2
_NAMES = "interrupt", "softirq without interrupt"
_MOST_PENDING = 1 << 16
"""Completions that are held back at most until their interrupt is known as a whole."""


@dataclass
class _Completions(Table):
    """Completions in an interrupt or in the BLOCK softirq. Times in ns; NEVER: not this one's."""

    dev: I64
    entered: I64
    """Entry of the softirq, or else of the interrupt, in which the request was completed."""
    hard: I64
    raised: I64
    soft: I64
    complete: I64
    irq: U32

    @classmethod
    def of(cls, window: Lifecycles) -> "_Completions":
        """Return a row for each request of a window that was completed in an interrupt or softirq.

        A time is NEVER if it is not known or cannot be this completion's: an interrupt that is not
        between issue and completion (or softirq, if there is one), a softirq after the completion,
        a raise that is not between interrupt and softirq. Left out are requests never issued, and
        rows whose `entered` is then NEVER; of a softirq, `hard` and `raised` still may be.
        `window.path` must not be None.
        """
        assert window.path is not None
        row, known = rows_of(window.requests.number, window.path.interrupts.number)
        ends = window.path.interrupts.take(known)
        requests = window.requests.take(row[known])
        soft = np.where(ends.context == _IN_SOFTIRQ, ends.soft, NEVER)
        soft = np.where(soft <= requests.complete, soft, NEVER)
        until = np.where(soft == NEVER, requests.complete, soft)
        hard = np.where((ends.hard >= requests.issue) & (ends.hard <= until), ends.hard, NEVER)
        raised = np.where((ends.raised >= hard) & (ends.raised <= soft), ends.raised, NEVER)
        entered = np.where(ends.context == _IN_INTERRUPT, hard, soft)
        every = cls(
            dev=requests.dev.astype(np.int64),
            entered=entered,
            hard=hard,
            raised=raised,
            soft=soft,
            complete=requests.complete,
            irq=ends.irq,
        )
        return every.take((entered != NEVER) & (requests.issue != NEVER))


def _none() -> _Completions:
    none = np.zeros(0, dtype=np.int64)
    return _Completions(none, none, none, none, none, none, none.astype(np.uint32))


@dataclass
class InterruptMaker:
    """Makes slices of the interrupts of each window, in the order of the windows."""

    names: Interned
    """Event names."""
    every: bool = True
    """Whether all are drawn; else the longest of each device, up to then."""
    _ranking: Ranking = field(default_factory=Ranking)
    _held: _Completions = field(default_factory=_none)
    """Completions whose interrupt may have completed requests of later windows."""
    _numbered: int = 0
    """Slices so far, which numbers them."""

    def interrupts(self, window: Lifecycles) -> Slices:
        """Return a slice for each interrupt, or softirq, that no later window adds to.

        window: the log's next. Requests that were completed in the same softirq, or in the same
        interrupt without a softirq, share a slice, from the first that is known of interrupt,
        raise and softirq to the last completion. Held back is what may have completed a request
        that is still open, up to 65,536 completions. Sorted by start.
        """
        if window.path is None:
            return self._slices(_none())
        held = _Completions.concatenate([self._held, _Completions.of(window)])
        issue = window.open_requests.issue
        edge = min(window.end, int(issue[issue != NEVER].min(initial=window.end)))
        ready = held.entered < edge
        ready[: max(len(held) - _MOST_PENDING, 0)] = True
        self._held = held.take(~ready)
        return self._slices(held.take(ready))

    def rest(self) -> Slices:
        """Return the slices that were held back; no window follows."""
        held, self._held = self._held, _none()
        return self._slices(held)

    def _slices(self, ends: _Completions) -> Slices:
        """Return the slices of completions, with arguments and stages, sorted by start.

        Rows of the same device and `entered` share a slice. It begins with the earliest interrupt,
        else the raise, else the softirq, and ends with the last completion; its name says whether
        it begins with an interrupt. `irq` only with an interrupt, `completions` if more than 1.
        Numbers count on in `_numbered`.
        """
        order = np.lexsort((ends.entered, ends.dev))
        ends = ends.take(order)
        changes = (np.diff(ends.dev, prepend=-1) != 0) | (np.diff(ends.entered, prepend=-1) != 0)
        group, first = np.cumsum(changes) - 1, np.flatnonzero(changes)
        hard, raised = (_earliest(time, group) for time in (ends.hard, ends.raised))
        soft = ends.soft[first]
        end, irq = np.zeros((2, len(first)), dtype=np.int64)
        np.maximum.at(end, group, ends.complete)
        np.maximum.at(irq, group, np.where(ends.hard != NEVER, ends.irq, 0))
        times = np.stack([hard, raised, soft, end])
        start = np.where(hard != NEVER, hard, np.where(raised != NEVER, raised, soft))
        by_start = np.argsort(start, kind="stable")
        number = self._numbered + np.arange(len(first))
        self._numbered += len(first)
        named = np.array([self.names.id(name) for name in _NAMES] if len(first) else [0, 0])
        if not self.every:
            least = self._ranking.choose_of(ends.dev[first][by_start], (end - start)[by_start])
            by_start = by_start[least]
        slices = Slices(
            INTERRUPT,
            number=number[: len(by_start)],
            group=ends.dev[first][by_start],
            start=start[by_start],
            end=end[by_start],
            name=named.astype(np.uint64)[(hard == NEVER).astype(np.int64)][by_start],
            family=None,
            rows=np.arange(len(by_start)),
        )
        if not len(slices):
            return slices
        slices.uint("irq", irq[by_start], (hard != NEVER)[by_start])
        served = np.bincount(group)[by_start]
        slices.uint("completions", served, served > 1)
        self._add_stages(slices, times[:, by_start])
        return slices

    def _add_stages(self, slices: Slices, times: I64) -> None:
        """Set the stages interrupt, raised and softirq, each to the next time that is known."""
        names = np.array([self.names.id(name) for name in (HARD_IRQ, RAISED, SOFTIRQ)])
        hard, raised, soft, end = times
        until = np.stack([np.where(raised != NEVER, raised, soft), soft, end], axis=1)
        since = np.stack([hard, raised, soft], axis=1)
        lasting: Bool = (since != NEVER) & (until > since) & (soft != NEVER)[:, None]
        count = lasting.sum(axis=1)
        kind = np.broadcast_to(np.arange(3), lasting.shape)[lasting]
        slices.stages = StageColumns(
            count=count,
            name=names[kind].astype(np.uint16),
            start=since[lasting],
            end=until[lasting],
        )


def _earliest(time: I64, group: I64) -> I64:
    """Return per group the earliest time that is not NEVER; NEVER where all are."""
    latest = np.iinfo(np.int64).max
    found = np.full(int(group.max(initial=-1)) + 1, latest)
    np.minimum.at(found, group, np.where(time == NEVER, latest, time))
    return np.where(found == latest, NEVER, found)
