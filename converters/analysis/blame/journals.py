# SPDX-License-Identifier: Apache-2.0
"""For whom a journal's thread writes: for those who waited for the commit, by how long they did."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame.parties import Parties, Writers
from biotrail.converters.events.tables import I64, NEVER, Bool, Lifecycles

MOST_COMMITS = 500_000
"""Commits of which it is known who waited; later ones stay the journal's own."""
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio."""


@dataclass
class Asked:
    """The commits that somebody waited for, and their waiters' parties.

    A commit's bios are dealt out to the parties in proportion to their waits.
    """

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

    def parties(self, commit: I64, number: I64) -> tuple[I64, I64]:
        """Return the parties that bios are dealt to: codes of victims and of culprits, (n,) each.

        commit: row of each bio's. number: of the bio. What a bio's number decides is the same
        however a log is cut; multiples of the golden ratio spread evenly.
        """
        spread = number.view(np.uint64) * np.uint64(_GOLDEN)
        place = (spread >> np.uint64(32)).astype(np.float64) / (1 << 32)
        row = np.searchsorted(self.until, commit + place, side="right")
        row = np.minimum(row, len(self.until) - 1)
        return self.victim[row], self.culprit[row]


class Waiters:
    """Learns who waited for each commit, window after window."""

    def __init__(self, by: tuple[Parties, Parties]) -> None:
        """by: parties of victims and of culprits."""
        self._by = by
        self._commits: list[I64] = []
        self._waited: dict[tuple[int, int], dict[int, int]] = {}
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
            of = self._waited.setdefault((dev, transaction), {})
            of[task] = of.get(task, 0) + ns

    def _code(self, side: int, task: int) -> int:
        """Return the code of a thread's party; NEVER: it has done no I/O, or has no party."""
        parties = self._by[side]
        return parties.code_of_task.get(task, NEVER) if isinstance(parties, Writers) else NEVER

    def close(self) -> Asked:
        """Return who asked for each commit, after the last window."""
        every = np.concatenate([np.zeros((0, 5), np.int64), *self._commits])
        every = every[every[:, 1] != NEVER]
        every = every[np.lexsort((every[:, 2], every[:, 0]))]
        until: list[float] = []
        codes: list[tuple[int, int]] = []
        for row, (dev, transaction) in enumerate(every[:, 3:].tolist()):
            found = self._of(dev, transaction)
            whole, seen = sum(found.values()), 0
            for code in sorted(found):
                seen += found[code]
                until.append(row + seen / whole)
                codes.append(code)
        pairs = np.array(codes, np.int64).reshape(-1, 2)
        return Asked(
            every[:, 0].copy(),
            every[:, 1].copy(),
            every[:, 2].copy(),
            np.array(until, np.float64),
            pairs[:, 0].copy(),
            pairs[:, 1].copy(),
        )

    def _of(self, dev: int, transaction: int) -> dict[tuple[int, int], int]:
        """Return the codes of the parties that waited for a commit → ns; never empty."""
        found: dict[tuple[int, int], int] = {}
        for task, ns in self._waited.get((dev, transaction), {}).items():
            codes = self._code(0, task), self._code(1, task)
            if codes != (NEVER, NEVER) and ns > 0:
                found[codes] = found.get(codes, 0) + ns
        return found or {(NEVER, NEVER): 1}


def named(
    asked: Asked, numbers: I64, tid: I64, queue: I64, rows: Bool, codes: tuple[I64, I64]
) -> None:
    """Give the journals' bios the parties that waited for their commits, in place.

    numbers, tid, queue: of bios, (n,). rows: those that a journal queued. codes: of victims and
    culprits.
    """
    mine = np.flatnonzero(rows)
    for one in np.unique(tid[mine]).tolist():
        first, last = np.searchsorted(asked.tid, [one, one + 1])
        bios = mine[tid[mine] == one]
        at = first + np.searchsorted(asked.end[first:last], queue[bios])
        there = at < last
        bios, at = bios[there], at[there]
        began = asked.begin[at] <= queue[bios]
        bios, at = bios[began], at[began]
        for code, given in zip(codes, asked.parties(at, numbers[bios]), strict=True):
            code[bios[given != NEVER]] = given[given != NEVER]
