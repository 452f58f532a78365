# SPDX-License-Identifier: Apache-2.0
"""Draw less of each bio, so that a browser holds more of a long log."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import PathTables
from biotrail.converters.events.tables import (
    I32,
    I64,
    NEVER,
    OP_MASK,
    U64,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    LossWindows,
    RequestKind,
    Requests,
    Stages,
    Tasks,
)
from biotrail.converters.lifecycles.windows import restricted
from biotrail.converters.outputs.perfetto.callstacks import CallStacks
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.lanes import FOREVER
from biotrail.converters.outputs.perfetto.names import (
    BIO,
    DEVICE_FLUSH,
    FLUSH,
    LOSS,
    REQUEST,
    Colour,
    Detail,
    Interned,
    ioprio_text,
    record_name,
    size_text,
)
from biotrail.converters.outputs.perfetto.path_arguments import (
    add_bio_path,
    add_interrupts,
    add_steps,
)
from biotrail.converters.outputs.perfetto.place import Place
from biotrail.converters.outputs.perfetto.ranking import Ranking
from biotrail.converters.outputs.perfetto.times import (
    Seen,
    add_stages,
    no_stages,
    seen_of,
)
from biotrail.recorder.schema.records import FIRST_UNKNOWN_TID, NO_SECTOR, NO_TAG

# Turn bios, requests and loss windows into slices: columns of times, names and arguments.

_CERTAINTIES = [c.name.lower() for c in Certainty]
R = TypeVar("R", Bios, Requests)


@dataclass
class SliceMaker:
    """Makes slices from a window's tables, and interns the names and texts that they refer to."""

    context: Context
    names: Interned
    """Event names."""
    strings: Interned
    """Values of text arguments."""
    callstacks: CallStacks
    place: Place
    colour: Colour = Colour.AUTO
    stacked: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Families (bio numbers) seen on several devices, of those that may appear again."""
    path: PathTables | None = None
    """The path beside the block layer of the window whose slices are made; None: not recorded."""

    def note_stacked(self, window: Lifecycles) -> None:
        """Update `stacked`: add families with a bio or request of a lower device in the window.

        A family (number of the topmost bio) is what one bio of the topmost device caused; a lower
        device's bio or request has a parent. Families that are not in the window at all are
        dropped.
        """
        tables = window.bios, window.open_bios, window.requests, window.open_requests
        known = self.stacked
        if len(known):
            known = known[np.isin(known, np.concatenate([table.family for table in tables]))]
        lower = [table.family[table.parent >= 0] for table in tables]
        self.stacked = np.unique(np.concatenate([known, *lower]))

    def bios(self, table: Bios, stages: Stages, tasks: Tasks) -> Slices:
        """Return a slice per bio of which any time is known, in the order of (start, number).

        table: a window's bios; stages: of these bios; tasks: threads' names, to which `table.task`
        refers; `path` must be the window's. A slice ends at the completion; without one, at the
        last known time if the bio's end was lost (`Seen.lost`: marked LOST, or with neither Q nor
        cut), else it is open to the trace's end (FOREVER). It has all arguments that
        docs/perfetto.md lists, stages, and a call stack where one is known. Interns names and
        texts.
        """
        seen = seen_of(table, stages)
        slices, table = self._begin(BIO, table, seen)
        self._stacks(slices, table)
        self._bio_arguments(slices, table, tasks, seen)
        add_stages(slices, stages, told=~table.doubtful)
        return slices

    def _stacks(self, slices: Slices, table: Bios) -> None:
        if self.callstacks.names is not None and (table.stack >= 0).any():
            slices.callstack = self.callstacks.ids(table.stack)

    def _bio_arguments(self, slices: Slices, table: Bios, tasks: Tasks, seen: Seen) -> None:
        """Add to slices of bios all arguments but the times of stages."""
        self._process(slices, table, tasks)
        self._size(slices, table)
        slices.uint("tid", table.tid, table.tid > 0)
        if (table.task >= 0).any():
            pids = tasks.tgid[np.maximum(table.task, 0)]
            slices.uint("pid", pids, (table.task >= 0) & (pids < FIRST_UNKNOWN_TID))
        self._common(slices, table, seen)
        part = self.strings.ids(table.part, self.context.device_label)
        slices.text("partition", np.where(table.part == table.dev, np.uint64(0), part))
        slices.uint("request", table.request, table.request >= 0)
        slices.uint("parent", table.parent, table.parent >= 0)
        slices.uint("fragments", table.fragments, table.fragments != 1)
        slices.uint("requests", table.requests, table.requests > 1)
        slices.text("ioprio", self.strings.ids(table.ioprio, ioprio_text))
        if (table.file >= 0).any():
            slices.text("file", self.strings.ids(table.file, self._file))
        if self.callstacks.names is not None and (table.stack >= 0).any():
            slices.text("no_stack", self.strings.ids(table.stack, self.callstacks.missing))
        if (table.whom >= 0).any():
            known = table.whom >= 0
            slices.text("for_process", self._thread_names(table.whom, tasks))
            slices.uint("for_tid", tasks.tid[np.maximum(table.whom, 0)], known)
        add_bio_path(slices, table, self.path, tasks, self.context, self.strings)

    def _file(self, row: int) -> str:
        """Return the path of a row of `Context.files`; empty: -1, or the device's own pages."""
        return "" if row < 0 or self.context.files[row].device else self.context.files[row].shown

    def requests(self, table: Requests, stages: Stages) -> Slices:
        """Return a slice per request of which any time is known, in the order of (start, number).

        table: a window's requests; stages: of these requests; `path` must be the window's. A slice
        ends at the completion; without one, at the last known time if the request was merged into
        another (`absorbed_by`) or its end was lost (marked LOST), else it is open to the trace's
        end (FOREVER). It has all arguments that docs/perfetto.md lists, and stages. Interns names
        and texts.
        """
        seen = requests_seen(table, stages)
        slices, table = self._begin(REQUEST, table, seen)
        self._request_arguments(slices, table, seen)
        add_stages(slices, stages, told=~table.doubtful)
        return slices

    def _request_arguments(self, slices: Slices, table: Requests, seen: Seen) -> None:
        self._size(slices, table)
        self._common(slices, table, seen)
        slices.uint("bios", table.bios)
        slices.uint("others", table.others, table.others > 0)
        slices.uint("tag", table.tag, table.tag != NO_TAG)
        slices.uint("sched_tag", table.sched_tag, table.sched_tag != NO_TAG)
        slices.uint("hctx", table.hctx, table.hctx != NO_TAG)
        kind = self.strings.ids(table.kind, lambda k: RequestKind(k).name.lower())
        slices.text("kind", np.where(table.kind == RequestKind.NORMAL, np.uint64(0), kind))
        slices.uint("parent", table.parent, table.parent >= 0)
        slices.uint("absorbed_by", table.absorbed_by, table.absorbed_by >= 0)
        add_interrupts(slices, table, self.path, self.strings)
        add_steps(slices, table, self.path, self.strings)

    def losses(self, table: LossWindows, first: int) -> Slices:
        """Return a slice per loss window (records lost, to full rings or damage), sorted by start.

        first: number of the first slice, from which on they are numbered. A slice has the kind of
        record (`unknown` where it is not known), CPU and count, left out where not known, and the
        host where the trace has several logs. A start before 0 becomes 0, an end before the start
        the start. Interns names and texts.
        """
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
        slices.text("kind", self.strings.ids(table.kind[rows], record_name))
        slices.uint("count", count, count >= 0)
        self._host(slices)
        return slices

    def in_flight(self, table: Bios | Requests) -> Slices:
        """Return slices without arguments and stages for a window's open bios or open requests.

        They end at FOREVER; an entry that has completed but is still in the open table ends at its
        completion. In the order of (start, number); rows without any known time have no slice.
        Interns names.
        """
        seen = seen_of(table, no_stages())
        seen.over[:] = seen.lost[:] = False
        if isinstance(table, Bios):
            return self._begin(BIO, table, seen)[0]
        return self._begin(REQUEST, table, seen)[0]

    def _begin(self, category: str, table: R, seen: Seen) -> tuple[Slices, R]:
        """Return slices of the rows with a known time, sorted by (start, number), and their rows.

        They have neither arguments nor stages. category: BIO or REQUEST. table: rows (n,); seen:
        their times, also (n,). A slice ends at the completion, else at the last known time where
        `seen.over`, else at FOREVER, but not before its start. `Slices.rows` says which row of
        `table` each slice is. Interns names.
        """
        timed = np.flatnonzero(seen.first >= 0)
        rows = timed[_order(seen.first[timed], table.number[timed])]
        start, over, last = seen.first, seen.over, seen.last
        if len(rows) < len(table) or (rows[:-1] > rows[1:]).any():
            table = table.take(rows)
            start, over, last = start[rows], over[rows], last[rows]
        end = np.where(table.complete >= 0, table.complete, np.where(over, last, FOREVER))
        family, in_family = self._families(table.family)
        slices = Slices(
            category,
            number=table.number,
            group=table.dev.astype(np.int64),
            start=start,
            end=np.maximum(end, start),
            name=self._names(table),
            family=family,
            in_family=in_family,
            rows=rows,
        )
        return slices, table

    def _families(self, family: I64) -> tuple[U64 | None, Bool | None]:
        """Return correlation ids (n,), and which slices (n,) have one.

        The UI gives slices with the same id one colour. family: per slice, number of the topmost
        bio; the id is that plus the log's offset in the trace. (ids, None): all have one; (None,
        None): none has. With Colour.FAMILY all have one, with OPERATION none, else those whose
        family is in `stacked`.
        """
        ids = (family + self.place.families).astype(np.uint64)
        if self.colour == Colour.FAMILY:
            return ids, None
        stacked = np.isin(family, self.stacked)
        if self.colour == Colour.OPERATION or not stacked.any():
            return None, None
        return ids, stacked

    def _names(self, table: Bios | Requests) -> U64:
        """Return the interned name of each row of `table`."""
        opf = table.opf
        ids = self.names.ids(opf, self.context.op_name)
        preflush = (opf & np.uint32(self.context.flag_mask("PREFLUSH"))) != 0
        flush = (table.bytes == 0) & preflush
        if flush.any():
            ids[flush] = self.names.id(FLUSH)
        if isinstance(table, Requests):
            flushes = opf & np.uint32(OP_MASK) == self.context.op_number(FLUSH)
            ids[flushes & (table.kind == RequestKind.FLUSH)] = self.names.id(DEVICE_FLUSH)
        return ids

    def _process(self, slices: Slices, table: Bios, tasks: Tasks) -> None:
        """Add to slices of bios the arguments `process` and `title`, where they are known."""
        if (table.task >= 0).any():
            slices.text("process", self._thread_names(table.task, tasks))
            title = self.context.titles.title
            titles = self.strings.ids(
                np.maximum(table.task, 0), lambda row: title(tasks.pid(row), str(tasks.comm[row]))
            )
            slices.text("title", np.where(table.task >= 0, titles, np.uint64(0)))

    def _thread_names(self, rows: I32, tasks: Tasks) -> U64:
        """Return the interned ids of the names in rows of `tasks` (n,), 0 for -1."""
        names = self.strings.ids(np.maximum(rows, 0), lambda row: str(tasks.comm[row]))
        return np.where(rows >= 0, names, np.uint64(0))

    def _size(self, slices: Slices, table: Bios | Requests) -> None:
        """Add to slices the arguments `latency_ns`, `sector` and `bytes`."""
        begin = table.queue if isinstance(table, Bios) else table.start
        both_known = (table.complete >= 0) & (begin >= 0) & ~table.doubtful
        slices.uint("latency_ns", slices.end - slices.start, both_known)
        slices.uint("sector", table.sector, table.sector != NO_SECTOR)
        slices.uint("bytes", table.bytes)

    def _common(self, slices: Slices, table: Bios | Requests, seen: Seen) -> None:
        """Add to slices the arguments that bios and requests share."""
        flags = self.strings.ids(table.opf & ~np.uint32(0xFF), self.context.flag_names)
        slices.text("flags", flags)
        slices.text("status", self._status(table))
        slices.text("certainty", self._certainty(table))
        slices.text("device", self.strings.ids(table.dev, self.context.device_label))
        slices.uint("number", table.number)
        ended = table.complete >= 0
        slices.uint("done_bytes", table.done_bytes, ended & (table.done_bytes != table.bytes))
        slices.uint("requeues", table.requeues, table.requeues > 0)
        self._marks(slices, table, seen)

    def _marks(self, slices: Slices, table: Bios | Requests, seen: Seen) -> None:
        """Add to slices what was cut off or not recorded, whose I/O it is, and the host."""
        begin = table.queue if isinstance(table, Bios) else table.start
        slices.true("begin_not_seen", (begin == NEVER) & (table.cut == NEVER))
        slices.true("begin_cut", table.cut != NEVER)
        slices.true("open_at_end", slices.end == FOREVER)
        slices.true("end_not_seen", seen.lost[slices.rows])
        slices.true("own", table.own)
        slices.true("doubtful", table.doubtful)
        self._host(slices)

    def _host(self, slices: Slices) -> None:
        if self.place.host and len(slices):
            iid = self.strings.id(self.place.host)
            slices.text("host", np.full(len(slices), iid, dtype=np.uint64))

    def _status(self, table: Bios | Requests) -> U64:
        return self.strings.ids(table.status, self.context.status_name)

    def _certainty(self, table: Bios | Requests) -> U64:
        certainty = [self.strings.id(name) for name in _CERTAINTIES]
        return np.array(certainty, dtype=np.uint64)[table.certainty]


