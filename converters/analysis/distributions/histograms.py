# SPDX-License-Identifier: Apache-2.0
"""Histograms of latency, size or queue depth, by device and operation, in one pass."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from biotrail.converters.analysis.choosing.choosing import (
    Choice,
    chosen_pairs,
    failed_nowait,
)
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct, names_of
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    STAGE_NAMES,
    U32,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
)
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.windows import first_seen, last_seen
from biotrail.converters.sites.pair_names import PairNames

# Memory is bounded by the number of buckets and columns.

MOST_BUCKETS = 1024
"""Linear buckets: the last bucket has no upper bound and takes all larger values."""
MOST_COLUMNS = 512
FIRST_COLUMN_NS = 1_000_000


@dataclass(frozen=True)
class Scale:
    """Buckets of a histogram: log2 as in bcc (0 to 1, 2 to 3, 4 to 7, …) or linear."""

    step: int = 0
    """Width of linear buckets in the values' unit; 0: log2 buckets."""

    def slots(self, values: I64) -> I64:
        """Return the bucket of each value: value // step, or the index of its highest bit."""
        if self.step:
            return np.minimum(values // self.step, MOST_BUCKETS - 1)
        # frexp is exact up to 2^53: more than a year in ns.
        slots: I64 = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, 0).astype(np.int64)
        return slots

    def bounds(self, slot: int) -> tuple[int, int | None]:
        """Return (first, last) value of a bucket; last is None for the last linear bucket."""
        if self.step:
            first = slot * self.step
            return first, None if slot == MOST_BUCKETS - 1 else first + self.step - 1
        return (1 << slot if slot else 0), (2 << slot) - 1


