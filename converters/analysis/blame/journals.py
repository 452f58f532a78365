# SPDX-License-Identifier: Apache-2.0
"""For whom a journal's thread writes: for those who waited for the commit."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from biotrail.converters.analysis.blame.parties import Parties, Writers
from biotrail.converters.events.tables import I64, NEVER, Bool, Lifecycles, Table

MOST_COMMITS = 500_000
"""Commits of which it is known who waited; later ones stay the journal's own."""


@dataclass
class Asked(Table):
    """A row for each commit that somebody waited for, by thread and end."""

    tid: I64
    begin: I64
    end: I64
    victim: I64
    """Code of the party that waited longest, by victims' dimension; NEVER: not known."""
    culprit: I64


class Waiters:
    """Learns who waited for each commit, window after window."""

    def __init__(self, by: tuple[Parties, Parties]) -> None:
        """by: parties of victims and of culprits."""
        self._by = by
        self._commits: list[I64] = []
        self._waited: dict[tuple[int, int], Counter[int]] = {}
        """(device, transaction) → row of the thread → ns."""

    def add(self, window: Lifecycles) -> None:
        """Add the window's commits and the waits for them."""
        if window.path is None or len(self._waited) >= MOST_COMMITS:
            return
        commits = window.path.commits
        begun = np.where(commits.started != NEVER, commits.started, commits.locking)
        row = [commits.tid, begun, commits.end, commits.dev, commits.transaction]
        self._commits.append(np.stack([column.astype(np.int64) for column in row], axis=1))
        waits = window.path.waits
        waits = waits.take(waits.commit != NEVER)
        columns = waits.commit_dev, waits.commit, waits.task, waits.woken - waits.out
        for dev, transaction, task, ns in zip(*(c.tolist() for c in columns), strict=True):
            self._waited.setdefault((dev, transaction), Counter())[task] += ns

    def _code(self, side: int, task: int) -> int:
        """Return the code of a thread's party; NEVER: it has done no I/O, or has no party."""
        parties = self._by[side]
        return parties.code_of_task.get(task, NEVER) if isinstance(parties, Writers) else NEVER

    def close(self) -> Asked:
        """Return who asked for each commit, after the last window."""
        every = np.concatenate([np.zeros((0, 5), np.int64), *self._commits])
        every = every[every[:, 1] != NEVER]
        codes = np.array(
            [self._most(dev, transaction) for dev, transaction in every[:, 3:].tolist()], np.int64
        ).reshape(-1, 2)
        order = np.lexsort((every[:, 2], every[:, 0]))
        tid, begin, end = (every[order, place] for place in range(3))
        return Asked(tid, begin, end, codes[order, 0], codes[order, 1])

    def _most(self, dev: int, transaction: int) -> tuple[int, int]:
        """Return the codes of the party that waited longest for a commit, NEVER: nobody did."""
        found: Counter[tuple[int, int]] = Counter()
        for task, ns in self._waited.get((dev, transaction), Counter()).items():
            codes = self._code(0, task), self._code(1, task)
            if codes != (NEVER, NEVER):
                found[codes] += ns
        return max(found, key=lambda one: (found[one], one), default=(NEVER, NEVER))


def named(asked: Asked, tid: I64, queue: I64, rows: Bool, codes: tuple[I64, I64]) -> None:
    """Give the journals' bios the parties that waited for their commits, in place.

    tid, queue: of bios, (n,). rows: those that a journal queued. codes: of victims and culprits.
    """
    mine = np.flatnonzero(rows)
    for one in np.unique(tid[mine]).tolist():
        first, last = np.searchsorted(asked.tid, [one, one + 1])
        bios = mine[tid[mine] == one]
        at = first + np.searchsorted(asked.end[first:last], queue[bios])
        there = at < last
        bios, at = bios[there], at[there]
        bios, at = (column[asked.begin[at] <= queue[bios]] for column in (bios, at))
        for code, given in zip(codes, (asked.victim, asked.culprit), strict=True):
            found = given[at]
            code[bios[found != NEVER]] = found[found != NEVER]
