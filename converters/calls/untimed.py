# SPDX-License-Identifier: Apache-2.0
"""Waits outside of timed calls: which bios were the waiting thread's own, and a call for each.

A thread that waits has the call, and its arguments, in its registers, as it had when it queued a
bio in that call. So bios and waits of one thread with the same call and arguments belong together,
where a bio was in flight when the wait began. Each such wait becomes a call of which nothing but
the wait is known, so that all that shows calls shows it, too.
"""

from dataclasses import replace

import numpy as np

from biotrail.converters.calls.keys import CallBios, rows_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import BioPaths, Calls, PathTables, Waits
from biotrail.converters.events.tables import I64, NEVER, SETTLE_NS, U64, Bios, WaitCause

_NEAR_NS = 10_000
"""A wake-up follows the completion of the bio that was waited for within this time, mostly."""
_WAKE_NS = 100_000
"""And within this time at the latest, if nothing else completed since."""
_MIXED = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_LOW_HALF = np.uint64(0xFFFFFFFF)


class UntimedWaits:
    """Joins bios to waits of threads whose calls were not timed, window after window, in order."""

    def __init__(self, context: Context) -> None:
        self._on = "wait" in context.path_parts
        self._by_call = "call" in context.path_parts
        none = np.zeros(0, dtype=np.int64)
        self._numbers, self._entries = none, none
        """Bios in flight that a wait was for, ascending, and the `entry` of each one's wait."""

    def keys(self, waits: Waits) -> I64:
        """Return per wait what stands for its call beside its thread: (n,).

        The entry of a timed call; else a number below NEVER, the same for all waits and bios with
        the call's number and arguments.
        """
        none = np.zeros(len(waits), dtype=np.uint64)
        known = self._by_call & (waits.number >= 0)
        call = _signature(
            np.where(waits.number < NO_CALL, NO_CALL, waits.number) if self._by_call else none,
            np.where(known, waits.arg0, none),
            np.where(known, waits.arg2, none),
            np.where(known, waits.arg3, none),
        )
        return np.where(waits.timed, waits.entry, call)

    def bios(self, bios: Bios, paths: BioPaths) -> tuple[I64, CallBios]:
        """Return (rows, call bios): the bios that were queued in no timed call, by such keys.

        rows: of `bios`, ascending; those without a Q are left out, and all where waits were not
        recorded. Both tables are sorted by number.
        """
        place, known = rows_of(paths.number, bios.number)
        lone = (bios.queue != NEVER) & self._on
        if len(paths):
            lone &= ~known | (paths.entry[place] == NEVER)
        rows = np.flatnonzero(lone)
        place, known = place[rows], known[rows] & self._by_call
        none = np.zeros(len(rows), dtype=np.uint64)
        number, args = np.full(len(rows), NO_CALL), np.zeros((len(rows), 4), dtype=np.uint64)
        if len(paths):
            number = np.where(known, paths.call[place], NO_CALL)
            args = paths.args[place]
        number = number if self._by_call else none
        known &= number >= 0
        arguments = [np.where(known, args[:, at], none) for at in (0, 2, 3)]
        arguments[:2] = [one & _LOW_HALF for one in arguments[:2]]
        return rows, CallBios.in_calls(bios, rows, _signature(number, *arguments))

    def with_waits(
        self, path: PathTables, bios: tuple[tuple[Bios, I64], tuple[Bios, I64]], first: I64
    ) -> tuple[PathTables, I64]:
        """Return the path with waits in no timed call as calls' waits, and how many bios each has.

        (n,): bios that it was the first wait for. Such a wait has its `out` for `entry`, as have
        the bios that it was the first wait for and that have a row in the tables of paths, from
        this window on. It has the file of its descriptor; else that of the first of these bios;
        else that of the bio whose completion ended it: the last before the wake-up, while the wait
        lasted. Where bios of several files completed so shortly before that it may be any of them,
        none is.
        bios: (table, rows) of those that ended and those in flight. first: per bio in these rows,
        one after the other, the row of its wait as by `first_waits`. path: the window's, with
        causes.
        """
        waits = path.waits
        entry = np.where(waits.timed, waits.entry, waits.out)
        waits = replace(waits, entry=entry, file=waits.file.copy())
        number, file, queue = (
            np.concatenate([getattr(table, name)[rows] for table, rows in bios])
            for name in ("number", "file", "queue")
        )
        begun = np.where(first >= 0, waits.entry[first], NEVER) if len(waits) else first
        place, known = rows_of(self._numbers, number)
        if len(self._numbers):
            begun = np.where(known, self._entries[place], begun)
        counts = np.bincount(first[(first >= 0) & ~known], minlength=len(waits))
        filed = np.flatnonzero((first >= 0) & (file >= 0))
        filed = filed[waits.file[first[filed]] < 0]
        filed = filed[np.argsort(-queue[filed], kind="stable")]  # the first one is written last
        waits.file[first[filed]] = file[filed]
        ended = Bios.concatenate([table for table, _ in bios])
        file_of = ended.file.astype(np.int64)
        order = np.flatnonzero(ended.complete != NEVER)
        order = order[np.argsort(ended.complete[order], kind="stable")]
        asked = ~waits.timed & (waits.file < 0) & (waits.cause == WaitCause.OTHER_IO)
        asked &= waits.run - waits.woken <= SETTLE_NS - _WAKE_NS  # its bio may be told by then
        if len(order):
            waits.file[asked] = _ending_file(
                waits.out[asked], waits.woken[asked], ended.complete[order], file_of[order]
            )
        edge = len(bios[0][1])
        kept = np.arange(len(number)) >= edge
        kept &= begun != NEVER
        order = np.argsort(number[kept])
        self._numbers, self._entries = number[kept][order], begun[kept][order]
        found = replace(
            path,
            waits=waits,
            bios=_linked(path.bios, number[:edge], begun[:edge]),
            open_bios=_linked(path.open_bios, number[edge:], begun[edge:]),
        )
        return found, counts


