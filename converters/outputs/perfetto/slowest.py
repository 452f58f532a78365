# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os and system calls of a trace, each on a track of their own, and who slowed them.

Slices are written when the trace ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from biotrail.converters.analysis.blame.parties import PROCESS_OF_OWNER, Parties
from biotrail.converters.analysis.distributions.sketch import sum_by
from biotrail.converters.analysis.slow.io_details import IO, io_at, row_of
from biotrail.converters.calls.names import name_of_call, name_of_error
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    OP_MASK,
    STAGE_NAMES,
    U32,
    WAIT_CAUSE_NAMES,
    Bool,
    Lifecycles,
    Table,
    Tasks,
    WaitCause,
)
from biotrail.converters.lifecycles.meanings import meaning
from biotrail.converters.lifecycles.operations import asks_flush, transferred
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.flows import Arrow, FlowMaker
from biotrail.converters.outputs.perfetto.names import (
    BLOCKED,
    FLUSH,
    RUNNABLE,
    STAGE,
    STAGE_TITLES,
    Drawing,
    size_text,
)
from biotrail.converters.outputs.perfetto.packets import add_facts, begin_packet, end_packet
from biotrail.converters.outputs.perfetto.tree import Tree
from biotrail.converters.outputs.perfetto.writing import LanePool
from biotrail.recorder.schema.durations import duration
from biotrail.recorder.schema.strings import shown
from biotrail.recorder.schema.syscalls import KERNEL_THREAD, shown_name

if TYPE_CHECKING:
    from biotrail.converters.analysis.blame.online import Timeline

_KEPT = 64
"""I/Os that are kept at most, as slower ones of later windows change which are of one burst."""
_TITLES = {STAGE_NAMES[stage]: title for stage, title in STAGE_TITLES.items()}
"""Name of a stage → of its slice."""
_WORKERS = shown_name(KERNEL_THREAD, False, "")
"""Name of the waits of kernel threads."""
WITH_ARROWS = 10
"""The slowest I/Os and calls that have all arrows by default."""
_CULPRITS = 5
"""Culprits that an I/O has as arguments."""


MOST, OF_BURST = 20, 3
"""Slices on the tracks of the slowest, and how many of these overlap, at most: a burst makes all
that is in it slow, and twenty of one burst say no more than three."""


def episodes(start: I64, end: I64, number: I64, lesser: Bool | None = None) -> I64:
    """Return the indices of the slowest, at most MOST, the slowest first.

    start, end: ns (n,). number: of equally slow ones the least is first. Left out is what overlaps
    OF_BURST or more slower ones that are chosen, or is `lesser` (n,) as one that it overlaps.
    """
    order = np.lexsort((number, start - end))
    begins, ends = start[order], end[order]
    beside = np.zeros(len(order), dtype=np.int64)
    less = np.zeros(len(order), dtype=np.bool_) if lesser is None else lesser[order]
    found: list[int] = []
    at = 0
    while len(found) < MOST:
        rest = np.flatnonzero(beside[at:] < OF_BURST)
        if not len(rest):
            break
        at += int(rest[0])
        found.append(at)
        overlapping = (begins <= ends[at]) & (ends >= begins[at])
        beside += overlapping
        if less[at]:
            beside[overlapping & less] = OF_BURST
        at += 1
    return order[found]


@dataclass(frozen=True)
class SlowSlice:
    """A slice with what lies in it. Times are ns."""

    name: str
    start: int
    end: int
    facts: Mapping[str, int | str | None]
    """Its arguments; those that are None or empty are left out."""
    stages: Sequence[tuple[str, int, int]]
    """Name, begin and end of each, in order of time."""
    colour: str
    """Text that gives it its colour, where it has no `family`."""
    family: int | None = None
    """Its correlation id."""
    number: int = 0
    """Of a bio."""
    dev: int = 0
    """Its dev_t."""

    @property
    def latency(self) -> int:
        return self.end - self.start


