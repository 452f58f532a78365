# SPDX-License-Identifier: Apache-2.0
"""Which commit of a journal each wait for it ended with."""

import numpy as np

from biotrail.converters.calls.reason_rules import WaitReason
from biotrail.converters.events.path_tables import Commits, Waits, no_commits
from biotrail.converters.events.tables import I64, NEVER, U32

KEPT = 64
"""A wait is recorded once its thread has a CPU again; so many commits may have ended by then."""


class LastCommits:
    """The newest commits of each journal's thread, window after window, in the log's order."""

    def __init__(self) -> None:
        """Start without commits."""
        self._last = no_commits()

    def of(self, waits: Waits, commits: Commits) -> tuple[I64, U32]:
        """Return (transaction, device) of the commit that each wait was for: `Waits.commit`, (n,).

        A wait with reason JOURNAL_COMMIT is ended by the thread that commits (`waker`), right after
        the commit's end. So it is the last commit of that thread that ended by the wake-up, if it
        did not end before the wait began. Else, and for waits with other reasons, NEVER and 0: the
        commit was not recorded, it is no commit of jbd2, or the wake-up was not seen. waits,
        commits: those of the log's next window, waits with `reason`. Keeps the newest commits of
        each thread (KEPT) for later windows.
        """
        transaction = np.full(len(waits), NEVER, dtype=np.int64)
        dev = np.zeros(len(waits), dtype=np.uint32)
        known = Commits.concatenate([self._last, commits])
        known = known.take(np.lexsort((known.end, known.tid)))
        rows = np.flatnonzero(waits.reason == WaitReason.JOURNAL_COMMIT)
        last = _last_by(known, waits.waker[rows], waits.woken[rows])
        rows, last = rows[last >= 0], last[last >= 0]
        since = known.end[last] >= waits.out[rows]
        rows, last = rows[since], last[since]
        transaction[rows], dev[rows] = known.transaction[last], known.dev[last]
        behind = np.searchsorted(known.tid, known.tid, side="right") - np.arange(len(known))
        self._last = known.take(behind <= KEPT)
        return transaction, dev


def _last_by(known: Commits, waker: U32, woken: I64) -> I64:
    """Return the row of the last commit that a thread ended by a time, int64 (n,); -1: none.

    known: sorted by (tid, end). waker, woken: (n,), the thread and the time (ns).
    """
    if not len(known):
        return np.full(len(waker), -1, dtype=np.int64)
    ends, rank = np.unique(known.end, return_inverse=True)
    tids, code = np.unique(known.tid, return_inverse=True)
    # Each thread has its own range of ranks; rank 0 is before all of its commits.
    width = len(ends) + 1
    asked = np.searchsorted(tids, waker) * width + np.searchsorted(ends, woken, side="right")
    row = np.searchsorted(code * width + rank + 1, asked, side="right") - 1
    return np.where((row >= 0) & (known.tid[row] == waker), row, -1)
