# SPDX-License-Identifier: Apache-2.0
"""Which commit of a journal each wait for it ended with."""

import numpy as np

from biotrail.converters.calls.reason_rules import WaitReason
from biotrail.converters.events.path_tables import Commits, Waits, no_commits
from biotrail.converters.events.tables import I64, NEVER, U32


class LastCommits:
    """The newest commit of each journal's thread, window after window, in the log's order."""

    def __init__(self) -> None:
        """Start without commits."""
        self._last = no_commits()

    def of(self, waits: Waits, commits: Commits) -> tuple[I64, U32]:
        """Return (transaction, device) of the commit that each wait was for: `Waits.commit`, (n,).

        A wait with reason JOURNAL_COMMIT is ended by the thread that commits (`waker`), right after
        the commit's end. So it is the last commit of that thread that ended by the wake-up, if it
        did not end before the wait began. Else, and for waits with other reasons, NEVER and 0: the
        commit was not recorded, it is no commit of jbd2, or the wake-up was not seen. waits,
        commits: those of the log's next window, waits with `reason`. Keeps the newest commit of
        each thread for later windows.
        """
        transaction = np.full(len(waits), NEVER, dtype=np.int64)
        dev = np.zeros(len(waits), dtype=np.uint32)
        known = Commits.concatenate([self._last, commits])
        known = known.take(np.lexsort((known.end, known.tid)))
        for row in np.flatnonzero(waits.reason == WaitReason.JOURNAL_COMMIT).tolist():
            waker = int(waits.waker[row])
            first = np.searchsorted(known.tid, waker, side="left")
            stop = np.searchsorted(known.tid, waker, side="right")
            place = int(np.searchsorted(known.end[first:stop], waits.woken[row], side="right"))
            one = int(first) + place - 1
            if place and known.end[one] >= waits.out[row]:
                transaction[row], dev[row] = known.transaction[one], known.dev[one]
        newest = np.ones(len(known), dtype=np.bool_)
        newest[:-1] = known.tid[1:] != known.tid[:-1]
        self._last = known.take(newest)
        return transaction, dev