def slow_packets(
    tree: Tree,
    category: str,
    slices: Sequence[SlowSlice],
    host: str,
    flows: FlowMaker | None = None,
    blame: "Timeline | None" = None,
) -> Iterator[TracePacket]:
    """Yield the lanes' descriptors of the category's track, then the slices in order of start.

    host: the slices' `host` argument; empty: they have none. flows: has the id of the arrow to a
    bio's slice. blame: who slowed them.
    """
    slices = sorted(slices, key=lambda one: one.start)
    start, end = (np.array([getattr(s, at) for s in slices], np.int64) for at in ("start", "end"))
    never = np.zeros(len(slices), dtype=np.bool_)
    lanes = LanePool().assign(np.arange(len(slices)), start, end, never).tolist()
    tracks = {lane: tree.lane(category, 0, lane) for lane in sorted(set(lanes))}
    yield from (TracePacket(track_descriptor=track) for track in tracks.values())
    for one, lane in zip(slices, lanes, strict=True):
        track = tracks[lane].uuid
        begin = begin_packet(track, one.start, one.name, category)
        event = begin.track_event
        if one.family is None:
            event.correlation_id_str = one.colour
        else:
            event.correlation_id = one.family
        if flows is not None:
            event.flow_ids.append(int(flows.ids(Arrow.SLOWEST, np.array([one.number]))[0]))
        add_facts(event, {**one.facts, "host": host})
        if blame is not None and (behind := blame.slow.get(one.number, (0, []))[1]):
            told = event.debug_annotations.add(name="behind").array_values
            for culprit, ns in behind[:_CULPRITS]:
                entries = told.add().dict_entries
                entries.add(name="culprit", string_value=shown(culprit))
                entries.add(name="wait_ns", uint_value=ns)
                entries.add(name="percent", double_value=round(100 * ns / one.latency, 1))
        yield begin
        last = one.start
        for name, begins, ends in one.stages:
            since, until = max(begins, last), min(ends, one.end)
            if until > since:
                yield begin_packet(track, since, name, STAGE)
                yield end_packet(track, until)
                last = until
        yield end_packet(track, one.end)


# What devices had in flight beside a slow I/O or call, and whose it was. That something was in
# flight beside a wait does not say that it caused it: `analysis/blame` does.

_FEW_KEPT, _MOST_KEPT = 1 << 14, 1 << 18
"""Ended bios that are kept for calls that return later, and at most: those beside which a bio that
is still in flight was, too."""
_MOST_NAMED = 3
"""Of whom it is said what they had in flight: those with most time."""
_FLUSH = 0xFF
"""Stands for the operation of a bio that only flushes."""


@dataclass
class _Flight(Table):
    """One row per bio."""

    number: I64
    dev: U32
    tid: I64
    queue: I64
    issue: I64
    """NEVER: not issued."""
    end: I64
    """FAR: in flight."""
    what: I64
    """Code of its party << 8 | operation."""
    bytes: I64


class Flights:
    """The bios of the windows so far, as far as a slow I/O or call may have been beside them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writers = Parties(PROCESS_OF_OWNER, context)
        self._kept = _Flight.none()
        self.now = _Flight.none()
        """The kept ones, those that ended in the window, and those in flight at its end."""
        self._floor = NEVER
        """The latest end (ns) of those that are kept no longer."""

    def add(self, window: Lifecycles) -> None:
        """Take in the log's next window."""
        self.now = _Flight.none()  # not kept while the next is made
        path = window.path
        open_path = None if path is None else replace(path, bios=path.open_bios)
        found = []
        for one in (window, replace(window, bios=window.open_bios, path=open_path)):
            bios, who = one.bios, self._writers.codes_of_writers(one)
            size = transferred(self._context, bios.opf, bios.bytes)
            empty = asks_flush(self._context, bios.opf, bios.bytes)
            op = np.where(empty, _FLUSH, bios.opf & OP_MASK).astype(np.int64)
            end = np.where(bios.complete == NEVER, FAR, bios.complete)
            every = _Flight(
                bios.number, bios.dev, bios.tid.astype(np.int64), bios.queue, bios.issue, end,
                who << 8 | op, size,
            )  # fmt: skip
            found.append(every.take((bios.queue != NEVER) & ~bios.own))
        ended, still = found
        known = _Flight.concatenate([self._kept, ended])
        self.now = _Flight.concatenate([known, still])
        oldest = int(still.queue.min(initial=FAR))
        keeps = known.end > oldest
        keeps[-_FEW_KEPT:] = True
        keeps[:-_MOST_KEPT] = False
        self._kept = known.take(keeps)
        self._floor = max(self._floor, int(known.end[~keeps].max(initial=NEVER)))

    def beside_call(self, tid: int, disk: int | None, begin: int, end: int) -> str:
        """Return in words what a device had while a thread waited in a call; empty: nothing else.

        disk: which one; None: that of most of the bios that the thread queued. Its own are left
        out.
        """
        now = self.now
        now = now.take((now.end > begin) & (now.queue < end))
        own = (now.tid == tid) & (now.queue >= begin)
        if disk is None and not own.any():
            return ""
        if disk is None:
            theirs = now.take(own)
            devs, place = np.unique(theirs.dev, return_inverse=True)
            sums = sum_by(place.astype(np.int64), _within(theirs, begin, end), len(devs))
            disk = int(devs[np.argmax(sums)])
        return self.named(disk, now.take((now.dev == disk) & ~own), begin, end)

    def named(self, dev: int, flights: _Flight, begin: int, end: int) -> str:
        """Return `meanwhile sda had 38 writes (152 MiB) of dd, …`, of `flights`; empty: none."""
        begin, missing = max(begin, self._floor), begin < self._floor
        span = _within(flights, begin, end)
        flights, span = flights.take(span > 0), span[span > 0]
        if not len(flights):
            return ""
        what, place = np.unique(flights.what, return_inverse=True)
        place = place.reshape(-1).astype(np.int64)
        count = np.bincount(place).tolist()
        size = sum_by(place, flights.bytes, len(what)).tolist()
        order = np.argsort(-sum_by(place, span, len(what)), kind="stable").tolist()
        told = []
        for at in order[:_MOST_NAMED]:
            party, code = int(what[at]) >> 8, int(what[at]) & 0xFF
            op = FLUSH if code == _FLUSH else self._context.op_name(code)
            plural = "" if count[at] == 1 else "es" if op.endswith("sh") else "s"
            amount = f" ({size_text(size[at])})" if size[at] else ""
            told.append(f"{count[at]:,} {op}{plural}{amount} of {self._writers.name(party)}")
        rest = sum(count[at] for at in order[_MOST_NAMED:])
        told += [f"{rest:,} other I/O{'s'[: rest > 1]}"] if rest else []
        when = f"in its last {duration(end - self._floor)}" if missing else "meanwhile"
        return f"{when} {self._context.device_name(dev)} had {', '.join(told)}"


