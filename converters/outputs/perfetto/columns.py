# SPDX-License-Identifier: Apache-2.0
"""Slices of one category as columns: times, names, arguments, stages."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.calls.keys import rows_among
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.tables import (
    I64,
    U16,
    U64,
    Bool,
    Stage,
    Stages,
)
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.names import (
    ARGUMENT_IIDS,
    STAGE_IIDS,
    Detail,
)

Unsigned = NDArray[np.unsignedinteger[Any]]
"""An array of any unsigned dtype."""
_UINT, INT, BOOL, STRING = 0x18, 0x20, 0x10, 0x88
"""First byte of the tag of a value's field in DebugAnnotation."""
FOREVER = np.iinfo(np.int64).max
"""The end of a slice whose end is not known yet."""
_STAGE_NAMES = np.array([STAGE_IIDS[stage] for stage in Stage], dtype=np.uint16)
"""Interned name of each stage."""


@dataclass
class Column:
    """One argument of every slice, or of the slices at `at`."""

    iid: int
    """Interned id of the argument's name."""
    tag: int
    """_UINT, INT, BOOL or STRING."""
    values: Unsigned
    """Per slice that has it: its value, or with tag STRING the id of an interned string."""
    at: I64 | None
    """Indices of the slices that have the argument, ascending; None: all have it."""


@dataclass
class StageColumns:
    """Stages that take time, and marks, ordered by slice, then by time."""

    count: I64
    """Per slice: how many it has."""
    name: U16
    """Per stage: interned id of its name."""
    start: I64
    """Per stage: ns."""
    end: I64
    flow: U64 | None = None
    """Per stage: id of its flow, 0: it has none; None: no stage has one."""


def stages_in_turn(names: NDArray[Any], begun: I64, ended: I64, where: Bool) -> StageColumns:
    """Return stages, in order of time, that are in `where` (n, k) and take time.

    names: (k,). begun, ended: ns, (n, k).
    """
    shown = where & (ended > begun)
    name = np.broadcast_to(names.astype(np.uint16), shown.shape)[shown]
    return StageColumns(shown.sum(axis=1), name, begun[shown], ended[shown])


@dataclass
class Flows:
    """Ids of the flows that slices have, ordered by slice."""

    count: I64
    """Per slice: how many it has."""
    id: U64
    """Per slice and flow: the flow's id."""


@dataclass
class Slices:
    """A window's slices of one category. Shape (n,) each; times in ns."""

    category: str
    group: I64
    """What the lane belongs to: the disk's dev_t, a thread, a process, …; 0 for loss windows."""
    start: I64
    end: I64
    """FOREVER: open to the trace's end."""
    name: U64
    """Id of the interned event name."""
    number: I64
    """The bio's or request's number; of other slices the index."""
    rows: I64
    """Index of each slice's row in the table that the slices were made from."""
    family: U64 | None = None
    """Correlation ids; None: no slice has one."""
    in_family: Bool | None = None
    """Which slices have a correlation id; None: all of them."""
    callstack: U64 | None = None
    """Ids of call stacks, 0: the slice has none; None: no slice has one."""
    columns: list[Column] = field(default_factory=list)
    stages: StageColumns | None = None
    flows: Flows | None = None
    """None: no slice has a flow."""

    @classmethod
    def of_rows(
        cls, category: str, group: NDArray[Any], start: I64, end: I64, name: NDArray[Any]
    ) -> "Slices":
        """Return slices of which none is in flight, one for each row of a table."""
        rows, names = np.arange(len(start)), name.astype(np.uint64)
        return cls(category, group.astype(np.int64), start, end, names, rows, rows)

    @classmethod
    def none(cls, category: str) -> "Slices":
        none = np.zeros(0, dtype=np.int64)
        return cls.of_rows(category, none, none, none, none)

    def __len__(self) -> int:
        return len(self.number)

    def put(
        self, name: str, values: NDArray[Any], where: Bool | None = None, tag: int = _UINT
    ) -> None:
        """Append an argument, one of ARGUMENTS, if any slice has it.

        values: per slice (n,); as _UINT only those outside of `where` may be negative.
        """
        if where is not None and not where.any():
            return
        at = None if where is None or where.all() else np.flatnonzero(where)
        values = values if at is None else values[at]
        given = values if values.dtype.kind == "u" else values.astype(np.uint64)
        self.columns.append(Column(ARGUMENT_IIDS[name], tag, given, at))

    def text(self, name: str, ids: U64, where: Bool | None = None) -> None:
        """Append an interned string argument; a slice with id 0, or not in `where`, has none."""
        shown = ids > 0 if where is None else where & (ids > 0)
        self.put(name, ids, None if shown.all() else shown, STRING)

    def mark(self, row: I64, at: I64, flow: U64, name: int) -> None:
        """Put marks among the stages: slices of no length, from which an arrow of `flow` leads on.

        The UI draws an arrow from the end of its source: what begins within a slice needs one that
        ends before. row: per mark (m,), its slice. at: ns; a mark within a stage is moved to its
        begin.
        """
        if not len(row):
            return
        stages = self.stages or StageColumns(
            np.zeros(len(self), dtype=np.int64), *(np.zeros(0, t) for t in (np.uint16, "i8", "i8"))
        )
        at = np.clip(at, self.start[row], self.end[row])
        place = np.empty(len(row), dtype=np.int64)
        first = firsts(stages.count)
        given = row, first, stages.count, stages.start, stages.end
        loops.place_marks(*[*map(np.ascontiguousarray, given), at, place])
        order = np.lexsort((at, row))
        at, place = at[order], place[order]
        of_stages = np.zeros(len(stages.name), np.uint64) if stages.flow is None else stages.flow
        self.stages = StageColumns(
            count=stages.count + np.bincount(row, minlength=len(self)),
            name=np.insert(stages.name, place, np.uint16(name)),
            start=np.insert(stages.start, place, at),
            end=np.insert(stages.end, place, at),
            flow=np.insert(of_stages, place, flow[order]),
        )

    def part(self, at: I64) -> "Slices":
        """Return the slices at `at`, without arguments, stages, flows and call stacks."""
        group, start, end, name = self.group[at], self.start[at], self.end[at], self.name[at]
        return Slices(self.category, group, start, end, name, self.number[at], self.rows[at])

    def adopt(self, part: "Slices", at: I64) -> None:
        """Take over the arguments, and stages if any, of `part`: the slices at `at` (ascending)."""
        if part.stages is not None:
            count = np.zeros(len(self), dtype=np.int64)
            count[at] = part.stages.count
            self.stages = replace(part.stages, count=count)
        for column in part.columns:
            here = at if column.at is None else at[column.at]
            self.columns.append(replace(column, at=here))


