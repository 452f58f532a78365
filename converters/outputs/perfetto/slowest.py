# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os and system calls of a trace, each on a track of their own, and who slowed them.

Slices are written when the trace ends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from biotrail.converters.analysis.slow.io_details import IO, io_at, row_of
from biotrail.converters.calls.names import name_of_call, name_of_error
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.path_tables import Calls, Waits
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    STAGE_NAMES,
    WAIT_CAUSE_NAMES,
    Lifecycles,
    Tasks,
    WaitCause,
)
from biotrail.converters.lifecycles.meanings import meaning
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.flights import Flights
from biotrail.converters.outputs.perfetto.lanes import LanePool
from biotrail.converters.outputs.perfetto.names import (
    BLOCKED,
    RUNNABLE,
    SLOW_CALL,
    SLOWEST,
    STAGE,
    STAGE_TITLES,
    Interned,
    size_text,
)
from biotrail.converters.outputs.perfetto.packets import begin_packet, end_packet
from biotrail.converters.outputs.perfetto.ranking import MOST, episodes
from biotrail.converters.outputs.perfetto.tree import Tree
from biotrail.recorder.schema.durations import duration
from biotrail.recorder.schema.strings import characters, shown
from biotrail.recorder.schema.syscalls import KERNEL_THREAD, shown_name


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
    flow: int
    """Id of the arrow that leads to it; 0: none."""
    colour: str
    """Text that gives it its colour, where it has no `family`."""
    family: int | None = None
    """Its correlation id."""
    more: Callable[[TrackEvent], None] | None = None
    """Adds more arguments to its event."""


def slow_packets(tree: Tree, category: str, slices: Sequence[SlowSlice]) -> list[TracePacket]:
    """Return the lanes' descriptors of the category's track, then the slices in order of start."""
    slices = sorted(slices, key=lambda one: one.start)
    start, end = (np.array([getattr(s, at) for s in slices], np.int64) for at in ("start", "end"))
    never = np.zeros(len(slices), dtype=np.bool_)
    lanes = LanePool().assign(np.arange(len(slices)), start, end, never).tolist()
    tracks = {lane: tree.lane(category, 0, lane) for lane in sorted(set(lanes))}
    packets = [TracePacket(track_descriptor=track) for track in tracks.values()]
    for one, lane in zip(slices, lanes, strict=True):
        packets += _slice(one, category, tracks[lane].uuid)
    return packets


def _slice(one: SlowSlice, category: str, track: int) -> list[TracePacket]:
    begin = begin_packet(track, one.start, one.name, category)
    event = begin.track_event
    if one.family is None:
        event.correlation_id_str = one.colour
    else:
        event.correlation_id = one.family
    if one.flow:
        event.flow_ids.append(one.flow)
    for key, value in one.facts.items():
        if isinstance(value, int):
            event.debug_annotations.add(name=key, int_value=value)
        elif value:
            event.debug_annotations.add(name=key, string_value=characters(value))
    if one.more is not None:
        one.more(event)
    packets, last = [begin], one.start
    for name, begins, ends in one.stages:
        start, end = max(begins, last), min(ends, one.end)
        if end > start:
            packets += [begin_packet(track, start, name, STAGE), end_packet(track, end)]
            last = end
    return [*packets, end_packet(track, one.end)]


_WORKERS = shown_name(KERNEL_THREAD, False, "")
"""Name of the waits of kernel threads."""
WITH_ARROWS = 10
"""The slowest calls whose waits have arrows from the commits that ended them, by default."""