def _within(flights: _Flight, begin: int, end: int) -> I64:
    span = np.minimum(flights.end, end) - np.maximum(flights.queue, begin)
    return np.asarray(np.maximum(span, 0), dtype=np.int64)


def slowest_of(slices: list[SlowSlice], lesser: Bool | None = None) -> list[SlowSlice]:
    """Return `episodes` of slices, the slowest first. lesser: per slice."""
    columns = [(one.start, one.end, one.number) for one in slices]
    start, end, number = np.array(columns, dtype=np.int64).reshape(-1, 3).T
    return [slices[at] for at in episodes(start, end, number, lesser=lesser).tolist()]


@dataclass
class SlowCalls:
    """The slowest calls so far, of those that are drawn."""

    drawing: Drawing
    flights: Flights
    """With the window that the calls' slices are made in."""
    kept: list[SlowSlice] = field(default_factory=list)
    """The slowest first."""

    def add(self, slices: Slices, table: Calls, row: I64, waits: Waits, tasks: Tasks) -> I64:
        """Take in calls; return the indices of those slices that are among the slowest so far.

        row: per wait, its call, an index into `table` as of `slices`.
        """
        least = self.kept[-1].latency if len(self.kept) == MOST else -1
        at = np.flatnonzero(slices.end - slices.start > least)
        files = self.drawing.context.files
        at = at[~(files.of_kernel(table.file[at]) & (table.bios[at] == 0))]
        worker = table.number[at] == KERNEL_THREAD
        at = at[episodes(slices.start[at], slices.end[at], slices.number[at], lesser=worker)]
        fresh = {
            one: self._slice(slices, table, one, waits.take(np.flatnonzero(row == one)), tasks)
            for one in at.tolist()
        }
        every = sorted([*self.kept, *fresh.values()], key=lambda one: -one.latency)
        workers = np.array([one.colour == _WORKERS for one in every], np.bool_)
        self.kept = slowest_of(every, workers)
        slow = [id(one) for one in self.kept[:WITH_ARROWS]]
        return np.array([at for at, one in fresh.items() if id(one) in slow], dtype=np.int64)

    def _slice(
        self, slices: Slices, table: Calls, at: int, waits: Waits, tasks: Tasks
    ) -> SlowSlice:
        one, context = table.take(np.array([at])), self.drawing.context
        task, result, start = int(one.task[0]), int(one.result[0]), int(slices.start[at])
        name = self.drawing.names.text(int(slices.name[at]))
        comm = str(tasks.comm[task]) if task >= 0 else ""
        end, file = int(slices.end[at]), int(one.file[0])
        facts: dict[str, int | str | None] = {
            "why": self._why(one, waits, end - start),
            "process": comm,
            "latency_ns": end - start,
            "file": context.files[file].shown if file >= 0 else None,
            "fd": int(one.arg0[0]) if one.number[0] >= 0 else None,
            "result": result if result >= 0 and one.timed[0] else None,
            "error": name_of_error(result),
            "queued_bios": int(one.bios[0]) or None,
            "tid": int(one.tid[0]),
            "pid": tasks.pid(task),
            "commit": int(waits.commit.max(initial=NEVER)) if (waits.commit >= 0).any() else None,
        }
        stages = []
        for reason, out, woken, run in zip(
            waits.reason.tolist(),
            waits.out.tolist(),
            waits.woken.tolist(),
            waits.run.tolist(),
            strict=True,
        ):
            said = "fs" in context.path_parts and reason != WaitReason.UNKNOWN
            blocked = WAIT_REASON_NAMES[WaitReason(reason)] if said else BLOCKED
            stages += [(blocked, out, woken), (RUNNABLE, woken, run)]
        return SlowSlice(f"{name} {comm}".rstrip(), start, end, facts, stages, name)

    def _why(self, one: Calls, waits: Waits, took: int) -> str:
        """Return in a sentence where most of a call's time went. took: ns, the whole call."""
        context = self.drawing.context
        runnable = int(one.runnable[0])
        running = max(took - runnable - int(one.blocked[0]), 0)
        most = max(runnable, running, int(one.blocked[0]))
        if runnable == most and most:
            return f"ready to run, without a CPU, {duration(most)} of {duration(took)}"
        if running == most or not len(waits):
            return f"ran {duration(running)} of {duration(took)}"
        length = waits.woken - waits.out
        alike = waits.reason if "fs" in context.path_parts else waits.cause
        sums = {int(kind): int(length[alike == kind].sum()) for kind in np.unique(alike)}
        kind = max(sums, key=lambda one: sums[one])
        longest = int(np.argmax(np.where(alike == kind, length, -1)))
        what = WAIT_CAUSE_NAMES[WaitCause(int(waits.cause[longest]))]
        if alike is waits.reason and kind != WaitReason.UNKNOWN:
            what = f"{WAIT_REASON_NAMES[WaitReason(kind)]} ({what})"
        text = f"waited {duration(sums[kind])} of {duration(took)}: {what}"
        disk = None
        if waits.commit[longest] != NEVER:
            dev = int(waits.commit_dev[longest])
            disk = context.disk_of(dev)
            text += f"; transaction {int(waits.commit[longest])} of {context.device_name(dev)}"
        if waits.cause[longest] == WaitCause.OTHERWISE:
            return text
        begin = int(one.entry[0])
        beside = self.flights.beside_call(int(one.tid[0]), disk, begin, begin + took)
        return "; ".join(filter(None, (text, beside)))


