# SPDX-License-Identifier: Apache-2.0
"""The slowest system calls of a log, with their waits and the bios that they queued.

Two passes, in memory that depends on how many calls are kept. The first finds the slowest calls. A
call's waits and bios can end windows before or after the call itself, so the second gathers them.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.slow.call_details import JOURNAL, SlowCall, call_at, waits_at
from biotrail.converters.analysis.slow.io_details import IO, file_path, io_at
from biotrail.converters.analysis.slow.slow import log_end
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import LARGEST_ERRNO
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, U32, Lifecycles
from biotrail.converters.lifecycles.operations import transferred
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError

MOST_WAITS = 256
"""Waits of one call that are kept."""
MOST_BIOS = 64
"""Bios of one call that are kept: a sync queues thousands."""
MOST_FILES = 8
"""Files of one call's bios that are kept."""


@dataclass(frozen=True)
class WantedCalls:
    """Which calls to keep."""

    top: int = 20
    """How many at most."""
    over: int = 0
    """Only calls that took at least this long, ns."""
    failed: bool = False
    """Only calls that returned an error."""
    every: bool = False
    """Also calls that neither queued a bio nor waited for I/O."""


@dataclass
class CallCounts:
    """Numbers of calls that a SlowestCalls looked at."""

    calls: int = 0
    """Chosen calls that were timed and returned, and waits of others, each as a call."""
    waits: int = 0
    """Of these, the waits: the rest of their calls is not known."""
    matching: int = 0
    """Calls of these that are as slow as wanted (and failed, if only failed ones are wanted)."""
    without_entry: int = 0
    """Calls left out because their entry is not known."""
    without_io: int = 0
    """Calls as slow as wanted that are left out because they neither queued a bio nor waited for
    I/O."""