@dataclass
class SlowCalls:
    """The slowest calls so far, of those that are drawn."""

    context: Context
    names: Interned
    """Event names."""
    flights: Flights
    """With the window that the calls' slices are made in."""
    _kept: list[SlowSlice] = field(default_factory=list)
    """The slowest first."""

    def add(self, slices: Slices, table: Calls, row: I64, waits: Waits, tasks: Tasks) -> I64:
        """Take in calls; return the indices of those slices that are among the slowest so far.

        slices: of the calls of `table`, in its order. row: per wait, its call. tasks: threads, to
        which `table.task` refers.
        """
        least = self._kept[-1].end - self._kept[-1].start if len(self._kept) == MOST else -1
        at = np.flatnonzero(slices.end - slices.start > least)
        at = at[~(self.context.files.of_kernel(table.file[at]) & (table.bios[at] == 0))]
        worker = table.number[at] == KERNEL_THREAD
        at = at[episodes(slices.start[at], slices.end[at], slices.number[at], lesser=worker)]
        fresh = {
            one: self._slice(slices, table, one, waits.take(np.flatnonzero(row == one)), tasks)
            for one in at.tolist()
        }
        every = sorted([*self._kept, *fresh.values()], key=lambda one: one.start - one.end)
        start, end = (np.array([getattr(s, a) for s in every], np.int64) for a in ("start", "end"))
        workers = np.array([one.colour == _WORKERS for one in every], np.bool_)
        chosen = episodes(start, end, np.arange(len(every)), lesser=workers)
        self._kept = [every[i] for i in chosen.tolist()]
        slow = [id(one) for one in self._kept[:WITH_ARROWS]]
        return np.array([at for at, one in fresh.items() if id(one) in slow], dtype=np.int64)

    def _slice(
        self, slices: Slices, table: Calls, at: int, waits: Waits, tasks: Tasks
    ) -> SlowSlice:
        one = table.take(np.array([at]))
        task, result, start = int(one.task[0]), int(one.result[0]), int(slices.start[at])
        name = self.names.text(int(slices.name[at]))
        comm = str(tasks.comm[task]) if task >= 0 else ""
        end, file = int(slices.end[at]), int(one.file[0])
        facts: dict[str, int | str | None] = {
            "why": self._why(one, waits, end - start),
            "process": comm,
            "latency_ns": end - start,
            "file": self.context.files[file].shown if file >= 0 else None,
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
            stages += [(self._named(reason), out, woken), (RUNNABLE, woken, run)]
        shown = f"{name} {comm}".rstrip()
        return SlowSlice(shown, start, end, facts, stages, 0, name)

    def _named(self, reason: int) -> str:
        said = "fs" in self.context.path_parts and reason != WaitReason.UNKNOWN
        return WAIT_REASON_NAMES[WaitReason(reason)] if said else BLOCKED

    def _why(self, one: Calls, waits: Waits, took: int) -> str:
        """Return in a sentence where most of a call's time went. took: ns, the whole call."""
        runnable = int(one.runnable[0])
        running = max(took - runnable - int(one.blocked[0]), 0)
        most = max(runnable, running, int(one.blocked[0]))
        if runnable == most and most:
            return f"ready to run, without a CPU, {duration(most)} of {duration(took)}"
        if running == most or not len(waits):
            return f"ran {duration(running)} of {duration(took)}"
        length = waits.woken - waits.out
        alike = waits.reason if "fs" in self.context.path_parts else waits.cause
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
            disk = self.context.disk_of(dev)
            text += f"; transaction {int(waits.commit[longest])} of {self.context.device_name(dev)}"
        if waits.cause[longest] == WaitCause.OTHERWISE:
            return text
        begin = int(one.entry[0])
        beside = self.flights.beside_call(int(one.tid[0]), disk, begin, begin + took)
        return "; ".join(filter(None, (text, beside)))

    def packets(self, tree: Tree, host: str) -> list[TracePacket]:
        """Return the track "slowest calls": its lanes' descriptors, and the slices with waits."""
        drawn = [replace(one, facts={**one.facts, "host": host}) for one in self._kept]
        return slow_packets(tree, SLOW_CALL, drawn)


# Draw who slowed whom: culprits of the slowest I/Os, and how much of victims' I/O waits.

GROUP = "waiting because of others"
RANK = 2
_MOST = 5
"""Culprits that an I/O has as arguments."""
_DESCRIPTION = (
    "How many I/Os of this container, unit, cgroup or process wait because of others' I/O, on "
    "average: the time that others cost each of them, spread from its queue to its completion."
)


class Blame(Protocol):
    """Who slowed whom, once all windows were taken in (`analysis.blame.timeline`)."""

    def finish(self) -> None:
        """Take in what is left, after the last window."""

    def behind(self, number: int) -> list[tuple[str, int]]:
        """Return (culprit, ns) of a bio, the most first."""

    def waiting(self) -> Iterable[tuple[str, I64, NDArray[np.float64]]]:
        """Return (victim, times in ns, how many of its I/Os wait for others from then on)."""


def mark(event: TrackEvent, behind: list[tuple[str, int]], latency: int) -> None:
    """Add the argument `behind`: for each culprit its name, ns, and share of the latency in %."""
    if not behind:
        return
    told = event.debug_annotations.add(name="behind")
    for culprit, ns in behind[:_MOST]:
        one = told.array_values.add()
        one.dict_entries.add(name="culprit", string_value=shown(culprit))
        one.dict_entries.add(name="wait_ns", uint_value=ns)
        one.dict_entries.add(name="percent", double_value=round(100 * ns / latency, 1))


def counters(blame: Blame, tree: Tree, begin: int, end: int) -> Iterator[TracePacket]:
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


_KEPT = 64
"""I/Os that are kept at most, as slower ones of later windows change which are of one burst."""
_TITLES = {STAGE_NAMES[stage]: title for stage, title in STAGE_TITLES.items()}
"""Name of a stage → of its slice."""


@dataclass(frozen=True)
class SlowIo:
    """One I/O among the slowest."""

    io: IO
    start: int
    """Q, ns of CLOCK_MONOTONIC."""
    operation: str
    """Name of its bio's slice."""
    family: int | None
    """Correlation id of the bio's slice; None: the slice has none."""
    call: str
    """System call that queued it; empty: not known."""
    purpose: str
    """`metadata`, `journal`, …; empty: it is for data, or not recorded."""
    overtaken: int
    """Bios of its device that were queued after it, and issued before it."""
    beside: str
    """What its device had meanwhile, in words; empty: nothing else."""

    @property
    def latency(self) -> int:
        """Return ns from Q to C."""
        return self.io.waited_ns

    @property
    def name(self) -> str:
        """The slice's name: `write 1 MiB postgres`."""
        return " ".join(filter(None, (self.operation, size_text(self.io.bytes), self.io.comm)))

    def why(self, context: Context) -> str:
        """Return in a sentence what it waited for longest, and what its device had meanwhile."""
        longest = self.io.longest
        if longest is None:
            return ""
        told = [meaning(context, self.io.dev, longest.stage, self.io.q2g_reason)]
        if self.overtaken:
            told.append(f"{self.overtaken:,} I/O{'s'[: self.overtaken > 1]} overtook it")
        told.append(self.beside)
        of = f"{duration(longest.ns)} of {duration(self.latency)} in {longest.stage}"
        return f"{of}: {'; '.join(filter(None, told))}"


@dataclass
class Slowest:
    """The slowest bios so far, of those whose latency is known and that have no parent."""

    context: Context
    names: Interned
    flights: Flights
    """With the window that is given to `add`."""
    _kept: list[SlowIo] = field(default_factory=list)
    """The slowest first: those on the track, as far as is known by now, and others."""

    def add(self, slices: Slices, window: Lifecycles) -> tuple[I64, I64]:
        """Take in a window's bios; return the numbers of those among the slowest so far.

        slices: of `window.bios`. Returns all on the track, and those of them that have all arrows.
        """
        table = window.bios
        rows = slices.rows
        ranked = (table.complete[rows] >= 0) & (table.queue[rows] >= 0) & (table.parent[rows] < 0)
        ranked &= ~table.doubtful[rows]
        least = self._kept[-1].latency if len(self._kept) == _KEPT else -1
        at = np.flatnonzero(ranked & (slices.end - slices.start > least))
        at = at[episodes(slices.start[at], slices.end[at], slices.number[at])]
        fresh = [self._io(slices, window, row) for row in at.tolist()]
        self._kept = sorted([*self._kept, *fresh], key=lambda one: (-one.latency, one.io.number))
        chosen = [one.io.number for one in self.chosen()]
        others = [one.io.number for one in self._kept if one.io.number not in chosen]
        kept = {*chosen, *others[: _KEPT - len(chosen)]}
        self._kept = [one for one in self._kept if one.io.number in kept]
        numbers = slices.number[at]
        slowest = np.isin(numbers, chosen), np.isin(numbers, chosen[:WITH_ARROWS])
        return numbers[slowest[0]], numbers[slowest[1]]

    def chosen(self) -> list[SlowIo]:
        """Return the I/Os on the track, the slowest first, as far as is known by now."""
        start = np.array([one.start for one in self._kept], dtype=np.int64)
        length = np.array([one.latency for one in self._kept], dtype=np.int64)
        number = np.array([one.io.number for one in self._kept], dtype=np.int64)
        return [self._kept[at] for at in episodes(start, start + length, number).tolist()]

    def _io(self, slices: Slices, window: Lifecycles, at: int) -> SlowIo:
        row = int(slices.rows[at])
        io = io_at(self.context, window, row, window.end)
        family = None
        if slices.family is not None and (slices.in_family is None or slices.in_family[at]):
            family = int(slices.family[at])
        queue, issue = int(window.bios.queue[row]), int(window.bios.issue[row])
        begin, end = int(slices.start[at]), int(slices.end[at])
        return SlowIo(
            io=io,
            start=begin,
            operation=self.names.text(int(slices.name[at])),
            family=family,
            call=self._call(window, io.number),
            purpose=self._purpose(window, row),
            overtaken=self.flights.overtaking(io.dev, queue, issue),
            beside=self.flights.beside_bio(io.number, io.dev, begin, end),
        )

    def _purpose(self, window: Lifecycles, row: int) -> str:
        """Return what a bio, by its row, is for; empty: for data, or it is not known."""
        if "dirty" not in self.context.path_parts:
            return ""
        one = window.bios.take(np.array([row]))
        purpose = Purpose(int(purposes(one, window.tasks, self.context)[0]))
        return "" if purpose == Purpose.DATA else PURPOSE_NAMES.get(purpose, "")

    def _call(self, window: Lifecycles, number: int) -> str:
        if window.path is None:
            return ""
        paths = window.path.bios
        row = row_of(paths.number, number)
        if row < 0 or paths.call[row] == NO_CALL:
            return ""
        return name_of_call(int(paths.call[row]), bool(paths.foreign[row]), self.context.machine)

    def slowest(self) -> SlowIo | None:
        """Return the slowest I/O; None: of no bio without a parent is the latency known."""
        return self._kept[0] if self._kept else None

    def packets(
        self, tree: Tree, host: str, flow: Callable[[int], int], blame: Blame | None
    ) -> list[TracePacket]:
        """Return the track "slowest I/Os": its lanes' descriptors, and the slices with stages.

        tree: makes the lanes' tracks. host: the slices' `host` argument; empty: they have none.
        flow: returns the id of the arrow to an I/O's slice by its number, 0: none. blame: who
        slowed them; None: is not told. I/Os in order of their start; [] without I/Os.
        """
        drawn = [self._slice(one, host, flow(one.io.number), blame) for one in self.chosen()]
        return slow_packets(tree, SLOWEST, drawn)

    def _slice(self, one: SlowIo, host: str, flow: int, blame: Blame | None) -> SlowSlice:
        """Return one I/O as a slice with its stages.

        Its colour is that of its bio's slice: by the correlation id or, where that has none, by
        the operation.
        """
        io = one.io
        facts = {
            "why": one.why(self.context),
            "process": io.comm,
            "latency_ns": one.latency,
            "bytes": io.bytes,
            "device": self.context.device_label(io.dev),
            "call": one.call,
            "purpose": one.purpose,
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
            "host": host,
        }
        begin = one.start
        stages = [
            (_TITLES[s.stage], begin + s.start_ns, begin + s.start_ns + s.ns) for s in io.stages
        ]
        behind = [] if blame is None else blame.behind(io.number)
        return SlowSlice(
            one.name, begin, begin + one.latency, facts, stages, flow, one.operation, one.family,
            lambda event: mark(event, behind, one.latency),
        )  # fmt: skip