def _signature(number: I64 | U64, *arguments: U64) -> I64:
    """Return a number below NEVER for each call's number and arguments: (n,)."""
    mixed = number.astype(np.int64).view(np.uint64) * _MIXED[0]
    for one in arguments:
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ one.astype(np.uint64)) * _MIXED[1]
    mixed ^= mixed >> np.uint64(32)
    return -2 - (mixed >> np.uint64(2)).astype(np.int64)


def first_waits(waits: Waits, keys: I64, bios: CallBios) -> I64:
    """Return per bio the row of the wait that it was waited for in first, -1: none.

    That is the first wait of its thread and call that began at its Q or later, if it was in flight
    then, and if the thread ran again within SETTLE_NS of its end: a later record may come when the
    bio has been told. keys: of the waits, as in `bios.entry`.
    """
    found = np.full(len(bios), -1, dtype=np.int64)
    if not len(waits) or not len(bios):
        return found
    # All in one order: by thread, call, time; of equal times a bio comes before a wait.
    is_wait = np.concatenate([np.zeros(len(bios), np.bool_), np.ones(len(waits), np.bool_)])
    tid = np.concatenate([bios.tid, waits.tid.astype(np.int64)])
    key = np.concatenate([bios.entry, keys])
    time = np.concatenate([bios.queue, waits.out])
    order = np.lexsort((is_wait, time, key, tid))
    place = np.arange(len(order))
    at = np.where(is_wait[order], place, len(order))
    following = np.minimum.accumulate(at[::-1])[::-1]
    asked = np.flatnonzero(~is_wait[order] & (following < len(order)))
    bio, wait = order[asked], order[following[asked]]
    same = (tid[bio] == tid[wait]) & (key[bio] == key[wait])
    bio, wait = bio[same], wait[same] - len(bios)
    good = bios.end[bio] > waits.out[wait]
    good &= waits.run[wait] - SETTLE_NS <= bios.end[bio]
    found[bio[good]] = wait[good]
    return found


def _linked(paths: BioPaths, numbers: I64, entry: I64) -> BioPaths:
    """Return the paths with the entry of these bios' calls (ns), where it is known.

    numbers: of the bios, of which some may have no row.
    """
    place, known = rows_of(paths.number, numbers)
    known &= entry != NEVER
    entries = paths.entry.copy()
    entries[place[known]] = entry[known]
    return replace(paths, entry=entries)


def _ending_file(out: I64, woken: I64, complete: I64, file: I64) -> I64:
    """Return per wait (n,) the file of the bio whose completion ended it, -1: not known.

    complete, file: (m,), of all bios that ended, ascending by completion.
    """
    changes = np.concatenate([[0], np.cumsum(np.diff(file) != 0)])
    last = np.searchsorted(complete, woken, side="right") - 1
    first = np.searchsorted(complete, np.maximum(woken - _NEAR_NS, out), side="left")
    first, at = np.minimum(first, last), np.maximum(last, 0)
    known = (last >= 0) & (complete[at] >= np.maximum(woken - _WAKE_NS, out))
    known &= changes[at] == changes[np.maximum(first, 0)]
    return np.where(known, file[at], -1)


def calls_of(waits: Waits, bios: I64) -> Calls:
    """Return a call for each of these waits, of which nothing but the wait is known: (n,).

    bios: how many each one was the first wait for. The parts of its time are 0.
    """
    unset = np.zeros(len(waits), dtype=np.int64)
    return Calls(
        entry=waits.entry,
        exit=waits.run,
        tid=waits.tid,
        task=waits.task,
        timed=waits.timed,
        number=waits.number,
        foreign=waits.foreign,
        result=unset.astype(np.int32),
        blocked=waits.woken - waits.out,
        runnable=waits.run - waits.woken,
        bios=np.minimum(bios, 0xFFFF).astype(np.uint16),
        waits=np.ones(len(waits), dtype=np.uint16),
        arg0=waits.arg0,
        arg2=waits.arg2,
        arg3=waits.arg3,
        cpu=waits.cpu,
        file=waits.file,
        running=unset,
        own_io=unset,
        other_io=unset,
        otherwise=unset,
        undivided=unset,
        own=waits.own,
    )