@dataclass
class SlowestCalls:
    """Finds the slowest calls of a log's windows: `add` every one, then `gather` every one anew."""

    wanted: WantedCalls
    counts: CallCounts = field(default_factory=CallCounts)
    found: list[SlowCall] = field(default_factory=list)
    """The slowest calls so far, at most `wanted.top`, the slowest first; of equals the first."""

    def add(self, window: Lifecycles, context: Context) -> None:
        """Count a window's calls, and keep those that are among the slowest.

        A call matches if its entry is known, it took `wanted.over` ns or more, queued a bio or
        waited for I/O (unless `wanted.every`) and, with `wanted.failed`, returned an error (-4095
        to -1). The `wanted.top` slowest are kept; of
        equally slow ones the earlier entry, then the lower thread id. window: the next one of the
        first pass, with the calls that are chosen. context: the log's. Changes `counts`, `found`.
        """
        if window.path is None:
            return
        calls = window.path.calls
        known = calls.entry != NEVER
        took = np.where(known, calls.exit - calls.entry, 0)
        self.counts.calls += int(known.sum())
        self.counts.waits += int((~calls.timed).sum())
        self.counts.without_entry += int((~known).sum())
        wanted = known & (took >= self.wanted.over)
        if self.wanted.failed:
            wanted &= (calls.result < 0) & (calls.result >= -LARGEST_ERRNO)
        of_kernel = context.files.of_kernel(calls.file) & (calls.bios == 0)
        without = wanted & (~calls.with_io | of_kernel) & (not self.wanted.every)
        self.counts.without_io += int(without.sum())
        wanted &= ~without
        self.counts.matching += int(wanted.sum())
        if self.found and len(self.found) == self.wanted.top:
            wanted &= took >= self.found[-1].call.duration_ns
        rows = np.flatnonzero(wanted)
        rows = rows[np.lexsort((calls.tid[rows], calls.entry[rows], -took[rows]))]
        for row in rows[: self.wanted.top].tolist():
            slow = SlowCall(call_at(calls, row, window.tasks, context))
            path = file_path(context, int(calls.file[row]))
            slow.files = [path] if path is not None else []
            self.found.append(slow)
        self.found.sort(key=lambda one: (-one.call.duration_ns, one.call.entry_ns, one.call.tid))
        del self.found[self.wanted.top :]

    def gather(self, window: Lifecycles, trace: Trace) -> None:
        """Add a window's waits and bios of the calls in `found` to them.

        These can be in other windows than the call, so every window is gathered. Adds, too, bios of
        journals' threads that were in flight during a call; `finish` drops those of threads that
        did not wake it. window: the next one of the second pass over the same part of the log, with
        all of its bios and waits, whatever was chosen. trace: of that pass; gives names, and the
        log's end for bios in flight then. Changes the calls of `found`.
        """
        if not self.found:
            return
        if window.path is not None:
            self._add_waits(window, trace)
            self._add_bios(window, trace)
        self._add_journal(window, trace)

    def finish(self) -> None:
        """Drop bios of journals' threads that woke no thread of their call; after `gather`."""
        for slow in self.found:
            threads = slow.journal_threads
            slow.journal_left_out = slow.journal_left_out if threads else 0
            slow.journal = [io for io in slow.journal if io.tid in threads]

    def _add_waits(self, window: Lifecycles, trace: Trace) -> None:
        """Add the window's waits of the calls in `found`; keep the MOST_WAITS longest of each.

        The longest from leaving the CPU until running again; kept in order of time. The others are
        counted in `waits_left_out`. `window.path` must not be None.
        """
        assert window.path is not None
        waits = window.path.waits
        call = self._call_of(waits.tid, waits.entry)
        for one in np.unique(call[call >= 0]).tolist():
            slow, rows = self.found[one], np.flatnonzero(call == one)
            longest = np.argsort(waits.out[rows] - waits.run[rows], kind="stable")[:MOST_WAITS]
            slow.waits_left_out += len(rows) - len(longest)
            since = dict.fromkeys(rows[longest].tolist(), slow.call.entry_ns)
            slow.waits += waits_at(waits, since, trace.tasks, trace.context)
            slow.waits.sort(key=lambda wait: -(wait.blocked_ns + wait.runnable_ns))
            slow.waits_left_out += len(slow.waits[MOST_WAITS:])
            del slow.waits[MOST_WAITS:]
            slow.waits.sort(key=lambda wait: wait.start_ns)

    def _add_bios(self, window: Lifecycles, trace: Trace) -> None:
        """Add the window's ended bios of the calls in `found`; keep the MOST_BIOS slowest of each.

        A bio is a call's by thread and entry time. All of them add to `bio_bytes`, their files'
        paths to `files` (the first MOST_FILES in alphabetical order), and those not kept to
        `bios_left_out`. `window.path` must not be None.
        """
        assert window.path is not None
        bios, paths, end = window.bios, window.path.bios, log_end(trace)
        place, known = rows_of(paths.number, bios.number)
        entry = (
            np.where(known, paths.entry[place], NEVER) if len(paths) else np.full(len(bios), NEVER)
        )
        call = self._call_of(bios.tid, entry)
        for one in np.unique(call[call >= 0]).tolist():
            slow, rows = self.found[one], np.flatnonzero(call == one)
            slow.bio_bytes += int(
                transferred(trace.context, bios.opf[rows], bios.bytes[rows]).sum()
            )
            files = [file_path(trace.context, row) for row in np.unique(bios.file[rows]).tolist()]
            slow.files = sorted({*slow.files, *(f for f in files if f is not None)})[:MOST_FILES]
            slow.bios, left = _slowest(slow.bios, window, rows, trace.context, end)
            slow.bios_left_out += left

    def _add_journal(self, window: Lifecycles, trace: Trace) -> None:
        """Add to each call the window's ended bios of journals' threads in flight during the call.

        Of all threads named jbd2/…, of any device: which of them woke the call is known only once
        its waits have ended (`finish`). Bios without a recorded Q are left out; one without a
        completion counts until the log's end. Of each call the MOST_BIOS slowest are kept, in the
        order of their Q; others add to `journal_left_out`.
        """
        bios, end = window.bios, log_end(trace)
        journal = [str(comm).startswith(JOURNAL) for comm in window.tasks.comm]
        named = np.append(np.array(journal, dtype=np.bool_), False)[bios.task]
        of_journal = np.flatnonzero(named & (bios.queue != NEVER))
        if not len(of_journal):
            return
        queue = bios.queue[of_journal]
        ended = np.where(bios.complete[of_journal] == NEVER, end, bios.complete[of_journal])
        for slow in self.found:
            begin = slow.call.entry_ns
            beside = (queue < begin + slow.call.duration_ns) & (ended > begin)
            rows = of_journal[beside]
            slow.journal, left = _slowest(slow.journal, window, rows, trace.context, end)
            slow.journal_left_out += left

    def _call_of(self, tid: U32, entry: I64) -> I64:
        """Return per row the index in `found` of its call, by thread and entry; -1: none."""
        index = {(one.call.tid, one.call.entry_ns): at for at, one in enumerate(self.found)}
        result = np.full(len(tid), -1, dtype=np.int64)
        entries = np.array([one.call.entry_ns for one in self.found], dtype=np.int64)
        near = np.flatnonzero(np.isin(entry, entries))
        keys = zip(tid[near].tolist(), entry[near].tolist(), strict=True)
        result[near] = np.array([index.get(key, -1) for key in keys], dtype=np.int64)
        return result


def _slowest(
    ios: list[IO], window: Lifecycles, rows: I64, context: Context, end: int
) -> tuple[list[IO], int]:
    """Return (kept, left_out): `ios` and the window's bios in `rows`, and how many had no room.

    The MOST_BIOS slowest are kept, in the order of their Q. end: ns, when the log ends, until which
    bios without a completion count; those with one in doubt count as 0 ns. All bios in `rows` have
    a Q.
    """
    bios = window.bios
    took = np.where(bios.complete[rows] == NEVER, end, bios.complete[rows]) - bios.queue[rows]
    took = np.where(bios.doubtful[rows], 0, took)
    longest = rows[np.argsort(-took, kind="stable")[:MOST_BIOS]]
    found = [*ios, *(io_at(context, window, row, end) for row in longest.tolist())]
    found.sort(key=lambda io: (-io.waited_ns, io.number))
    kept = sorted(found[:MOST_BIOS], key=lambda io: (io.queue_ns or 0, io.number))
    return kept, len(rows) - len(longest) + len(found[MOST_BIOS:])


def check_timed(context: Context) -> None:
    """Raise ConversionError if the log has neither timed calls nor waits."""
    if not context.path_parts & {"time", "wait"}:
        raise ConversionError(
            "this log does not say how long calls took: record again with biotrail record --path"
        )
