# SPDX-License-Identifier: Apache-2.0
"""The track of a device's states: idle, busy, flushing."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.outputs.perfetto.names import STATE
from biotrail.converters.outputs.perfetto.path.slow_slices import begin_packet, end_packet
from biotrail.converters.outputs.perfetto.tracks.tree import Tree

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
