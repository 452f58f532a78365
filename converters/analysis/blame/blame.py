# SPDX-License-Identifier: Apache-2.0
"""Blame in two passes over a log's windows: bases and who there is; then who waited for whom.

The rule: an I/O's own service is the mean of its class without company, before D and after it
apart. What it took beyond that, or less, is shared by the work that others had with the device
meanwhile. A request's work is the time that its class takes without company.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.blame import share_loops
from biotrail.converters.analysis.blame.bases import (
    BLOCK_NS,
    CALM,
    DEVICE,
    ENOUGH,
    MOST_BLOCKS,
    QUEUE,
    Bases,
    Learner,
    Steps,
)
from biotrail.converters.analysis.blame.calls import CallBlame
from biotrail.converters.analysis.blame.company import (
    Batch,
    Company,
    Ios,
    Served,
    Waiters,
    everybody_recorded,
    others_work,
)
from biotrail.converters.analysis.blame.experiment import RUNNING, Periods, Trial, experiment_of
from biotrail.converters.analysis.blame.parties import Parties
from biotrail.converters.analysis.blame.tree import (
    BASES,
    OTHERS,
    Blamed,
    CallVictim,
    Experiment,
    Kind,
    Part,
    Victim,
    Without,
    parts_of,
)
from biotrail.converters.analysis.choosing.choosing import Choice, matches
from biotrail.converters.analysis.distributions.keys import check_recorded
from biotrail.converters.analysis.distributions.sketch import Distribution, buckets_of, sum_by
from biotrail.converters.analysis.figures import as_row
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values, looked_up
from biotrail.converters.events.tables import FAR, I64, NEVER, OP_MASK, Bool, Lifecycles, Tasks
from biotrail.recorder.schema.errors import ConversionError

if TYPE_CHECKING:
    from biotrail.converters.analysis.distributions.slots import BlameSlots

MOST_VICTIMS = 31
MOST_SLOTS = 15
"""Culprits that are kept apart; where they are named by another dimension than victims, pairs."""
MOST_NAMES = 256
"""Victims, and culprits of a victim, that are kept apart in a stretch of time; the rest: OTHERS."""
MOST_PAIRS = 128
"""Pairs of a victim and a class of which the bootstrap draws."""
TELLING_NS = 30_000
"""I/Os whose class takes less than this without company: what slows them cannot be told."""
ON_CPU = ("loop", "zram", "ram", "pmem")
"""Beginnings of the names of devices that are programs on the CPUs which the loads have."""
_MOST_LISTED = 10
_MOST_WEIGHT = 16_383
_BUCKETS = 48 * 128
"""Buckets of Q2C: `sketch.buckets_of`, from 1 ns."""
_FIRST_BUCKET = int(buckets_of(np.array([1]))[0])


@dataclass(frozen=True)
class BlameOptions:
    by: tuple[str, str]
    """Words of DIMENSIONS, of victims and of culprits."""
    victims: tuple[str, ...] = ()
    """Names, each maybe with * at its end; empty: all."""
    culprits: tuple[str, ...] = ()


@dataclass
class Names:
    """Who is kept apart, as the first pass found them."""

    victims: list[str]
    """Names of the rows; the last one is OTHERS."""
    slots: list[tuple[str, str]]
    row_of: dict[int, int]
    slot_of: dict[tuple[int, int], int]
    own: NDArray[np.uint8]
    """(rows, slots): 1 where the slot is the row's own I/O."""


