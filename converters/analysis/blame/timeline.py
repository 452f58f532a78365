# SPDX-License-Identifier: Apache-2.0
"""Blame over time, for what draws I/O: culprits of the slowest I/Os, and how much waits for others.

By what has passed, as `online`: a drawing reads a log once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame.bases import Steps
from biotrail.converters.analysis.blame.company import Ios
from biotrail.converters.analysis.blame.online import Cells, Online
from biotrail.converters.analysis.blame.parties import OWNER
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, Lifecycles

MOST_SLOW = 256
"""Slowest I/Os of which it is kept who slowed them."""
UNKNOWN = "(unknown)"
MOST_VICTIMS = 8
STEP_NS = 10_000_000
"""Least length of a step of a victim's track; it doubles while there are more than MOST_STEPS."""
MOST_STEPS = 2000


class Timeline:
    """Takes in windows while they are drawn."""

    def __init__(self, context: Context) -> None:
        self._online = Online(context, OWNER)
        self._slow: dict[int, tuple[int, list[tuple[str, int]]]] = {}
        """Number of a bio → Q2C, (who, ns)."""
        self._steps = Steps(STEP_NS, MOST_STEPS)
        self._waiting: dict[str, Counter[int]] = {}
        """Victim → step → ns that its I/Os waited for others."""

    def watching(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        for window in windows:
            self._add(self._online.add(window)[1])
            yield window
            del window  # not kept while the next is made
        self._add(self._online.add(None)[1])

    def behind(self, number: int) -> list[tuple[str, int]]:
        """(culprit, ns), the most first; of the MOST_SLOW slowest I/Os of lowest devices."""
        return self._slow.get(number, (0, []))[1]

    def waiting(self) -> Iterator[tuple[str, I64, NDArray[np.float64]]]:
        """Yield (victim, times, how many of its I/Os waited for others from then on)."""
        whole = {name: sum(of.values()) for name, of in self._waiting.items()}
        width = self._steps.width
        for name in sorted(nlargest(MOST_VICTIMS, whole, key=lambda one: (whole[one], one))):
            of = {step: ns for step, ns in self._waiting[name].items() if ns > 0}
            # A step without waits ends the one before.
            steps = np.array(sorted({*of, *(step + 1 for step in of)}), np.int64)
            values = np.array([of.get(step, 0) for step in steps.tolist()], np.float64) / width
            if len(steps):
                yield name, steps * width, values

    def _add(self, settled: list[Cells]) -> None:
        for one in settled:
            names, ios = one.names, one.ios
            own = names.own[one.row] != 0
            behind = np.where(own, 0, one.cells[:, : len(names.slots)])
            latency = ios.complete - ios.queue
            least = min((ns for ns, _ in self._slow.values()), default=-1)
            full = len(self._slow) >= MOST_SLOW
            for row in np.argsort(-latency, kind="stable")[:MOST_SLOW].tolist():
                if full and latency[row] <= least:
                    break
                who = Counter[str]()
                for slot in np.flatnonzero(behind[row] > 0).tolist():
                    who[names.slots[slot][1]] += int(behind[row, slot])
                if (unknown := int(one.cells[row, -1])) > 0:
                    who[UNKNOWN] += unknown
                self._slow[int(ios.number[row])] = int(latency[row]), who.most_common()
            if len(self._slow) > MOST_SLOW:
                self._slow = dict(nlargest(MOST_SLOW, self._slow.items(), key=lambda io: io[1][0]))
            self._add_waiting(ios, names.victims, one.row, behind.sum(axis=1))

    def _add_waiting(self, ios: Ios, victims: list[str], row: I64, ns: I64) -> None:
        """Spread the time (ns) that each I/O waited for others evenly from its Q to its C."""
        some = (ns != 0) & (ios.complete > ios.queue)
        if not some.any():
            return
        begin, end, ns, row = ios.queue[some], ios.complete[some], ns[some], row[some]
        grown = self._steps.reach(np.concatenate([begin, end]))
        if grown:
            for name, former in self._waiting.items():
                fresh = Counter[int]()
                for step, old in former.items():
                    fresh[step >> grown] += old
                self._waiting[name] = fresh
        for victim in np.unique(row).tolist():
            mine = row == victim
            into = self._waiting.setdefault(victims[victim], Counter())
            first, found = _spread(begin[mine], end[mine], ns[mine], self._steps.width)
            for place in np.flatnonzero(found).tolist():
                into[first + place] += int(found[place])


def _spread(begin: I64, end: I64, ns: I64, width: int) -> tuple[int, I64]:
    """Return (first step, ns of each step from it); what rounding leaves is in the last one."""
    low, high = begin // width, (end - 1) // width
    first = int(low.min())
    found = np.zeros(int(high.max()) - first + 1, np.int64)
    for step in range(int((high - low).max()) + 1):
        some = high - low >= step
        at = low[some] + step
        until = np.minimum(end[some], (at + 1) * width)
        since = np.maximum(begin[some], at * width)
        length = (end - begin)[some]
        upto = ns[some] * ((until - begin[some]) / length)
        before = ns[some] * ((since - begin[some]) / length)
        np.add.at(
            found, at - first, np.rint(upto).astype(np.int64) - np.rint(before).astype(np.int64)
        )
    return first, found
