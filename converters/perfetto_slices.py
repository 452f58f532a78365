# SPDX-License-Identifier: Apache-2.0
"""Bios, requests and loss windows as slices: begin, end, name, arguments, stages. In columns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from converters.model.context import Context
from converters.model.tables import (
    I64,
    NEVER,
    U8,
    U16,
    U32,
    U64,
    Bios,
    Bool,
    Certainty,
    LossWindows,
    RequestKind,
    Requests,
    Stage,
    Stages,
    Tasks,
)
from converters.model.windows import first_seen, last_seen
from converters.perfetto_callstacks import CallStacks
from converters.perfetto_encode import Unsigned, distinct
from converters.perfetto_lanes import FOREVER
from converters.perfetto_names import (
    ARGUMENT_IIDS,
    BIO,
    LOSS,
    REQUEST,
    STAGE_IIDS,
    Interned,
    stage_argument,
)
from converters.perfetto_place import Place
from recorder.records import BY_KIND, Kind

NO_SECTOR = np.uint64(2**64 - 1)
NO_TAG = 0xFFFF
_UINT, _BOOL = 0x18, 0x10
_STRING = b"\x88\x01"
_CERTAINTIES = [c.name.lower() for c in Certainty]


@dataclass
class Column:
    """One argument of every slice, or of those in `where`."""

    iid: int
    """Of the argument's name."""
    head: bytes
    """DebugAnnotation up to its value: tag, length (filled in later), name_iid, value's tag."""
    values: Unsigned
    where: Bool | None
    interned: bool = False
    """Values are ids of interned strings."""


@dataclass
class StageColumns:
    """Stages that take time, grouped by slice: rows first[i] to first[i] + count[i] - 1."""

    first: I64
    count: I64
    name: U8
    start: I64
    end: I64