def names_of(
    by: tuple[Parties, Parties],
    options: BlameOptions,
    waited: Counter[int],
    had: Counter[tuple[int, int]],
    suspects: tuple[str, ...] = (),
) -> Names:
    """Keep those apart who waited, or whose I/O had a device, for longest; `suspects` first.

    waited: code of the victim → ns of the I/Os that are asked for. had: (code of the victim, of the
    culprit) → ns of its I/Os with a device.
    """
    name_of = {code: by[0].name(code) for code in waited}
    waits: Counter[str] = Counter()
    for code, ns in waited.items():
        waits[name_of[code]] += ns
    ranked = sorted(waits, key=lambda name: (-waits[name], name))
    if options.victims:
        _check(options.victims, ranked, "waited", options.by[0])
        ranked = [name for name in ranked if matches(name, options.victims)]
    victims = [*ranked[:MOST_VICTIMS], OTHERS]
    wanted = set(ranked)
    at = {name: row for row, name in enumerate(victims)}
    row_of = {
        code: at.get(name, len(victims) - 1) for code, name in name_of.items() if name in wanted
    }
    of_code = {code: (by[0].name(code[0]), by[1].name(code[1])) for code in had}
    of_pair: Counter[tuple[str, str]] = Counter()
    for pair, ns in had.items():
        of_pair[of_code[pair]] += ns
    if options.culprits:
        names = sorted({name for _, name in of_pair})
        _check(options.culprits, names, "had a device", options.by[1])
    order = sorted(
        of_pair,
        key=lambda pair: (
            not (pair[1] in suspects or matches(pair[1], options.culprits)),
            -of_pair[pair],
            pair,
        ),
    )
    slots = [*order[:MOST_SLOTS], (OTHERS, OTHERS)]
    at_slot = {pair: slot for slot, pair in enumerate(slots)}
    slot_of = {code: at_slot.get(pair, len(slots) - 1) for code, pair in of_code.items()}
    own = np.zeros((len(victims), len(slots)), np.uint8)
    for slot, (name, _) in enumerate(slots[:-1]):
        if name in victims[:-1]:
            own[victims.index(name), slot] = 1
    return Names(victims, slots, row_of, slot_of, own)


