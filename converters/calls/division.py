# SPDX-License-Identifier: Apache-2.0
"""The parts of each call's time: running, ready to run, and blocked for I/O or otherwise.

A wait is for the call's own I/O if one of the call's bios was in flight when it began. A thread
queues its bios itself, while it runs: whether a bio was queued before a wait began is all that has
to be known, and the latest completion of the bios before decides.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.calls.held import HeldWaits
from biotrail.converters.calls.keys import CallBios, Keys, latest_end, rows_of
from biotrail.converters.calls.reason_rules import NOT_IO, WaitReason, reason_of
from biotrail.converters.calls.untimed import UntimedWaits, calls_of, first_waits
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import (
    NO_STACK,
    BioPaths,
    Calls,
    Commits,
    PathTables,
    Waits,
)
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    Bios,
    Lifecycles,
    Table,
    Tasks,
    WaitCause,
)
from biotrail.converters.events.tasks import TaskNames, by_threads
from biotrail.recorder.schema.syscalls import REAPING_CALLS, numbers

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.result import Result

_UNINTERRUPTIBLE = 2
"""TASK_UNINTERRUPTIBLE (include/linux/sched.h); TASK_KILLABLE has this bit too."""
_NOT_IO = np.array(sorted(NOT_IO), dtype=np.uint8)
_SUBMITTING = frozenset({"io_submit", "io_uring_enter"})
_URING_THREADS = "iou-"
"""Beginning of the names of io_uring's own threads, which queue bios outside of any call."""
KEPT = 64
"""A wait is recorded once its thread has a CPU again; so many commits may have ended by then."""
MOST_KEPT = 1 << 16
"""Spans of I/O in flight that are kept of each process at most; the oldest are dropped first."""
_REMEMBERED_NS = 1_000_000_000
"""A wait of a call that was not timed is for own I/O if its thread ran within this time of its end:
so long the end is kept for the waits of later windows."""


@dataclass
class _Unreturned(Table):
    """What is known so far of calls that have not returned: a row for the newest of each thread.

    And of calls that are not timed, by `UntimedWaits.keys` in place of the entry.
    """

    tid: I64
    entry: I64
    own_io: I64
    """ns of its waits for own I/O so far."""
    other_io: I64
    """ns of its waits for other I/O so far."""
    end: I64
    """Latest end (ns) of its bios that ended; NEVER: none."""
    others_end: I64
    """The same of its bios that are not the recording's own."""


