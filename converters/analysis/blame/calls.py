# SPDX-License-Identifier: Apache-2.0
"""Where the time of system calls went, and because of whom: the path's waits, by I/O's cells.

A call's waits for its own I/O are divided as its bios' time is; those of calls that reap what other
calls submitted, as the time of their thread's bios that ended in the same second. Waits for a
commit are divided as that commit's time: while it writes files' data, by the work of the requests
that the device has; while it writes its log, as the time of the journal's bios.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from biotrail.converters.analysis.blame import share_loops
from biotrail.converters.analysis.blame.company import Batch, Ios, Pieces, others_work
from biotrail.converters.analysis.blame.experiment import Trial
from biotrail.converters.analysis.blame.parties import Parties
from biotrail.converters.analysis.blame.tree import OTHERS, CallVictim, Kind, Part, parts_of
from biotrail.converters.analysis.distributions.sketch import sum_by
from biotrail.converters.calls.keys import rows_by_key, rows_of_pairs
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.calls.reason_rules import WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct, distinct_values
from biotrail.converters.events.path_tables import Calls, Commits, Waits
from biotrail.converters.events.tables import FAR, I64, NEVER, Lifecycles, Tasks, WaitCause
from biotrail.converters.events.tasks import by_threads
from biotrail.converters.lifecycles.purposes import JOURNAL_THREADS

MOST_OPEN = 200_000
"""Calls whose bios are remembered until they return."""
_REAPED_NS = 1_000_000_000
MOST_COMMITS = 50_000
"""Commits that are remembered for waits that end after them."""
_KINDS = (
    *(Kind.SERVICE, Kind.DEVICE, Kind.UNKNOWN),
    *(Kind.RUNNING, Kind.CPU, Kind.LIMIT, Kind.JOURNAL, Kind.WAITING),
)
"""Columns behind those of the slots; the first three are those of I/Os' cells."""
_OF_CELLS = 3
_JOURNAL = (WaitReason.JOURNAL_COMMIT, WaitReason.JOURNAL_TRANSACTION, WaitReason.JOURNAL_SPACE)


