# SPDX-License-Identifier: Apache-2.0
"""How much I/O of other operations each bio found in flight on its device when it was queued."""

import numpy as np

from biotrail.converters.analysis.distributions.samples import operations_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, Bios, Lifecycles

NOT_KNOWN = -1
_FAR = np.iinfo(np.int64).max


class Beside:
    """Window after window: what a bio found is counted at its Q and told when it has ended.

    All that was in flight at a time within a window is in its tables, so windows do not matter but
    for bios whose end was lost: these count as in flight until the window that gives them up.
    """

    def __init__(self) -> None:
        self._number = np.zeros(0, dtype=np.int64)
        self._found = np.zeros(0, dtype=np.int64)

    def add(self, window: Lifecycles, context: Context) -> I64:
        """Take in the next window; return bytes per row of its `bios`, NOT_KNOWN: Q not seen."""
        both = Bios.concatenate([window.bios, window.open_bios])
        found = np.full(len(both), NOT_KNOWN, dtype=np.int64)
        if len(self._number) and len(both):
            at = np.minimum(np.searchsorted(self._number, both.number), len(self._number) - 1)
            found = np.where(self._number[at] == both.number, self._found[at], NOT_KNOWN)
        begun = (both.queue >= window.begin) & (both.queue < window.end)
        over = np.arange(len(both)) < len(window.bios)
        ended = np.where(over | (both.complete != NEVER), both.complete, _FAR)
        operation = operations_of(both, context)
        for dev in np.unique(both.dev).tolist():
            here = np.flatnonzero((both.dev == dev) & (both.queue != NEVER) & (ended != NEVER))
            asked = np.flatnonzero((both.dev == dev) & begun)
            times = both.queue[asked]
            size, ops = both.bytes[here].astype(np.int64), operation[here]
            whole = _in_flight(both.queue[here], ended[here], size, times)
            for op in np.unique(operation[asked]).tolist():
                mine, at = here[ops == op], operation[asked] == op
                own = _in_flight(both.queue[mine], ended[mine], size[ops == op], times[at])
                found[asked[at]] = whole[at] - own
        order = np.argsort(window.open_bios.number)
        self._number = window.open_bios.number[order]
        self._found = found[~over][order]
        return found[over]


def _in_flight(begin: I64, end: I64, size: I64, times: I64) -> I64:
    """Return the bytes of I/Os with begin <= time < end, at each time (ns)."""
    return _until(begin, size, times) - _until(end, size, times)


def _until(at: I64, size: I64, times: I64) -> I64:
    order = np.argsort(at)
    sums = np.concatenate([[0], np.cumsum(size[order])])
    return np.asarray(sums[np.searchsorted(at[order], times, side="right")], dtype=np.int64)