@dataclass
class Slowest:
    """The slowest bios so far, of those whose latency is known and that have no parent."""

    drawing: Drawing
    flights: Flights
    """With the window that is given to `add`."""
    kept: list[SlowSlice] = field(default_factory=list)
    """The slowest first: those on the track, as far as is known by now, and others."""

    def add(self, slices: Slices, window: Lifecycles) -> tuple[I64, I64]:
        """Take in a window's bios; return the numbers of those among the slowest so far.

        slices: of `window.bios`. Returns all on the track, and those of them that have all arrows.
        """
        table = window.bios
        rows = slices.rows
        ranked = (table.complete[rows] >= 0) & (table.queue[rows] >= 0) & (table.parent[rows] < 0)
        ranked &= ~table.doubtful[rows]
        least = self.kept[-1].latency if len(self.kept) == _KEPT else -1
        at = np.flatnonzero(ranked & (slices.end - slices.start > least))
        at = at[episodes(slices.start[at], slices.end[at], slices.number[at])]
        fresh = [self._slice(slices, window, row) for row in at.tolist()]
        self.kept = sorted([*self.kept, *fresh], key=lambda one: (-one.latency, one.number))
        chosen = [one.number for one in slowest_of(self.kept)]
        others = [one.number for one in self.kept if one.number not in chosen]
        kept = {*chosen, *others[: _KEPT - len(chosen)]}
        self.kept = [one for one in self.kept if one.number in kept]
        numbers = slices.number[at]
        slowest = np.isin(numbers, chosen), np.isin(numbers, chosen[:WITH_ARROWS])
        return numbers[slowest[0]], numbers[slowest[1]]

    def _slice(self, slices: Slices, window: Lifecycles, at: int) -> SlowSlice:
        """Return one I/O as a slice with its stages, coloured as its bio's slice is."""
        context, row = self.drawing.context, int(slices.rows[at])
        io = io_at(context, window, row, window.end)
        family = None
        if slices.family is not None and (slices.in_family is None or slices.in_family[at]):
            family = int(slices.family[at])
        operation = self.drawing.names.text(int(slices.name[at]))
        begin, latency = int(slices.start[at]), io.waited_ns
        purpose, call = "", ""
        if "dirty" in context.path_parts:
            bio = window.bios.take(np.array([row]))
            kind = Purpose(int(purposes(bio, window.tasks, context)[0]))
            purpose = "" if kind == Purpose.DATA else PURPOSE_NAMES.get(kind, "")
        if window.path is not None:
            paths = window.path.bios
            known = row_of(paths.number, io.number)
            if known >= 0 and paths.call[known] != NO_CALL:
                foreign = bool(paths.foreign[known])
                call = name_of_call(int(paths.call[known]), foreign, context.machine)
        facts = {
            "why": self._why(io, window, row, begin, int(slices.end[at])),
            "process": io.comm,
            "latency_ns": latency,
            "bytes": io.bytes,
            "device": context.device_label(io.dev),
            "call": call,
            "purpose": purpose,
            "file": io.file,
            "cgroup": io.cgroup,
            "flags": io.flags,
            "tid": io.tid,
            "pid": io.pid,
            "for_process": io.for_comm,
            "for_tid": io.for_tid,
            "held_by": None if io.held is None else io.held.cgroup,
            "held_ns": None if io.held is None else io.held.ns,
            "number": io.number,
        }
        stages = [
            (_TITLES[s.stage], begin + s.start_ns, begin + s.start_ns + s.ns) for s in io.stages
        ]
        name = " ".join(filter(None, (operation, size_text(io.bytes), io.comm)))
        end = begin + latency
        return SlowSlice(name, begin, end, facts, stages, operation, family, io.number, io.dev)

    def _why(self, io: IO, window: Lifecycles, row: int, begin: int, end: int) -> str:
        """Return in a sentence what it waited for longest, and what its device had meanwhile."""
        longest = io.longest
        if longest is None:
            return ""
        told = [meaning(self.drawing.context, io.dev, longest.stage, io.q2g_reason)]
        queue, issue = int(window.bios.queue[row]), int(window.bios.issue[row])
        now, dev, number = self.flights.now, io.dev, io.number
        passed = (now.queue > queue) & (now.issue < issue) & (now.issue != NEVER) & (now.dev == dev)
        overtaken = int(passed.sum()) if issue != NEVER else 0
        if overtaken:
            told.append(f"{overtaken:,} I/O{'s'[: overtaken > 1]} overtook it")
        beside = (now.end > begin) & (now.queue < end) & (now.dev == dev) & (now.number != number)
        told.append(self.flights.named(dev, now.take(beside), begin, end))
        of = f"{duration(longest.ns)} of {duration(io.waited_ns)} in {longest.stage}"
        return f"{of}: {'; '.join(filter(None, told))}"


