# SPDX-License-Identifier: Apache-2.0
"""Choose what is drawn with all arguments: the slowest of each device and operation, or call.

Windows are drawn as they come, before the slowest of the whole log are known. So an I/O is chosen
if it is among the slowest up to its window: all that are among the slowest of the whole trace are
chosen, and some of early windows that later ones outdo.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.names import Detail

DETAILED = 500
"""I/Os of each device and operation that have all arguments."""


@dataclass
class Ranking:
    """The latencies of the slowest bios, or requests, so far, by device, operation and result."""

    most: int = DETAILED
    """I/Os that are kept of each device and operation, and as many that are ranked apart."""
    _kept: dict[int, I64] = field(default_factory=dict)
    """Key (dev_t, interned name, apart) → the longest latencies so far, ns, at most `most`."""

    def choose(self, slices: Slices, apart: Bool, *, together: bool = False) -> I64:
        """Return the indices of those slices that are among the slowest so far, ascending.

        apart: per slice (n,), whether it is ranked apart from the others: it failed, or its latency
        is in doubt. Of equally slow slices the first are chosen. together: rank all groups as one.
        """
        group = slices.group * (not together)
        key = (group << 17) | (slices.name.astype(np.int64) << 1) | apart
        return self.choose_of(key, slices.end - slices.start)

    def add_arguments(
        self, detail: Detail, slices: Slices, failed: Bool, add: Callable[[Slices, I64, bool], None]
    ) -> None:
        """Add the arguments that `detail` gives to slices of calls or submissions.

        FULL: all; STANDARD: all to the slowest so far, and those of failures to others that
        `failed`; else none. add: adds them to slices, those at the given indices; whether all.
        """
        if detail == Detail.FULL:
            add(slices, np.arange(len(slices)), True)
        elif detail == Detail.STANDARD:
            chosen = self.choose(slices, failed, together=True)
            others = np.setdiff1d(np.flatnonzero(failed), chosen)
            for at, every in ((chosen, True), (others, False)):
                if len(at):
                    part = slices.part(at)
                    add(part, at, every)
                    slices.adopt(part, at)

    def choose_of(self, key: I64, latency: I64) -> I64:
        """Return the indices of the slowest so far of each key, as `choose` does. latency: ns."""
        chosen = []
        for one in _few_distinct(key):
            rows = np.flatnonzero(key == one)
            kept = self._kept.get(int(one), np.zeros(0, dtype=np.int64))
            if len(kept) == self.most:
                rows = rows[latency[rows] > kept.min()]
            both = np.concatenate([kept, latency[rows]])
            if len(both) > self.most:
                order = np.argsort(-both, kind="stable")[: self.most]
                both, rows = both[order], rows[np.sort(order[order >= len(kept)]) - len(kept)]
            self._kept[int(one)] = both
            chosen.append(rows)
        return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


def _few_distinct(key: I64) -> I64:
    """Return the distinct values of `key` (n,), of which there are few, without sorting it."""
    found = []
    rest = key
    while len(rest):
        found.append(rest[0])
        rest = rest[rest != rest[0]]
        if len(found) == 16:
            return np.unique(key)
    return np.array(found, dtype=np.int64)


MOST, OF_BURST = 20, 3
"""Slices on the tracks of the slowest, and how many of these overlap, at most: a burst makes all
that is in it slow, and twenty of one burst say no more than three."""


def episodes(
    start: I64, end: I64, number: I64, most: int = MOST, lesser: Bool | None = None
) -> I64:
    """Return the indices of the slowest, at most `most`, the slowest first.

    start, end: ns (n,). number: of equally slow ones the least is first. Left out is what overlaps
    OF_BURST or more slower ones that are among them; and what is `lesser` (n,) if it overlaps
    another such one.
    """
    order = np.lexsort((number, start - end))
    begins, ends = start[order], end[order]
    beside = np.zeros(len(order), dtype=np.int64)
    less = np.zeros(len(order), dtype=np.bool_) if lesser is None else lesser[order]
    found: list[int] = []
    at = 0
    while len(found) < most:
        rest = np.flatnonzero(beside[at:] < OF_BURST)
        if not len(rest):
            break
        at += int(rest[0])
        found.append(at)
        overlapping = (begins <= ends[at]) & (ends >= begins[at])
        beside += overlapping
        if less[at]:
            beside[overlapping & less] = OF_BURST
        at += 1
    return order[found]
