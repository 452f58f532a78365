# SPDX-License-Identifier: Apache-2.0
"""Draw a trace's slowest I/Os on a track of their own, and find where to look first."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.tables import (
    I64,
    STAGE_NAMES,
    Lifecycles,
)
from biotrail.converters.lifecycles.meanings import meaning
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, Purpose, purposes
from biotrail.converters.outputs.perfetto.names import SLOWEST, STAGE_TITLES, Interned
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.packets.ranking import episodes
from biotrail.converters.outputs.perfetto.packets.texts import size_text
from biotrail.converters.outputs.perfetto.path.flights import Flights
from biotrail.converters.outputs.perfetto.path.slow_slices import SlowSlice, slow_packets
from biotrail.converters.outputs.perfetto.tracks.tree import Tree
from biotrail.recorder.schema.durations import duration
from biotrail.recorder.schema.strings import shown

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


WITH_ARROWS = 10
"""The slowest I/Os whose arrows to and from calls, requests and lower bios are drawn by default."""
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
        """Return the bio of slice `at`, which is complete, as a SlowIo.

        The family is None where the slice has no correlation id.
        """
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
        """Return the name of the call that queued a bio; empty: not known."""
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
