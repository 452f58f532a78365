# SPDX-License-Identifier: Apache-2.0
"""For whom a journal's thread writes: for those who waited for the commit, by how long they did."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame.parties import Parties
from biotrail.converters.events.distinct import looked_up
from biotrail.converters.events.tables import I64, NEVER, U32, Bool, Lifecycles

MOST_COMMITS = 500_000
"""Commits of which it is known who waited; later ones stay the journal's own."""
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class AwaitedCommits:
    """A commit's bios are dealt out to the parties of its waiters, in proportion to their waits."""

    tid: I64
    """Of a commit, by thread and end: its journal's thread, begin and end (ns); (commits,) each."""
    begin: I64
    end: I64
    until: NDArray[np.float64]
    """Of a waiter, (waiters,), by commit: row of the commit, and the share of its waits up to and
    with this party's, in (0, 1]."""
    victim: I64
    """Code of the party, by victims' dimension; NEVER: not known."""
    culprit: I64

    def name(self, numbers: I64, tid: I64, queue: I64, rows: Bool, codes: tuple[I64, I64]) -> None:
        """Give the journals' bios (rows) the parties that waited for their commits, in place."""
        spread = numbers.view(np.uint64) * np.uint64(_GOLDEN)
        place = (spread >> np.uint64(32)).astype(np.float64) / (1 << 32)
        mine = np.flatnonzero(rows)
        for one in np.unique(tid[mine]).tolist():
            first, last = np.searchsorted(self.tid, [one, one + 1])
            bios = mine[tid[mine] == one]
            at = first + np.searchsorted(self.end[first:last], queue[bios])
            bios, at = bios[at < last], at[at < last]
            began = self.begin[at] <= queue[bios]
            bios, at = bios[began], at[began]
            row = np.searchsorted(self.until, at + place[bios], side="right")
            row = np.minimum(row, len(self.until) - 1)
            for code, party in zip(codes, (self.victim, self.culprit), strict=True):
                given = party[row]
                code[bios[given != NEVER]] = given[given != NEVER]


class Waiters:
    def __init__(self, by: tuple[Parties, Parties]) -> None:
        self._by = by
        self._commits: list[I64] = []
        self._waited: list[I64] = []
        """By window, (n, 3): commit (`_key`), row of the thread, ns."""
        self._known = 0

    def add(self, window: Lifecycles) -> None:
        if window.path is None or self._known >= MOST_COMMITS:
            return
        commits = window.path.commits
        begun = np.where(commits.started != NEVER, commits.started, commits.locking)
        key = _key(commits.dev, commits.transaction)
        row = [commits.tid.astype(np.int64), begun, commits.end, key]
        self._commits.append(np.stack(row, axis=1))
        waits = window.path.waits
        rows = np.flatnonzero(waits.commit != NEVER)
        key, ns = _key(waits.commit_dev[rows], waits.commit[rows]), waits.woken - waits.out
        found = _added_up(np.stack([key, waits.task[rows].astype(np.int64), ns[rows]], axis=1))
        self._waited.append(found)
        self._known += int(np.count_nonzero(np.diff(found[:, 0], prepend=0)))

    def close(self) -> AwaitedCommits:
        every = np.concatenate([np.zeros((0, 4), np.int64), *self._commits])
        every = every[every[:, 1] != NEVER]
        every = every[np.lexsort((every[:, 2], every[:, 0]))]
        waited = _added_up(np.concatenate([np.zeros((0, 3), np.int64), *self._waited]))
        codes = np.full((len(waited), 2), NEVER)
        for side, by in enumerate(self._by):
            if by.of_writers:  # NEVER: the thread did no I/O
                codes[:, side] = looked_up(by.code_of_task, waited[:, 1], NEVER)
        good = (waited[:, 2] > 0) & (codes != NEVER).any(axis=1)
        waited = np.stack([waited[:, 0], codes[:, 0], codes[:, 1], waited[:, 2]], axis=1)[good]
        waited = _added_up(waited)
        # The last one stands for commits that nobody waited for.
        waited = np.concatenate([waited, [[NEVER, NEVER, NEVER, 1]]])
        key, ns = waited[:-1, 0], np.cumsum(waited[:, 3])
        first, stop = (np.searchsorted(key, every[:, 3], side=side) for side in ("left", "right"))
        nobody = first == stop
        first[nobody], stop[nobody] = len(key), len(key) + 1
        count = stop - first
        commit = np.repeat(np.arange(len(every)), count)
        ends = np.cumsum(count)
        at = np.arange(len(commit)) + np.repeat(first - (ends - count), count)
        before = (ns - waited[:, 3])[first]
        whole = ns[stop - 1] - before
        until = commit + (ns[at] - before[commit]) / whole[commit]
        return AwaitedCommits(
            every[:, 0].copy(),
            every[:, 1].copy(),
            every[:, 2].copy(),
            until,
            waited[at, 1],
            waited[at, 2],
        )


def _key(dev: U32, transaction: U32 | I64) -> I64:
    return dev.astype(np.int64) << 32 | transaction.astype(np.int64)


def _added_up(rows: I64) -> I64:
    """Return rows whose last column is the sum of all with the same others, by these columns."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort(rows[:, -2::-1].T)]
    new = np.concatenate([[True], (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1)])
    begin = np.flatnonzero(new)
    found = rows[begin]
    found[:, -1] = np.add.reduceat(rows[:, -1], begin)
    return found
