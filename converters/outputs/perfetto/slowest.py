# SPDX-License-Identifier: Apache-2.0
"""Draw a trace's slowest I/Os on a track of their own, and find where to look first."""

from dataclasses import dataclass, field
from heapq import heappush, heappushpop

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Bios, Tasks
from biotrail.converters.outputs.perfetto.clocks import ClockBook
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.lanes import LanePool
from biotrail.converters.outputs.perfetto.names import SLOWEST, Interned
from biotrail.converters.outputs.perfetto.tree import Tree

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
    """The MOST slowest bios so far, of those with queue and completion and without a parent."""

    context: Context
    names: Interned
    clocks: ClockBook
    _found: list[SlowIo] = field(default_factory=list)
    """A heap, the fastest first."""

    def add(self, slices: Slices, table: Bios, tasks: Tasks) -> None:
        """Take in the bios of a window. table: the bios that the slices were made from."""
        rows = slices.rows
        whole = (table.complete[rows] >= 0) & (table.queue[rows] >= 0) & (table.parent[rows] < 0)
        latency = np.where(whole, slices.end - slices.start, -1)
        least = self._found[0].latency if len(self._found) == MOST else -1
        chosen = np.flatnonzero(latency > least)
        if len(chosen) > MOST:
            chosen = chosen[np.lexsort((slices.number[chosen], -latency[chosen]))[:MOST]]
        for at in chosen.tolist():
            one = self._io(slices, table, tasks, at)
            if len(self._found) < MOST:
                heappush(self._found, one)
            else:
                heappushpop(self._found, one)

    def _io(self, slices: Slices, table: Bios, tasks: Tasks, at: int) -> SlowIo:
        """Return slice number `at` as a SlowIo."""
        row, start = int(slices.rows[at]), int(slices.start[at])
        task = int(table.task[row])
        family = None
        if slices.family is not None and (slices.in_family is None or slices.in_family[at]):
            family = int(slices.family[at])
        return SlowIo(
            latency=int(slices.end[at]) - start,
            rank=-int(slices.number[at]),
            start=start,
            at=self.clocks.at(start)[-1][1],
            operation=self.names.text(int(slices.name[at])),
            process=str(tasks.comm[task]) if task >= 0 else "",
            dev=int(table.dev[row]),
            bytes=int(table.bytes[row]),
            family=family,
        )

    def slowest(self) -> SlowIo | None:
        """Return the slowest I/O; None: no bio has both queue and completion."""
        return max(self._found, default=None)

    def packets(self, tree: Tree, host: str) -> list[TracePacket]:
        """Return descriptors of the track's lanes, then its slices.

        host: the slices' `host` argument; empty: they have none.
        """
        found = sorted(self._found, key=lambda one: (one.start, -one.rank))
        start = np.array([one.start for one in found], dtype=np.int64)
        end = np.array([one.start + one.latency for one in found], dtype=np.int64)
        never = np.zeros(len(found), dtype=np.bool_)
        lanes = LanePool().assign(np.arange(len(found)), start, end, never).tolist()
        packets: list[TracePacket] = []
        tracks = {lane: tree.lane(SLOWEST, 0, lane) for lane in sorted(set(lanes))}
        packets += [TracePacket(track_descriptor=track) for track in tracks.values()]
        for one, lane in zip(found, lanes, strict=True):
            packets += self._slice(one, tracks[lane].uuid, host)
        return packets

    def _slice(self, one: SlowIo, track: int, host: str) -> list[TracePacket]:
        """Return the BEGIN and END packets of one I/O. track: uuid of its lane."""
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
