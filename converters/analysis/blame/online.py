# SPDX-License-Identifier: Apache-2.0
"""Blame of I/O that goes on, in one pass: an I/O's base is that of what has passed.

The rule is that of `blame`: the same company, classes, work and shares. What a log's second pass
knows and this cannot: bases of I/O that is still to come, requests that last longer than LONG_NS
(they stand beside nothing), and for whom a journal's commit is written (its I/O is the journal's).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import product

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame.bases import DEVICE, QUEUE, Bases, Learner, Steps
from biotrail.converters.analysis.blame.company import Batch, Company, Ios, others_work
from biotrail.converters.analysis.blame.parties import OWNER
from biotrail.converters.analysis.blame.shares import (
    MOST_NAMES,
    BlameOptions,
    Names,
    Row,
    Shares,
    count_up,
    names_of,
    work_of,
)
from biotrail.converters.analysis.blame.tree import OTHERS, Blamed, Kind, Waited
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values, looked_up
from biotrail.converters.events.tables import I64, NEVER, Lifecycles

MOST_CLASSES = 1024
"""Classes of I/O that are told apart."""
LEFT_OUT = (
    "time_not_known",
    "of_upper_devices",
    "requests_without_end",
    "requests_too_long",
    "too_long_ago",
)


@dataclass
class Waits:
    """Who waited for whom in a stretch of time; can be added up with others."""

    rows: dict[str, Row] = field(default_factory=dict)
    based: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    """What is not in the rows, or stands beside nothing: number by name, as in JSON."""

    def merge(self, other: "Waits") -> None:
        for name, row in other.rows.items():
            kept = name in self.rows or len(self.rows) < MOST_NAMES
            self.rows.setdefault(name if kept else OTHERS, Row()).merge(row)
        self.based.update(other.based)
        self.left_out.update(other.left_out)

    def victims(self) -> list[Waited]:
        """By time, the most first; OTHERS is last."""
        found = [as_row(Waited, row, name=name) for name, row in self.rows.items()]
        return sorted(found, key=lambda one: (one.name == OTHERS, -one.wait_ns, one.name))


def waits_of(blamed: Blamed) -> Waits:
    rows = {}
    for victim in blamed.victims:
        time = {part.kind: part.wait_ns for part in victim.parts if part.culprit is None}
        rows[victim.name] = row = Row(
            ios=victim.ios,
            service=time.get(Kind.SERVICE, 0),
            own=time.get(Kind.OWN, 0),
            device=time.get(Kind.DEVICE, 0),
            unknown=time.get(Kind.UNKNOWN, 0),
            untold=victim.untold,
        )
        for part in victim.parts:
            if part.culprit is not None:
                row.behind[part.culprit] += part.wait_ns
    numbers = (blamed.unknown, blamed.upper, blamed.without_end, 0, blamed.forgotten)
    left_out = Counter(dict(zip(LEFT_OUT, numbers, strict=True)))
    return Waits(rows, Counter(blamed.based), +left_out)


@dataclass
class Cells:
    """I/Os of one device that have settled."""

    ios: Ios
    cells: I64
    """(n, slots + 3) ns: I/O of each slot, own service, device alone, unknown."""
    row: I64
    names: Names


class Online:
    """Blames I/O of windows in order, once all beside it is known: LONG_NS after its end."""

    def __init__(self, context: Context, by: str) -> None:
        self._options = BlameOptions((by, by))
        self._company = Company(context, Choice(context), self._options.by, most=MOST_CLASSES)
        self._long = 0
        self._told: Counter[str] = Counter()
        self._learner = Learner(most=None)
        self._bases = Bases(self._learner.stretches)

    def add(self, window: Lifecycles | None) -> tuple[Waits, list[Cells]]:
        """Return what has settled; window None: after the last one."""
        company, waits, each = self._company, Waits(), list[Cells]()
        batch = company.add(window)
        self._long += sum(map(len, company.long))
        company.long.clear()
        if batch is not None:
            bases, ios = self._learn(batch), batch.ios
            asked = np.flatnonzero(ios.chosen)  # all but the recording's own
            known = batch.served.take(batch.served.victim >= 0)
            waited, had = Counter[int](), Counter[tuple[int, int]]()
            count_up(waited, (ios.victim[asked],), ios.complete[asked] - ios.queue[asked])
            count_up(had, (known.victim, known.culprit), known.end - known.issue)
            names = names_of(company.by, self._options, waited, had)
            shares = Shares(company, bases, names)
            slot, weight = work_of(names, bases, batch.served)
            row = looked_up(names.row_of, ios.victim, NEVER)
            for rows, queue, device in others_work(batch, asked, slot, weight, len(names.slots)):
                mine, victim = ios.take(rows), row[rows]
                cells = shares.add(mine, victim, queue, device, np.full(len(rows), NEVER))
                each.append(Cells(mine, cells, victim, names))
            waits.based = shares.based
            for at in np.flatnonzero(shares.ios).tolist():
                waits.rows[names.victims[at]] = shares.row(at)
        counts = company.counts
        numbers = (
            counts.unknown, counts.upper, counts.without_end, self._long, counts.forgotten,
        )  # fmt: skip
        every = Counter(dict(zip(LEFT_OUT, numbers, strict=True)))
        waits.left_out, self._told = every - self._told, every
        return waits, each

    def _learn(self, batch: Batch) -> Bases:
        """Where an I/O's stretch has not ENOUGH yet, the one before stands for it."""
        learner, bases, ios = self._learner, self._bases, batch.ios
        learner.add(batch)
        now = int(ios.queue.max()) // learner.stretches.width
        learner.forget(now - 1)
        for old in [key for key in bases.of_stretch if key[1] < now - 1]:
            del bases.of_stretch[old]
        kinds = distinct_values(ios.kind)[0].tolist()
        learner.update(bases, kinds)
        for kind, part in product(kinds, (QUEUE, DEVICE)):
            if before := bases.of_stretch.get((kind, now - 1, part)):
                bases.of_stretch.setdefault((kind, now, part), before)
        return bases


