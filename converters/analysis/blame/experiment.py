# SPDX-License-Identifier: Apache-2.0
"""The experiment of `record --pause`: what victims really take while the suspect stands.

The log is cut into blocks, a period of standing with half of each period of running beside it. So
what changes slowly is in both states of a block alike. The truth is the difference of both states'
means, as blame's shares are of the mean; its interval rests on how blocks differ, by Student's t.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame.tree import (
    CallTruth,
    CallVictim,
    Experiment,
    Kind,
    Part,
    Share,
    State,
    Truth,
    Victim,
)
from biotrail.converters.analysis.diff.runs import student_t
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.path_tables import Calls
from biotrail.converters.events.tables import I64, NEVER, Bool

SKIP_NS = 200_000_000
"""Beginning of each period that is left out: what the suspect had asked for is still under way."""
LEAST_IOS = 30
"""I/Os, or calls, that a victim needs in each state."""
_LEAST_BLOCKS = 4
_CONFIDENCE = 0.95
_MAINLY = 0.5
"""Share of a party's time with the devices that is the suspect's, from which it is the suspect."""
RUNNING, STANDING = 0, 1
_COUNT, _NS, _CPU = 0, 1, 2


class Periods:
    """The periods in which a suspect stood or ran, without their beginnings."""

    def __init__(self, notes: Sequence[Mapping[str, Any]]) -> None:
        stood = sorted((int(one["from"]), int(one["to"])) for one in notes)
        stood = [one for one in stood if one[0] < one[1]]
        longest = max((end - begin for begin, end in stood), default=0)
        found: list[tuple[int, int, int, int]] = []
        for block, (begin, end) in enumerate(stood):
            before = begin - longest // 2
            after = end + SKIP_NS + longest // 2
            if block:
                former = stood[block - 1][1] + SKIP_NS
                before = max(before, (former + begin) // 2)
            if block + 1 < len(stood):
                after = min(after, (end + SKIP_NS + stood[block + 1][0]) // 2)
            found += [
                (before, begin, block, RUNNING),
                (begin + SKIP_NS, end, block, STANDING),
                (end + SKIP_NS, after, block, RUNNING),
            ]
        rows = np.array([one for one in found if one[0] < one[1]], np.int64).reshape(-1, 4)
        self._begin, self._end, self._block, self._state = rows.T.copy()
        self.blocks = len(stood)
        self.wanted = max((int(one.get("times", 0)) for one in notes), default=0) or self.blocks
        self.stood_ns = sum(end - begin for begin, end in stood)

    def of(self, times: I64) -> tuple[I64, I64]:
        """Return (block, state) of each time (ns); NEVER: it is in none."""
        if not len(self._begin):
            return np.full(len(times), NEVER), np.full(len(times), NEVER)
        at = np.searchsorted(self._begin, times, side="right") - 1
        inside = (at >= 0) & (times < self._end[at])
        block, state = (np.where(inside, of[at], NEVER) for of in (self._block, self._state))
        return block, state


def experiment_of(
    notes: Sequence[Mapping[str, Any]],
    had: Mapping[tuple[str, bool], int],
    shared: set[str],
    by_writer: bool,
) -> Experiment:
    """Return the experiment without its truths.

    had: (culprit, whether it is the suspect's) → ns. shared: names of other processes, too.
    """
    parties = [
        name
        for (name, its), ns in had.items()
        if its and ns >= _MAINLY * (ns + had.get((name, False), 0)) > 0
    ]
    return Experiment(
        name=str(notes[0].get("name", "")),
        label=str(notes[0].get("label", "")),
        parties=tuple(sorted(parties)),
        with_others=tuple(
            sorted(one for one in parties if one in shared or had.get((one, False), 0))
        ),
        idle=by_writer and not any(its for _, its in had),
    )


class Trial:
    def __init__(self, periods: Periods, rows: int) -> None:
        self._periods = periods
        self._left_out = 0
        self._ios = np.zeros((periods.blocks, 2, rows, 2), np.int64)
        self._calls: dict[tuple[int, int, bool], I64] = {}
        """(row of the thread, number of the call, whether foreign) → (blocks, 2, 3): count, ns, ns
        with a CPU or waiting for one."""

    def add_ios(self, queue: I64, row: I64, ns: I64) -> Bool:
        """Return which of them are in the running periods. row: of the victim, or NEVER."""
        block, state = self._periods.of(queue)
        runs = np.asarray(state == RUNNING, np.bool_)
        self._left_out += int((~runs & (row >= 0)).sum())
        rows = np.flatnonzero((state >= 0) & (row >= 0))
        at = block[rows], state[rows], row[rows]
        np.add.at(self._ios[..., _COUNT], at, 1)
        np.add.at(self._ios[..., _NS], at, ns[rows])
        return runs

    def add_calls(self, calls: Calls) -> Bool:
        """Return which of them are in the running periods, by their entry."""
        block, state = self._periods.of(calls.entry)
        runs = np.asarray(state == RUNNING, np.bool_)
        rows = np.flatnonzero(state >= 0)
        calls, block, state = calls.take(rows), block[rows], state[rows]
        if not len(calls):
            return runs
        number = calls.number.astype(np.int64) << 1 | calls.foreign
        keys, place = distinct(calls.task.astype(np.int64), number)
        found = np.zeros((len(keys), self._periods.blocks, 2, 3), np.int64)
        ns, cpu = calls.exit - calls.entry, calls.running + calls.runnable
        for column, values in ((_COUNT, np.ones(len(calls), np.int64)), (_NS, ns), (_CPU, cpu)):
            np.add.at(found[..., column], (place, block, state), values)
        for (task, call), sums in zip(keys, found, strict=True):
            key = task, call >> 1, bool(call & 1)
            self._calls[key] = self._calls[key] + sums if key in self._calls else sums
        return runs

    def close(
        self,
        found: Experiment,
        victims: Sequence[tuple[int, Victim]],
        calls: Sequence[CallVictim],
        name_of: Callable[[int, int, bool], tuple[str, str]],
    ) -> None:
        """Set the truths, and what they rest on.

        victims: by row. name_of: (row of the thread, number, foreign) → (party, call).
        """
        found.periods, found.wanted = self._periods.blocks, self._periods.wanted
        found.stood_ns, found.left_out = self._periods.stood_ns, self._left_out
        for row, victim in victims:
            if victim.name in found.parties:
                continue
            sums = self._ios[:, :, row]
            running, standing = _states(sums)
            if min(running.count, standing.count) < LEAST_IOS:
                found.few += 1
                continue
            share = _share(sums, sums[..., _NS])
            blamed = _blamed(victim.parts, found, victim.wait_ns)
            found.victims.append(Truth(victim.name, running, standing, share, blamed))
        by_name: dict[tuple[str, str], I64] = {}
        for key, sums in self._calls.items():
            name = name_of(*key)
            by_name[name] = by_name[name] + sums if name in by_name else sums
        for call in calls:
            sums = by_name.get((call.name, call.call), np.zeros((self._periods.blocks, 2, 3), int))
            running, standing = _states(sums)
            if call.name in found.parties:
                continue
            if min(running.count, standing.count) < LEAST_IOS:
                found.few += 1
                continue
            whole, cpu = sums[..., _NS], sums[..., _CPU]
            # The matrix has the calls that waited, the truth all of them.
            blamed = _blamed(call.parts, found, int(whole[:, RUNNING].sum()))
            found.calls.append(
                CallTruth(
                    call.name, call.call, running, standing, _share(sums, whole),
                    _share(sums, cpu), _share(sums, whole - cpu), blamed,
                )
            )  # fmt: skip


def _states(sums: I64) -> tuple[State, State]:
    """sums: (blocks, 2, 2 or more): while the suspect runs, while it stands; count, ns."""
    running, standing = (
        State(int(count), float(ns / count) if count else 0.0)
        for count, ns in sums.sum(axis=0)[:, :2]
    )
    return running, standing


def _share(sums: I64, part: I64) -> Share:
    """Less time of a part while the suspect stands, of all while it runs; part: (blocks, 2)."""
    count, ns = sums[..., _COUNT].astype(np.float64), sums[:, RUNNING, _NS].astype(np.float64)
    with_both = (count > 0).all(axis=1)
    total = count.sum(axis=0)
    mean = part.sum(axis=0) / total
    whole = ns.sum() / total[RUNNING]
    share = float((mean[RUNNING] - mean[STANDING]) / whole) if whole else 0.0
    blocks = int(with_both.sum())
    if blocks < _LEAST_BLOCKS or not whole:
        return Share(share, None)
    # How much each block moves the share: the ratio of sums, linear in each block's part of them.
    moved: NDArray[np.float64] = (part - mean * count) / total * [1, -1]
    each = moved.sum(axis=1) / whole
    each = each - share * (ns - whole * count[:, RUNNING]) / (total[RUNNING] * whole)
    each = each[with_both]
    error = float(each.std(ddof=1)) * math.sqrt(blocks)
    half = student_t((1 + _CONFIDENCE) / 2, blocks - 1) * error
    return Share(share, (share - half, share + half))


def _blamed(parts: Sequence[Part], found: Experiment, whole_ns: int) -> float | None:
    """Return the share of a victim's time that blame gives the suspect; None: it has no name."""
    if whole_ns <= 0 or not (found.parties or found.idle):
        return None
    if any(one.kind == Kind.UNKNOWN and one.wait_ns * 100 >= whole_ns for one in parts):
        return None
    of: Counter[str] = Counter()
    for one in parts:
        if one.kind == Kind.OTHER and one.culprit is not None:
            of[one.culprit] += one.wait_ns
    return sum(of[name] for name in found.parties) / whole_ns