def work_of(names: Names, bases: Bases, served: Served) -> tuple[I64, I64]:
    """Return (slot, weight) of requests; unknown pairs of victim and culprit have the last slot."""
    pair = served.victim << 31 | served.culprit
    found, _, place = distinct_values(np.where(served.victim < 0, NEVER, pair))
    rest = len(names.slots) - 1
    of = [names.slot_of.get((one >> 31, one & (1 << 31) - 1), rest) for one in found.tolist()]
    slowest = max((one[DEVICE][0] for one in bases.of_log.values()), default=1)
    unit = max(slowest / _MOST_WEIGHT, 1.0)
    scaled = sorted(one[DEVICE][0] / unit for one in bases.of_log.values()) or [1.0]
    # The median; np.median would import numpy.ma.
    usual = max(int((scaled[(len(scaled) - 1) // 2] + scaled[len(scaled) // 2]) / 2), 1)
    weight = {kind: max(round(one[DEVICE][0] / unit), 1) for kind, one in bases.of_log.items()}
    return np.array(of, np.int64)[place], looked_up(weight, served.kind, usual)


@dataclass
class Row:
    """Time of one victim's I/Os, ns. Cells may be negative."""

    ios: int = 0
    service: int = 0
    own: int = 0
    device: int = 0
    unknown: int = 0
    untold: int = 0
    """Time of I/Os of which it cannot be told who slowed them."""
    behind: Counter[str] = field(default_factory=Counter)

    @property
    def wait_ns(self) -> int:
        return self.service + self.own + self.device + self.unknown + sum(self.behind.values())

    def merge(self, other: "Row") -> None:
        for name in ("ios", "service", "own", "device", "unknown", "untold"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for culprit, ns in other.behind.items():
            kept = culprit in self.behind or len(self.behind) < MOST_NAMES
            self.behind[culprit if kept else OTHERS] += ns

    @property
    def parts(self) -> list[Part]:
        return parts_of(self.service, self.own, self.behind, self.device, self.unknown)


class Shares:
    """I/Os' time, shared by the work beside them, and summed by row of the victim."""

    def __init__(
        self, company: Company, bases: Bases, names: Names, buckets: int = 1, pairs: int = 1
    ) -> None:
        self._company, self._bases, self._names = company, bases, names
        rows, slots = len(names.victims), len(names.slots)
        self.cells = np.zeros((rows + 1, slots + 3), np.int64)
        """(rows + 1, slots + 3) ns: I/O of each slot, own service, device alone, unknown. The last
        row is of I/Os that are not asked for, also of what is below."""
        self.ios = np.zeros(rows + 1, np.int64)
        self.untold = np.zeros(rows + 1, np.int64)
        self.free = np.zeros((rows + 1, slots + 1, buckets), np.int64)
        """(rows + 1, slots + 1, buckets): I/Os by Q2C without work of the slot beside them; last:
        all."""
        self.factors = np.zeros((pairs, slots, 4))
        """(pairs, slots, 4): see `share_loops.share`."""
        self.shared: set[int] = set()
        """Devices that are programs on the same CPUs."""
        self.based = Counter(dict.fromkeys(BASES, 0))
        """Of those asked for: how many bases come from what."""
        self._own = np.concatenate([names.own, np.zeros((1, slots), np.uint8)])

    def add(self, ios: Ios, row: I64, queue: I64, device: I64, pair: I64) -> I64:
        """Share the time of I/Os of one device; return their cells. row, pair: or NEVER."""
        times = np.stack([ios.issue - ios.queue, ios.complete - ios.issue])
        latency = ios.complete - ios.queue
        base, sources = self._bases.of(ios.kind, ios.queue)
        of_source = np.bincount(sources[row >= 0], minlength=len(BASES)).tolist()
        self.based.update(dict(zip(BASES, of_source, strict=True)))
        kinds, _, place = distinct_values(ios.kind)
        both = [self._bases.of_log[kind] for kind in kinds.tolist()]
        slow = [int(sum(ns for ns, _ in one) >= TELLING_NS) for one in both]
        tell = np.array(slow, np.int64)[place]
        if self._company.context.device_name(int(ios.dev[0])).startswith(ON_CPU):
            self.shared.add(int(ios.dev[0]))
            tell[:] = 0
        forgotten = ios.queue < self._company.floor
        self._company.counts.forgotten += int((forgotten & (row >= 0)).sum())
        tell[forgotten] = 0
        row = np.where(row >= 0, row, len(self.ios) - 1)
        bucket = np.clip(buckets_of(latency) - _FIRST_BUCKET, 0, self.free.shape[2] - 1)
        cells = np.zeros((len(ios), self.cells.shape[1]), np.int64)
        share_loops.share_all(
            times[QUEUE], times[DEVICE], base[QUEUE], base[DEVICE], tell, row, pair, bucket,
            np.ascontiguousarray(queue), np.ascontiguousarray(device),
            self._own, cells, self.factors, self.cells, self.free, CALM,
        )  # fmt: skip
        self.ios += np.bincount(row, minlength=len(self.ios))
        self.untold += sum_by(row, np.where(tell == 0, latency, 0), len(self.ios))
        return cells

    def row(self, row: int) -> Row:
        names, cells, own = self._names, self.cells[row], self._own[row].astype(bool)
        slots = len(names.slots)
        service, device, unknown = (int(ns) for ns in cells[slots:])
        found = Row(int(self.ios[row]), service, 0, device, unknown, int(self.untold[row]))
        found.own = int(cells[:slots][own].sum())
        for slot in np.flatnonzero(cells[:slots]).tolist():
            if not own[slot]:
                found.behind[names.slots[slot][1]] += int(cells[slot])
        return found


class First:
    """The first pass: bases, and who there is."""

    def __init__(
        self,
        context: Context,
        choice: Choice,
        options: BlameOptions,
        paused: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Raises ConversionError if the log lacks parties.

        paused: the notes of an experiment, which stand behind what they speak of.
        """
        for by in options.by:
            check_recorded(by, context)
        self.context, self.choice, self.options = context, choice, options
        self.company = Company(context, choice, options.by)
        self.paused = list(paused)
        self.periods = Periods(paused) if paused else None
        """Of the experiment, whose running periods alone are blamed; None: there was none."""
        self.learner = Learner()
        self.waiters = Waiters(self.company.by)
        self.blocks = Steps(BLOCK_NS, MOST_BLOCKS)
        self.waited, self.had = Counter[int](), Counter[tuple[int, int]]()
        """As of `names_of`."""
        self.doing, self.of_class = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        """(code of the culprit, class) → ns with a device, (code of the victim, class) → ns."""
        self.tasks: Tasks | None = None

    @property
    def again(self) -> list[dict[str, Any]] | None:
        """Notes of an experiment with which a new pass has to begin, after this one; None: none."""
        paused = self.context.paused
        return None if paused == self.paused else list(paused)

    def watch(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """Yield all windows, once each was taken in."""
        for window in windows:
            self._use(self.company.add(window))
            self.waiters.add(window)
            self.tasks = window.tasks
            yield window
            del window
        self._use(self.company.add(None))

    def _use(self, batch: Batch | None) -> None:
        if batch is None:
            return
        ios = batch.ios
        self.blocks.reach(ios.queue)
        runs = None if self.periods is None else self.periods.of(ios.queue)[1] == RUNNING
        chosen = ios.take(ios.chosen if runs is None else ios.chosen & runs)
        took, served = chosen.complete - chosen.queue, ios.complete - ios.issue
        count_up(self.waited, (chosen.victim,), took)
        count_up(self.of_class, (chosen.victim, chosen.kind), took)
        count_up(self.had, (ios.victim, ios.culprit), served)
        count_up(self.doing, (ios.culprit, ios.kind), served)
        self.learner.add(batch, runs)


def _experiment(first: First) -> Experiment:
    """Return what is known before the second pass: who the suspect is, as a culprit."""
    by = first.company.by[1]
    its: set[int] = set()
    shared: set[int] = set()
    if by.of_writers and first.tasks is not None:
        pids = {int(pid) for one in first.paused for pid in one.get("pids", [])}
        its, shared = by.suspects(first.tasks, pids, str(first.paused[0].get("cgroup", "")))
    had: Counter[tuple[str, bool]] = Counter()
    for (_, culprit), ns in first.had.items():
        had[by.name(culprit), culprit in its] += ns
    return experiment_of(first.paused, had, {by.name(code) for code in shared}, by.of_writers)


def _check(wanted: tuple[str, ...], names: list[str], did: str, by: str) -> None:
    """Raise ConversionError if one of the names that are asked for is none of the log's."""
    for one in wanted:
        if not any(matches(name, (one,)) for name in names):
            listed = ", ".join(names[:_MOST_LISTED]) or "nobody"
            more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
            raise ConversionError(f"nobody of the name {one} {did} (--by {by}): {listed}{more} did")


def count_up(into: Counter, codes: tuple[I64, ...], ns: I64) -> None:  # type: ignore[type-arg]
    """Add ns to the counter's item of each row's code, or tuple of codes."""
    pair = codes[0] if len(codes) == 1 else codes[0] << 31 | codes[1]
    found, _, place = distinct_values(pair)
    sums = sum_by(place, ns, len(found))
    for code, total in zip(found.tolist(), sums.tolist(), strict=True):
        into[code if len(codes) == 1 else (code >> 31, code & (1 << 31) - 1)] += total


@dataclass
class Course:
    """Sums by slot of time, of I/Os that ended in it."""

    origin: int
    """ns where the first slot begins, which also has what ended before."""
    width: int
    slots: int
    """The last one also has what ended later."""
    cells: I64 = field(default_factory=lambda: np.zeros((0, 0, 0), np.int64))
    """(slots, rows + 1, slots of culprits + 3): as Shares.cells."""
    ios: I64 = field(default_factory=lambda: np.zeros((0, 0), np.int64))


class Second:
    """The second pass: who waited for whom."""

    def __init__(
        self, context: Context, choice: Choice, first: First, course: Course | None = None
    ) -> None:
        """first: the first pass, over all windows."""
        self.context, self.options, self.blocks = context, first.options, first.blocks
        self.experiment = None if first.periods is None else _experiment(first)
        suspects = self.experiment.parties if self.experiment else ()
        by, learner = first.company.by, first.learner
        self.names = names_of(by, self.options, first.waited, first.had, suspects)
        self.bases = Bases(learner.stretches)
        learner.update(self.bases, learner.every)
        of_row = Counter[tuple[int, int]]()
        for (victim, kind), ns in first.of_class.items():
            row = self.names.row_of.get(victim, NEVER)
            if row >= 0:
                of_row[row, kind] += ns
        self.pairs = sorted(of_row, key=lambda pair: (-of_row[pair], pair))[:MOST_PAIRS]
        """(row of the victim, class) of which the bootstrap draws."""
        self.doing: dict[str, Counter[int]] = {}
        """Culprit → class → ns with a device."""
        for (culprit, kind), ns in first.doing.items():
            self.doing.setdefault(by[1].name(culprit), Counter())[kind] += ns
        long = Served.concatenate(first.company.long or [Served.none()])
        self.company = Company(context, choice, self.options.by, long, first.waiters.close())
        self.sums = Shares(
            self.company, self.bases, self.names, _BUCKETS, MOST_BLOCKS * max(len(self.pairs), 1)
        )
        """`factors` are by block and pair: (blocks * pairs, slots, 4)."""
        rows, classes = len(self.sums.ios), max(self.bases.of_log, default=-1) + 1
        self.block_ios, self.block_ns = np.zeros((2, MOST_BLOCKS, rows), np.int64)
        self.block_bases = np.zeros((MOST_BLOCKS, classes, 2, 2), np.int64)
        """(blocks, classes, 2 parts, 2): number and ns of what counts for bases."""
        self.course = course
        if course is not None:
            course.cells = np.zeros((course.slots, *self.sums.cells.shape), np.int64)
            course.ios = np.zeros((course.slots, rows), np.int64)
        self._pair_of = {row << 31 | kind: place for place, (row, kind) in enumerate(self.pairs)}
        self.trial = None if first.periods is None else Trial(first.periods, rows)
        self.calls: CallBlame | None = None
        """None: the log has no timed calls, or I/Os are chosen by what calls do not have."""
        victims, whole = by[0], choice.all or choice.by_thread_alone
        if "time" in context.path_parts and whole and victims.of_writers:
            self.calls = CallBlame(context, self.company.by[0], len(self.names.slots), self.trial)

    def watch(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """Yield all windows, once each was taken in."""
        for window in windows:
            if self.calls is not None:
                self.company.needed = self.calls.add(window)
            self._use(self.company.add(window))
            yield window
            del window
        self._use(self.company.add(None))

    def _use(self, batch: Batch | None) -> None:
        if batch is None:
            return
        ios, names = batch.ios, self.names
        slot, weight = work_of(names, self.bases, batch.served)
        row = looked_up(names.row_of, ios.victim, NEVER)
        row[~ios.chosen] = NEVER
        runs = np.ones(len(ios), np.bool_)
        if self.trial is not None:
            runs = self.trial.add_ios(ios.queue, row, ios.complete - ios.queue)
            row[~runs] = NEVER
        # Calls wait for I/O of all, also for what began while the suspect stood.
        rows = np.flatnonzero(runs) if self.calls is None else np.arange(len(ios))
        for mine, queue, device in others_work(batch, rows, slot, weight, len(names.slots)):
            self._share(ios.take(mine), row[mine], runs[mine], queue, device)
        if self.calls is not None:
            self.calls.settle(batch.until, batch, slot, weight)

    def _share(self, ios: Ios, row: I64, runs: Bool, queue: I64, device: I64) -> None:
        """row: of the victims; runs: whether I/Os count for bases; queue, device: others' work."""
        sums, bases, blocks = self.sums, self.bases, self.blocks
        times = np.stack([ios.issue - ios.queue, ios.complete - ios.issue])
        block = ios.queue // blocks.width - blocks.first // blocks.width
        alone = np.stack([(queue <= 0).all(axis=1), (device <= 0).all(axis=1)])
        counted = bases.counts(ios.kind, times, alone & runs)
        shape = MOST_BLOCKS, self.block_bases.shape[1]
        for part in (QUEUE, DEVICE):
            at = (block * shape[1] + ios.kind)[counted[part]]
            many = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape)
            self.block_bases[:, :, part, 0] += many
            ns = sum_by(at, times[part][counted[part]], shape[0] * shape[1])
            self.block_bases[:, :, part, 1] += ns.reshape(shape)
        if self.calls is None and (row < 0).any():  # calls wait for I/O of all
            mine = np.flatnonzero(row >= 0)
            ios, row, block = ios.take(mine), row[mine], block[mine]
            queue, device = queue[mine], device[mine]
        if not len(ios):
            return
        victim = np.where(row >= 0, row, len(sums.ios) - 1)
        pair = looked_up(self._pair_of, victim << 31 | ios.kind, NEVER)
        pair = np.where(pair >= 0, block * max(len(self.pairs), 1) + pair, NEVER)
        cells = sums.add(ios, row, queue, device, pair)
        at, shape = block * len(sums.ios) + victim, self.block_ios.shape
        self.block_ios += np.bincount(at, minlength=self.block_ios.size).reshape(shape)
        ns = sum_by(at, ios.complete - ios.queue, self.block_ns.size)
        self.block_ns += ns.reshape(shape)
        if (course := self.course) is not None:
            slot = np.clip((ios.complete - course.origin) // course.width, 0, course.slots - 1)
            found, _, place = distinct_values(slot * len(sums.ios) + victim)
            into = course.cells.reshape(-1, course.cells.shape[2])
            added = np.zeros((len(found), into.shape[1]), np.int64)
            share_loops.add_rows(place, cells, added)
            into[found] += added
            course.ios.reshape(-1)[found] += np.bincount(place, minlength=len(found))
        if self.calls is not None:
            self.calls.add_cells(ios, cells)


def distribution(counts: I64) -> Distribution:
    seen = np.flatnonzero(counts)
    return Distribution.of_rows(0, 0, FAR, seen + _FIRST_BUCKET, counts[seen])


# From sums to what is told: parts of each victim's time, and what would be without a culprit.


TELLING_SHARE = 0.01
"""Share of a victim's time from which it is told what would be without the culprit."""
MAINLY = 2 / 3
"""Share of all blame from which a culprit's tail can be told apart from others'."""
ENOUGH_FREE = 300
"""I/Os without the culprit's beside them that a 99th percentile needs."""
_SURE = 0.9
"""Share of the blame that has to rest on bases of ENOUGH I/Os."""
_DRAWS = 400
_LEAST_BLOCKS = 8
_SEED = 1


def close(second: Second) -> Blamed:
    sums, counts = second.sums, second.company.counts
    drawn = _Draws(second)
    others = len(second.names.victims) - 1
    order = np.argsort(-sums.cells.sum(axis=1)[:others], kind="stable").tolist()
    rows = [row for row in [*order, others] if sums.ios[row]]
    victims = [_victim(second, drawn, row) for row in rows]
    wanted = second.options.victims
    calls: list[CallVictim] = []
    if second.calls is not None:
        second.calls.settle(FAR, None, np.zeros(0, np.int64), np.zeros(0, np.int64))
        calls = second.calls.close(
            second.names.slots, lambda name: not wanted or matches(name, wanted)
        )
    if second.trial is not None and second.experiment is not None:
        of_rows = [one for one in zip(rows, victims, strict=True) if one[0] != others]
        name_of = (lambda *_: ("", "")) if second.calls is None else second.calls.names
        second.trial.close(second.experiment, of_rows, calls, name_of)
    context = second.context
    return as_row(
        Blamed,
        counts,
        victim_by=second.options.by[0],
        culprit_by=second.options.by[1],
        victims=victims,
        calls=calls,
        named=everybody_recorded(context),
        stretch_ns=second.bases.stretches.width,
        based=dict(sums.based),
        shared=sorted(context.device_name(dev) for dev in sums.shared),
        experiment=second.experiment,
    )


def _victim(second: Second, drawn: "_Draws", row: int) -> Victim:
    names, waited = second.names, second.sums.row(row)
    own = names.own[row].astype(bool)
    free = second.sums.free[row]
    found = as_row(
        Victim,
        waited,
        name=names.victims[row],
        p99_ns=distribution(free[-1]).percentiles([0.99])[0],
        without=[],
        small_ns=waited.untold,
    )
    keys = {number: key for key, number in second.company.classes.items()}
    blame = sum(max(ns, 0) for ns in waited.behind.values())
    for culprit, ns in sorted(waited.behind.items(), key=lambda one: (-one[1], one[0])):
        if culprit == OTHERS or ns < TELLING_SHARE * found.wait_ns or ns <= 0:
            continue
        slots = [
            slot for slot, (_, name) in enumerate(names.slots) if name == culprit and not own[slot]
        ]
        ops: Counter[str] = Counter()
        for kind, spent in second.doing.get(culprit, Counter()).items():
            ops[second.context.op_name(keys[kind] >> 8 & OP_MASK)] += spent
        found.doing[culprit] = max(ops, key=lambda name: (ops[name], name), default="I/O")
        without = drawn.without(row, culprit, slots, ns)
        if without is not None:
            mainly = ns >= MAINLY * blame and len(slots) == 1
            rest = distribution(free[slots[0]])
            if mainly and rest.count >= ENOUGH_FREE:
                without.p99_ns = rest.percentiles([0.99])[0]
            found.without.append(without)
    return found


def by_slot(second: Second, course: Course) -> "BlameSlots":
    """A part whose sum over all slots is negative is the device's, or own service, in each slot."""
    from biotrail.converters.analysis.distributions.slots import BlameSlots

    names = second.names
    found = BlameSlots(second.options.by[0])
    for row, victim in enumerate(names.victims):
        cells, ios = course.cells[:, row], course.ios[:, row]
        if not ios.any():
            continue
        slots, own = len(names.slots), names.own[row].astype(bool)
        parts = {str(Kind.OWN): cells[:, :slots][:, own].sum(axis=1)}
        for slot, (_, culprit) in enumerate(names.slots):
            if not own[slot]:
                part = f"behind {culprit}"
                parts[part] = parts.get(part, 0) + cells[:, slot]
        parts[Kind.UNKNOWN] = cells[:, slots + 2]
        device, service = cells[:, slots + 1], cells[:, slots]
        for part in [part for part, ns in parts.items() if ns.sum() < 0]:
            device = device + parts.pop(part)
        if device.sum() < 0:
            device, service = np.zeros_like(device), service + device
        parts |= {Kind.DEVICE: device, Kind.SERVICE: service}
        found.ios[victim] = dict(enumerate(ios.tolist()))
        for part, ns in parts.items():
            if ns.any():
                found.waits[victim, str(part)] = dict(enumerate(ns.tolist()))
    return found


class _Draws:
    def __init__(self, second: Second) -> None:
        bases = second.bases
        self._second = second
        has_io = second.block_ios.any(axis=1) | second.block_bases.any(axis=(1, 2, 3))
        self._blocks = np.flatnonzero(has_io)
        count = len(self._blocks)
        self.enough = count >= _LEAST_BLOCKS
        self._pairs = max(len(second.pairs), 1)
        draws = np.random.default_rng(_SEED)
        times = draws.multinomial(count, np.full(max(count, 1), 1 / max(count, 1)), size=_DRAWS)
        self._times = times.astype(np.float64) if self.enough else np.zeros((0, count))
        width = second.blocks.width
        begin = (self._blocks + second.blocks.first // width) * width
        stretch = begin // bases.stretches.width
        stretches, stretch_of = np.unique(stretch, return_inverse=True)
        self._bases: dict[int, NDArray[np.float64]] = {}
        """Class → (draws, blocks, 2 parts), ns."""
        for kind in {kind for _, kind in second.pairs}:
            given = second.block_bases[self._blocks, kind].astype(np.float64)
            found = np.empty((len(self._times), count, 2))
            for part in (QUEUE, DEVICE):
                number, ns = self._times @ given[:, part, 0], self._times @ given[:, part, 1]
                base = bases.of_log[kind][part][0]
                whole = np.where(number > 0, ns / np.maximum(number, 1), base)
                found[:, :, part] = whole[:, None]
                for place, step in enumerate(stretches.tolist()):
                    if (kind, step, part) in bases.of_stretch:
                        mine = stretch_of.reshape(-1) == place
                        number = self._times[:, mine] @ given[mine, part, 0]
                        ns = self._times[:, mine] @ given[mine, part, 1]
                        here = np.where(number > 0, ns / np.maximum(number, 1), whole)
                        found[:, mine, part] = here[:, None]
            self._bases[kind] = found

    def without(self, row: int, culprit: str, slots: list[int], wait_ns: int) -> Without | None:
        """None: too few were without company. wait_ns: waited behind the culprit's I/O."""
        second = self._second
        sums, bases = second.sums, second.bases
        shape = (-1, self._pairs, *sums.factors.shape[1:])
        factors = sums.factors.reshape(shape)[self._blocks][:, :, slots].sum(axis=2)
        blamed = np.zeros(len(self._times))
        by_class: dict[int, float] = {}
        for place, (victim, kind) in enumerate(second.pairs):
            if victim != row:
                continue
            mine = factors[:, place]  # (blocks, 4)
            by_class[kind] = by_class.get(kind, 0.0) + float(mine[:, (0, 2)].sum())
            if self.enough and mine.any():
                base = self._bases[kind]
                for part in (QUEUE, DEVICE):
                    whole = self._times @ mine[:, 2 * part]
                    usual = np.einsum("db,db,b->d", self._times, base[:, :, part],
                                      mine[:, 2 * part + 1])  # fmt: skip
                    blamed += whole - usual
        total = sum(by_class.values())
        # I/Os without company that a class's bases rest on, of the lesser part.
        alone = {kind: min(count for _, count in bases.of_log[kind]) for kind in by_class}
        sure = {kind: ns for kind, ns in by_class.items() if alone[kind] >= ENOUGH}
        if not total or sum(sure.values()) < _SURE * total:
            return None
        ios, waited = int(sums.ios[row]), int(sums.cells[row].sum())
        between = None  # the 95 % interval of the mean without what is blamed
        if self.enough and np.count_nonzero(second.block_ios[:, row]) >= _LEAST_BLOCKS:
            drawn = self._times @ second.block_ios[self._blocks, row]
            means = self._times @ second.block_ns[self._blocks, row] - blamed
            means = means[drawn > 0] / drawn[drawn > 0]
            low, high = np.quantile(means, [0.025, 0.975]).tolist()
            between = max(low, 0.0), max(high, 0.0)
        rests = min(alone[kind] for kind, ns in sure.items() if ns >= 0.1 * total)
        return Without(
            culprit=culprit,
            mean_ns=(waited - wait_ns) / ios,
            between_ns=between,
            p99_ns=None,
            rests_on=rests,
        )
