# SPDX-License-Identifier: Apache-2.0
"""Which call a bio or wait belongs to: a call is known by its thread and the time of its entry."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from biotrail.converters.events import distinct_loops as loops
from biotrail.converters.events.tables import FAR, I64, NEVER, U32, Bios, Bool, Table

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import BioPaths, Calls, HeldBios


@dataclass
class CallBios(Table):
    """One row per bio whose call and its entry time are known."""

    tid: I64
    """Thread that queued the bio."""
    entry: I64
    """Entry time (ns) of the call that queued it."""
    queue: I64
    """Time of Q (ns)."""
    end: I64
    """When it ended (ns), as by `ends_of`."""
    own: Bool
    """Whether it is the recording's own I/O."""

    @classmethod
    def held(cls, bios: Bios, held: "HeldBios") -> Self:
        """Return a row for each held bio that a timed call waited for, as if that had queued it.

        With the beginning of the hold for Q. bios, held: as for `held_with_entry`.
        """
        rows, held = held_with_entry(bios, held)
        made = cls.in_calls(bios, rows, held.entry)
        made.tid, made.queue = held.tid.astype(np.int64), made.queue - held.held
        return made

    @classmethod
    def of(cls, bios: Bios, paths: "BioPaths") -> Self:
        """Return a row for each of the `bios` that has an entry time in `paths`, in their order.

        Both are sorted by number. Bios without a Q are left out.
        """
        return cls.in_calls(bios, *rows_with_entry(bios, paths))

    @classmethod
    def in_calls(cls, bios: Bios, rows: I64, entry: I64) -> Self:
        """Return these rows of `bios`, queued in calls with these entries."""
        return cls(
            tid=bios.tid[rows].astype(np.int64),
            entry=entry,
            queue=bios.queue[rows],
            end=ends_of(bios)[rows],
            own=bios.own[rows],
        )


def ends_of(bios: Bios) -> I64:
    """Return when each bio ended (ns), at the latest if it was not recorded; FAR: not so far."""
    gone = np.where(bios.gone == NEVER, FAR, bios.gone)
    return np.where(bios.complete == NEVER, gone, bios.complete)


def held_with_entry(bios: Bios, held: "HeldBios") -> "tuple[I64, HeldBios]":
    """Return (rows, held): held bios that a timed call waited for, and what is known of each.

    rows: of `bios`, as `held`. Both tables are sorted by number.
    """
    row, known = rows_of(bios.number, held.number)
    known &= (held.entry != NEVER) & (held.held != NEVER)
    return row[known], held.take(known)


def rows_with_entry(bios: Bios, paths: "BioPaths") -> tuple[I64, I64]:
    """Return (rows, entry): the bios of timed calls, and the entry time (ns) of each one's call.

    rows: of `bios`, ascending; bios without a Q are left out. Both tables are sorted by number.
    """
    place, known = rows_of(paths.number, bios.number)
    rows = np.flatnonzero(known & (bios.queue != NEVER))
    rows = rows[paths.entry[place[rows]] != NEVER]
    return rows, paths.entry[place[rows]]


def rows_of(numbers: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return (rows, known): index of each wanted number in `numbers`, and whether it is there.

    numbers: ascending. rows: int64, 0 where the number is not among them.
    """
    rows, known = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.uint8)
    loops.find(np.ascontiguousarray(numbers), np.ascontiguousarray(wanted), rows, known)
    return rows, known.view(np.bool_)


def rows_among(numbers: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return what `rows_of` does, of distinct numbers in any order."""
    if (numbers[:-1] < numbers[1:]).all():
        return rows_of(numbers, wanted)
    order = np.argsort(numbers, kind="stable")
    row, known = rows_of(numbers[order], wanted)
    return order[row], known


def rows_dirtied(paths: "BioPaths", bios: Bios) -> tuple[I64, I64]:
    """Return the rows of bios whose page's writer is known, in `paths` and in `bios`: (k,) each."""
    row, known = rows_of(paths.number, bios.number)
    known[known] = paths.dirtied[row[known]] != NEVER
    return row[known], np.flatnonzero(known)


@dataclass
class Keys:
    """The distinct calls among several tables, sorted by (tid, entry), and each row's call."""

    tid: I64
    """(k,): thread of each distinct call."""
    entry: I64
    """(k,): its entry time (ns)."""
    of: list[I64]
    """For each table given: index into `tid` and `entry` of each row's call."""

    @classmethod
    def among(cls, *tables: tuple[I64 | U32, I64]) -> Self:
        """Return the distinct calls of several tables. tables: (tid, entry) of each one's rows.

        An entry of NEVER counts as a time like any other: such calls of one thread are one.
        """
        tid = np.concatenate([np.asarray(one, dtype=np.int64) for one, _ in tables])
        entry = np.concatenate([one for _, one in tables])
        order = np.lexsort((entry, tid))
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = np.diff(tid[order]).astype(np.bool_) | np.diff(entry[order]).astype(np.bool_)
        code = np.empty(len(order), dtype=np.int64)
        code[order] = np.cumsum(first) - 1
        edges = np.cumsum([len(one) for one, _ in tables])[:-1]
        rows = order[first]
        return cls(tid[rows], entry[rows], np.split(code, edges))

    def newest(self) -> Bool:
        """Mark each thread's call that was entered last: bool (k,)."""
        last = np.ones(len(self.tid), dtype=np.bool_)
        last[:-1] = self.tid[1:] != self.tid[:-1]
        return last


def latest_end(key: I64, start: I64, end: I64, asked: I64, time: I64) -> I64:
    """Return the latest end among the spans of a key that started at a time or before: (m,).

    key, start, end: (n,), the spans; ends are at least 0. asked, time: (m,), the key and the time
    of each question. Keys are small integers of at least 0. NEVER: there is no such span.
    """
    if not len(key) or not len(asked):
        return np.full(len(asked), NEVER, dtype=np.int64)
    keys, times = np.concatenate([key, asked]), np.concatenate([start, time])
    ends, rank = np.unique(end, return_inverse=True)
    ranks = np.concatenate([rank + 1, np.zeros(len(asked), dtype=np.int64)])
    order = np.lexsort((times, keys))  # stable: spans come before questions of their time
    # One running maximum serves all keys: a key's values are all above those of the key before.
    base = keys[order] * (len(ends) + 1)
    latest = np.maximum.accumulate(base + ranks[order]) - base
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.concatenate([[NEVER], ends])[latest]
    return found[len(key) :]


def rows_by_key(table: "Calls", wanted: U32 | I64, begun: I64) -> I64:
    """Return the rows in `table` of calls of threads `wanted` by entry time; -1: none.

    Entries must be known: NEVER would match NEVER.
    """
    order = np.argsort(table.entry, kind="stable")
    row = rows_of_pairs(table.tid[order], table.entry[order], wanted, begun)
    return np.where(row >= 0, order[row], -1) if len(order) else row


def rows_of_pairs(one: I64 | U32, other: I64, wanted_one: I64 | U32, wanted_other: I64) -> I64:
    """Return the row of each wanted pair among pairs (one, other), (n,); -1: it is none of these.

    other: ascending; few of its values are alike.
    """
    row = np.full(len(wanted_other), -1, dtype=np.int64)
    place = np.searchsorted(other, wanted_other)
    left = np.arange(len(row))
    # Two threads rarely enter in the same nanosecond, so this loop is short.
    while True:
        left = left[place[left] < len(other)]
        left = left[other[place[left]] == wanted_other[left]]
        if not len(left):
            return row
        found = left[one[place[left]] == wanted_one[left]]
        row[found] = place[found]
        place[left] += 1
