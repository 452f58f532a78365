# SPDX-License-Identifier: Apache-2.0
"""The slowest system calls of a log, with their waits and the bios that they queued.

Two passes, in memory that depends on how many calls are kept. The first finds the slowest calls. A
call's waits and bios can end windows before or after the call itself, so the second gathers them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import CALL_PARTS
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.analysis.slow.io_details import IO, file_path, io_at, values_at
from biotrail.converters.analysis.slow.slow import Wanted, log_end
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import LARGEST_ERRNO, MOVES_BYTES, name_of_call, name_of_error
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U32,
    WAIT_CAUSE_NAMES,
    Lifecycles,
    Tasks,
    WaitCause,
)
from biotrail.converters.events.tasks import TaskNames, by_threads
from biotrail.converters.lifecycles.call_arguments import What, argument_of_calls
from biotrail.converters.lifecycles.operations import transferred
from biotrail.converters.lifecycles.purposes import JOURNAL_THREADS
from biotrail.converters.pipeline import Trace

_STATES = {0: "R", 1: "S", 2: "D", 4: "T", 8: "t"}
_KILLABLE, _IDLE, _FREEZABLE = 0x102, 0x402, 0x2000
"""TASK_* of include/linux/sched.h; a wait that may be frozen (TASK_FREEZABLE) is as it is."""
_CONTEXTS = {0: "task", 1: "softirq", 2: "interrupt"}


@dataclass
class CallFacts:
    """A timed call, or a wait of one that was not. Times are ns; None: not known, or none."""

    call: str
    """Name: pread64, fsync, …; "fsync (wait)" where only a wait is known; page fault."""
    timed: bool
    """Whether entry and return are known. Else `entry_ns` and `duration_ns` are the wait's, from
    leaving the CPU until it ran again."""
    tid: int
    pid: int | None
    comm: str | None
    cpu: int
    entry_ns: int
    """Entry into the kernel, CLOCK_MONOTONIC."""
    duration_ns: int
    result: int | None
    """What it returned, low 32 bits: bytes, 0, a negative errno; None: it was not timed."""
    error: str | None
    bytes: int
    """Bytes that it read, wrote or copied; 0 for other calls and errors."""
    fd: int | None
    offset: int | None
    length: int | None
    """Descriptor, offset (bytes) and length (bytes) as its arguments gave them."""
    bios: int
    """Bios that it queued; 65535: that many or more."""
    waits: int
    """Times that it left its CPU to wait; 255: that often or more."""
    parts: dict[str, int]
    """Name in CALL_PARTS → ns, all of them; they add up to `duration_ns`."""
    title: str | None = None
    """What its process calls itself, or which script it runs; None: neither."""

    @property
    def longest(self) -> str:
        """Of equal ones the first."""
        return max(self.parts, key=lambda part: self.parts[part])

    def share(self, part: str) -> float:
        return self.parts[part] / self.duration_ns if self.duration_ns else 0.0


@dataclass
class WaitFacts:
    start_ns: int
    """ns from the call's entry to when its thread left the CPU."""
    blocked_ns: int
    runnable_ns: int
    cause: str
    """own I/O, other I/O, otherwise: as the parts of a call's time."""
    state: str
    """As ps has it: D (also "D killable"), S, …; the number in hexadecimal of any other."""
    waker_tid: int | None
    """Thread that ran on the CPU of the wake-up; None: the idle task, or not known."""
    waker_comm: str | None
    context: str
    """Of the wake-up: task, softirq, interrupt, unknown (it was not seen)."""
    reason: str | None = None
    """What it was for, as in WAIT_REASON_NAMES; None: the log has no part fs."""
    commit: int | None = None
    """Transaction of jbd2 whose commit ended it; None: none is known."""
    commit_device: str | None = None
    """Device of that commit's file system."""
    limit: str | None = None
    """Cgroup whose limit held the bio that it was for, where `reason` is that; else None."""
    stack: list[str] = field(default_factory=list)
    """Kernel functions in which it waited, the innermost first; empty: not recorded."""


