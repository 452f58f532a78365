# SPDX-License-Identifier: Apache-2.0
"""Turn bios, requests and loss windows into slices: columns of times, names and arguments.

Arguments are most of a trace's bytes, and hardly any is ever read. So by default only the slowest
I/Os (those of Ranking, and the requests that finished them) have all, and others what is out of the
usual.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from biotrail.converters.analysis.slow.io_details import file_path
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.path import DRIVERS
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
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.converters.lifecycles.windows import first_seen, last_seen
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import (
    BOOL,
    FOREVER,
    Ranking,
    Slices,
    add_stages,
    rows_of_owners,
)
from biotrail.converters.outputs.perfetto.names import (
    BIO,
    DEVICE_FLUSH,
    FLUSH,
    LOSS,
    REQUEST,
    STAGE_ARGUMENTS,
    Colour,
    Detail,
    Drawing,
    ioprio_text,
    size_text,
)
from biotrail.converters.outputs.perfetto.tracks import CallStacks
from biotrail.recorder.schema.records import BY_KIND, FIRST_UNKNOWN_TID, NO_SECTOR, NO_TAG
from biotrail.recorder.schema.syscalls import call_name

_CERTAINTIES = [c.name.lower() for c in Certainty]
_CONTEXTS = ("task", "softirq", "interrupt")
_NVME = DRIVERS.index("nvme")
R = TypeVar("R", Bios, Requests)


@dataclass
class BlockMaker:
    """Makes slices from a window's tables, and interns the names and texts that they refer to."""

    drawing: Drawing
    callstacks: CallStacks
    _stacked: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Families (bio numbers) seen on several devices, of those that may appear again."""
    _bios: Ranking = field(default_factory=Ranking)
    _requests: Ranking = field(default_factory=Ranking)
    _served: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of the requests that finished the window's chosen bios; -1: none did."""

    def __post_init__(self) -> None:
        self._context, self._strings = self.drawing.context, self.drawing.strings
        self._detail, self._host = self.drawing.options.detail, self.drawing.place.host

    def bios(self, window: Lifecycles) -> Slices:
        """Return a slice per bio of which any time is known, in the order of (start, number).

        A slice ends at the completion; without one, at the last known time if the bio's end was
        lost, else it is open to the trace's end (FOREVER). Which arguments, stages and call stacks
        it has follows from the detail (docs/perfetto.md).
        """
        if self.callstacks.names is not None:
            self.callstacks.known = self.callstacks.names.all()
        # A family (number of the topmost bio) is what one bio of the topmost device caused. It is
        # stacked once any bio or request of a lower device was in a window.
        tables = window.bios, window.open_bios, window.requests, window.open_requests
        known = self._stacked
        if len(known):
            known = known[np.isin(known, np.concatenate([table.family for table in tables]))]
        lower = [table.family[table.parent >= 0] for table in tables]
        self._stacked = np.unique(np.concatenate([known, *lower]))
        stages = window.bio_stages
        slices, table, lost = self.begin(BIO, window.bios, stages)
        others = self._others(slices, table, self._bios)
        if self._detail == Detail.BIOS:
            slices.family = None
        else:
            add_stages(slices, stages)
        if self._detail.requests:
            stacked = self.callstacks.names is not None and (table.stack >= 0).any()
            slices.callstack = self.callstacks.ids(table.stack) if stacked else None
            slices.put("number", table.number, others)
            self._served = table.request[~others]
            self._detailed(slices, table, ~others, window, stages, lost)
            self._summaries(slices, table, window.path, window.tasks, others)
        self._unusual(slices, table, lost, others)
        return slices

    def requests(self, window: Lifecycles) -> Slices:
        """Return a slice per request of which any time is known, in the order of (start, number).

        As of bios; a request merged into another ends at its last known time. With detail STANDARD
        only those that are chosen, or finished a chosen bio of the last `bios`, have stages.
        """
        stages = window.request_stages
        slices, table, lost = self.begin(REQUEST, window.requests, stages)
        others = self._others(slices, table, self._requests)
        others &= ~np.isin(table.number, self._served)
        self._detailed(slices, table, ~others, window, stages, lost)
        self._unusual(slices, table, lost, others)
        return slices

    def _others(self, slices: Slices, table: Bios | Requests, ranking: Ranking) -> Bool:
        """Return which slices (n,) do not have all arguments."""
        others = np.full(len(slices), self._detail != Detail.FULL)
        if self._detail == Detail.STANDARD:
            others[ranking.choose(slices, (table.status != 0) | table.doubtful)] = False
        return others

    def losses(self, table: LossWindows) -> Slices:
        """Return a slice per loss window (rings that ran full, or damage), sorted by start."""
        table = table.take(np.argsort(table.start, kind="stable"))
        start, group = np.maximum(table.start, 0), np.zeros(len(table), dtype=np.int64)
        name = np.full(len(table), self.drawing.names.id("lost events"))
        slices = Slices.of_rows(LOSS, group, start, np.maximum(table.end, start), name)
        slices.put("cpu", table.cpu, table.cpu >= 0)
        known = {0: "unknown"} | {int(kind): record.name for kind, record in BY_KIND.items()}
        names = self._strings.ids(table.kind, lambda kind: known.get(kind, f"kind {kind}"))
        slices.text("kind", names)
        slices.put("count", table.count, table.count >= 0)
        if self._host and len(slices):
            slices.text("host", np.full(len(slices), self._strings.id(self._host)))
        return slices

    def begin(
        self, category: str, table: R, stages: Stages | None = None
    ) -> tuple[Slices, R, Bool]:
        """Return bare slices of the rows with a known time, by (start, number), with their rows.

        The third, (n,), is whether the end was lost, or (of a bio) neither Q nor end was recorded.
        stages: None: the rows are in flight at the window's end.
        """
        start, last = first_seen(table), np.maximum(last_seen(table), table.cut)
        if stages is not None and len(stages.owner):
            start = np.where(start == NEVER, FOREVER, start)
            rows = rows_of_owners(table.number, stages.owner)
            loops.widen(rows, stages.start, stages.end, start, last)
            start = np.where(start == FOREVER, NEVER, start)
        lost = table.gone != NEVER
        if isinstance(table, Bios):
            # Of a bio with neither Q, cut nor completion nothing says that it is still in flight.
            lost |= (table.queue < 0) & (table.cut < 0) & (table.complete < 0)
            over = lost
        else:
            absorbed = table.absorbed_by >= 0
            lost, over = lost & ~absorbed, lost | absorbed
        rows = np.flatnonzero(start >= 0)
        first, number = start[rows], table.number[rows]
        a, b = first[:-1], first[1:]
        if not ((a < b) | ((a == b) & (number[:-1] < number[1:]))).all():
            rows = rows[np.lexsort((number, first))]
        if len(rows) < len(table) or (rows[:-1] > rows[1:]).any():
            table = table.take(rows)
            start, last, lost, over = start[rows], last[rows], lost[rows], over[rows]
        if stages is None:
            over = np.zeros(len(table), np.bool_)
        end = np.where(table.complete >= 0, table.complete, np.where(over, last, FOREVER))
        end, group = np.maximum(end, start), table.dev.astype(np.int64)
        opf, names = table.opf, self.drawing.names
        name = names.ids(opf, self._context.op_name)
        preflush = (opf & np.uint32(self._context.flag_mask("PREFLUSH"))) != 0
        flush = (table.bytes == 0) & preflush
        if flush.any():
            name[flush] = names.id(FLUSH)
        if isinstance(table, Requests):
            flushes = opf & np.uint32(OP_MASK) == self._context.op_number(FLUSH)
            name[flushes & (table.kind == RequestKind.FLUSH)] = names.id(DEVICE_FLUSH)
        slices = Slices(category, group, start, end, name, table.number, rows)
        # The UI gives slices with the same correlation id one colour.
        colour = self.drawing.options.colour
        stacked = np.isin(table.family, self._stacked)
        if colour == Colour.FAMILY or (colour == Colour.AUTO and stacked.any()):
            slices.family = (table.family + self.drawing.place.families).astype(np.uint64)
            slices.in_family = None if colour == Colour.FAMILY else stacked
        return slices, table, lost

    def _detailed(
        self,
        every: Slices,
        table: Bios | Requests,
        chosen: Bool,
        window: Lifecycles,
        stages: Stages,
        lost: Bool,
    ) -> None:
        """Add all arguments, and stages to requests, to the chosen ones of `every`.

        table, lost: as of `begin`.
        """
        at = np.flatnonzero(chosen)
        slices, table, lost = every.part(at), table.take(at), lost[at]
        tasks, strings, context = window.tasks, self._strings, self._context
        bios = table if isinstance(table, Bios) else None
        named = bios is not None and (bios.task >= 0).any()
        if bios is not None and named:
            slices.text("process", self._thread_names(bios.task, tasks))
            title = context.titles.title
            titles = strings.ids(
                np.maximum(bios.task, 0), lambda row: title(tasks.pid(row), str(tasks.comm[row]))
            )
            slices.text("title", titles, bios.task >= 0)
        both_known = (table.complete >= 0) & (_begin_of(table) >= 0) & ~table.doubtful
        slices.put("latency_ns", slices.end - slices.start, both_known)
        slices.put("sector", table.sector, table.sector != NO_SECTOR)
        slices.put("bytes", table.bytes)
        if bios is not None:
            slices.put("tid", bios.tid, bios.tid > 0)
        if bios is not None and named:
            pids = tasks.tgid[np.maximum(bios.task, 0)]
            slices.put("pid", pids, (bios.task >= 0) & (pids < FIRST_UNKNOWN_TID))
        slices.text("flags", strings.ids(table.opf & ~np.uint32(0xFF), context.flag_names))
        slices.text("status", strings.ids(table.status, context.status_name))
        slices.text("certainty", self._certainty(table))
        slices.text("device", strings.ids(table.dev, context.device_label))
        slices.put("number", table.number)
        ended = table.complete >= 0
        slices.put("done_bytes", table.done_bytes, ended & (table.done_bytes != table.bytes))
        slices.put("requeues", table.requeues, table.requeues > 0)
        self._marks(slices, table, lost)
        if isinstance(table, Bios):
            self._bio_arguments(slices, table, window)
        else:
            self._request_arguments(slices, table, window.path)
        if len(slices) and len(stages.owner):  # the total time of each kind of stage
            rows = rows_of_owners(table.number, stages.owner)
            theirs, rows = stages.take(rows >= 0), rows[rows >= 0]
            start = np.maximum(theirs.start, slices.start[rows])
            end = np.minimum(np.maximum(theirs.end, start), slices.end[rows])
            for kind in np.flatnonzero(np.bincount(theirs.stage)).tolist():
                here = theirs.stage == kind
                total = np.zeros(len(slices), dtype=np.int64)
                present = np.zeros(len(slices), dtype=np.bool_)
                np.add.at(total, rows[here], (end - start)[here])
                present[rows[here]] = True
                slices.put(STAGE_ARGUMENTS[kind].name, total, present & ~table.doubtful)
        if isinstance(table, Requests):
            add_stages(slices, stages)
        every.adopt(slices, at)

    def _bio_arguments(self, slices: Slices, table: Bios, window: Lifecycles) -> None:
        tasks, strings = window.tasks, self._strings
        part = strings.ids(table.part, self._context.device_label)
        slices.text("partition", part, table.part != table.dev)
        slices.put("request", table.request, table.request >= 0)
        slices.put("parent", table.parent, table.parent >= 0)
        slices.put("fragments", table.fragments, table.fragments != 1)
        slices.put("requests", table.requests, table.requests > 1)
        slices.text("ioprio", strings.ids(table.ioprio, ioprio_text))
        if (table.file >= 0).any():
            slices.text("file", strings.ids(table.file, partial(file_path, self._context)))
        if self.callstacks.names is not None and (table.stack >= 0).any():
            stacks = self.callstacks.known
            why = strings.ids(table.stack, lambda row: stacks[row].missing if row >= 0 else "")
            slices.text("no_stack", why)
        if (table.whom >= 0).any():
            slices.text("for_process", self._thread_names(table.whom, tasks))
            slices.put("for_tid", tasks.tid[np.maximum(table.whom, 0)], table.whom >= 0)
        if "dirty" in self._context.path_parts:
            names = {p: name for p, name in PURPOSE_NAMES.items() if p != Purpose.DATA}
            ids = np.array([strings.id(names[p]) if p in names else 0 for p in Purpose], np.uint64)
            slices.text("purpose", ids[purposes(table, tasks, self._context)])
        if window.path is not None and len(table):
            self._path(slices, table, window.path, tasks)

    def _thread_names(self, rows: I32, tasks: Tasks) -> U64:
        """Return the interned ids of the names in rows of `tasks` (n,), 0 for -1."""
        names = self._strings.ids(np.maximum(rows, 0), lambda row: str(tasks.comm[row]))
        return np.where(rows >= 0, names, np.uint64(0))

    def _path(self, slices: Slices, table: Bios, path: PathTables, tasks: Tasks) -> None:
        """Add what is known of a bio's limit, its call and submission, and who dirtied its page."""
        strings, held = self._strings, path.held
        if len(held):
            row, known = rows_of(held.number, table.number)
            held = held.take(row)
            limits = self._cgroups(np.where(known, held.limit, np.uint64(0)))
            unnamed = np.uint64(strings.id("not known"))
            slices.text("limit_of", np.where(known & (held.limit == 0), unnamed, limits))
            told = known & (held.held != NEVER)
            slices.put("held_ns", held.held, told)
            named = np.where(told, held.task, -1)
            ids = strings.ids(named, lambda one: tasks.comm[one] if one >= 0 else "")
            slices.text("held_for", ids)
        if not len(path.bios):
            return
        row, known = rows_of(path.bios.number, table.number)
        bios = path.bios.take(row)
        called = known & (bios.call != NO_CALL)
        machine = self._context.machine
        ids = strings.ids(bios.call, lambda number: call_name(number, machine))
        if bios.foreign.any():
            ids[bios.foreign] = strings.id("32-bit system call")
        slices.text("call", ids, called)
        slices.put("fd", bios.args[:, 0] & np.uint64(0xFFFFFFFF), called & (bios.call >= 0))
        slices.put("submission", bios.submission, known & (bios.submission >= 0))
        dirtied = known & (bios.dirtied != NEVER)
        if not dirtied.any():
            return
        slices.text("dirtied_by", strings.of_bytes(bios.dirty_comm), dirtied)
        slices.put("dirtied_pid", bios.dirty_pid, dirtied)
        before = table.queue - bios.dirtied
        slices.put("dirtied_before_ns", before, dirtied & (before >= 0) & (table.queue != NEVER))
        groups = self._cgroups(np.where(dirtied, bios.dirty_cgroup, np.uint64(0)))
        slices.text("dirtied_in", groups)

    def _cgroups(self, cgroups: U64) -> U64:
        """Return per cgroup id (n,) the interned id of its path, `id N` without a path; 0 for 0."""

        def path_of(signed: int) -> str:
            cgroup = signed % (1 << 64)
            return self._context.cgroups.get(cgroup, f"id {cgroup}") if cgroup else ""

        return self._strings.ids(cgroups, path_of)

    def _summaries(
        self, slices: Slices, table: Bios, path: PathTables | None, tasks: Tasks, others: Bool
    ) -> None:
        """Add to bios of `others` (n,) the argument `what`, where the path was recorded.

        It is one interned text, 7 bytes, of what else are three arguments: `4 KiB fio pread64`.
        Without the path it would take a trace of small random reads over 150 bytes a bio.
        """
        if path is None or not len(path.bios) or self._detail == Detail.FULL:
            return
        at = np.flatnonzero(others)
        few = table.take(at)
        row, known = rows_of(path.bios.number, few.number)
        call = np.where(known, path.bios.call[row], NO_CALL)
        foreign = np.where(known, path.bios.foreign[row], False)
        key = np.stack([few.bytes.astype(np.int64), few.task.astype(np.int64), call, foreign])
        kinds, codes = np.unique(key, axis=1, return_inverse=True)
        ids = np.zeros(kinds.shape[1], dtype=np.uint64)
        for place, (size, task, call, foreign) in enumerate(kinds.T.tolist()):
            comm = str(tasks.comm[task]) if task >= 0 else ""
            machine = self._context.machine
            name = "" if call == NO_CALL else name_of_call(call, bool(foreign), machine)
            text = " ".join(filter(None, (size_text(size), comm, name)))
            ids[place] = self._strings.id(text) if text else 0
        part = slices.part(at)
        part.text("what", ids[codes.reshape(-1)])
        slices.adopt(part, at)

    def _request_arguments(self, slices: Slices, table: Requests, path: PathTables | None) -> None:
        slices.put("bios", table.bios)
        slices.put("others", table.others, table.others > 0)
        slices.put("tag", table.tag, table.tag != NO_TAG)
        slices.put("sched_tag", table.sched_tag, table.sched_tag != NO_TAG)
        slices.put("hctx", table.hctx, table.hctx != NO_TAG)
        kind = self._strings.ids(table.kind, lambda k: RequestKind(k).name.lower())
        slices.text("kind", kind, table.kind != RequestKind.NORMAL)
        slices.put("parent", table.parent, table.parent >= 0)
        slices.put("absorbed_by", table.absorbed_by, table.absorbed_by >= 0)
        if path is None or not len(table):
            return
        ends, steps = path.interrupts, path.steps
        if len(ends):  # how it was completed, and the times from D by interrupt and softirq to C
            row, known = rows_of(ends.number, table.number)
            ends = ends.take(row)
            names = np.array([self._strings.id(name) for name in _CONTEXTS], dtype=np.uint64)
            slices.text("completed_in", names[np.minimum(ends.context, len(_CONTEXTS) - 1)], known)
            hard = known & (ends.hard != NEVER) & (table.issue != NEVER)
            hard &= ends.hard >= table.issue
            soft = known & (ends.soft != NEVER) & (table.complete != NEVER)
            slices.put("irq", ends.irq, hard)
            slices.put("issue_to_interrupt_ns", ends.hard - table.issue, hard)
            both = hard & soft & (ends.soft >= ends.hard)
            slices.put("interrupt_to_softirq_ns", ends.soft - ends.hard, both)
            slices.put("softirq_to_complete_ns", table.complete - ends.soft, soft)
        if len(steps):  # what the driver did, and the times between, unless it was requeued
            row, known = rows_of(steps.number, table.number)
            steps = steps.take(row)
            names = np.array([self._strings.id(name) if name else 0 for name in DRIVERS], np.uint64)
            named = known & (steps.driver < len(DRIVERS))
            slices.text("driver", names[np.minimum(steps.driver, len(DRIVERS) - 1)], named)
            nvme, once = steps.driver == _NVME, known & (table.requeues == 0)
            sent = np.where(nvme, table.issue, steps.begun)
            for name, begin, end, where in (
                ("setup_to_issue_ns", steps.begun, table.issue, nvme & once),
                ("issue_to_dispatch_ns", table.issue, steps.begun, ~nvme & once),
                ("dispatch_to_answer_ns", sent, steps.answered, once),
                ("answer_to_complete_ns", steps.answered, table.complete, once),
                ("driver_done_to_complete_ns", steps.finished, table.complete, nvme & once),
            ):
                there = where & (begin != NEVER) & (end != NEVER) & (end >= begin)
                slices.put(name, end - begin, there)
            slices.put("driver_errors", steps.errors, known & (steps.errors > 0))
            slices.put("driver_timeouts", steps.timeouts, known & (steps.timeouts > 0))

    def _certainty(self, table: Bios | Requests) -> U64:
        certainty = [self._strings.id(name) for name in _CERTAINTIES]
        return np.array(certainty, dtype=np.uint64)[table.certainty]

    def _marks(self, slices: Slices, table: Bios | Requests, lost: Bool) -> None:
        """Add to slices what was cut off or not recorded, whose I/O it is, and the host."""
        for name, where in (
            ("begin_not_seen", (_begin_of(table) == NEVER) & (table.cut == NEVER)),
            ("begin_cut", table.cut != NEVER),
            ("open_at_end", slices.end == FOREVER),
            ("end_not_seen", lost),
            ("own", table.own),
            ("doubtful", table.doubtful),
        ):
            slices.put(name, where, where, BOOL)
        if self._host and len(slices):
            slices.text("host", np.full(len(slices), self._strings.id(self._host)))

    def _unusual(self, slices: Slices, table: Bios | Requests, lost: Bool, others: Bool) -> None:
        """Add to the slices of `others` (n,) what tells how an I/O is out of the usual."""
        doubtful, failed = table.certainty != Certainty.EXACT, table.status != 0
        short = (table.complete >= 0) & (table.done_bytes != table.bytes)
        several = np.asarray(table.bios != 1) if isinstance(table, Requests) else short
        odd = doubtful | failed | (table.parent >= 0) | short | several | (table.requeues > 0)
        odd |= table.own | (table.complete == NEVER) | (_begin_of(table) == NEVER)
        odd |= bool(self._host) or not self._detail.requests
        at = np.flatnonzero(odd & others)
        part, few = slices.part(at), table.take(at)
        part.text("certainty", self._certainty(few), doubtful[at])
        status = self._strings.ids(few.status, self._context.status_name)
        part.text("status", status, failed[at])
        if self._detail.requests:
            part.put("parent", few.parent, few.parent >= 0)
            part.put("done_bytes", few.done_bytes, short[at])
            part.put("requeues", few.requeues, few.requeues > 0)
        if isinstance(few, Requests):
            part.put("bios", few.bios, few.bios != 1)
        self._marks(part, few, lost[at])
        slices.adopt(part, at)


def _begin_of(table: Bios | Requests) -> I64:
    return table.queue if isinstance(table, Bios) else table.start
