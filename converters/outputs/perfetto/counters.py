# SPDX-License-Identifier: Apache-2.0
"""Write counters (queue depths and throughput per device, and lost records) and states."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor

from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, NEVER, Bios, Bool, Lifecycles
from biotrail.converters.lifecycles.windows import last_seen
from biotrail.converters.outputs.counters import (
    LEVEL_BIN,
    READ_OPS,
    WRITE_OPS,
    Binned,
    Level,
    Samples,
)
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import FOREVER, Slices
from biotrail.converters.outputs.perfetto.names import (
    DEVICE_FLUSH,
    FLUSH,
    IN_DEVICE,
    QUEUED,
    STATE,
    Drawing,
)
from biotrail.converters.outputs.perfetto.packets import begin_packet, end_packet
from biotrail.converters.outputs.perfetto.tracks import Streams
from biotrail.converters.outputs.perfetto.tree import LATENCIES, LOST, READS, WRITES, Tree
from biotrail.converters.outputs.perfetto.writing import PACKET

_FINE_BIN, _FEW = 250_000, 4
"""ns: length of a bin, and the most changes in a bin that are a sample each."""
_NAMES = (QUEUED, IN_DEVICE, READS, WRITES, *LATENCIES)


class Gauges:
    """Queue depths, throughput, latencies and states of one device, from its bios as they end."""

    def __init__(self, drawing: Drawing, flushes: list[int], dev: int, origin: int) -> None:
        """flushes: ids of the names of flushes. origin: ns: begin of the trace and the counters."""
        self._context, self._flushes, self._dev = drawing.context, flushes, dev
        self._begin = 0
        """ns: changes before this are samples already, or about to be."""
        fine = drawing.options.detail.requests
        # Up to _FEW changes within _FINE_BIN are a sample each; else there is a peak per ms.
        thinned = (_FINE_BIN, _FEW) if fine else (LEVEL_BIN, 0)
        self.queued, self.in_device = Level(origin, *thinned), Level(origin, *thinned)
        self.binned = Binned(origin), Binned(origin), Binned(origin, latency=True)
        """Bytes of reads, of writes, and latencies."""
        self.states = States() if fine else None

    def update(self, table: Bios, bios: Slices, requests: Slices, until: int) -> list[Samples]:
        """Take in what ended; return, per counter of _NAMES, the samples that are final now.

        table: the window's bios, of which the slices `bios` were made. until: ns; all changes
        before it are known. Where a bio's completion is in doubt or was not recorded, it ended at
        its last event.
        """
        chosen = np.flatnonzero(bios.group == self._dev)
        rows, start, end = bios.rows[chosen], bios.start[chosen], bios.end[chosen]
        queue, complete, doubtful = table.queue[rows], table.complete[rows], table.doubtful[rows]
        end[doubtful] = last_seen(table.take(rows[doubtful]), completed=False)
        if self.states is not None:
            self.states.add(start, end, np.isin(bios.name[chosen], self._flushes))
            here = np.flatnonzero(requests.group == self._dev)
            flush = np.isin(requests.name[here], self._flushes)
            self.states.add(requests.start[here], requests.end[here], flush)
        known = (queue != NEVER) & (complete != NEVER) & ~doubtful
        latency = (complete - queue)[known]
        until = max(until, self._begin)
        start, issue, end, complete = (
            np.where(at < 0, at, np.maximum(at, self._begin))
            for at in (start, table.issue[rows], end, complete)
        )
        self._begin = until
        issued, over = issue >= 0, end != FOREVER
        left = np.concatenate([issue[issued], end[over & ~issued]])
        samples = [
            self.queued.update(start, left, until),
            self.in_device.update(issue[issued], end[over & issued], until),
        ]
        opfs, _, of = distinct_values(table.opf[rows])
        names = [self._context.op_name(one) for one in opfs.tolist()]
        done_bytes = table.done_bytes[rows].astype(np.int64)
        reads, writes, latencies = self.binned
        for counter, operations in ((reads, READ_OPS), (writes, WRITE_OPS)):
            moves = np.array([name in operations for name in names], dtype=np.bool_)[of]
            moved = moves & (complete >= 0)
            samples += counter.update(complete[moved], done_bytes[moved], until)
        return samples + latencies.update(complete[known], latency, until)


# The track of a device's states: idle, busy, flushing.

STATES = ("idle", "busy", "flushing")
_MOST = 250
"""Stretches of a kind (busy, flushing) that are kept; with more, short gaps between them go."""
_SLICE_BYTES, _TRACK_BYTES = 110, 600


@dataclass
class States:
    """When a device had I/O in flight, and when a flush, from its slices in any order."""

    busy: I64 = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    """Begins and ends (ns) of the stretches so far, (2, k), sorted, apart from each other."""
    flushing: I64 = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    _least: int = 1_000
    """ns: gaps between stretches that are no longer are not kept."""

    def add(self, start: I64, end: I64, flush: Bool) -> None:
        """Add I/O (n,) in flight from start to end (ns; FOREVER: to the end of the trace)."""
        spans = np.stack([start, end])
        busy = np.concatenate([self.busy, spans], axis=1)
        flushing = np.concatenate([self.flushing, spans[:, flush]], axis=1)
        self.busy, self.flushing = self._joined(busy), self._joined(flushing)
        while max(self.busy.shape[1], self.flushing.shape[1]) > _MOST:
            self._least *= 2
            self.busy, self.flushing = self._joined(self.busy), self._joined(self.flushing)

    def _joined(self, spans: I64) -> I64:
        """Return the stretches of these spans, of which gaps of `_least` and less are part."""
        if not spans.shape[1]:
            return spans
        start, end = spans[:, np.argsort(spans[0], kind="stable")]
        end = np.maximum.accumulate(end)
        apart = np.flatnonzero(start[1:] - self._least > end[:-1])
        return np.stack([start[np.append(0, apart + 1)], end[np.append(apart, len(end) - 1)]])

    def packets(self, track: TrackDescriptor, begin: int, end: int) -> Iterator[TracePacket]:
        """Yield the track and its slices, which fill it from the trace's begin to its end (ns)."""
        yield TracePacket(track_descriptor=track)
        spans = [np.clip(kept, begin, end) for kept in (self.busy, self.flushing)]
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
            yield begin_packet(track.uuid, start, STATES[state], STATE)
            yield end_packet(track.uuid, stop)


