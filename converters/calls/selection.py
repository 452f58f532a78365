# SPDX-License-Identifier: Apache-2.0
"""Which calls and waits belong to chosen bios, where a bio can end windows before its call."""

import numpy as np

from biotrail.converters.calls.keys import CallBios, Keys, latest_end
from biotrail.converters.events.path_tables import BioPaths, Calls, HeldBios, Waits
from biotrail.converters.events.tables import (
    NEVER,
    Bios,
    Bool,
)


class CallsOfBios:
    """The calls that queued chosen bios, window after window, in the log's order.

    Between windows it keeps, for each thread, its newest call with chosen bios that ended.
    """

    def __init__(self) -> None:
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

        A call belongs to chosen bios if it queued one, in this window or an earlier one, or waited
        for one that a cgroup's limit held; a wait, if its call had queued one when the wait began,
        or it was for such a one. Bios without a recorded Q or entry time of the call do not count.
        bios, open_bios: the chosen ones of the window, their paths, and what limits held of them.
        """
        closed, still = (
            CallBios.concatenate([CallBios.of(table, paths), CallBios.held(table, held)])
            for table, paths, held in (bios, open_bios)
        )
        before = self._tid, self._entry
        keys = Keys.among(before, *((t.tid, t.entry) for t in (closed, still, waits, calls)))
        key_before, key_closed, _, key_wait, key_call = keys.of
        key = np.concatenate(keys.of[:3])
        queue = np.concatenate([self._queue, closed.queue, still.queue])
        chosen_waits = latest_end(key, queue, queue, key_wait, waits.out) != NEVER
        chosen_calls = latest_end(key, queue, queue, key_call, calls.exit) != NEVER
        # The next window must know of each thread's newest call, unless it returned, the first Q
        # of its chosen bios that ended.
        first = np.full(len(keys.tid), np.iinfo(np.int64).max)
        first[key_before] = self._queue
        np.minimum.at(first, key_closed, closed.queue)
        kept = keys.newest() & (first != np.iinfo(np.int64).max)
        kept[key_call] = False
        self._tid, self._entry, self._queue = keys.tid[kept], keys.entry[kept], first[kept]
        return chosen_calls, chosen_waits
