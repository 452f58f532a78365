# SPDX-License-Identifier: Apache-2.0
"""Which calls and waits belong to chosen bios, where a bio can end windows before its call."""

import numpy as np

from biotrail.converters.calls.keys import CallBios, Keys, latest_end
from biotrail.converters.events.path_tables import BioPaths, Calls, HeldBios, Waits
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bios,
    Bool,
)


class CallsOfBios:
    """The calls that queued chosen bios, window after window, in the log's order.

    Between windows it keeps, for each thread, its newest call with chosen bios that ended.
    """

    def __init__(self) -> None:
        """Start without calls."""
        none = np.zeros(0, dtype=np.int64)
        self._tid, self._entry, self._queue = none, none, none

    def masks(
        self,
        calls: Calls,
        waits: Waits,
        bios: tuple[Bios, BioPaths, HeldBios],
        open_bios: tuple[Bios, BioPaths, HeldBios],
    ) -> tuple[Bool, Bool]:
        """Return masks of the window's calls and waits that belong to chosen bios.

        bool, by row of `calls` and of `waits`. A call belongs to chosen bios if it queued one, in
        this window or an earlier one, or waited for one that a cgroup's limit held; a wait, if its
        call had queued one when the wait began, or it was for such a one. Bios without a recorded Q
        or entry time of the call do not count. bios, open_bios: the chosen ones of the window,
        their paths, and what limits held of them. Changes what is kept for the next window.
        """
        closed, still = (
            CallBios.concatenate([CallBios.of(table, paths), CallBios.held(table, held)])
            for table, paths, held in (bios, open_bios)
        )
        before = self._tid, self._entry
        keys = Keys.among(before, *((t.tid, t.entry) for t in (closed, still, waits, calls)))
        key = np.concatenate(keys.of[:3])
        queue = np.concatenate([self._queue, closed.queue, still.queue])
        _, _, _, key_wait, key_call = keys.of
        chosen_waits = latest_end(key, queue, queue, key_wait, waits.out) != NEVER
        chosen_calls = latest_end(key, queue, queue, key_call, calls.exit) != NEVER
        self._keep(keys, closed, key_call)
        return chosen_calls, chosen_waits

    def _keep(self, keys: Keys, closed: CallBios, returned: I64) -> None:
        """Keep what the next window must know: of each thread the newest call, and its first Q.

        The first of its chosen bios that ended; calls without one, and those that returned, are not
        kept. keys: of the window's tables, in the order of `masks`. returned: keys of calls that
        ended.
        """
        first = np.full(len(keys.tid), np.iinfo(np.int64).max)
        first[keys.of[0]] = self._queue
        np.minimum.at(first, keys.of[1], closed.queue)
        kept = keys.newest() & (first != np.iinfo(np.int64).max)
        kept[returned] = False
        self._tid, self._entry, self._queue = keys.tid[kept], keys.entry[kept], first[kept]