@dataclass
class SlowCall:
    call: CallFacts
    waits: list[WaitFacts] = field(default_factory=list)
    """In order of time; of more than MOST_WAITS the longest."""
    waits_left_out: int = 0
    bios: list[IO] = field(default_factory=list)
    """Bios that it queued, in the order of their Q; of more than MOST_BIOS the slowest."""
    bios_left_out: int = 0
    bio_bytes: int = 0
    """Bytes of all bios of the log that it queued."""
    files: list[str] = field(default_factory=list)
    """Paths of its descriptor's file and those whose pages these bios carry, MOST_FILES at most."""
    journal: list[IO] = field(default_factory=list)
    """Bios of the journals' threads (jbd2) that woke it, in flight at some time of the call, in the
    order of their Q; of more than MOST_BIOS the slowest."""
    journal_left_out: int = 0
    """Such bios beyond these; also those of other journals' threads, if there are so many."""

    def rank(self, by_size: bool = False) -> int:
        """Return what calls are sorted by: the slowest first, or the one of the most bytes."""
        return -self.call.bytes if by_size else -self.call.duration_ns

    def reasons(self, cause: str) -> dict[str, int]:
        """Return reason → ns blocked of the waits of a cause, the longest first; {}: not known."""
        found: dict[str, int] = {}
        for wait in self.waits:
            if wait.cause == cause and wait.reason is not None:
                found[wait.reason] = found.get(wait.reason, 0) + wait.blocked_ns
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def call_at(calls: Calls, row: int, tasks: Tasks, context: Context) -> CallFacts:
    """Return the call in a row of `calls`, whose entry is known, as plain values."""
    table = calls.take(np.array([row]))
    one = values_at(table, 0)
    name = name_of_call(one.number, one.foreign, context.machine, one.timed)
    comm = str(tasks.comm[one.task]) if one.task >= 0 else None

    def given(what: What) -> int | None:
        values, known = argument_of_calls(table, context.machine, what)
        return int(values[0]) if known[0] else None

    return as_row(
        CallFacts,
        one,
        call=name,
        pid=tasks.pid(one.task),
        comm=comm,
        entry_ns=one.entry,
        duration_ns=one.exit - one.entry,
        result=one.result if one.timed else None,
        error=name_of_error(one.result),
        bytes=max(one.result, 0) if name in MOVES_BYTES else 0,
        fd=given("fd"),
        offset=given("offset"),
        length=given("length"),
        parts={part: getattr(one, part) for part in CALL_PARTS},
        title=context.titles.title(tasks.pid(one.task), comm),
    )


def waits_at(
    waits: Waits, rows: Mapping[int, int], names: TaskNames, context: Context
) -> list[WaitFacts]:
    """rows: row in `waits` → ns from which `start_ns` counts. names: of threads, for wakers."""
    chosen = waits.take(np.array(list(rows), dtype=np.int64))
    tasks, task = names.table(), names.rows(chosen.waker, chosen.woken)
    found, reasons = [], WAIT_REASON_NAMES if "fs" in context.path_parts else {}
    for at, (since, row) in enumerate(zip(rows.values(), task.tolist(), strict=True)):
        one = values_at(chosen, at)
        seen = one.woken != one.run or one.waker or one.context
        limit = one.limit if one.reason == WaitReason.CGROUP_LIMIT else 0
        found.append(
            WaitFacts(
                start_ns=one.out - since,
                blocked_ns=one.woken - one.out,
                runnable_ns=one.run - one.woken,
                cause=WAIT_CAUSE_NAMES[WaitCause(one.cause)],
                state=state_name(one.state),
                waker_tid=one.waker or None,
                waker_comm=str(tasks.comm[row]) if one.waker and row >= 0 else None,
                context=_CONTEXTS.get(one.context, "unknown") if seen else "unknown",
                reason=reasons.get(WaitReason(one.reason)),
                commit=None if one.commit == NEVER else one.commit,
                commit_device=context.device_name(one.commit_dev) if one.commit_dev else None,
                limit=context.cgroups.get(limit, f"id {limit}") if limit else None,
                stack=list(context.wait_stacks.get(one.stack, ())),
            )
        )
    return found


def state_name(state: int) -> str:
    """Return a thread's state as ps names it: "R", …, "D killable"; others in hexadecimal."""
    if state & _IDLE == _IDLE:
        return "I"
    if state & _KILLABLE == _KILLABLE:
        return "D killable"
    return _STATES.get(state & ~_FREEZABLE, f"{state:#x}")


MOST_WAITS = 256
MOST_BIOS = 64
"""Bios of one call that are kept: a sync queues thousands."""
MOST_FILES = 8