@dataclass
class Histogram:
    """Values of one device and operation, or of one pair, by bucket, and by column of time."""

    scale: Scale
    unit: int = 1
    """ns, bytes or I/Os in one unit of the scale (1000: µs); values are rounded down to units."""
    counts: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    total: int = 0
    """Sum of the values, in units."""
    cells: U32 = field(default_factory=lambda: np.zeros((0, MOST_COLUMNS), dtype=np.uint32))
    """Bucket, column → values: the heat map."""
    values: Distribution = field(default_factory=Distribution)
    """The same values in finer buckets, for percentiles; in ns, bytes or I/Os, not in units."""
    bytes: int = 0
    doubtful: Distribution = field(default_factory=Distribution)
    """Values (ns) in doubt (`Bios.doubtful`), which are nowhere else."""

    @property
    def maximum(self) -> int:
        return self.values.max // self.unit

    def add(self, exact: I64, columns: I64 | None = None) -> None:
        """columns: of a heat map, at which times the values were; None: there is none."""
        if not len(exact):
            return
        self.values.add(exact)
        values = exact // self.unit
        self.total += int(values.sum())
        slots = self.scale.slots(values)
        size = int(slots.max()) + 1
        if size > len(self.counts):
            self.counts = np.pad(self.counts, (0, size - len(self.counts)))
        self.counts += np.bincount(slots, minlength=len(self.counts))
        if columns is not None:
            if size > len(self.cells):
                self.cells = np.pad(self.cells, ((0, size - len(self.cells)), (0, 0)))
            np.add.at(self.cells, (slots, columns), 1)

    def merge_columns(self, together: int) -> None:
        size = self.cells.shape[0]
        merged = self.cells.reshape(size, MOST_COLUMNS // together, together).sum(axis=2)
        self.cells = np.zeros_like(self.cells)
        self.cells[:, : merged.shape[1]] = merged


@dataclass
class Columns:
    """At most MOST_COLUMNS columns of time of one width, which doubles as the log goes on."""

    origin: int
    width: int = FIRST_COLUMN_NS
    used: int = 0
    """Columns up to the last one that has a time."""

    def of(self, times: I64) -> tuple[I64, int]:
        """Return (columns, how many former columns make one, which can exceed MOST_COLUMNS)."""
        last = int(times.max()) - self.origin
        merged = 1
        while last // (self.width * merged) >= MOST_COLUMNS:
            merged *= 2
        self.width *= merged
        columns = np.maximum((times - self.origin) // self.width, 0)
        self.used = max(-(-self.used // merged), int(columns.max()) + 1)
        return columns, merged


Q2C = "Q2C"
STAGES = [Q2C, *STAGE_NAMES.values()]
_BY_NAME = {name: stage for stage, name in STAGE_NAMES.items()}
FOREVER = np.iinfo(np.int64).max


class Measure(StrEnum):
    """What each I/O is measured by: ns, bytes, or I/Os in flight when it was queued."""

    LATENCY = "latency"
    SIZE = "size"
    DEPTH = "depth"
    PAIRS = "pairs"
    """Pairs of events instead of I/O: ns from the first event to the second."""


MOST_PAIR_GROUPS = 1_000
"""Pairs and values of --by that have histograms of their own; others share one for each pair."""
OTHER_VALUES = "(others)"


@dataclass(frozen=True)
class Question:
    measure: Measure = Measure.LATENCY
    stage: str = Q2C
    unit: int = 1
    """As in Histogram."""
    scale: Scale = field(default_factory=Scale)
    over_time: bool = False


@dataclass
class Histograms:
    """Histograms of one question's values; `add` takes `Trace.lifecycles`' windows in order."""

    context: Context
    choice: Choice
    question: Question
    groups: dict[tuple[int, str], Histogram] = field(default_factory=dict)
    """(dev_t, operation) → values; of pairs: (pair, value of --by as text, "" without)."""
    left_out: int = 0
    """Chosen bios whose value is not known, because Q or C (for depth: Q) is not in the log."""
    without: int = 0
    """Chosen bios that do not have the stage."""
    tries: int = 0
    """Failed NOWAIT attempts, left out of latencies and sizes."""
    devices: set[int] = field(default_factory=set)
    """dev_t of all devices with bios, chosen or not."""
    columns: Columns | None = None
    """Columns of the heat maps; None before the first window."""

    def add(self, window: Lifecycles) -> None:
        """Depths are of each bio queued in the window, by all bios then in flight on its device.

        A heat map's column is that of the completion, for sizes and depths of Q. Failed NOWAIT
        attempts are only counted in `tries`, except for depths, to which they belong.
        """
        if self.columns is None:
            self.columns = Columns(max(window.begin, 0))
        if self.question.measure == Measure.PAIRS:
            self._pairs(window)
            return
        self.devices.update(names_of(window.bios.dev).tolist())
        if self.question.measure == Measure.DEPTH:
            self._depths(window)
            return
        bios = window.bios
        chosen = self.choice.mask(bios, window.tasks)
        tried = chosen & failed_nowait(self.context, bios)
        self.tries += int(tried.sum())
        chosen &= ~tried
        if self.question.measure == Measure.SIZE:
            self._count(bios, bios.bytes.astype(np.int64), bios.queue, chosen)
            return
        known = (bios.queue != NEVER) & (bios.complete != NEVER)
        values, present = bios.complete - bios.queue, np.ones(len(bios), np.bool_)
        if self.question.stage != Q2C:
            stages = window.bio_stages
            stages = stages.take(stages.stage == _BY_NAME[self.question.stage])
            row = np.searchsorted(bios.number, stages.owner)
            values = np.zeros(len(bios), np.int64)
            np.add.at(values, row, stages.end - stages.start)
            # A bio without Q or C may have had the stage: it counts as left out, not as without.
            present = ~known
            present[row] = True
        self.left_out += int((chosen & present & ~known).sum())
        self.without += int((chosen & ~present).sum())
        counted = chosen & present & known
        self._count(bios, values, bios.complete, counted & ~bios.doubtful)
        doubtful = np.flatnonzero(counted & bios.doubtful)
        for group, rows_of in self._by_group(bios.take(doubtful)):
            group.doubtful.add(np.maximum(values[doubtful][rows_of], 0))

    def _pairs(self, window: Lifecycles) -> None:
        if window.sites is None or not len(window.sites.pairs):
            return
        chosen = chosen_pairs(window.sites.pairs, window.tasks, self.choice)
        pairs = window.sites.pairs.take(chosen)
        if not len(pairs):
            return
        found, of = distinct(pairs.pair, pairs.by)
        columns = self._columns(pairs.ended) if self.question.over_time else None
        keys: dict[tuple[int, str], int] = {}
        codes = []
        for pair, value in found:
            key = pair, self.pair_names.by(pair, value)
            if key not in self.groups and len(self.groups) >= MOST_PAIR_GROUPS:
                key = pair, OTHER_VALUES
            self._group(*key)
            codes.append(keys.setdefault(key, len(keys)))
        code = np.array(codes, dtype=np.int64)[of]
        order = np.argsort(code, kind="stable")
        ends = np.cumsum(np.bincount(code, minlength=len(keys)))
        for key, rows in zip(keys, np.split(order, ends[:-1]), strict=True):
            at = None if columns is None else columns[rows]
            self._group(*key).add(pairs.latency[rows], at)

    @cached_property
    def pair_names(self) -> PairNames:
        return PairNames(self.context)

    def _depths(self, window: Lifecycles) -> None:
        """Bios without a Q in the log count in `left_out`, in the window of their end."""
        tables = [window.bios, window.open_bios]
        bios = Bios.concatenate(tables)
        queued = (bios.queue >= window.begin) & (bios.queue < window.end)
        chosen = self.choice.mask(bios, window.tasks)
        over = np.arange(len(bios)) < len(window.bios)
        self.left_out += int((chosen & over & (bios.queue == NEVER)).sum())
        # In flight is from the first known time (Q, or a later event) to the completion. Without a
        # completion: to the last known time if its certainty is LOST, else for ever.
        begun = first_seen(bios)
        begun = np.where(begun == NEVER, FOREVER, begun)
        lost = (bios.complete == NEVER) & (bios.certainty == Certainty.LOST)
        ended = np.where(lost, last_seen(bios), bios.complete)
        ended = np.where(ended == NEVER, FOREVER, ended)
        depth = np.zeros(len(bios), dtype=np.int64)
        for dev in names_of(bios.dev).tolist():
            here = np.flatnonzero(bios.dev == dev)
            asked = here[queued[here]]
            # Bios that began at that very time count, bios that ended then do not.
            came, went = (
                np.searchsorted(np.sort(of[here]), bios.queue[asked], side="right")
                for of in (begun, ended)
            )
            depth[asked] = came - went
        self._count(bios, depth, bios.queue, queued & chosen)

    def _count(self, bios: Bios, values: I64, times: I64, rows: Bool) -> None:
        """values: below 0 counts as 0. times: ns, which choose the heat map's column."""
        at = np.flatnonzero(rows)
        if not len(at):
            return
        exact = np.maximum(values[at], 0)
        columns = self._columns(times[at]) if self.question.over_time else None
        for group, rows_of in self._by_group(bios.take(at)):
            group.add(exact[rows_of], None if columns is None else columns[rows_of])
            group.bytes += int(bios.bytes[at][rows_of].sum(dtype=np.int64))

    def _by_group(self, bios: Bios) -> Iterator[tuple[Histogram, Bool]]:
        codes, names = operations(self.context, bios.opf, bios.bytes)
        for device in names_of(bios.dev).tolist():
            for code in names_of(codes[bios.dev == device]).tolist():
                yield self._group(device, names[code]), (bios.dev == device) & (codes == code)

    def _group(self, device: int, operation: str) -> Histogram:
        new = Histogram(self.question.scale, self.question.unit)
        return self.groups.setdefault((device, operation), new)

    def _columns(self, times: I64) -> I64:
        assert self.columns is not None
        columns, merged = self.columns.of(times)
        if merged > 1:
            for group in self.groups.values():
                group.merge_columns(min(merged, MOST_COLUMNS))
        return columns
