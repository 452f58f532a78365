# SPDX-License-Identifier: Apache-2.0
"""Packets of the tracks of the slowest, which are written when a trace ends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from biotrail.converters.outputs.perfetto.names import STAGE
from biotrail.converters.outputs.perfetto.tracks.lanes import LanePool
from biotrail.converters.outputs.perfetto.tracks.tracks import begin_packet, end_packet
from biotrail.converters.outputs.perfetto.tracks.tree import Tree
from biotrail.recorder.schema.strings import characters


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
    """Return the packets of a slice and its stages. track: uuid of its lane."""
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
