# SPDX-License-Identifier: Apache-2.0
"""Write counters (queue depths and throughput per device, and lost records) and states."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U8,
    U32,
    Bios,
    Bool,
    Lifecycles,
    LossWindows,
)
from biotrail.converters.lifecycles.windows import last_seen
from biotrail.converters.outputs.counters import (
    LEVEL_BIN,
    READ_OPS,
    WRITE_OPS,
    Latency,
    Level,
    Samples,
    Throughput,
)
from biotrail.converters.outputs.perfetto.columns import FOREVER, Slices
from biotrail.converters.outputs.perfetto.names import (
    DEVICE_FLUSH,
    FLUSH,
    IN_DEVICE,
    QUEUED,
    STATE,
    Drawing,
)
from biotrail.converters.outputs.perfetto.packets import PacketFile, begin_packet, end_packet
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.converters.outputs.perfetto.tracks import Streams
from biotrail.converters.outputs.perfetto.tree import LATENCIES, LOST, READS, WRITES, Tree
from biotrail.converters.outputs.perfetto.writing import encode_samples

# Compute a device's counters from its bios, window by window.

_IN, _OUT = 1, 2
_DIRECTIONS = dict.fromkeys(READ_OPS, _IN) | dict.fromkeys(WRITE_OPS, _OUT)
_FINE_BIN, _FEW = 250_000, 4
"""ns: length of a bin, and the most changes in a bin that are a sample each."""


@dataclass
class Passage:
    """When bios of one device were queued, issued and ended. Shape (n,); times in ns."""

    start: I64
    issue: I64
    """NEVER: not issued."""
    end: I64
    """Where the completion is in doubt or was not recorded, the bio's last event; FOREVER: in
    flight when the log ends."""
    complete: I64
    """NEVER: not recorded."""
    done_bytes: I64
    latency: I64
    """Q2C; NEVER: not known, or in doubt."""
    read: Bool
    write: Bool

    @classmethod
    def of(cls, context: Context, slices: Slices, table: Bios, dev: int) -> "Passage":
        """Return the times of the bios that have a slice on `dev` (dev_t), in the slices' order.

        slices: of bios; table: the bios that they were made from. Whether a bio reads or writes
        follows from its operation; flushes and discards do neither.
        """
        chosen = np.flatnonzero(slices.group == dev)
        rows = slices.rows[chosen]
        direction = _directions(context, table.opf[rows])
        queue, complete, doubtful = table.queue[rows], table.complete[rows], table.doubtful[rows]
        end = slices.end[chosen]
        end[doubtful] = last_seen(table.take(rows[doubtful]), completed=False)
        known = (queue != NEVER) & (complete != NEVER) & ~doubtful
        return cls(
            start=slices.start[chosen],
            issue=table.issue[rows],
            end=end,
            complete=complete,
            done_bytes=table.done_bytes[rows].astype(np.int64),
            latency=np.where(known, complete - queue, NEVER),
            read=direction == _IN,
            write=direction == _OUT,
        )


def _directions(context: Context, opf: U32) -> U8:
    """Return per bi_opf (n,) uint8: _IN if the operation reads, _OUT if it writes data, else 0."""
    opfs, _, of = distinct_values(opf)
    directions = [_DIRECTIONS.get(context.op_name(one), 0) for one in opfs.tolist()]
    return np.array(directions, dtype=np.uint8)[of]


@dataclass
class Gauges:
    """Queue depths, throughput and latencies of one device, from its bios as they end."""

    origin: int
    """ns: begin of the trace, where the counters begin."""
    fine: bool = True
    """Whether up to _FEW changes within _FINE_BIN are a sample each; else levels have a peak and a
    rest per ms."""
    _begin: int = 0
    """ns: changes before this are samples already, or about to be."""

    def __post_init__(self) -> None:
        thinned = (_FINE_BIN, _FEW) if self.fine else (LEVEL_BIN, 0)
        self._queued, self._in_device = (Level(self.origin, *thinned) for _ in range(2))
        self._reads, self._writes = Throughput(self.origin), Throughput(self.origin)
        self._latency = Latency(self.origin)

    @property
    def held(self) -> int:
        """Number of changes that are no samples yet."""
        return self._queued.held + self._in_device.held

    def update(self, ended: Passage, until: int) -> dict[str, Samples]:
        """Take in bios that ended; return, by counter's name, the samples that are final now.

        until: ns; all changes before it are known. A change before an earlier `until` counts as at
        that. Samples are (times in ns, values), sorted. Counters: QUEUED, bios that are neither
        issued nor ended; IN_DEVICE, issued and not ended; READS and WRITES, bytes/s; LATENCIES, µs.
        """
        until = max(until, self._begin)
        start, issue, end, complete = (
            np.where(at < 0, at, np.maximum(at, self._begin))
            for at in (ended.start, ended.issue, ended.end, ended.complete)
        )
        issued, over = issue >= 0, end != FOREVER
        read, write = (kind & (complete >= 0) for kind in (ended.read, ended.write))
        self._begin = until
        told = ended.latency != NEVER
        latencies = self._latency.update_all(complete[told], ended.latency[told], until)
        left = np.concatenate([issue[issued], end[over & ~issued]])
        return {
            QUEUED: self._queued.update(start, left, until),
            IN_DEVICE: self._in_device.update(issue[issued], end[over & issued], until),
            READS: self._reads.update(complete[read], ended.done_bytes[read], until),
            WRITES: self._writes.update(complete[write], ended.done_bytes[write], until),
            **_in_us(latencies),
        }

    def finish(self, end: int) -> dict[str, Samples]:
        """Return, by counter's name, the samples that were held back: (times in ns, values).

        All counters are there, some perhaps without samples. end: the trace's, ns; no sample
        is later: levels that changed after it have their sample at it. To be called once; no
        `update` may follow.
        """
        return {
            QUEUED: self._queued.finish(end),
            IN_DEVICE: self._in_device.finish(end),
            READS: self._reads.finish(end),
            WRITES: self._writes.finish(end),
            **_in_us(self._latency.finish_all(end)),
        }


def _in_us(latencies: list[Samples]) -> dict[str, Samples]:
    """Return the samples of latencies, ns, by counter's name, in µs, which the UI does not scale.

    One of less than 1 µs is 1: 0 stands for none.
    """
    every = zip(LATENCIES, latencies, strict=True)
    return {name: (at, np.maximum(np.rint(value / 1e3), value > 0)) for name, (at, value) in every}


# The track of a device's states: idle, busy, flushing.

STATES = ("idle", "busy", "flushing")
_MOST = 250
"""Stretches of a kind (busy, flushing) that are kept; with more, short gaps between them go."""
_SLICE_BYTES, _TRACK_BYTES = 110, 600


def _none() -> I64:
    return np.zeros((2, 0), dtype=np.int64)


@dataclass
class States:
    """When a device had I/O in flight, and when a flush, from its slices in any order."""

    _busy: I64 = field(default_factory=_none)
    """Begins and ends (ns) of the stretches so far, (2, k), sorted, apart from each other."""
    _flushing: I64 = field(default_factory=_none)
    _least: int = 1_000
    """ns: gaps between stretches that are no longer are not kept."""

    def add(self, start: I64, end: I64, flush: Bool) -> None:
        """Add I/O (n,) in flight from start to end (ns; FOREVER: to the end of the trace)."""
        spans = np.stack([start, end])
        busy = np.concatenate([self._busy, spans], axis=1)
        flushing = np.concatenate([self._flushing, spans[:, flush]], axis=1)
        self._busy, self._flushing = self._joined(busy), self._joined(flushing)
        while max(self._busy.shape[1], self._flushing.shape[1]) > _MOST:
            self._least *= 2
            self._busy, self._flushing = self._joined(self._busy), self._joined(self._flushing)

    @property
    def bytes(self) -> int:
        """How many bytes the track and its slices will take, at most."""
        stretches = len(self._busy[0]) + len(self._flushing[0])
        return _TRACK_BYTES + _SLICE_BYTES * (2 * stretches + 1)

    def _joined(self, spans: I64) -> I64:
        """Return the stretches of these spans, of which gaps of `_least` and less are part."""
        if not spans.shape[1]:
            return spans
        start, end = spans[:, np.argsort(spans[0], kind="stable")]
        end = np.maximum.accumulate(end)
        apart = np.flatnonzero(start[1:] - self._least > end[:-1])
        return np.stack([start[np.append(0, apart + 1)], end[np.append(apart, len(end) - 1)]])

    def slices(self, begin: int, end: int) -> Iterator[tuple[str, int, int]]:
        """Yield the state, begin and end (ns) of each stretch from the trace's begin to its end."""
        spans = [np.clip(kept, begin, end) for kept in (self._busy, self._flushing)]
        edges = np.unique(np.concatenate([[begin, end], *(kept.ravel() for kept in spans)]))
        states = np.zeros(len(edges) - 1, dtype=np.int64)
        for state, (starts, ends) in enumerate(spans, 1):
            at = np.searchsorted(starts, edges[:-1], side="right") - 1
            if len(starts):
                states[(at >= 0) & (edges[:-1] < ends[at])] = state
        if not len(states):  # a trace of no length
            return
        firsts = np.flatnonzero(np.diff(states, prepend=-1))
        stops = np.append(edges[firsts[1:]], edges[-1])
        for state, start, stop in zip(
            states[firsts].tolist(), edges[firsts].tolist(), stops.tolist(), strict=True
        ):
            yield STATES[state], start, stop

    def packets(self, tree: Tree, dev: int, begin: int, end: int) -> Iterator[TracePacket]:
        """Yield the device's track and its slices. begin, end: the trace's, ns."""
        track = tree.lane(STATE, dev, 0)
        yield TracePacket(track_descriptor=track)
        for state, start, stop in self.slices(begin, end):
            yield begin_packet(track.uuid, start, state, STATE)
            yield end_packet(track.uuid, stop)