@dataclass
class _Vectors:
    """Sums of cells by a pair of numbers: of calls by thread and entry, of commits likewise."""

    width: int
    most: int
    _parts: list[tuple[I64, I64, I64]] = field(default_factory=list)
    """(one number, the other, cells), as they were added; `_joined`: the first has all."""
    _joined: bool = False

    def add(self, one: I64, other: I64, cells: I64) -> None:
        if len(one):
            self._parts.append((one, other, cells))
            self._joined = False

    def of(self, one: I64, other: I64) -> I64:
        """Return the sums of these keys; zeros where there are none."""
        ones, others, cells = self._table()
        row = rows_of_pairs(ones, others, one, other)
        found = np.zeros((len(one), self.width), np.int64)
        found[row >= 0] = cells[row[row >= 0]]
        return found

    def forget(self, before: int) -> None:
        """Forget keys whose other number is before this, but for the newest of each first one."""
        one, other, cells = self._table()
        kept = other >= before
        old = np.flatnonzero(~kept)
        old = old[np.lexsort((other[old], one[old]))]
        kept[old[np.diff(one[old], append=-1) != 0]] = True
        rows = np.flatnonzero(kept)[-self.most :]
        self._parts = [(one[rows], other[rows], cells[rows])]

    def _table(self) -> tuple[I64, I64, I64]:
        """Make one table of all that was added: by the other number, then the first."""
        if not self._parts:
            none = np.zeros(0, np.int64)
            return none, none, np.zeros((0, self.width), np.int64)
        if self._joined:
            return self._parts[0]
        one = np.concatenate([one for one, _, _ in self._parts])
        other = np.concatenate([other for _, other, _ in self._parts])
        order = np.argsort(other, kind="stable")
        ahead, behind = order[1:], order[:-1]
        if ((other[ahead] == other[behind]) & (one[ahead] != one[behind])).any():
            order = np.lexsort((one, other))
        one, other = one[order], other[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (other[1:] != other[:-1]) | (one[1:] != one[:-1])
        begin = np.flatnonzero(first)
        place = np.empty(len(order), np.int64)
        place[order] = np.cumsum(first) - 1
        whole, at = np.zeros((len(begin), self.width), np.int64), 0
        for *_, cells in self._parts:
            share_loops.add_rows(place[at : at + len(cells)], cells, whole)
            at += len(cells)
        self._parts, self._joined = [(one[begin], other[begin], whole)], True
        return self._parts[0]


class CallBlame:
    def __init__(self, context: Context, parties: Parties, slots: int, trial: Trial | None) -> None:
        self._context, self._parties, self._slots = context, parties, slots
        self._trial = trial
        width = slots + _OF_CELLS
        self._of_calls = _Vectors(width, MOST_OPEN)
        self._of_threads = _Vectors(width, MOST_OPEN)
        self._held = _Vectors(1, MOST_OPEN)
        self._of_commits = _Vectors(slots + len(_KINDS), MOST_COMMITS)
        self._calls: list[tuple[Calls, Waits]] = []
        self._tasks: Tasks | None = None
        self._commits = Commits.none()
        self._ready = np.zeros((0, 3), np.int64)
        """Waits of journals' threads: thread, when woken, when it ran again (ns)."""
        self._begun = _Vectors(1, MOST_COMMITS)
        self._journal: list[tuple[Ios, I64]] = []
        self.sums: dict[tuple[int, int, bool], I64] = {}
        """(row of the thread, number of the call, whether a 32-bit program's) → ns by column."""
        self.count: Counter[tuple[int, int, bool]] = Counter()

    def add(self, window: Lifecycles) -> int:
        """Return the earliest time (ns) of which requests are still needed."""
        if (path := window.path) is not None:
            calls = path.calls.take((path.calls.entry != NEVER) & ~path.calls.own)
            if self._trial is not None:
                calls = calls.take(self._trial.add_calls(calls))
            calls = calls.take((calls.own_io > 0) | (calls.other_io > 0) | (calls.bios > 0))
            waits = path.waits.take(path.waits.cause == WaitCause.OTHER_IO)
            self._calls.append((calls, waits))
            self._tasks = window.tasks
            self._commits = Commits.concatenate([self._commits, path.commits])
            # When journals' threads were ready to run, without a CPU.
            rows = np.flatnonzero(by_threads(JOURNAL_THREADS, path.waits.task, window.tasks))
            ready = path.waits.take(rows)
            new = np.stack([ready.tid.astype(np.int64), ready.woken, ready.run], axis=1)
            self._ready = np.concatenate([self._ready, new])
            held = path.held.take((path.held.entry != NEVER) & (path.held.held != NEVER))
            self._held.add(held.tid.astype(np.int64), held.entry, held.held[:, None])
        began = self._commits.flushing
        return int(began[began != NEVER].min(initial=FAR))

    def add_cells(self, ios: Ios, cells: I64) -> None:
        called = np.flatnonzero(ios.entry != NEVER)
        self._of_calls.add(ios.tid[called], ios.entry[called], cells[called])
        submitted = np.flatnonzero(ios.submitted)
        times = ios.complete[submitted] // _REAPED_NS
        self._of_threads.add(ios.tid[submitted], times, cells[submitted])
        journal = np.flatnonzero(ios.journal)
        if len(journal):
            self._journal.append((ios.take(journal), cells[journal]))

    def settle(self, until: int, batch: Batch | None, slot: I64, weight: I64) -> None:
        """Add up the calls that returned by `until` (ns), when all I/O by then was added."""
        self._settle_commits(until, batch, slot, weight)
        later: list[tuple[Calls, Waits]] = []
        for calls, waits in self._calls:
            now = calls.exit <= until
            if now.any():
                self._add_up(calls.take(now), waits)
            if not now.all():
                later.append((calls.take(~now), waits))
        self._calls = later
        first = min((int(calls.entry.min()) for calls, _ in later if len(calls)), default=until)
        # A call that has not returned is its thread's newest.
        self._of_calls.forget(first)
        self._held.forget(first)
        self._of_threads.forget(until // _REAPED_NS - 1)

    def _settle_commits(self, until: int, batch: Batch | None, slot: I64, weight: I64) -> None:
        ended = self._commits.end <= until
        commits, self._commits = self._commits.take(ended), self._commits.take(~ended)
        if not len(commits):
            return
        begun = np.where(commits.locking != NEVER, commits.locking, commits.flushing)
        begun = np.where(commits.started != NEVER, commits.started, begun)
        known = (begun != NEVER) & (commits.flushing != NEVER) & (commits.logging != NEVER)
        commits, begun = commits.take(known), begun[known]
        cells = np.zeros((len(commits), self._slots + len(_KINDS)), np.int64)
        if batch is not None and len(commits):
            # While it writes files' data, as I/O of its disk that nothing is a part of.
            devs, _, place = distinct_values(commits.dev)
            disks = [self._context.disk_of(dev) for dev in devs.tolist()]
            begin, end = commits.flushing, commits.logging
            none, no = np.full(len(commits), NEVER), np.zeros(len(commits), np.bool_)
            phases = Ios(
                none, np.array(disks, np.int64)[place], none, none, none, begin, begin, end, no, no,
                none, none, no, no,
            )  # fmt: skip
            asked = Batch(phases, batch.served, Pieces.none(), batch.until)
            every, work = np.arange(len(commits)), np.zeros((len(commits), self._slots), np.int64)
            for rows, _, device in others_work(asked, every, slot, weight, self._slots):
                work[rows] = np.maximum(device, 0)
            cells[:, : self._slots] = _divided(end - begin, work)[0]
        self._add_journal(commits, cells)
        rest = np.maximum(commits.end - begun - cells.sum(axis=1), 0)
        # For how long a commit's thread was ready to run while it committed.
        ready = np.zeros(len(commits), np.int64)
        tids = commits.tid.astype(np.int64)
        for tid in np.unique(tids).tolist():
            mine, rows = np.flatnonzero(self._ready[:, 0] == tid), np.flatnonzero(tids == tid)
            woken, run = self._ready[mine, 1], self._ready[mine, 2]
            order = np.argsort(run, kind="stable")
            until_run = np.concatenate([[0], np.cumsum((run - woken)[order])])
            first, last = (np.searchsorted(run[order], at[rows]) for at in (begun, commits.end))
            ready[rows] = until_run[last] - until_run[first]
        self._ready = self._ready[self._ready[:, 2] > int(commits.end.min(initial=0))]
        cpu = np.minimum(ready, rest)
        cells[:, self._slots + _KINDS.index(Kind.CPU)] += cpu
        cells[:, self._slots + _KINDS.index(Kind.JOURNAL)] += rest - cpu
        dev, number = commits.dev.astype(np.int64), commits.transaction.astype(np.int64)
        self._of_commits.add(dev, number, cells)
        self._begun.add(dev, number, begun[:, None])
        self._begun.forget(int(number.max(initial=0)) - MOST_COMMITS)
        self._of_commits.forget(int(number.max(initial=0)) - MOST_COMMITS)

    def _add_journal(self, commits: Commits, cells: I64) -> None:
        """Add the time that the journal's bios add to their commits, as these bios' time."""
        if not self._journal or not len(commits):
            return
        ios = Ios.concatenate([one for one, _ in self._journal])
        of = np.concatenate([one for _, one in self._journal])
        order = np.lexsort((ios.queue, ios.tid))
        ios, of = ios.take(order), of[order]
        by_end = np.lexsort((commits.end, commits.tid))
        row = np.full(len(ios), NEVER)
        for tid in np.unique(ios.tid).tolist():
            mine = by_end[commits.tid[by_end] == tid]
            bios = np.flatnonzero(ios.tid == tid)
            if len(mine):
                at = np.searchsorted(commits.end[mine], ios.queue[bios])
                there = at < len(mine)
                found = mine[np.minimum(at, len(mine) - 1)]
                row[bios] = np.where(there & (ios.queue[bios] >= commits.logging[found]), found, -1)
        good = np.flatnonzero(row >= 0)
        before = np.zeros(len(ios), np.int64)
        before[1:] = np.maximum.accumulate(ios.complete)[:-1]
        before[1:][ios.tid[1:] != ios.tid[:-1]] = 0
        end = np.minimum(ios.complete[good], commits.end[row[good]])
        adds = np.maximum(end - np.maximum(ios.queue[good], before[good]), 0)
        shares, _ = _divided(adds, of[good])
        into = np.zeros((len(commits), of.shape[1]), np.int64)
        share_loops.add_rows(row[good], shares, into)
        cells[:, : of.shape[1]] += into
        kept = ios.queue > int(commits.end.max())
        self._journal = [(ios.take(kept), of[kept])]

    def _add_up(self, calls: Calls, waits: Waits) -> None:
        """Divide the time of calls that are over, and add it to the sums of thread and call."""
        tid, width = calls.tid.astype(np.int64), self._slots + len(_KINDS)
        at = {kind: self._slots + place for place, kind in enumerate(_KINDS)}
        cells = np.zeros((len(calls), width), np.int64)
        cells[:, at[Kind.RUNNING]] = calls.running
        cells[:, at[Kind.CPU]] = calls.runnable
        own = self._of_calls.of(tid, calls.entry)
        known = own.sum(axis=1)
        reaps = np.flatnonzero((known <= 0) & (calls.own_io > 0))
        own[reaps] = self._of_threads.of(tid[reaps], calls.exit[reaps] // _REAPED_NS)
        # Longer than its bios took, a call waited for who ends them, such as a worker.
        after = np.where(known > 0, np.maximum(calls.own_io - known, 0), 0)
        shares, rest = _divided(calls.own_io - after, own)
        cells[:, : own.shape[1]] += shares
        left = calls.other_io + rest
        held = np.minimum(self._held.of(tid, calls.entry)[:, 0], left)
        cells[:, at[Kind.LIMIT]] = held
        left -= held
        if held.any():  # then the bio that was held went on
            limited = np.where(held > 0, left, 0)
            shares, rest = _divided(limited, own)
            cells[:, : own.shape[1]] += shares
            left -= limited - rest
        row = rows_by_key(calls, waits.tid, waits.entry)
        mine = np.flatnonzero(row >= 0)
        row, ended = row[mine], waits.take(mine)
        blocked = ended.woken - ended.out
        known = np.flatnonzero(ended.commit != NEVER)
        if len(known):
            by_commit = sum_by(row[known], blocked[known], len(calls))
            by_commit = np.minimum(by_commit, left)
            vector = np.zeros((len(calls), width), np.int64)
            share_loops.add_rows(row[known], self._of_waits(ended.take(known)), vector)
            shares, rest = _divided(by_commit, vector)
            cells += shares
            left -= by_commit - rest
        journals = np.isin(ended.reason, np.array(_JOURNAL, np.uint8))
        journal = np.minimum(sum_by(row[journals], blocked[journals], len(calls)), left)
        cells[:, at[Kind.JOURNAL]] += journal
        left -= journal
        cells[:, at[Kind.WAITING]] += left + after + calls.otherwise + calls.undivided
        number = calls.number.astype(np.int64) << 1 | calls.foreign
        pairs, place = distinct(calls.task.astype(np.int64), number)
        sums = np.zeros((len(pairs), width), np.int64)
        share_loops.add_rows(place, cells, sums)
        counts = np.bincount(place, minlength=len(pairs)).tolist()
        for (code, call), one, count in zip(pairs, sums, counts, strict=True):
            key = code, call >> 1, bool(call & 1)
            self.sums[key] = self.sums[key] + one if key in self.sums else one
            self.count[key] += count

    def _of_waits(self, waits: Waits) -> I64:
        """Divide waits for commits: as theirs, and before they began as the commits before them."""
        dev, number = waits.commit_dev.astype(np.int64), waits.commit
        blocked = waits.woken - waits.out
        begun = self._begun.of(dev, number)[:, 0]
        before = np.where(begun > 0, np.clip(begun - waits.out, 0, blocked), 0)
        found, rest = _divided(blocked - before, self._of_commits.of(dev, number))
        former, more = _divided(before, self._of_commits.of(dev, number - 1))
        found += former
        found[:, self._slots + _KINDS.index(Kind.JOURNAL)] += rest + more
        return found

    def close(
        self, slots: list[tuple[str, str]], wanted: Callable[[str], bool]
    ) -> list[CallVictim]:
        """slots: (victim's name, culprit's name). wanted: whether a victim's name is asked for."""
        by_name: dict[tuple[str, str], tuple[int, I64]] = {}
        for key, cells in self.sums.items():
            names = self.names(*key)
            count, before = by_name.get(names, (0, np.zeros_like(cells)))
            by_name[names] = count + self.count[key], before + cells
        found = []
        for (name, call), (count, cells) in by_name.items():
            if not wanted(name):
                continue
            culprits: Counter[str] = Counter()
            own = 0
            for (victim, culprit), ns in zip(slots, cells.tolist(), strict=False):
                if victim == name and victim != OTHERS:
                    own += ns
                else:
                    culprits[culprit] += ns
            service, device, unknown, *others = cells[len(slots) :].tolist()
            parts = parts_of(service, own, culprits, device, unknown)
            # Nearly no time with I/O: what a share of it owes is the thread's own.
            owed = min(parts[0].wait_ns, 0)
            parts[0].wait_ns -= owed
            others[0] += owed
            parts += map(Part, _KINDS[_OF_CELLS:], repeat(None), others)
            parts = [part for part in parts if part.wait_ns]
            found.append(CallVictim(name, call, count, int(cells.sum()), parts))
        return sorted(found, key=lambda one: (-one.wait_ns, one.name, one.call))

    def names(self, task: int, number: int, foreign: bool) -> tuple[str, str]:
        assert self._tasks is not None
        call = name_of_call(number, foreign, self._context.machine) or "unknown"
        return self._parties.of_task(self._tasks, task), call


def _divided(amount: I64, vectors: I64) -> tuple[I64, I64]:
    """Divide amounts (n,) as their vectors, (n, m), whose parts may be negative."""
    shares = np.zeros(vectors.shape, np.int64)
    left = np.zeros(len(amount), np.int64)
    share_loops.divide(np.ascontiguousarray(amount), np.ascontiguousarray(vectors), shares, left)
    return shares, left