# Blame over time, for what draws I/O: culprits of the slowest, and how much waits for others.


MOST_SLOW = 256
"""Slowest I/Os of which it is kept who slowed them."""
UNKNOWN = "(unknown)"
MOST_VICTIMS = 8
STEP_NS = 10_000_000
"""Least length of a step of a victim's track; it doubles while there are more than MOST_STEPS."""
MOST_STEPS = 2000


class Timeline:
    """Who slowed the slowest I/Os, and how much waits for others, of windows as they are drawn."""

    def __init__(self, context: Context) -> None:
        self._online = Online(context, OWNER)
        self.slow: dict[int, tuple[int, list[tuple[str, int]]]] = {}
        """Number of a bio, of the MOST_SLOW slowest of lowest devices → Q2C, (culprit, ns), the
        most first."""
        self._steps = Steps(STEP_NS, MOST_STEPS)
        self._waiting: dict[str, Counter[int]] = {}
        """Victim → step → ns that its I/Os waited for others."""

    def waiting(self) -> Iterator[tuple[str, I64, NDArray[np.float64]]]:
        """Yield (victim, times, how many of its I/Os waited for others from then on)."""
        whole = {name: sum(of.values()) for name, of in self._waiting.items()}
        width = self._steps.width
        for name in sorted(nlargest(MOST_VICTIMS, whole, key=lambda one: (whole[one], one))):
            of = {step: ns for step, ns in self._waiting[name].items() if ns > 0}
            # A step without waits ends the one before.
            steps = np.array(sorted({*of, *(step + 1 for step in of)}), np.int64)
            values = np.array([of.get(step, 0) for step in steps.tolist()], np.float64) / width
            if len(steps):
                yield name, steps * width, values

    def add(self, window: Lifecycles | None) -> None:
        """Take in the log's next window; None: after the last one."""
        for one in self._online.add(window)[1]:
            names, ios = one.names, one.ios
            own = names.own[one.row] != 0
            behind = np.where(own, 0, one.cells[:, : len(names.slots)])
            latency = ios.complete - ios.queue
            least = min((ns for ns, _ in self.slow.values()), default=-1)
            full = len(self.slow) >= MOST_SLOW
            for row in np.argsort(-latency, kind="stable")[:MOST_SLOW].tolist():
                if full and latency[row] <= least:
                    break
                who = Counter[str]()
                for slot in np.flatnonzero(behind[row] > 0).tolist():
                    who[names.slots[slot][1]] += int(behind[row, slot])
                if (unknown := int(one.cells[row, -1])) > 0:
                    who[UNKNOWN] += unknown
                self.slow[int(ios.number[row])] = int(latency[row]), who.most_common()
            if len(self.slow) > MOST_SLOW:
                self.slow = dict(nlargest(MOST_SLOW, self.slow.items(), key=lambda io: io[1][0]))
            # The time that each I/O waited for others is spread evenly from its Q to its C.
            ns = behind.sum(axis=1)
            some = (ns != 0) & (ios.complete > ios.queue)
            if not some.any():
                continue
            begin, end, ns, victim = ios.queue[some], ios.complete[some], ns[some], one.row[some]
            grown = self._steps.reach(np.concatenate([begin, end]))
            if grown:
                for name, former in self._waiting.items():
                    fresh = Counter[int]()
                    for step, old in former.items():
                        fresh[step >> grown] += old
                    self._waiting[name] = fresh
            for number in np.unique(victim).tolist():
                mine = victim == number
                into = self._waiting.setdefault(names.victims[number], Counter())
                first, found = _spread(begin[mine], end[mine], ns[mine], self._steps.width)
                for place in np.flatnonzero(found).tolist():
                    into[first + place] += int(found[place])


def _spread(begin: I64, end: I64, ns: I64, width: int) -> tuple[int, I64]:
    """Return (first step, ns of each step from it); what rounding leaves is in the last one."""
    low, high = begin // width, (end - 1) // width
    first = int(low.min())
    found = np.zeros(int(high.max()) - first + 1, np.int64)
    for step in range(int((high - low).max()) + 1):
        some = high - low >= step
        at = low[some] + step
        until = np.minimum(end[some], (at + 1) * width)
        since = np.maximum(begin[some], at * width)
        length = (end - begin)[some]
        upto = ns[some] * ((until - begin[some]) / length)
        before = ns[some] * ((since - begin[some]) / length)
        np.add.at(
            found, at - first, np.rint(upto).astype(np.int64) - np.rint(before).astype(np.int64)
        )
    return first, found
