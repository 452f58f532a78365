# SPDX-License-Identifier: Apache-2.0
"""What is kept until calls have returned: their waits, and the files of their bios."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.calls.keys import Keys, rows_of
from biotrail.converters.events.path_tables import BioPaths, Calls, Waits
from biotrail.converters.events.tables import I64, NEVER, Bios, Lifecycles, Table

_MOST_KEPT = 1 << 18
"""Waits, and bios, that are kept at most until their call returns: the newest."""


@dataclass
class _Carried(Table):
    """One row per bio whose file, and whose call with its entry time, are known."""

    tid: I64
    entry: I64
    """Entry time (ns) of its call."""
    file: I64
    """Row in `Context.files`."""

    @classmethod
    def of(cls, bios: Bios, paths: BioPaths) -> "_Carried":
        """Return a row for each of `bios` of which all is known. paths: of these bios."""
        place, known = rows_of(paths.number, bios.number)
        rows = np.flatnonzero(known & (bios.file >= 0))
        entry = paths.entry[place[rows]]
        timed = entry != NEVER
        rows = rows[timed]
        return cls(bios.tid[rows].astype(np.int64), entry[timed], bios.file[rows].astype(np.int64))


class CallFiles:
    """The files of the bios of calls, window after window, until their calls return."""

    def __init__(self) -> None:
        self._kept = _Carried.none()
        """Of bios that ended, of calls that have not returned."""

    def of(self, window: Lifecycles, calls: Calls) -> I64:
        """Return per call (n,) the row in `Context.files` of its file, -1: not known.

        That is its descriptor's, where the log has it; else its bios'. A call whose bios (of this
        window and earlier ones) are of several files, or of none that is known, has none; bios
        without a known file do not count. window: the log's next, in order. calls: those that
        return in it, which are forgotten then.
        """
        if window.path is None:
            return np.full(len(calls), -1, dtype=np.int64)
        closed = _Carried.of(window.bios, window.path.bios)
        still = _Carried.of(window.open_bios, window.path.open_bios)
        kept = _Carried.concatenate([self._kept, closed])
        known = _Carried.concatenate([kept, still])
        keys = Keys.among((calls.tid, calls.entry), (known.tid, known.entry))
        least = np.full(len(keys.tid), np.iinfo(np.int64).max)
        most = np.full(len(keys.tid), -1, dtype=np.int64)
        np.minimum.at(least, keys.of[1], known.file)
        np.maximum.at(most, keys.of[1], known.file)
        returned = np.zeros(len(keys.tid), dtype=np.bool_)
        returned[keys.of[0]] = True
        stays = np.flatnonzero(~returned[keys.of[1][: len(kept)]])
        self._kept = kept.take(stays[-_MOST_KEPT:])
        found = np.where(least == most, most, -1)
        return np.where(calls.file >= 0, calls.file, found[keys.of[0]])


class PendingWaits:
    """Waits of a log that were not given to their call yet, in the order in which they ended."""

    def __init__(self) -> None:
        self._waits = Waits.none()

    def add(self, waits: Waits) -> None:
        self._waits = Waits.concatenate([self._waits, waits])

    def take(self, calls: Calls) -> tuple[I64, Waits]:
        """Remove and return the waits of these calls, and before them each wait's row in `calls`.

        A wait is a call's if thread and entry time are the same. Sorted by (row, begin of the
        wait).
        """
        waits = self._waits
        keys = Keys.among((calls.tid, calls.entry), (waits.tid, waits.entry))
        row_of = np.full(len(keys.tid), -1, dtype=np.int64)
        row_of[keys.of[0]] = np.arange(len(calls))
        row = row_of[keys.of[1]]
        self._waits = waits.take(np.flatnonzero(row < 0)[-_MOST_KEPT:])
        ours = np.flatnonzero(row >= 0)
        ours = ours[np.lexsort((waits.out[ours], row[ours]))]
        return row[ours], waits.take(ours)
