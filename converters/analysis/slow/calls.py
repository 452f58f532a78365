# SPDX-License-Identifier: Apache-2.0
"""The slowest system calls of a log, with their waits and the bios that they queued.

Two passes, in memory that depends on how many calls are kept. The first finds the slowest calls. A
call's waits and bios can end windows before or after the call itself, so the second gathers them.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.slow.call_details import SlowCall, call_at, waits_at
from biotrail.converters.analysis.slow.io_details import file_path, io_at
from biotrail.converters.analysis.slow.slow import log_end
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import LARGEST_ERRNO
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, U32, Lifecycles
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


@dataclass
class CallCounts:
    """Numbers of calls that a SlowestCalls looked at."""

    calls: int = 0
    """Chosen calls that were timed and returned."""
    matching: int = 0
    """Calls of these that are as slow as wanted (and failed, if only failed ones are wanted)."""
    without_entry: int = 0
    """Calls left out because their entry is not known."""


@dataclass
class SlowestCalls:
    """Finds the slowest calls of a log's windows: `add` every one, then `gather` every one anew."""

    wanted: WantedCalls
    counts: CallCounts = field(default_factory=CallCounts)
    found: list[SlowCall] = field(default_factory=list)
    """The slowest calls so far, at most `wanted.top`, the slowest first; of equals the first."""

    def add(self, window: Lifecycles, context: Context) -> None:
        """Count a window's calls, and keep those that are among the slowest.

        A call matches if its entry is known, it took `wanted.over` ns or more and, with
        `wanted.failed`, returned an error (-4095 to -1). window: the next one of the first pass,
        with the calls that are chosen. context: the log's. Changes `counts` and `found`.
        """
        if window.path is None:
            return
        calls = window.path.calls
        known = calls.entry != NEVER
        took = np.where(known, calls.exit - calls.entry, 0)
        self.counts.calls += int(known.sum())
        self.counts.without_entry += int((~known).sum())
        wanted = known & (took >= self.wanted.over)
        if self.wanted.failed:
            wanted &= (calls.result < 0) & (calls.result >= -LARGEST_ERRNO)
        self.counts.matching += int(wanted.sum())
        if self.found and len(self.found) == self.wanted.top:
            wanted &= took >= self.found[-1].call.duration_ns
        rows = np.flatnonzero(wanted)
        rows = rows[np.lexsort((calls.tid[rows], calls.entry[rows], -took[rows]))]
        for row in rows[: self.wanted.top].tolist():
            self.found.append(SlowCall(call_at(calls, row, window.tasks, context)))
        self.found.sort(key=lambda one: (-one.call.duration_ns, one.call.entry_ns, one.call.tid))
        del self.found[self.wanted.top :]

    def gather(self, window: Lifecycles, trace: Trace) -> None:
        """Add the waits and bios of the calls in `found` that ended in a window.

        window: the next one of the second pass over the same part of the log, with all of its bios
        and waits, whatever was chosen. trace: of that pass; gives names, and the log's end for bios
        in flight then. Changes the calls of `found`.
        """
        if window.path is None or not self.found:
            return
        self._add_waits(window, trace)
        self._add_bios(window, trace)

    def _add_waits(self, window: Lifecycles, trace: Trace) -> None:
        """Add the window's waits of these calls; keep the MOST_WAITS longest of each."""
        assert window.path is not None
        waits = window.path.waits
        call = self._call_of(waits.tid, waits.entry)
        for one in np.unique(call[call >= 0]).tolist():
            slow, rows = self.found[one], np.flatnonzero(call == one)
            longest = np.argsort(waits.out[rows] - waits.run[rows], kind="stable")[:MOST_WAITS]
            slow.waits_left_out += len(rows) - len(longest)
            since = dict.fromkeys(rows[longest].tolist(), slow.call.entry_ns)
            slow.waits += waits_at(waits, since, trace.tasks)
            slow.waits.sort(key=lambda wait: -(wait.blocked_ns + wait.runnable_ns))
            slow.waits_left_out += len(slow.waits[MOST_WAITS:])
            del slow.waits[MOST_WAITS:]
            slow.waits.sort(key=lambda wait: wait.start_ns)

    def _add_bios(self, window: Lifecycles, trace: Trace) -> None:
        """Add the window's bios of these calls; keep the MOST_BIOS slowest of each."""
        assert window.path is not None
        bios, paths, end = window.bios, window.path.bios, log_end(trace)
        place, known = rows_of(paths.number, bios.number)
        entry = (
            np.where(known, paths.entry[place], NEVER) if len(paths) else np.full(len(bios), NEVER)
        )
        call = self._call_of(bios.tid, entry)
        for one in np.unique(call[call >= 0]).tolist():
            slow, rows = self.found[one], np.flatnonzero(call == one)
            slow.bio_bytes += int(bios.bytes[rows].sum(dtype=np.int64))
            files = [file_path(trace.context, row) for row in np.unique(bios.file[rows]).tolist()]
            slow.files = sorted({*slow.files, *(f for f in files if f is not None)})[:MOST_FILES]
            took = np.where(bios.complete[rows] == NEVER, end, bios.complete[rows])
            longest = np.argsort(bios.queue[rows] - took, kind="stable")[:MOST_BIOS]
            slow.bios_left_out += len(rows) - len(longest)
            slow.bios += [io_at(trace.context, window, row, end) for row in rows[longest].tolist()]
            slow.bios.sort(key=lambda io: (-io.waited_ns, io.number))
            slow.bios_left_out += len(slow.bios[MOST_BIOS:])
            del slow.bios[MOST_BIOS:]
            slow.bios.sort(key=lambda io: (io.queue_ns or 0, io.number))

    def _call_of(self, tid: U32, entry: I64) -> I64:
        """Return per row the index in `found` of its call, by thread and entry; -1: none."""
        index = {(one.call.tid, one.call.entry_ns): at for at, one in enumerate(self.found)}
        result = np.full(len(tid), -1, dtype=np.int64)
        entries = np.array([one.call.entry_ns for one in self.found], dtype=np.int64)
        near = np.flatnonzero(np.isin(entry, entries))
        keys = zip(tid[near].tolist(), entry[near].tolist(), strict=True)
        result[near] = np.array([index.get(key, -1) for key in keys], dtype=np.int64)
        return result


def check_timed(context: Context) -> None:
    """Raise ConversionError if the log has no timed calls."""
    if "time" not in context.path_parts:
        raise ConversionError(
            "this log does not say how long calls took: record again with biotrail record --path"
        )