class CallDivider:
    """Divides the time of the calls of a log, window after window, in order.

    Between windows it keeps a row for each thread that is or was inside a call, and of each process
    that submits I/O by io_submit or io_uring when such I/O was in flight.
    """

    def __init__(self, context: Context) -> None:
        self._unreturned = _Unreturned.none()
        self._submitted: dict[int, Times] = {}
        """Process id → when it had I/O in flight that it reaps, of bios that ended."""
        self._divides = "wait" in context.path_parts
        self._reaping = numbers(REAPING_CALLS, context.machine)
        self._submitting = numbers(_SUBMITTING, context.machine)
        self._stacks = context.wait_stacks  # which grow while the log is read
        self._reasons: dict[int, WaitReason] = {}
        """By the stack's number."""
        self._untimed = UntimedWaits(context)
        self._commits = Commits.none()
        """The newest of each journal's thread."""
        self._held = HeldWaits()

    def divide(self, window: "Lifecycles | Result", names: TaskNames) -> PathTables | None:
        """Return the window's `path` with the causes and reasons of its waits and its calls' parts.

        Each wait outside of timed calls becomes a call, with `entry` and `file` of the wait and
        `entry` of the bios that it was the first wait for. The tables given are not changed.
        window: the log's next, with all of its bios, the recording's own too, and none of them cut.
        names: of threads, with rows as `Bios.task` has them.
        """
        path = window.path
        if path is None:
            return None
        untimed_rows, lone = self._untimed.bios(window.bios, path.bios)
        open_rows, open_untimed = self._untimed.bios(window.open_bios, path.open_bios)
        closed = CallBios.concatenate([CallBios.of(window.bios, path.bios), lone])
        still = CallBios.concatenate([CallBios.of(window.open_bios, path.open_bios), open_untimed])
        before, of_waits = self._unreturned, self._untimed.keys(path.waits)
        keys = Keys.among(
            *((t.tid, t.entry) for t in (before, closed, still)),
            (path.waits.tid, of_waits),
            (path.calls.tid, path.calls.entry),
        )
        key_before, _, _, key_wait, key_call = keys.of
        spans = _spans(keys, before, closed, still)
        stacks, of_stack = np.unique(path.waits.stack, return_inverse=True)
        for number in stacks.tolist():
            if number != NO_STACK and number in self._stacks and number not in self._reasons:
                self._reasons[number] = reason_of(self._stacks[number])
        reasons = [self._reasons.get(number, WaitReason.UNKNOWN) for number in stacks.tolist()]
        reasoned = replace(path.waits, reason=np.array(reasons, dtype=np.uint8)[of_stack])
        waits = self._with_causes(reasoned, spans, key_wait)
        self._find_commits(waits, path.commits)
        own_io, other_io = np.zeros((2, len(keys.tid)), dtype=np.int64)
        np.add.at(own_io, key_before, before.own_io)
        np.add.at(other_io, key_before, before.other_io)
        for cause, sums in ((WaitCause.OWN_IO, own_io), (WaitCause.OTHER_IO, other_io)):
            rows = np.flatnonzero(waits.cause == cause)
            np.add.at(sums, key_wait[rows], waits.woken[rows] - waits.out[rows])
        latest = [latest_end(*of, key_call, path.calls.exit) != NEVER for of in spans]
        calls = replace(path.calls, own=latest[0] & ~latest[1])
        self._keep(keys, closed, still.queue, waits.run, own_io, other_io)
        found = replace(path, waits=waits)
        parts = own_io[key_call], other_io[key_call]
        first = first_waits(
            waits, np.where(waits.timed, 0, of_waits), CallBios.concatenate([lone, open_untimed])
        )
        bios = (window.bios, untimed_rows), (window.open_bios, open_rows)
        found, counts = self._untimed.with_waits(found, bios, first)
        made = found.waits.take(~waits.timed)
        calls = Calls.concatenate([calls, calls_of(made, counts[~waits.timed])])
        blocked = made.woken - made.out
        parts = (
            np.concatenate([parts[0], blocked * (made.cause == WaitCause.OWN_IO)]),
            np.concatenate([parts[1], blocked * (made.cause == WaitCause.OTHER_IO)]),
        )
        reaped = self._reaped(window, calls, names.table())
        divided = self._with_parts(calls, *parts, reaped)
        idle = np.flatnonzero(~found.waits.timed)[reaped[len(path.calls) :] == 0]
        found.waits.cause[idle] = WaitCause.OTHERWISE
        divided = divided.take(np.argsort(divided.exit, kind="stable"))
        return self._held.join(window, replace(found, calls=divided))

    def _with_causes(self, waits: Waits, spans: "list[_Spans]", key_wait: I64) -> Waits:
        """Return a copy of the waits with `cause` and `own`.

        OTHERWISE: for what its `reason` says is no I/O (NOT_IO). Else OWN_IO: a bio of the wait's
        call was queued before the wait began (`out`) and ended after. Else OTHER_IO in an
        uninterruptible state, and where the kernel counted the wait of a call that was not timed as
        one for I/O; OTHERWISE in any other. own: the call had queued bios by `out`, and all are the
        recording's own; of a call that was not timed only those in flight then count. spans: of all
        bios, and of those not the recording's own. key_wait: key of each wait's call.
        """
        ends, others = (latest_end(*of, key_wait, waits.out) for of in spans)
        told = waits.timed | ((ends > waits.out) & (ends >= waits.run - _REMEMBERED_NS))
        ends = np.where(told, ends, NEVER)
        others = np.where(waits.timed | (others > waits.out), others, NEVER)
        uninterruptible = (waits.state & _UNINTERRUPTIBLE) != 0
        for_io = uninterruptible | (waits.io_wait & ~waits.timed)
        cause = np.where(for_io, WaitCause.OTHER_IO, WaitCause.OTHERWISE)
        cause = np.where(ends > waits.out, WaitCause.OWN_IO, cause)
        cause = np.where(np.isin(waits.reason, _NOT_IO), WaitCause.OTHERWISE, cause)
        return replace(waits, cause=cause.astype(np.uint8), own=(ends != NEVER) & (others == NEVER))

    def _find_commits(self, waits: Waits, commits: Commits) -> None:
        """Set `commit` and `commit_dev` of waits with reason JOURNAL_COMMIT.

        Such a wait is ended by the thread that commits (`waker`), right after the commit's end: so
        it is the last of that thread that ended by the wake-up, if it did not end before the wait
        began.
        """
        known = Commits.concatenate([self._commits, commits])
        known = known.take(np.lexsort((known.end, known.tid)))
        behind = np.searchsorted(known.tid, known.tid, side="right") - np.arange(len(known))
        self._commits = known.take(behind <= KEPT)
        waits.commit = np.full(len(waits), NEVER, dtype=np.int64)
        waits.commit_dev = np.zeros(len(waits), dtype=np.uint32)
        rows = np.flatnonzero(waits.reason == WaitReason.JOURNAL_COMMIT)
        if not len(known) or not len(rows):
            return
        ends, rank = np.unique(known.end, return_inverse=True)
        tids, code = np.unique(known.tid, return_inverse=True)
        # Each thread has its own range of ranks; rank 0 is before all of its commits.
        width = len(ends) + 1
        by_wake_up = np.searchsorted(ends, waits.woken[rows], side="right")
        asked = np.searchsorted(tids, waits.waker[rows]) * width + by_wake_up
        last = np.searchsorted(code * width + rank + 1, asked, side="right") - 1
        found = (last >= 0) & (known.tid[last] == waits.waker[rows])
        found &= known.end[last] >= waits.out[rows]
        rows, last = rows[found], last[found]
        waits.commit[rows], waits.commit_dev[rows] = known.transaction[last], known.dev[last]

    def _with_parts(self, calls: Calls, own_io: I64, other_io: I64, reaped: I64) -> Calls:
        """Return a copy of the calls with their parts, which add up to exit - entry.

        `blocked` is own_io, other_io and otherwise; if waits were not recorded, all of a call is
        undivided. Parts too large are cut. All are 0 where the entry is not known. own_io,
        other_io: ns of each call's waits by cause. reaped: ns with I/O in flight that the call
        reaps: own_io and other_io together are so long, or as long as it was blocked if that is
        less; own_io comes first. NEVER: it reaps nothing.
        """
        known = calls.entry != NEVER
        lasted = np.where(known, np.maximum(calls.exit - calls.entry, 0), 0)
        none = np.zeros_like(lasted)
        undivided, left = (none, lasted) if self._divides else (lasted, none)
        blocked = np.clip(calls.blocked, 0, left)
        runnable = np.clip(calls.runnable, 0, left - blocked)
        io = np.where(reaped == NEVER, blocked, np.minimum(reaped, blocked))
        own_io = np.clip(own_io, 0, io)
        other_io = np.where(reaped == NEVER, np.clip(other_io, 0, io - own_io), io - own_io)
        return replace(
            calls,
            blocked=blocked,
            runnable=runnable,
            running=left - blocked - runnable,
            own_io=own_io,
            other_io=other_io,
            otherwise=blocked - own_io - other_io,
            undivided=undivided,
        )

    def _reaped(self, window: "Lifecycles | Result", calls: Calls, tasks: Tasks) -> I64:
        """Return for how many ns I/O was in flight that each of these calls reaps: (n,).

        That is I/O of which a bio was queued by io_submit, io_uring_enter or a thread of io_uring,
        by any thread of the call's process. NEVER for calls that are none of REAPING_CALLS, of
        32-bit programs, of threads without a name, and without an entry.
        """
        assert window.path is not None
        path = window.path
        found = np.full(len(calls), NEVER, dtype=np.int64)
        asking = np.isin(calls.number, self._reaping) & ~calls.foreign & (calls.task >= 0)
        asked = np.flatnonzero(asking & (calls.entry != NEVER))
        ended = self._submitted_bios(window.bios, path.bios, tasks)
        for one in np.unique(ended[0]).tolist():
            start, end = self._in_flight(one, ended)
            self._submitted[one] = start[-MOST_KEPT:], end[-MOST_KEPT:]
        if len(asked):
            still = self._submitted_bios(window.open_bios, path.open_bios, tasks)
            process = tasks.tgid[calls.task[asked]].astype(np.int64)
            for one in np.unique(process).tolist():
                spans, rows = self._in_flight(one, still), asked[process == one]
                within = covered(spans, calls.exit[rows]) - covered(spans, calls.entry[rows])
                found[rows] = np.maximum(within, 0)
        return found

    def _in_flight(self, process: int, bios: tuple[I64, I64, I64]) -> "Times":
        """Return when a process had such I/O in flight: as known so far, and by more bios."""
        mine = bios[0] == process
        start, end = self._submitted.get(process, (bios[1][:0], bios[2][:0]))
        return merged(np.concatenate([start, bios[1][mine]]), np.concatenate([end, bios[2][mine]]))

    def _submitted_bios(self, bios: Bios, paths: BioPaths, tasks: Tasks) -> tuple[I64, I64, I64]:
        """Return (process id, Q, end) of the bios that were submitted to be reaped; times in ns.

        They were queued by io_submit or io_uring_enter, or by a thread of io_uring (by its name).
        end: the completion, FAR where it is not in the log so far.
        """
        place, known = rows_of(paths.number, bios.number)
        chosen = np.zeros(len(bios), dtype=np.bool_)
        chosen[known] = np.isin(paths.call[place[known]], self._submitting)
        chosen |= by_threads(_URING_THREADS, bios.task, tasks)
        rows = np.flatnonzero(chosen & (bios.task >= 0) & (bios.queue != NEVER))
        complete = bios.complete[rows]
        end = np.where(complete == NEVER, FAR, complete)
        return tasks.tgid[bios.task[rows]].astype(np.int64), bios.queue[rows], end

    def _keep(
        self, keys: Keys, closed: CallBios, queued: I64, run: I64, own_io: I64, other_io: I64
    ) -> None:
        """Set `_unreturned` to what the next window must know of calls that have not returned.

        A row for the newest call of each thread, unless it ended in this window or its entry is not
        known; and one for each call that is not timed and had a bio end since its thread last ran,
        within _REMEMBERED_NS. Bios in flight are not in its `end`: they come again. run: of the
        window's waits (ns). own_io, other_io: ns per key.
        """
        key_before, key_closed, key_still, key_wait, key_call = keys.of
        before = self._unreturned
        end, others_end = np.full((2, len(keys.tid)), NEVER, dtype=np.int64)
        end[key_before], others_end[key_before] = before.end, before.others_end
        np.maximum.at(end, key_closed, closed.end)
        rows = np.flatnonzero(~closed.own)
        np.maximum.at(others_end, key_closed[rows], closed.end[rows])
        kept = keys.newest() & (keys.entry > NEVER)
        kept[key_call] = False
        untimed = keys.entry < NEVER
        if untimed.any():
            _, thread = np.unique(keys.tid, return_inverse=True)
            ran = np.full(len(keys.tid), NEVER, dtype=np.int64)
            for key, time in ((key_closed, closed.queue), (key_still, queued), (key_wait, run)):
                np.maximum.at(ran, thread[key], time)
            newest = ran.max(initial=NEVER)
            kept |= untimed & (end > np.maximum(ran[thread], newest - _REMEMBERED_NS))
        columns = (keys.tid, keys.entry, own_io, other_io, end, others_end)
        self._unreturned = _Unreturned(*(column[kept] for column in columns))


