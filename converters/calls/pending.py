# SPDX-License-Identifier: Apache-2.0
"""What is kept until calls have returned: their waits, their bios' files, cgroups and first Q."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biotrail.converters.calls.keys import (
    CallBios,
    Keys,
    held_with_entry,
    latest_end,
    rows_of,
    rows_with_entry,
)
from biotrail.converters.events.path_tables import BioPaths, Calls, HeldBios, Waits
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    U8,
    U32,
    U64,
    Bios,
    Bool,
    Lifecycles,
    Table,
)

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

        That is its descriptor's, else its bios', if all whose file is known have one. window: the
        log's next. calls: those that return in it.
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


@dataclass
class _Bios(Table):
    """Bios of calls, or what is known so far of calls that have not returned."""

    tid: I64
    entry: I64
    """ns: with `tid`, the call's key."""
    queue: I64
    """ns: Q, by which the first bio is found."""
    cgroup: U64
    file: I64
    """Row in Context.files; -1: none."""
    opf: U32
    page: U8
    """What the bio's page is, a PageKind."""

    @classmethod
    def of(cls, bios: Bios, paths: BioPaths, held: HeldBios) -> "_Bios":
        """Return a row for each bio of a timed call, or that a limit held while one waited."""
        rows, entry = rows_with_entry(bios, paths)
        waited, held = held_with_entry(bios, held)
        tid = np.concatenate([bios.tid[rows], held.tid]).astype(np.int64)
        begun = np.concatenate([bios.queue[rows], bios.queue[waited] - held.held])
        entry, rows = np.concatenate([entry, held.entry]), np.concatenate([rows, waited])
        file = bios.file[rows].astype(np.int64)
        return cls(tid, entry, begun, bios.cgroup[rows], file, bios.opf[rows], bios.page[rows])


class FirstBio(NamedTuple):
    """Of each call, (n,) each, what its first bio is (by Q, or when a limit began to hold it)."""

    cgroup: U64
    """Id that it is charged to; 0: the call queued and waited for no bio whose entry time is in the
    log."""
    file: I64
    """Row in Context.files of the call's descriptor, else of the first bio that has one; -1: none.
    """
    opf: U32
    """0: as `cgroup`."""
    page: U8


class FirstBios:
    """The cgroup and file of each call's first bio, window after window, in the log's order."""

    def __init__(self) -> None:
        self._before = _Bios.none()

    def of_calls(self, window: Lifecycles) -> FirstBio:
        """Return what is known of the first bio of each of the window's calls."""
        assert window.path is not None
        path, calls = window.path, window.path.calls
        bios = _Bios.concatenate(
            [
                self._before,
                _Bios.of(window.bios, path.bios, path.held),
                _Bios.of(window.open_bios, path.open_bios, path.open_held),
            ]
        )
        keys = Keys.among((bios.tid, bios.entry), (calls.tid, calls.entry))
        key, key_call = keys.of
        order = np.lexsort((bios.queue, key))[::-1]  # of equal keys the first one is written last
        cgroup = np.zeros(len(keys.tid), dtype=np.uint64)
        file, queue = np.full((2, len(keys.tid)), NEVER, dtype=np.int64)
        opf = np.zeros(len(keys.tid), dtype=np.uint32)
        page = np.zeros(len(keys.tid), dtype=np.uint8)
        cgroup[key[order]], queue[key[order]] = bios.cgroup[order], bios.queue[order]
        opf[key[order]], page[key[order]] = bios.opf[order], bios.page[order]
        filed = order[bios.file[order] >= 0]
        file[key[filed]] = bios.file[filed]
        kept = keys.newest() & (queue != NEVER)
        kept[key_call] = False
        columns = (keys.tid, keys.entry, queue, cgroup, file, opf, page)
        self._before = _Bios(*(column[kept] for column in columns))
        file = np.where(calls.file >= 0, calls.file, file[key_call])
        return FirstBio(cgroup[key_call], file, opf[key_call], page[key_call])


class CallsOfBios:
    """The calls that queued chosen bios, window after window, in the log's order."""

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
        first = np.full(len(keys.tid), FAR)
        first[key_before] = self._queue
        np.minimum.at(first, key_closed, closed.queue)
        kept = keys.newest() & (first != FAR)
        kept[key_call] = False
        self._tid, self._entry, self._queue = keys.tid[kept], keys.entry[kept], first[kept]
        return chosen_calls, chosen_waits