def requests_seen(table: Requests, stages: Stages) -> Seen:
    """Return when requests were first and last seen; one that was merged into another is over.

    table: rows (n,); stages: of these requests, or of none.
    """
    seen = seen_of(table, stages)
    absorbed = table.absorbed_by >= 0
    seen.over |= absorbed
    seen.lost &= ~absorbed
    return seen


def _order(first: I64, second: I64) -> I64:
    """Return np.lexsort((second, first)), without a sort where rows are in that order already."""
    a, b = first[:-1], first[1:]
    if ((a < b) | ((a == b) & (second[:-1] < second[1:]))).all():
        return np.arange(len(first))
    return np.lexsort((second, first))


class _LessMaker(SliceMaker):
    """What the makers below share."""

    def _doubts(self, slices: Slices, table: Bios | Requests) -> None:
        """Add to slices the certainty unless it is exact, and the status unless it is OK."""
        doubtful = table.certainty != Certainty.EXACT
        slices.text("certainty", np.where(doubtful, self._certainty(table), np.uint64(0)))
        slices.text("status", np.where(table.status != 0, self._status(table), np.uint64(0)))


@dataclass
class StandardMaker(_LessMaker):
    """Makes slices with all arguments of the slowest I/Os, and of others what is out of the usual.

    Arguments are most of a trace's bytes, and hardly any is ever read. The slowest are those of
    Ranking, and the requests that finished them.
    """

    _bios: Ranking = field(default_factory=Ranking)
    _requests: Ranking = field(default_factory=Ranking)
    _served: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of the requests that finished the window's chosen bios; -1: none did."""

    def bios(self, table: Bios, stages: Stages, tasks: Tasks) -> Slices:
        """Return a slice per bio of which any time is known, in the order of (start, number).

        As SliceMaker.bios, but bios that are not chosen have their `number` and the arguments of
        `_unusual` alone.
        """
        seen = seen_of(table, stages)
        slices, table = self._begin(BIO, table, seen)
        self._stacks(slices, table)
        add_stages(slices, stages, arguments=False)
        chosen, others = self._split(self._bios, slices, table)
        slices.uint("number", table.number, others)
        part, few = slices.part(chosen), table.take(chosen)
        self._served = few.request
        self._bio_arguments(part, few, tasks, seen)
        add_stages(part, stages, told=~few.doubtful)
        part.stages = None  # all bios have theirs
        slices.adopt(part, chosen)
        self._summaries(slices, table, tasks, others)
        self._unusual(slices, table, seen, others)
        return slices

    def _summaries(self, slices: Slices, table: Bios, tasks: Tasks, others: Bool) -> None:
        """Add to bios of `others` (n,) the argument `what`, where the path was recorded.

        It is one interned text, 7 bytes, of what else are three arguments: `4 KiB fio pread64`.
        Without the path it would take a trace of small random reads over 150 bytes a bio.
        """
        if self.path is None or not len(self.path.bios):
            return
        at = np.flatnonzero(others)
        few = table.take(at)
        row, known = rows_of(self.path.bios.number, few.number)
        paths = self.path.bios
        call = np.where(known, paths.call[row], NO_CALL)
        foreign = np.where(known, paths.foreign[row], False)
        key = np.stack([few.bytes.astype(np.int64), few.task.astype(np.int64), call, foreign])
        kinds, codes = np.unique(key, axis=1, return_inverse=True)
        texts = [self._summary(tasks, *kind) for kind in kinds.T.tolist()]
        ids = np.array([self.strings.id(text) if text else 0 for text in texts], dtype=np.uint64)
        part = slices.part(at)
        part.text("what", ids[codes.reshape(-1)])
        slices.adopt(part, at)

    def _summary(self, tasks: Tasks, size: int, task: int, call: int, foreign: int) -> str:
        comm = str(tasks.comm[task]) if task >= 0 else ""
        name = "" if call == NO_CALL else name_of_call(call, bool(foreign), self.context.machine)
        return " ".join(filter(None, (size_text(size), comm, name)))

    def requests(self, table: Requests, stages: Stages) -> Slices:
        """Return a slice per request of which any time is known, in the order of (start, number).

        As SliceMaker.requests, but requests that are neither chosen nor finished a chosen bio of
        the last call of `bios` have no stages and the arguments of `_unusual` alone.
        """
        seen = requests_seen(table, stages)
        slices, table = self._begin(REQUEST, table, seen)
        chosen, others = self._split(self._requests, slices, table)
        others &= ~np.isin(table.number, self._served)
        chosen = np.flatnonzero(~others)
        part = slices.part(chosen)
        few = table.take(chosen)
        self._request_arguments(part, few, seen)
        add_stages(part, stages, told=~few.doubtful)
        slices.adopt(part, chosen)
        self._unusual(slices, table, seen, others)
        return slices

    def _split(self, ranking: Ranking, slices: Slices, table: Bios | Requests) -> tuple[I64, Bool]:
        """Return the indices of the slices with all arguments, and the mask of the others (n,)."""
        chosen = ranking.choose(slices, (table.status != 0) | table.doubtful)
        others = np.ones(len(slices), dtype=np.bool_)
        others[chosen] = False
        return chosen, others

    def _unusual(self, slices: Slices, table: Bios | Requests, seen: Seen, others: Bool) -> None:
        """Add to the slices of `others` (n,) what tells how an I/O is out of the usual."""
        short = (table.complete >= 0) & (table.done_bytes != table.bytes)
        several = np.asarray(table.bios != 1) if isinstance(table, Requests) else short
        odd = (table.certainty != Certainty.EXACT) | (table.status != 0) | (table.parent >= 0)
        odd |= short | several | (table.requeues > 0) | table.own | (table.complete == NEVER)
        odd |= (table.queue if isinstance(table, Bios) else table.start) == NEVER
        if self.place.host:
            odd[:] = True
        at = np.flatnonzero(odd & others)
        part, few = slices.part(at), table.take(at)
        self._doubts(part, few)
        part.uint("parent", few.parent, few.parent >= 0)
        part.uint("done_bytes", few.done_bytes, short[at])
        part.uint("requeues", few.requeues, few.requeues > 0)
        if isinstance(few, Requests):
            part.uint("bios", few.bios, few.bios != 1)
        self._marks(part, few, seen)
        slices.adopt(part, at)