def firsts(count: I64) -> I64:
    """Return where each slice's rows begin, of rows that are ordered by slice."""
    return np.cumsum(count) - count


def rows_of_owners(number: I64, owner: I64) -> I64:
    """Return per owner (n,) its row in `number` (distinct), -1: it has none."""
    rows = np.empty(len(owner), dtype=np.int64)
    if loops.rows_of(np.ascontiguousarray(number), np.ascontiguousarray(owner), rows) >= 0:
        return rows
    row, known = rows_among(number, owner)
    return np.where(known, row, -1)


def add_stages(slices: Slices, stages: Stages) -> None:
    """Set `slices.stages` to those of `stages` that are theirs and take time, clipped to them."""
    if not len(slices) or not len(stages.owner):
        return
    rows = rows_of_owners(slices.number, stages.owner)
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        rows, stages = rows[order], stages.take(order)
    count = np.zeros(len(slices), dtype=np.int64)
    name = np.empty(len(rows), dtype=np.uint16)
    start, end = np.empty((2, len(rows)), dtype=np.int64)
    kinds = _STAGE_NAMES[stages.stage]
    given = [rows, stages.start, stages.end, kinds, slices.start, slices.end]
    kept = loops.lay(*[*map(np.ascontiguousarray, given), count, name, start, end])
    slices.stages = StageColumns(count, name[:kept], start[:kept], end[:kept])


# Choose what is drawn with all arguments: the slowest of each device and operation, or call.
#
# Windows are drawn as they come, before the slowest of the whole log are known. So an I/O is chosen
# if it is among the slowest up to its window: all that are among the slowest of the whole trace are
# chosen, and some of early windows that later ones outdo.

DETAILED = 500
"""I/Os of each device and operation that have all arguments."""


@dataclass
class Ranking:
    """The latencies of the slowest bios, or requests, so far, by device, operation and result."""

    most: int = DETAILED
    """I/Os that are kept of each device and operation, and as many that are ranked apart."""
    _kept: dict[int, I64] = field(default_factory=dict)
    """Key (dev_t, interned name, apart) → the longest latencies so far, ns, at most `most`."""

    def choose(self, slices: Slices, apart: Bool, *, together: bool = False) -> I64:
        """Return the indices of those slices that are among the slowest so far, ascending.

        apart: per slice (n,), whether it is ranked apart from the others: it failed, or its latency
        is in doubt. together: rank all groups as one.
        """
        group = slices.group * (not together)
        key = (group << 17) | (slices.name.astype(np.int64) << 1) | apart
        return self.choose_of(key, slices.end - slices.start)

    def add_arguments(
        self, detail: Detail, slices: Slices, failed: Bool, add: Callable[[Slices, I64, bool], None]
    ) -> None:
        """Add the arguments that `detail` gives to slices of calls or submissions.

        FULL: all; STANDARD: all to the slowest so far, and those of failures to others that
        `failed`; else none. add: adds them to slices, those at the given indices; whether all.
        """
        if detail == Detail.FULL:
            add(slices, np.arange(len(slices)), True)
        elif detail == Detail.STANDARD:
            chosen = self.choose(slices, failed, together=True)
            others = np.setdiff1d(np.flatnonzero(failed), chosen)
            for at, every in ((chosen, True), (others, False)):
                if len(at):
                    part = slices.part(at)
                    add(part, at, every)
                    slices.adopt(part, at)

    def choose_of(self, key: I64, latency: I64) -> I64:
        """Return the indices of the slowest so far of each key, as `choose` does. latency: ns."""
        chosen = []
        for one in names_of(key).tolist():
            rows = np.flatnonzero(key == one)
            kept = self._kept.get(one, np.zeros(0, dtype=np.int64))
            if len(kept) == self.most:
                rows = rows[latency[rows] > kept.min()]
            both = np.concatenate([kept, latency[rows]])
            if len(both) > self.most:
                order = np.argsort(-both, kind="stable")[: self.most]
                both, rows = both[order], rows[np.sort(order[order >= len(kept)]) - len(kept)]
            self._kept[one] = both
            chosen.append(rows)
        return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)
