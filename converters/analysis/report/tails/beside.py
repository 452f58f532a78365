# SPDX-License-Identifier: Apache-2.0
"""Bytes of other operations that were in flight on a bio's device when the bio was queued."""

import numpy as np

from biotrail.converters.analysis.distributions.samples import operations_of
from biotrail.converters.analysis.distributions.sums import loops
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, NEVER, Bios, Lifecycles
from biotrail.converters.lifecycles.operations import transferred

NOT_KNOWN = -1
"""Bytes beside a bio whose Q is not in the log."""
_FAR = np.iinfo(np.int64).max


class Beside:
    """Bytes in flight at each bio's Q, summed in the window of the Q, returned in that of the end.

    A window's tables have all I/O that was in flight at any time within the window. So the result
    does not depend on how windows cut the log, except for bios whose completion was lost: these
    count as in flight until the window that gives them up.
    """

    def __init__(self) -> None:
        self._number = np.zeros(0, dtype=np.int64)
        """(n,): numbers of the bios under way at the last window's end, ascending."""
        self._found = np.zeros(0, dtype=np.int64)
        """(n,): bytes beside each of them, or NOT_KNOWN."""

    def add(self, window: Lifecycles, context: Context) -> I64:
        """Add the log's next window; return the bytes beside each of its `bios`: int64 (n,).

        Beside a bio are the bios of other operations on the same device that were in flight when it
        was queued, with the data that they move: with Q at or before that time, and C after it or
        not yet; not those without a Q
        in the log, or given up in this window without a C. The sum of their lengths is made in the
        window in which the bio was queued, and kept in `_number` and `_found` while it is in
        flight. NOT_KNOWN: the bio's Q is not in the log (or before a cut). context: the log's, for
        operations.
        """
        both = Bios.concatenate([window.bios, window.open_bios])
        found = np.full(len(both), NOT_KNOWN, dtype=np.int64)
        if len(self._number) and len(both):
            at = np.minimum(np.searchsorted(self._number, both.number), len(self._number) - 1)
            found = np.where(self._number[at] == both.number, self._found[at], NOT_KNOWN)
        begun = (both.queue >= window.begin) & (both.queue < window.end)
        over = np.arange(len(both)) < len(window.bios)
        ended = np.where(over | (both.complete != NEVER), both.complete, _FAR)
        place = both.dev.astype(np.int64) << 8 | operations_of(both, context)
        asked = np.flatnonzero(begun)
        size = transferred(context, both.opf, both.bytes)
        found[asked] = _beside(place, both, size, ended, asked)
        order = np.argsort(window.open_bios.number)
        self._number = window.open_bios.number[order]
        self._found = found[~over][order]
        return found[over]


def _beside(place: I64, bios: Bios, size: I64, ended: I64, asked: I64) -> I64:
    """Return the bytes of other operations in flight on the device at the Q of the asked rows.

    place: per bio (n,): its device << 8 | operation. size: bytes that it moves (n,). ended: ns
    (n,), _FAR: not yet; NEVER: counts as not in flight. asked: rows (m,), with a Q; the
    result is by these.
    """
    names, _, of = distinct_values(place)
    devices, _, device = distinct_values(names >> 8)
    if len(devices) == len(names):  # no device has several operations
        return np.zeros(len(asked), np.int64)
    if loops is None:
        return _beside_sorted(place, bios, size, ended, asked)
    queued = np.flatnonzero(bios.queue != NEVER)
    size = np.where(ended != NEVER, size, 0)
    over = np.where(ended != NEVER, ended, _FAR)
    queued = queued[np.argsort(bios.queue[queued], kind="stable")]
    order = queued[np.argsort(over[queued])]
    found = np.empty(len(bios), np.int64)
    loops.beside(
        bios.queue,
        of,
        size,
        queued,
        order,
        over[order],
        device,
        np.zeros(len(names), np.int64),
        np.zeros(len(devices), np.int64),
        found,
    )
    return found[asked]


def _beside_sorted(place: I64, bios: Bios, size: I64, ended: I64, asked: I64) -> I64:
    """Do as `_beside`, by a sort for each device and operation."""
    found = np.zeros(len(bios), np.int64)
    for dev in np.unique(place[asked] >> 8).tolist():
        here = np.flatnonzero((place >> 8 == dev) & (bios.queue != NEVER) & (ended != NEVER))
        mine = asked[place[asked] >> 8 == dev]
        sizes = size[here]
        whole = _in_flight(bios.queue[here], ended[here], sizes, bios.queue[mine])
        for one in np.unique(place[mine]).tolist():
            rows, at = place[here] == one, place[mine] == one
            times = bios.queue[mine[at]]
            own = _in_flight(bios.queue[here[rows]], ended[here[rows]], sizes[rows], times)
            found[mine[at]] = whole[at] - own
    return found[asked]


def _in_flight(begin: I64, end: I64, size: I64, times: I64) -> I64:
    """Return the bytes in flight at each time: the sum over I/Os with begin <= time < end.

    begin, end: ns (n,) of each I/O; size: its bytes (n,). times: ns (m,), as the result.
    """
    return _until(begin, size, times) - _until(end, size, times)


def _until(at: I64, size: I64, times: I64) -> I64:
    """Return, at each time (m,), the sum of the sizes with `at` (n,) not after that time."""
    order = np.argsort(at)
    sums = np.concatenate([[0], np.cumsum(size[order])])
    return np.asarray(sums[np.searchsorted(at[order], times, side="right")], dtype=np.int64)