@dataclass
class SparseMaker(_LessMaker):
    """Makes slices of bios, with arguments only where one is uncertain, failed or cut off."""

    stages: bool = False
    """Whether slices have stages; without them they have no correlation ids either."""

    def bios(self, table: Bios, stages: Stages, tasks: Tasks) -> Slices:
        """Return a slice per bio of which any time is known, in the order of (start, number).

        table, tasks: a window's bios and threads' names, which are not drawn. stages: of these
        bios, drawn if `self.stages`. Slices have no arguments but certainty and status, where these
        are not EXACT and OK, and the marks of `_marks`. Without stages they have no correlation
        ids.
        """
        seen = seen_of(table, stages)
        slices, table = self._begin(BIO, table, seen)
        self._doubts(slices, table)
        self._marks(slices, table, seen)
        if self.stages:
            add_stages(slices, stages, arguments=False)
        else:
            slices.family = None
        return slices


def slice_maker(
    detail: Detail,
    context: Context,
    names: Interned,
    strings: Interned,
    stacks: CallStacks,
    place: Place,
    colour: Colour,
) -> SliceMaker:
    """Return the SliceMaker that draws as much of each bio as `detail` says.

    That is a SparseMaker for STAGES, with stages, and for BIOS. names, strings:
    event names and text arguments interned so far, to which new ones are added. stacks: the log's
    call stacks. place: where the log stands in the trace. colour: which slices share a correlation
    id.
    """
    parts = context, names, strings, stacks, place, colour
    if detail == Detail.FULL:
        return SliceMaker(*parts)
    if detail == Detail.STANDARD:
        return StandardMaker(*parts)
    return SparseMaker(*parts, stages=detail == Detail.STAGES)


def drawn_with(detail: Detail, window: Lifecycles) -> Lifecycles:
    """Return the window without its requests if `detail` has none, else the window itself.

    Requests in flight and requests' stages are left out, too; bios and their edges stay.
    """
    if detail.requests:
        return window
    tables = window.requests, window.open_requests
    none = (np.zeros(len(table), dtype=np.bool_) for table in tables)
    bios = (np.ones(len(table), dtype=np.bool_) for table in (window.bios, window.open_bios))
    return restricted(window, next(bios), next(none), next(bios), next(none))