_LOSS_BINS = 1 << 16
"""Most bins of a LossTotal."""


@dataclass
class LossTotal:
    """Running total of lost records, from loss windows in any order.

    Memory is bounded: when there are too many bins, they become twice as wide.
    """

    _bin: int = LEVEL_BIN
    """Length of a bin, ns."""
    _lost: dict[int, int] = field(default_factory=dict)
    """Per bin number: records lost in it."""

    def add(self, end: I64, count: I64) -> None:
        """Add loss windows, the times in which a ring was full, to the records lost per bin.

        end (ns), count: per loss window its end, and how many records it lost; -1 (unknown) and 0
        add nothing. All count in the bin of `end`. Changes `_lost`; while it has more than 65,536
        bins, bins become twice as wide (`_bin`).
        """
        for at, lost in zip(end.tolist(), count.tolist(), strict=True):
            if lost > 0:
                key = at // self._bin
                self._lost[key] = self._lost.get(key, 0) + lost
        while len(self._lost) > _LOSS_BINS:
            self._bin *= 2
            wider: dict[int, int] = {}
            for key, lost in self._lost.items():
                wider[key // 2] = wider.get(key // 2, 0) + lost
            self._lost = wider

    @property
    def some(self) -> bool:
        """Whether any counted record was lost."""
        return bool(self._lost)

    def samples(self, at: int) -> Samples:
        """Return the whole counter as (times in ns, records lost so far), sorted by time.

        A zero at `at` (ns, the trace's begin), then a sample at the end of each bin in which a loss
        window ends: when within that window a record was lost is not known. Samples before `at` are
        moved to it, behind the zero.
        """
        keys = np.array(sorted(self._lost), dtype=np.int64)
        steps = np.array([self._lost[k] for k in keys.tolist()], dtype=np.int64)
        times = np.concatenate([[at], np.maximum((keys + 1) * self._bin, at)])
        return times, np.concatenate([[0.0], np.cumsum(steps).astype(float)])


_MOST_HELD = 1 << 20
"""Changes that are held back at most for a device's oldest bio in flight."""


class CounterWriter:
    """Writes the counters of one log, window by window, then the samples that were held back.

    Adds to `summary.samples`.
    """

    def __init__(
        self,
        drawing: Drawing,
        file: PacketFile,
        streams: Streams,
        tree: Tree,
        summary: PerfettoSummary,
    ) -> None:
        """Begin without counters; file, streams, tree, summary: those of the whole trace."""
        self._context = drawing.context
        self._file = file
        self._streams = streams
        self._tree = tree
        self._summary = summary
        self._fine = drawing.options.detail.requests
        self._gauges: dict[int, Gauges] = {}
        """Per dev_t: its counters."""
        self._stream_of: dict[tuple[str, int], int] = {}
        """(name of a counter, dev_t) → index in Streams; from the counter's first sample on."""
        self._states: dict[int, States] = {}
        """Per dev_t, where `fine`."""
        self._flushes = [drawing.names.id(name) for name in (FLUSH, DEVICE_FLUSH)]
        self._lost = LossTotal()
        self.last = 0
        """ns: the latest sample written; 0 before the first."""

    def add_losses(self, table: LossWindows) -> None:
        """Add a window's loss windows to the counter of lost records, which `finish` writes."""
        self._lost.add(table.end, table.count)

    def update(
        self,
        window: Lifecycles,
        bios: Slices,
        open_bios: Slices,
        requests: Slices,
        origin: int,
        end: int,
    ) -> None:
        """Update the counters of each device with a group or a bio in flight; write their samples.

        The counter of lost records is not among them. bios, open_bios, requests: slices of the
        tables of `window`. origin: the trace's begin, ns, where each counter begins. end: when the
        trace's last packet is, ns: bins that end later are left to a later call, as their samples
        would extend the trace. How long a bio was in flight is known when it is over, so what
        follows the oldest open one's beginning is held back, unless that is too much. Sets `last`.
        Raises OutputError where writing fails.
        """
        known_until = max(min(window.end, end + 1), origin)
        in_flight_on = np.unique(open_bios.group).tolist()
        for dev in dict.fromkeys([*self._tree.devices, *in_flight_on]):
            gauges = self._gauges.setdefault(dev, Gauges(origin, self._fine))
            until = known_until
            if gauges.held < _MOST_HELD:
                oldest = open_bios.start[open_bios.group == dev].min(initial=until)
                until = min(until, int(oldest))
            ended = Passage.of(self._context, bios, window.bios, dev)
            self._write(dev, gauges.update(ended, until))
            if self._fine:
                states = self._states.setdefault(dev, States())
                states.add(ended.start, ended.end, self._flush(bios, dev))
                here = requests.group == dev
                states.add(requests.start[here], requests.end[here], self._flush(requests, dev))

    def _flush(self, slices: Slices, dev: int) -> Bool:
        return np.isin(slices.name[slices.group == dev], self._flushes)

    @property
    def held_bytes(self) -> int:
        """How many bytes `finish` will write of states, at most."""
        return sum(states.bytes for states in self._states.values())

    def finish(self, begin: int, end: int) -> None:
        """Write the samples that were held back, the states, and the counter of lost records.

        begin, end: the trace's, ns. Every device with a group gets the same counter of lost
        records, of all devices together; none is written where no loss has a known count. Sets
        `last`, which may be after `end`. Raises OutputError where writing fails.
        """
        for dev, gauges in self._gauges.items():
            self._write(dev, gauges.finish(end))
        for dev, states in self._states.items():
            packets = list(states.packets(self._tree, dev, begin, end))
            self._file.packets([*self._tree.announcements(), *packets])
        if self._lost.some:
            for dev in self._tree.devices:
                self._write(dev, {LOST: self._lost.samples(begin)})

    def _write(self, dev: int, samples: dict[str, Samples]) -> None:
        """Write samples of a device's counters, each on its own packet sequence, and count them."""
        for name, (times, values) in samples.items():
            if not len(times):
                continue
            stream = self._stream_of.get((name, dev))
            if stream is None:
                descriptor = self._tree.counter(name, dev)
                stream = self._streams.add(descriptor, "", int(times[0]))
                self._stream_of[name, dev] = stream
                self._file.packets(self._tree.announcements())
            self._file.write(self._streams.prepare(np.array([stream]), ()))
            since = np.diff(times, prepend=self._streams.last[stream])
            sequence = int(self._streams.sequence[stream])
            self.last = max(self.last, int(times[-1]))
            self._file.write(encode_samples(since, sequence, values))
            self._streams.last[stream] = times[-1]
            self._summary.samples += len(times)