# Draw who slowed whom: culprits of the slowest I/Os, and how much of victims' I/O waits.

GROUP = "waiting because of others"
RANK = 2
_DESCRIPTION = (
    "How many I/Os of this container, unit, cgroup or process wait because of others' I/O, on "
    "average: the time that others cost each of them, spread from its queue to its completion."
)


def counters(blame: "Timeline", tree: Tree, begin: int, end: int) -> Iterator[TracePacket]:
    """Yield victims' tracks, below the log's root, and their samples from begin to end, ns."""
    group = tree.identity.uuid(GROUP)
    for number, (victim, times, values) in enumerate(blame.waiting()):
        if not number:
            above = TrackDescriptor(uuid=group, parent_uuid=tree.root, name=GROUP)
            above.sibling_order_rank = RANK
            yield TracePacket(track_descriptor=above)
        track = TrackDescriptor(
            uuid=tree.identity.uuid(f"{GROUP} {victim}"),
            parent_uuid=group,
            name=shown(victim),
            description=_DESCRIPTION,
            counter=CounterDescriptor(unit_name="I/Os", y_axis_share_key=GROUP),
        )
        yield TracePacket(track_descriptor=track)
        for at, value in zip(times.tolist(), values.tolist(), strict=True):
            packet = TracePacket(timestamp=min(max(at, begin), end))
            packet.track_event.type = TrackEvent.TYPE_COUNTER
            packet.track_event.track_uuid = track.uuid
            packet.track_event.double_counter_value = value
            yield packet