@dataclass
class CallCounts:
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

    trace: Trace
    wanted: Wanted
    counts: CallCounts = field(default_factory=CallCounts)
    found: list[SlowCall] = field(default_factory=list)
    """The slowest calls so far, at most `wanted.top`, the slowest first; of equals the first."""

    def add(self, window: Lifecycles) -> None:
        """Among equals the earlier entry, then the lower thread id is kept."""
        if window.path is None:
            return
        calls, context = window.path.calls, self.trace.context
        known = calls.entry != NEVER
        took = np.where(known, calls.exit - calls.entry, 0)
        self.counts.calls += int(known.sum())
        self.counts.waits += int((~calls.timed).sum())
        self.counts.without_entry += int((~known).sum())
        wanted = known & (took >= self.wanted.over)
        if self.wanted.failed:
            wanted &= (calls.result < 0) & (calls.result >= -LARGEST_ERRNO)
        of_kernel = context.files.of_kernel(calls.file) & (calls.bios == 0)
        without = wanted & (~calls.with_io | of_kernel) & (not self.wanted.every_call)
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
        """Add a window's waits and bios of the calls in `found`, which may be in any window."""
        if not self.found:
            return
        bios, context, end = window.bios, trace.context, log_end(trace)
        if window.path is not None:
            waits, paths = window.path.waits, window.path.bios
            call = self._call_of(waits.tid, waits.entry)
            for one in np.unique(call[call >= 0]).tolist():
                slow, rows = self.found[one], np.flatnonzero(call == one)
                longest = np.argsort(waits.out[rows] - waits.run[rows], kind="stable")[:MOST_WAITS]
                slow.waits_left_out += len(rows) - len(longest)
                since = dict.fromkeys(rows[longest].tolist(), slow.call.entry_ns)
                slow.waits += waits_at(waits, since, trace.tasks, context)
                slow.waits.sort(key=lambda wait: -(wait.blocked_ns + wait.runnable_ns))
                slow.waits_left_out += len(slow.waits[MOST_WAITS:])
                del slow.waits[MOST_WAITS:]
                slow.waits.sort(key=lambda wait: wait.start_ns)
            place, known = rows_of(paths.number, bios.number)
            entry = np.full(len(bios), NEVER)
            entry[known] = paths.entry[place[known]]
            call = self._call_of(bios.tid, entry)
            for one in np.unique(call[call >= 0]).tolist():
                slow, rows = self.found[one], np.flatnonzero(call == one)
                slow.bio_bytes += int(transferred(context, bios.opf[rows], bios.bytes[rows]).sum())
                files = [file_path(context, row) for row in np.unique(bios.file[rows]).tolist()]
                slow.files = sorted({*slow.files, *(f for f in files if f is not None)})[
                    :MOST_FILES
                ]
                slow.bios, left = _slowest(slow.bios, window, rows, context, end)
                slow.bios_left_out += left
        # Which of the journals' threads woke a call is known only once its waits have ended.
        named = by_threads(JOURNAL_THREADS, bios.task, window.tasks)
        of_journal = np.flatnonzero(named & (bios.queue != NEVER))
        queue = bios.queue[of_journal]
        ended = np.where(bios.complete[of_journal] == NEVER, end, bios.complete[of_journal])
        for slow in self.found if len(of_journal) else ():
            begin = slow.call.entry_ns
            rows = of_journal[(queue < begin + slow.call.duration_ns) & (ended > begin)]
            slow.journal, left = _slowest(slow.journal, window, rows, context, end)
            slow.journal_left_out += left

    def finish(self) -> None:
        """Drop bios of journals' threads that woke no thread of their call; after `gather`."""
        for slow in self.found:
            threads = {
                wait.waker_tid
                for wait in slow.waits
                if wait.waker_tid and (wait.waker_comm or "").startswith(JOURNAL_THREADS)
            }
            slow.journal_left_out = slow.journal_left_out if threads else 0
            slow.journal = [io for io in slow.journal if io.tid in threads]

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
    bios without a completion count; those with one in doubt count as 0 ns.
    """
    bios = window.bios
    took = np.where(bios.complete[rows] == NEVER, end, bios.complete[rows]) - bios.queue[rows]
    took = np.where(bios.doubtful[rows], 0, took)
    longest = rows[np.argsort(-took, kind="stable")[:MOST_BIOS]]
    found = [*ios, *(io_at(context, window, row, end) for row in longest.tolist())]
    found.sort(key=lambda io: (-io.waited_ns, io.number))
    kept = sorted(found[:MOST_BIOS], key=lambda io: (io.queue_ns or 0, io.number))
    return kept, len(rows) - len(longest) + len(found[MOST_BIOS:])