_LOSS_BINS = 1 << 16
"""Most bins that lost records are counted in: with more, bins become twice as wide."""
_MOST_HELD = 1 << 20
"""Changes that are held back at most for a device's oldest bio in flight."""


_LARGEST = float(1 << 62)
"""The largest sample that is written, which a damaged log may exceed."""


class CounterWriter:
    """Writes the counters of one log, window by window, then what was held back."""

    def __init__(
        self,
        drawing: Drawing,
        streams: Streams,
        tree: Tree,
    ) -> None:
        self._drawing, self._streams = drawing, streams
        self._tree, self._file = tree, tree.file
        self._gauges: dict[int, Gauges] = {}
        """Per dev_t: its counters."""
        self._stream_of: dict[tuple[str, int], int] = {}
        """(name of a counter, dev_t) → index in Streams; from the counter's first sample on."""
        self._flushes = [drawing.names.id(name) for name in (FLUSH, DEVICE_FLUSH)]
        self._lost: dict[int, int] = {}
        """Per bin number: records lost in it."""
        self._loss_bin = LEVEL_BIN
        """Length of a bin of lost records, ns."""
        self.last = 0
        """ns: the latest sample written; 0 before the first."""

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

        bios, open_bios, requests: slices of the window's tables. origin: the trace's begin, ns.
        end: when its last packet is, ns: samples of bins that end later would extend it, and wait.
        Also held back, unless that is too much, is what follows the oldest open bio's begin. Sets
        `last`.
        """
        # All of a loss window are in the bin of its end; unknown counts add nothing.
        loss = window.loss
        for at, lost in zip(loss.end.tolist(), loss.count.tolist(), strict=True):
            if lost > 0:
                key = at // self._loss_bin
                self._lost[key] = self._lost.get(key, 0) + lost
        while len(self._lost) > _LOSS_BINS:
            self._loss_bin *= 2
            narrow, self._lost = self._lost, {}
            for key, lost in narrow.items():
                self._lost[key // 2] = self._lost.get(key // 2, 0) + lost
        known_until = max(min(window.end, end + 1), origin)
        in_flight_on = np.unique(open_bios.group).tolist()
        for dev in dict.fromkeys([*self._tree.devices, *in_flight_on]):
            if dev not in self._gauges:
                self._gauges[dev] = Gauges(self._drawing, self._flushes, dev, origin)
            gauges, until = self._gauges[dev], known_until
            if len(gauges.queued.times) + len(gauges.in_device.times) < _MOST_HELD:
                oldest = open_bios.start[open_bios.group == dev].min(initial=until)
                until = min(until, int(oldest))
            samples = gauges.update(window.bios, bios, requests, until)
            for name, found in zip(_NAMES, samples, strict=True):
                self._write(dev, name, *found)

    @property
    def held_bytes(self) -> int:
        """How many bytes `finish` will write of states, at most."""
        states = [one.states for one in self._gauges.values() if one.states is not None]
        stretches = sum(len(one.busy[0]) + len(one.flushing[0]) for one in states)
        return (_TRACK_BYTES + _SLICE_BYTES) * len(states) + _SLICE_BYTES * 2 * stretches

    def finish(self, begin: int, end: int) -> None:
        """Write what was held back, the states, and lost records, of all devices together.

        begin, end: the trace's, ns. Sets `last`, which may be after `end`.
        """
        for dev, gauges in self._gauges.items():
            samples = [gauges.queued.finish(end), gauges.in_device.finish(end)]
            for counter in gauges.binned:
                samples += counter.finish(end)
            for name, found in zip(_NAMES, samples, strict=True):
                self._write(dev, name, *found)
        for dev, gauges in self._gauges.items():
            if gauges.states is not None:
                packets = gauges.states.packets(self._tree.lane(STATE, dev, 0), begin, end)
                self._file.packets(packets)
        if self._lost:  # a zero at the trace's begin, then a sample at the end of each bin
            keys = np.array(sorted(self._lost), dtype=np.int64)
            totals = np.cumsum([0.0, *(self._lost[key] for key in keys.tolist())])
            times = np.append(begin, np.maximum((keys + 1) * self._loss_bin, begin))
            for dev in self._tree.devices:
                self._write(dev, LOST, times, totals)

    def _write(self, dev: int, name: str, times: I64, values: NDArray[np.float64]) -> None:
        """Write samples of a device's counter, on a packet sequence of its own, and count them."""
        if not len(times):
            return
        # In µs, which the UI does not scale; at least 1, as 0 stands for none.
        if name in LATENCIES:
            values = np.maximum(np.rint(values / 1e3), values > 0)
        stream = self._stream_of.get((name, dev))
        if stream is None:
            descriptor = self._tree.counter(name, dev)
            stream = self._streams.add(descriptor, "", int(times[0]))
            self._stream_of[name, dev] = stream
        self._file.packets(self._streams.prepare(np.array([stream])))
        since = np.diff(times, prepend=self._streams.last[stream])
        sequence = int(self._streams.sequence[stream])
        self.last = max(self.last, int(times[-1]))
        whole = np.rint(np.minimum(values, _LARGEST)).astype(np.uint64)
        out = np.empty(PACKET * len(since), dtype=np.uint8)
        self._file.write(out.data[: loops.encode_samples(since, sequence, whole, out)])
        self._streams.last[stream] = times[-1]
        self._file.summary.samples += len(times)
