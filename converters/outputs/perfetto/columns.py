# SPDX-License-Identifier: Apache-2.0
"""Slices of one category as columns: times, names, arguments, stages."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U16, U64, Bool
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.names import ARGUMENT_IIDS

Unsigned = NDArray[np.unsignedinteger[Any]]
"""An array of any unsigned dtype."""
_UINT, _INT, _BOOL, _STRING = 0x18, 0x20, 0x10, 0x88


@dataclass
class Column:
    """One argument of every slice, or of the slices in `where`."""

    iid: int
    """Interned id of the argument's name."""
    tag: int
    """First byte of the tag of the value's field in DebugAnnotation."""
    values: Unsigned
    """Per slice (n,): its value, or the id of an interned string."""
    where: Bool | None
    """Slices that have the argument; None: all."""
    interned: bool = False
    """Whether the values are ids of interned strings."""
    at: I64 | None = None
    """Indices of the only slices that have the argument, ascending; `values` are theirs, `where` is
    None. None: `values` and `where` are of all slices."""

    def present(self) -> tuple[I64 | slice, Unsigned]:
        """Return (indices of the slices that have the argument, or all of them, their values)."""
        if self.at is not None:
            return self.at, self.values
        if self.where is None:
            return slice(None), self.values
        here = np.flatnonzero(self.where)
        return here, self.values[here]


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
    number: I64
    """The bio's, request's or loss window's number."""
    group: I64
    """What the lane belongs to: the disk's dev_t; 0 for loss windows."""
    start: I64
    end: I64
    """FOREVER: open to the trace's end."""
    name: U64
    """Id of the interned event name."""
    family: U64 | None
    """Correlation ids; None: no slice has one."""
    in_family: Bool | None = None
    """Which slices have a correlation id; None: all of them."""
    callstack: U64 | None = None
    """Ids of call stacks, 0: the slice has none; None: no slice has one."""
    columns: list[Column] = field(default_factory=list)
    stages: StageColumns | None = None
    flows: Flows | None = None
    """None: no slice has a flow."""
    rows: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Index of each slice's row in the table that the slices were made from."""

    @classmethod
    def none(cls, category: str) -> "Slices":
        """Return no slices of the category."""
        none = np.zeros(0, dtype=np.int64)
        return cls(category, none, none, none, none, none.astype(np.uint64), None)

    def __len__(self) -> int:
        return len(self.number)

    def uint(self, name: str, values: NDArray[Any], where: Bool | None = None) -> None:
        """Append an unsigned argument.

        name: of ARGUMENTS. values: per slice (n,). where: slices that have the argument; None: all.
        Only values outside of `where` may be negative. Nothing is appended if no slice has the
        argument.
        """
        if where is not None:
            values = np.where(where, values, values.dtype.type(0))
        if values.dtype.kind == "i":
            values = values.astype(np.uint64)
        self._add(name, _UINT, values, where)

    def sint(self, name: str, values: NDArray[Any], where: Bool) -> None:
        """Append a signed argument that the slices in `where` have. values: per slice (n,)."""
        given = np.where(where, values, 0).astype(np.int64)
        self._add(name, _INT, given.view(np.uint64), where)

    def true(self, name: str, where: Bool) -> None:
        """Append an argument that is `true` for slices in `where` and absent for the others."""
        self._add(name, _BOOL, np.ones(len(where), dtype=np.uint8), where)

    def text(self, name: str, ids: U64) -> None:
        """Append an interned string argument; a slice with id 0 has none."""
        where = ids > 0
        self._add(name, _STRING, ids, None if where.all() else where, interned=True)

    def mark(self, row: I64, at: I64, flow: U64, name: int) -> None:
        """Put marks among the stages: slices of no length, from which an arrow of `flow` leads on.

        The UI draws an arrow from the end of its source, so that one to what begins within a slice
        has to come from something that ends before. row: per mark (m,), its slice. at: ns, when
        the arrow leaves; a mark within a stage is moved to the stage's begin. name: interned.
        """
        if not len(row):
            return
        stages = self.stages or _no_stages(len(self))
        at = np.clip(at, self.start[row], self.end[row])
        place = np.empty(len(row), dtype=np.int64)
        first = firsts(stages.count)
        row = np.ascontiguousarray(row)
        start, end = np.ascontiguousarray(stages.start), np.ascontiguousarray(stages.end)
        loops.place_marks(row, first, stages.count, start, end, at, place)
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
        return Slices(
            self.category,
            number=self.number[at],
            group=self.group[at],
            start=self.start[at],
            end=self.end[at],
            name=self.name[at],
            family=None,
            rows=self.rows[at],
        )

    def adopt(self, part: "Slices", at: I64) -> None:
        """Take over the arguments of `part`, whose slices are those at `at` (ascending) of these.

        And its stages, if it has any.
        """
        if part.stages is not None:
            count = np.zeros(len(self), dtype=np.int64)
            count[at] = part.stages.count
            self.stages = replace(part.stages, count=count)
        for column in part.columns:
            here, values = column.present()
            self.columns.append(
                Column(column.iid, column.tag, values, None, column.interned, at[here])
            )

    def _add(
        self, name: str, tag: int, values: Unsigned, where: Bool | None, interned: bool = False
    ) -> None:
        iid = ARGUMENT_IIDS[name]
        if where is None or where.any():
            self.columns.append(Column(iid, tag, values, where, interned))


def _no_stages(count: int) -> StageColumns:
    none = np.zeros(0, dtype=np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    return StageColumns(zeros, none.astype(np.uint16), none, none)


def firsts(count: I64) -> I64:
    """Return where each slice's rows begin, of rows that are ordered by slice."""
    return np.cumsum(count) - count


def up_to(key: I64, time: I64, asked: I64, at: I64) -> tuple[I64, I64]:
    """Return per question how many rows of its key are not after its time, and the place behind.

    key, time: (n,). asked, at: (m,), key and time of each question. The place is an index into the
    rows in the order of (key, time): the last row that is not after is the one before it.
    """
    times, rank = np.unique(np.concatenate([time, at]), return_inverse=True)
    rows = np.sort(key * len(times) + rank[: len(key)])
    place = np.searchsorted(rows, asked * len(times) + rank[len(key) :], side="right")
    return place - np.searchsorted(rows, asked * len(times), side="left"), place