@dataclass
class Slices:
    """A window's slices of one category. Shape (n,) each; times in ns."""

    category: str
    number: I64
    group: I64
    """What the lane belongs to: the disk's dev_t."""
    start: I64
    end: I64
    """FOREVER: to the trace's end."""
    name: U64
    """Interned event name."""
    family: U64 | None
    callstack: U64 | None = None
    """Ids of call stacks, 0: none; None: no slice has one."""
    columns: list[Column] = field(default_factory=list)
    stages: StageColumns | None = None
    rows: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Where each one stands in the table that it was made of."""

    def __len__(self) -> int:
        return len(self.number)

    def uint(self, name: str, values: NDArray[Any], where: Bool | None = None) -> None:
        """Adds an unsigned number; negative values only outside of `where`."""
        if where is not None:
            values = np.where(where, values, values.dtype.type(0))
        if values.dtype.kind == "i":
            values = values.astype(np.uint64)
        self._add(name, bytes([_UINT]), values, where)

    def true(self, name: str, where: Bool) -> None:
        """Adds `true` for the slices in `where`."""
        self._add(name, bytes([_BOOL]), np.ones(len(where), dtype=np.uint8), where)

    def text(self, name: str, ids: U64) -> None:
        """Adds an interned string; id 0: the slice has none."""
        where = ids > 0
        self._add(name, _STRING, ids, None if where.all() else where, interned=True)

    def _add(
        self, name: str, kind: bytes, values: Unsigned, where: Bool | None, interned: bool = False
    ) -> None:
        iid = ARGUMENT_IIDS[name]
        head = b"\x22\x00\x08" + bytes([iid]) + kind
        if where is None or where.any():
            self.columns.append(Column(iid, head, values, where, interned))


@dataclass
class SliceMaker:
    """Makes slices of tables; keeps the interned texts."""

    context: Context
    names: Interned
    """Event names."""
    strings: Interned
    callstacks: CallStacks
    place: Place

    def bios(self, table: Bios, stages: Stages, tasks: Tasks) -> Slices:
        """One slice per bio, in the order of (start, number)."""
        seen = seen_of(table, stages)
        slices = self._begin(BIO, table, seen)
        table = table.take(slices.rows)
        slices.uint("sector", table.sector, table.sector != NO_SECTOR)
        slices.uint("bytes", table.bytes)
        self._submitter(slices, table, tasks)
        self._common(slices, table, seen)
        part = self._mapped(table.part, self.context.device_label)
        slices.text("partition", np.where(table.part == table.dev, np.uint64(0), part))
        slices.uint("request", table.request, table.request >= 0)
        slices.uint("parent", table.parent, table.parent >= 0)
        slices.uint("fragments", table.fragments, table.fragments != 1)
        slices.uint("requests", table.requests, table.requests > 1)
        slices.uint("ioprio", table.ioprio, table.ioprio != 0)
        if (table.file >= 0).any():
            slices.text("file", self._mapped(table.file, self._file))
        if self.callstacks.names is not None and (table.stack >= 0).any():
            slices.callstack = self.callstacks.ids(table.stack)
            slices.text("no_stack", self._mapped(table.stack, self.callstacks.missing))
        add_stages(slices, stages)
        return slices

    def _file(self, row: int) -> str:
        return "" if row < 0 or self.context.files[row].device else self.context.files[row].path

    def requests(self, table: Requests, stages: Stages) -> Slices:
        """One slice per request, in the order of (start, number)."""
        seen = seen_of(table, stages)
        absorbed = table.absorbed_by >= 0
        seen.over |= absorbed
        seen.lost &= ~absorbed
        slices = self._begin(REQUEST, table, seen)
        table = table.take(slices.rows)
        slices.uint("sector", table.sector, table.sector != NO_SECTOR)
        slices.uint("bytes", table.bytes)
        self._common(slices, table, seen)
        slices.uint("bios", table.bios)
        slices.uint("others", table.others, table.others > 0)
        slices.uint("tag", table.tag, table.tag != NO_TAG)
        slices.uint("sched_tag", table.sched_tag, table.sched_tag != NO_TAG)
        slices.uint("hctx", table.hctx, table.hctx != NO_TAG)
        kind = self._mapped(table.kind, lambda k: RequestKind(k).name.lower())
        slices.text("kind", np.where(table.kind == RequestKind.NORMAL, np.uint64(0), kind))
        slices.uint("parent", table.parent, table.parent >= 0)
        slices.uint("absorbed_by", table.absorbed_by, table.absorbed_by >= 0)
        add_stages(slices, stages)
        return slices

    def losses(self, table: LossWindows, first: int) -> Slices:
        """One slice per loss window, numbered from `first`, in the order of start."""
        rows = np.argsort(table.start, kind="stable")
        n = len(rows)
        start = np.maximum(table.start[rows], 0)
        slices = Slices(
            LOSS,
            number=first + np.arange(n),
            group=np.zeros(n, dtype=np.int64),
            start=start,
            end=np.maximum(table.end[rows], start),
            name=np.full(n, self.names.id("lost events"), dtype=np.uint64),
            family=None,
        )
        cpu, count = table.cpu[rows], table.count[rows]
        slices.uint("cpu", cpu, cpu >= 0)
        slices.text("kind", self._mapped(table.kind[rows], record_name))
        slices.uint("count", count, count >= 0)
        self._host(slices)
        return slices

    def under_way(self, table: Bios | Requests) -> Slices:
        """Bios or requests that a later window ends: without arguments, FOREVER."""
        category = BIO if isinstance(table, Bios) else REQUEST
        seen = seen_of(table, no_stages())
        seen.over[:] = seen.lost[:] = False
        return self._begin(category, table, seen)

    def _begin(self, category: str, table: Bios | Requests, seen: "Seen") -> Slices:
        """Slices of the rows of which any time was seen, in the order of (start, number)."""
        known = np.flatnonzero(seen.first >= 0)
        rows = known[_order(seen.first[known], table.number[known])]
        complete = table.complete[rows]
        end = np.where(complete >= 0, complete, np.where(seen.over[rows], seen.last[rows], FOREVER))
        start = seen.first[rows]
        slices = Slices(
            category,
            number=table.number[rows],
            group=table.dev[rows].astype(np.int64),
            start=start,
            end=np.maximum(end, start),
            name=self._names(category, table.opf[rows], table.bytes[rows] == 0),
            family=(table.family[rows] + self.place.families).astype(np.uint64),
            rows=rows,
        )
        return slices

    def _names(self, category: str, opf: U32, empty: Bool) -> U64:
        """The operation; a bio of nothing that asks for a flush is one, too (fsync)."""
        if not len(opf):
            return np.zeros(0, dtype=np.uint64)
        found, codes = distinct(opf)
        texts = [self.context.op_name(int(o)) for o in found]
        ids = np.array([self.names.id(t) for t in texts], dtype=np.uint64)[codes]
        if category == BIO:
            flush = empty & ((opf & np.uint32(self.context.flag_mask("PREFLUSH"))) != 0)
            if flush.any():
                ids[flush] = self.names.id("flush")
        return ids

    def _submitter(self, slices: Slices, table: Bios, tasks: Tasks) -> None:
        known = table.task >= 0
        slices.uint("tid", table.tid, table.tid > 0)
        if not known.any():
            return
        task = np.maximum(table.task, 0)
        used, inverse = distinct(task)
        names = [str(c) for c in tasks.comm[used]]
        ids = np.array([self.strings.id(c) if c else 0 for c in names], dtype=np.uint64)
        slices.text("process", np.where(known, ids[inverse], np.uint64(0)))
        slices.uint("pid", tasks.tgid[task], known)

    def _common(self, slices: Slices, table: Bios | Requests, seen: "Seen") -> None:
        flags = self._mapped(table.opf & ~np.uint32(0xFF), self.context.flag_names)
        slices.text("flags", flags)
        slices.text("status", self._status(table))
        slices.text("certainty", self._certainty(table))
        slices.text("device", self._mapped(table.dev, self.context.device_label))
        slices.uint("number", table.number)
        ended = table.complete >= 0
        begin = table.queue if isinstance(table, Bios) else table.start
        slices.uint("latency_ns", slices.end - slices.start, ended & (begin >= 0))
        slices.uint("done_bytes", table.done_bytes, ended & (table.done_bytes != table.bytes))
        slices.uint("requeues", table.requeues, table.requeues > 0)
        self._marks(slices, table, seen)

    def _marks(self, slices: Slices, table: Bios | Requests, seen: "Seen") -> None:
        """What says that a slice is not all of what it stands for, or whose it is."""
        begin = table.queue if isinstance(table, Bios) else table.start
        slices.true("begin_not_seen", (begin == NEVER) & (table.cut == NEVER))
        slices.true("begin_cut", table.cut != NEVER)
        slices.true("open_at_end", slices.end == FOREVER)
        slices.true("end_not_seen", seen.lost[slices.rows])
        slices.true("own", table.own)
        self._host(slices)

    def _host(self, slices: Slices) -> None:
        if self.place.host and len(slices):
            iid = self.strings.id(self.place.host)
            slices.text("host", np.full(len(slices), iid, dtype=np.uint64))

    def _status(self, table: Bios | Requests) -> U64:
        return self._mapped(table.status, self.context.status_name)

    def _certainty(self, table: Bios | Requests) -> U64:
        certainty = [self.strings.id(name) for name in _CERTAINTIES]
        return np.array(certainty, dtype=np.uint64)[table.certainty]

    def _mapped(
        self, values: U8 | U16 | U32 | NDArray[np.int32], text: Callable[[int], str]
    ) -> U64:
        """Ids of the values' texts; 0 for an empty text."""
        if not len(values):
            return np.zeros(0, dtype=np.uint64)
        found, inverse = distinct(values)
        texts = [text(int(v)) for v in found]
        ids = [self.strings.id(t) if t else 0 for t in texts]
        return np.array(ids, dtype=np.uint64)[inverse]


