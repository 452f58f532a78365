# SPDX-License-Identifier: Apache-2.0
"""Draw a trace's slowest I/Os on a track of their own, and find where to look first."""

from dataclasses import dataclass, field
from heapq import heappush, heappushpop

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Bios, Tasks
from biotrail.converters.outputs.perfetto.names import SLOWEST, Interned
from biotrail.converters.outputs.perfetto.packets.clocks import ClockBook
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.slices.blamed import Blame, mark
from biotrail.converters.outputs.perfetto.tracks.lanes import LanePool
from biotrail.converters.outputs.perfetto.tracks.tree import Tree

MOST = 20
"""I/Os on the track."""
_UNITS = ("B", "KiB", "MiB", "GiB")


@dataclass(frozen=True, order=True)
class SlowIo:
    """One I/O. Ordered by latency; of equal latencies, the one with the lower number is larger."""

    latency: int
    """ns."""
    rank: int
    """The bio's number, negated."""
    start: int = field(compare=False)
    """Q, ns of CLOCK_MONOTONIC."""
    at: int = field(compare=False)
    """Q on the trace's primary clock, ns."""
    operation: str = field(compare=False)
    process: str = field(compare=False)
    dev: int = field(compare=False)
    bytes: int = field(compare=False)
    family: int | None = field(compare=False)
    """Correlation id of the bio's slice; None: the slice has none."""

    @property
    def name(self) -> str:
        """The slice's name: `write 1 MiB postgres`."""
        return " ".join(filter(None, (self.operation, size_text(self.bytes), self.process)))


def size_text(size: int) -> str:
    """Return bytes in the largest unit that leaves at least one: `4 KiB`; empty for 0."""
    if not size:
        return ""
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{round(size / (1 << 10 * unit), 1):g} {_UNITS[unit]}"


@dataclass
class Slowest:
    """The MOST slowest bios so far, of those whose latency is known and that have no parent."""

    context: Context
    names: Interned
    clocks: ClockBook
    _heap: list[SlowIo] = field(default_factory=list)
    """A heap, the fastest first."""

    def add(self, slices: Slices, table: Bios, tasks: Tasks) -> None:
        """Take in a window's bios: keep the MOST slowest so far, of those that the class names.

        slices: of bios; table: the bios that they were made from; tasks: threads' names, to which
        `table.task` refers. Of equally slow bios those with lower numbers are kept; but once MOST
        are, a bio must be slower than the fastest of those kept before the window.
        """
        rows = slices.rows
        ranked = (table.complete[rows] >= 0) & (table.queue[rows] >= 0) & (table.parent[rows] < 0)
        ranked &= ~table.doubtful[rows]
        latency = np.where(ranked, slices.end - slices.start, -1)
        least = self._heap[0].latency if len(self._heap) == MOST else -1
        chosen = np.flatnonzero(latency > least)
        if len(chosen) > MOST:
            chosen = chosen[np.lexsort((slices.number[chosen], -latency[chosen]))[:MOST]]
        for row in chosen.tolist():
            one = self._io(slices, table, tasks, row)
            if len(self._heap) < MOST:
                heappush(self._heap, one)
            else:
                heappushpop(self._heap, one)

    def _io(self, slices: Slices, table: Bios, tasks: Tasks, row: int) -> SlowIo:
        """Return the bio of one slice, which is complete, as a SlowIo.

        row: the slice's row in `slices`. table: the bios that they were made from; tasks: threads'
        names, to which `table.task` refers. The latency is the slice's length; process is empty
        where the thread is not known, family None where the slice has no correlation id.
        """
        bio, start = int(slices.rows[row]), int(slices.start[row])
        task = int(table.task[bio])
        family = None
        if slices.family is not None and (slices.in_family is None or slices.in_family[row]):
            family = int(slices.family[row])
        return SlowIo(
            latency=int(slices.end[row]) - start,
            rank=-int(slices.number[row]),
            start=start,
            at=self.clocks.at(start)[-1][1],
            operation=self.names.text(int(slices.name[row])),
            process=str(tasks.comm[task]) if task >= 0 else "",
            dev=int(table.dev[bio]),
            bytes=int(table.bytes[bio]),
            family=family,
        )

    def slowest(self) -> SlowIo | None:
        """Return the slowest I/O; None: of no bio without a parent is the latency known."""
        return max(self._heap, default=None)

    def packets(self, tree: Tree, host: str, blame: Blame | None) -> list[TracePacket]:
        """Return the lanes' descriptors of the track "slowest I/Os", then BEGIN and END per I/O.

        tree: makes the lanes' tracks. host: the slices' `host` argument; empty: they have none.
        blame: who slowed them; None: is not told. I/Os in order of their start, each one's END
        right behind its BEGIN; [] without I/Os.
        """
        slowest = sorted(self._heap, key=lambda one: (one.start, -one.rank))
        start = np.array([one.start for one in slowest], dtype=np.int64)
        end = np.array([one.start + one.latency for one in slowest], dtype=np.int64)
        never = np.zeros(len(slowest), dtype=np.bool_)
        lanes = LanePool().assign(np.arange(len(slowest)), start, end, never).tolist()
        packets: list[TracePacket] = []
        tracks = {lane: tree.lane(SLOWEST, 0, lane) for lane in sorted(set(lanes))}
        packets += [TracePacket(track_descriptor=track) for track in tracks.values()]
        for one, lane in zip(slowest, lanes, strict=True):
            begin, end = self._slice(one, tracks[lane].uuid, host)
            if blame is not None:
                mark(begin.track_event, blame.behind(-one.rank), one.latency)
            packets += [begin, end]
        return packets

    def _slice(self, one: SlowIo, track: int, host: str) -> list[TracePacket]:
        """Return the BEGIN and END packets of one I/O.

        track: uuid of its lane. host: the argument `host`; empty: none. The other arguments are
        process (if known), latency_ns, bytes, device and number. Its colour is that of its bio's
        slice: by the correlation id or, where that has none, by the operation.
        """
        begin, end = TracePacket(timestamp=one.start), TracePacket()
        end.timestamp = one.start + one.latency
        event = begin.track_event
        event.type, event.track_uuid, event.name = TrackEvent.TYPE_SLICE_BEGIN, track, one.name
        event.categories.append(SLOWEST)
        if one.family is None:
            event.correlation_id_str = one.operation  # the colour of its bio's slice
        else:
            event.correlation_id = one.family
        facts = {"process": one.process, "latency_ns": one.latency, "bytes": one.bytes}
        facts |= {"device": self.context.device_label(one.dev), "number": -one.rank, "host": host}
        for key, value in facts.items():
            if isinstance(value, int):
                event.debug_annotations.add(name=key, uint_value=value)
            elif value:
                event.debug_annotations.add(name=key, string_value=value)
        end.track_event.type, end.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, track
        return [begin, end]