_Spans = tuple[I64, I64, I64]
"""(key of the call, Q, end) of bios; times in ns."""


def _spans(keys: Keys, before: _Unreturned, closed: CallBios, still: CallBios) -> "list[_Spans]":
    """Return the spans in flight of all bios of calls, and of those not the recording's own.

    The bios that ended in earlier windows (`before`) are one span for each call, which starts at
    NEVER: its thread queued them all before whatever it does in this window. keys: in the order of
    `CallDivider.divide`.
    """
    key_before, key_closed, key_still = keys.of[:3]
    found = []
    for end, closed_rows, still_rows in (
        (before.end, slice(None), slice(None)),
        (before.others_end, ~closed.own, ~still.own),
    ):
        old = np.flatnonzero(end != NEVER)
        found.append(
            (
                np.concatenate([key_before[old], key_closed[closed_rows], key_still[still_rows]]),
                np.concatenate(
                    [np.full(len(old), NEVER), closed.queue[closed_rows], still.queue[still_rows]]
                ),
                np.concatenate([end[old], closed.end[closed_rows], still.end[still_rows]]),
            )
        )
    return found


Times = tuple[I64, I64]
"""(start, end) of spans, ns, ascending and apart."""


def merged(start: I64, end: I64) -> Times:
    """Return the times that these spans cover. A span that ends before it begins covers nothing."""
    kept = end > start
    start, end = start[kept], end[kept]
    order = np.argsort(start, kind="stable")
    start, latest = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), dtype=np.bool_)
    first[1:] = start[1:] > latest[:-1]
    last = np.roll(first, -1)  # a span is the last of its time if the next one is a first
    return start[first], latest[last]


def covered(spans: Times, time: I64) -> I64:
    """Return how many ns of `spans` are before each time: (m,)."""
    start, end = spans
    if not len(start):
        return np.zeros(len(time), dtype=np.int64)
    row = np.searchsorted(start, time, side="right")
    before = np.concatenate([[0], np.cumsum(end[:-1] - start[:-1])])
    at = np.maximum(row - 1, 0)
    within = np.minimum(time, end[at]) - start[at]
    return np.where(row > 0, before[at] + within, 0)