@dataclass
class Seen:
    """When a bio or request was first and last seen, per row of its table."""

    first: I64
    last: I64
    lost: Bool
    """Its end was lost."""
    over: Bool
    """It has ended, though its completion was not seen."""


def no_stages() -> Stages:
    """No rows."""
    none = np.zeros(0, dtype=np.int64)
    return Stages(none, np.zeros(0, dtype=np.uint8), none, none)


def seen_of(table: Bios | Requests, stages: Stages) -> Seen:
    """When each was first and last seen, by its own times and its stages."""
    first, last = first_seen(table), np.maximum(last_seen(table), table.cut)
    if len(stages.owner):
        first = np.where(first == NEVER, FOREVER, first)
        rows = _rows_of(table.number, stages.owner)
        np.maximum.at(last, rows, stages.end)
        np.minimum.at(first, rows, stages.start)
        first = np.where(first == FOREVER, NEVER, first)
    # Of what neither begin nor end was seen, nobody knows whether it goes on.
    lost = table.certainty == Certainty.LOST
    if isinstance(table, Bios):
        lost |= (table.queue < 0) & (table.cut < 0)
    lost &= table.complete < 0
    return Seen(first, last, lost, lost.copy())


def _rows_of(number: I64, owner: I64) -> I64:
    """Row of each owner in `number`; owners come in runs."""
    change = np.flatnonzero(np.diff(owner, prepend=owner[0] - 1))
    order = np.argsort(number, kind="stable")
    rows = order[np.searchsorted(number[order], owner[change])]
    return np.repeat(rows, np.diff(np.append(change, len(owner))))


def add_stages(slices: Slices, stages: Stages, *, arguments: bool = True) -> None:
    """Nested slices for stages that take time, and every stage's time as an argument."""
    if not len(slices) or not len(stages.owner):
        return
    kept = np.isin(stages.owner, slices.number) if len(stages.owner) else None
    table = stages if kept is None or kept.all() else stages.take(kept)
    rows = _rows_of(slices.number, table.owner)
    start = np.maximum(table.start, slices.start[rows])
    end = np.minimum(np.maximum(table.end, start), slices.end[rows])
    for kind in np.flatnonzero(np.bincount(table.stage)).tolist() if arguments else ():
        here = table.stage == kind
        total = np.zeros(len(slices), dtype=np.int64)
        present = np.zeros(len(slices), dtype=np.bool_)
        np.add.at(total, rows[here], (end - start)[here])
        present[rows[here]] = True
        slices.uint(stage_argument(Stage(kind)), total, present)
    lasting = np.flatnonzero(end > start)
    order = lasting[np.argsort(rows[lasting], kind="stable")]
    count = np.bincount(rows[order], minlength=len(slices))
    iids = np.array([STAGE_IIDS[s] for s in Stage], dtype=np.uint8)
    slices.stages = StageColumns(
        first=np.cumsum(count) - count,
        count=count,
        name=iids[table.stage[order]],
        start=start[order],
        end=end[order],
    )


def _order(first: I64, second: I64) -> I64:
    """np.lexsort((second, first)), at once when they are in that order already."""
    a, b = first[:-1], first[1:]
    if ((a < b) | ((a == b) & (second[:-1] < second[1:]))).all():
        return np.arange(len(first))
    return np.lexsort((second, first))


def record_name(kind: int) -> str:
    """`issue`, `queue`, …; `unknown`."""
    known = {int(k): BY_KIND[Kind(k)].name for k in BY_KIND}
    return known.get(kind, "unknown" if kind == 0 else f"kind {kind}")
