# SPDX-License-Identifier: Apache-2.0
"""Reads a Perfetto trace with the protobuf classes, as trace_processor would, and checks it.

Shares no code with the converter. `read` raises Unsound at the first rule that is broken:
sequences begin with cleared state, interned ids are known before they are used, clocks have
a snapshot, tracks have their parents, uuids are unique, slices nest, every BEGIN has its
END, time does not go back on a track.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    DebugAnnotation,
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

REALTIME, MONOTONIC, BOOTTIME, OWN = 1, 3, 6, 65


class Unsound(Exception):
    """A rule that the trace breaks."""


def require(condition: object, message: str, about: object = None) -> None:
    """Raise Unsound unless the condition holds; about: a message to show, as text only then."""
    if not condition:
        raise Unsound(message if about is None else f"{message}: {about}")


@dataclass
class Slice:
    track: int
    name: str
    category: str
    start: int
    end: int
    depth: int
    args: dict[str, Any]
    correlation: int | str | None
    callstack: list[tuple[str, str]]
    """Function and mapping, the outermost first."""
    children: list["Slice"] = field(default_factory=list)
    flows: list[int] = field(default_factory=list)
    """Ids of its flows."""
    marks: list["Slice"] = field(default_factory=list)
    """Slices of no length in it, from or to which arrows lead."""
    above: "Slice | None" = field(default=None, repr=False, compare=False)
    """The slice that it lies in."""
    order: int = field(default=0, compare=False)
    """Place of its BEGIN in the file."""

    @property
    def dur(self) -> int:
        return self.end - self.start


def _shown(one: Slice) -> Slice:
    """The slice that an arrow is drawn at: what a mark is in."""
    return one.above if one.category == "arrow" and one.above is not None else one


@dataclass
class Instant:
    track: int
    name: str
    at: int
    args: dict[str, Any]


@dataclass
class Track:
    descriptor: TrackDescriptor
    slices: list[Slice] = field(default_factory=list)
    """Outermost only."""
    samples: list[tuple[int, float]] = field(default_factory=list)
    instants: list[Instant] = field(default_factory=list)
    _open: list[Slice] = field(default_factory=list)
    _last: int = -1

    @property
    def name(self) -> str:
        return self.descriptor.name


@dataclass
class _Sequence:
    valid: bool = False
    default_track: int | None = None
    default_clock: int | None = None
    clock: dict[int, int] = field(default_factory=dict)
    boottime: int = 0
    """BOOTTIME less what the sequence's own clock shows."""
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    mappings: dict[int, str] = field(default_factory=dict)
    frames: dict[int, tuple[str, str]] = field(default_factory=dict)
    callstacks: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    place: int = 0
    """Of the packet that is read, in the file."""


@dataclass
class Read:
    tracks: dict[int, Track]
    snapshots: list[dict[int, int]]
    attributes: dict[str, Any]
    packets: int
    sequences: set[int]

    def path(self, uuid: int) -> str:
        names: list[str] = []
        while uuid:
            descriptor = self.tracks[uuid].descriptor
            names.append(descriptor.name)
            uuid = descriptor.parent_uuid
        return "/".join(reversed(names))

    def slices(self, category: str) -> list[Slice]:
        """Outer slices of a category, by start and number."""
        found = [s for t in self.tracks.values() for s in t.slices if s.category == category]
        return sorted(found, key=lambda s: (s.start, s.args.get("number", 0)))

    def counter(self, path_end: str) -> list[tuple[int, float]]:
        (found,) = [
            t
            for u, t in self.tracks.items()
            if t.descriptor.HasField("counter") and self.path(u).endswith(path_end)
        ]
        return found.samples

    def arrows(self, *, marks: bool = False) -> list[tuple[Slice, Slice]]:
        """The slices that an arrow joins, as the importer finds them: of each flow in the order of
        their begins, one to the next. What a mark is in stands for it, unless `marks`.
        Raises Unsound if an arrow leads back: the UI draws it from the end of its source."""
        of_flow: dict[int, list[Slice]] = {}
        outer = [s for t in self.tracks.values() for s in t.slices]
        inner = [c for s in outer for c in (*s.children, *s.marks)]
        for one in sorted([*outer, *inner], key=lambda s: (s.start, s.order)):
            for flow in one.flows:
                of_flow.setdefault(flow, []).append(one)
        pairs = [pair for slices in of_flow.values() for pair in pairwise(slices)]
        for one, other in pairs:
            require(one.end <= other.start, f"an arrow leads back: {one.name} → {other.name}")
        return pairs if marks else [(_shown(one), _shown(other)) for one, other in pairs]

    def instants(self) -> list[Instant]:
        return [i for t in self.tracks.values() for i in t.instants]


def read(data: bytes, *, boottime: bool = False) -> Read:
    """The trace's content; raises Unsound. boottime: times are the trace's, not the logs'."""
    trace = Trace()
    trace.ParseFromString(data)
    result = Read({}, [], {}, 0, set())
    sequences: dict[int, _Sequence] = {}
    for packet in trace.packet:
        _packet(packet, result, sequences, boottime)
    for uuid, track in result.tracks.items():
        require(not track._open, f"track {result.path(uuid)}: {len(track._open)} without END")
        parent = track.descriptor.parent_uuid
        require(not parent or parent in result.tracks, f"track {track.name}: no parent")
    return result


def _packet(
    packet: TracePacket, result: Read, sequences: dict[int, _Sequence], boottime: bool
) -> None:
    number = packet.trusted_packet_sequence_id
    require(number, "a packet without a sequence", packet)
    for message in (packet, packet.track_event, *packet.track_event.debug_annotations):
        require(not len(UnknownFieldSet(message)), "a field that does not exist", message)
    result.sequences.add(number)
    sequence = sequences.setdefault(number, _Sequence())
    place = result.packets = result.packets + 1
    if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
        sequences[number] = sequence = _Sequence(valid=True, clock=sequence.clock)
    sequence.place = place
    # A packet without the flag is never skipped, so it must not depend on one that can be.
    needs = packet.sequence_flags & 2 or packet.HasField("track_event")
    require(needs and sequence.valid, f"sequence {number}: state not cleared")
    if packet.HasField("trace_packet_defaults"):
        defaults = packet.trace_packet_defaults
        sequence.default_clock = defaults.timestamp_clock_id or None
        sequence.default_track = defaults.track_event_defaults.track_uuid or None
    if packet.HasField("interned_data"):
        _intern(packet, sequence)
    if packet.HasField("clock_snapshot"):
        _snapshot(packet, result, sequence)
    for attribute in packet.trace_attributes.attribute:
        kind = attribute.WhichOneof("value")
        result.attributes[attribute.key] = getattr(attribute, kind)
    if packet.HasField("track_descriptor"):
        _track(packet.track_descriptor, result)
    if packet.HasField("track_event"):
        _event(packet, result, sequence, boottime)


def _intern(packet: TracePacket, sequence: _Sequence) -> None:
    data = packet.interned_data
    for entries, table in (
        (data.event_names, sequence.names),
        (data.event_categories, sequence.categories),
        (data.debug_annotation_names, sequence.arguments),
    ):
        for entry in entries:
            require(entry.iid and entry.iid not in table, "interned twice", entry)
            table[entry.iid] = entry.name
    for entry in data.debug_annotation_string_values:
        require(entry.iid and entry.iid not in sequence.strings, "interned twice", entry)
        sequence.strings[entry.iid] = entry.str.decode()
    for entries, texts in (
        (data.function_names, sequence.functions),
        (data.mapping_paths, sequence.paths),
    ):
        for entry in entries:
            require(entry.iid and entry.iid not in texts, "interned twice", entry)
            texts[entry.iid] = entry.str.decode()
    for mapping in data.mappings:
        require(mapping.iid not in sequence.mappings, "interned twice", mapping)
        sequence.mappings[mapping.iid] = sequence.paths[mapping.path_string_ids[0]]
    for frame in data.frames:
        require(frame.iid not in sequence.frames, "interned twice", frame)
        place = sequence.functions[frame.function_name_id], sequence.mappings[frame.mapping_id]
        sequence.frames[frame.iid] = place
    for stack in data.callstacks:
        require(stack.iid not in sequence.callstacks, "interned twice", stack)
        sequence.callstacks[stack.iid] = [sequence.frames[iid] for iid in stack.frame_ids]


def _snapshot(packet: TracePacket, result: Read, sequence: _Sequence) -> None:
    clocks = {c.clock_id: c.timestamp for c in packet.clock_snapshot.clocks}
    # Trace processor keeps apart what snapshots of different sets of clocks say.
    own = [c for c in packet.clock_snapshot.clocks if 64 <= c.clock_id < 128]
    require(len(own) == 1, "a snapshot without a clock of its sequence")
    for clock in own:
        require(clock.is_incremental == (clock.clock_id != OWN), "of another kind than expected")
        told = clocks.get(MONOTONIC, clocks.get(BOOTTIME))
        require(clock.timestamp == told, "neither the time of MONOTONIC nor of BOOTTIME")
        require(clock.timestamp >= sequence.clock.get(clock.clock_id, 0), "clock goes back")
        sequence.clock[clock.clock_id] = clock.timestamp
        sequence.boottime = clocks[BOOTTIME] - clock.timestamp if BOOTTIME in clocks else 0
    if clocks.pop(OWN, None) is not None:
        result.snapshots.append(clocks)


def _track(descriptor: TrackDescriptor, result: Read) -> None:
    known = result.tracks.get(descriptor.uuid)
    require(descriptor.uuid, "a track without uuid")
    parent = descriptor.parent_uuid
    require(not parent or parent in result.tracks, f"{descriptor.name}: parent comes later")
    if known is None:
        result.tracks[descriptor.uuid] = Track(descriptor)
    else:
        require(known.descriptor == descriptor, f"uuid {descriptor.uuid} used for two tracks")


def _time(packet: TracePacket, sequence: _Sequence) -> int:
    clock = packet.timestamp_clock_id or sequence.default_clock
    require(clock, "an event without a clock")
    if clock == OWN:
        require(clock in sequence.clock, "an event before the first snapshot")
        return packet.timestamp
    require(clock in sequence.clock, f"clock {clock} without a snapshot")
    require(packet.timestamp < 1 << 62, "time goes back")
    sequence.clock[clock] += packet.timestamp
    return sequence.clock[clock]


def _event(packet: TracePacket, result: Read, sequence: _Sequence, boottime: bool) -> None:
    event = packet.track_event
    at = _time(packet, sequence) + (sequence.boottime if boottime else 0)
    uuid = event.track_uuid or sequence.default_track
    require(uuid in result.tracks, "an event on an unknown track")
    track = result.tracks[uuid]
    where = f"{result.path(uuid)} at {at}"
    require(at >= track._last, f"{where}: time goes back")
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        _begin(event, track, at, sequence, where)
    elif event.type == TrackEvent.TYPE_SLICE_END:
        require(track._open, f"{where}: END without BEGIN")
        require(not event.HasField("name_iid"), f"{where}: END with a name")
        track._open.pop().end = at
    elif event.type == TrackEvent.TYPE_COUNTER:
        require(track.descriptor.HasField("counter"), f"{where}: not a counter")
        kind = "counter_value" if event.HasField("counter_value") else "double_counter_value"
        require(not track.samples or at > track.samples[-1][0], f"{where}: two samples at once")
        track.samples.append((at, getattr(event, kind)))
    else:
        require(event.type == TrackEvent.TYPE_INSTANT, f"{where}: type {event.type}")
        track.instants.append(Instant(uuid, event.name, at, _arguments(event, sequence)))
    track._last = at


def _begin(event: TrackEvent, track: Track, at: int, sequence: _Sequence, where: str) -> None:
    depth = len(track._open)
    if depth == 0 and track.slices and "state" not in event.categories:  # states adjoin
        require(at > track.slices[-1].end, f"{where}: BEGIN not after the last END")
    name = event.name or sequence.names.get(event.name_iid)
    require(name, f"{where}: name {event.name_iid} unknown")
    categories = [*event.categories, *(sequence.categories[i] for i in event.category_iids)]
    require(len(categories) == 1, f"{where}: categories {categories}")
    family = event.WhichOneof("correlation_id_field")
    new = Slice(
        track=track.descriptor.uuid,
        name=name,
        category=categories[0],
        start=at,
        end=-1,
        depth=depth,
        args=_arguments(event, sequence),
        correlation=getattr(event, family) if family else None,
        callstack=sequence.callstacks[event.callstack_iid] if event.callstack_iid else [],
        flows=list(event.flow_ids),
    )
    require(len(set(new.flows)) == len(new.flows), f"{where}: a flow twice")
    new.order = sequence.place
    if depth:
        new.above = track._open[-1]
    if new.category == "arrow":
        require(depth and new.flows, f"{where}: a mark without a slice or an arrow")
        track._open[-1].marks.append(new)
    else:
        (track._open[-1].children if depth else track.slices).append(new)
    track._open.append(new)


def _arguments(event: TrackEvent, sequence: _Sequence) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for annotation in event.debug_annotations:
        name = annotation.name or sequence.arguments.get(annotation.name_iid)
        require(name, f"argument name {annotation.name_iid} unknown")
        require(name not in result, f"argument {name} twice")
        result[name] = _value(annotation, sequence)
    return result


def _value(annotation: DebugAnnotation, sequence: _Sequence) -> Any:
    if annotation.array_values:
        return [_value(one, sequence) for one in annotation.array_values]
    if annotation.dict_entries:
        return {one.name: _value(one, sequence) for one in annotation.dict_entries}
    kind = annotation.WhichOneof("value")
    value = getattr(annotation, kind)
    if kind == "string_value_iid":
        require(value in sequence.strings, f"string {value} unknown")
        value = sequence.strings[value]
    return value


def render(trace: Read) -> str:
    """The whole trace as text: tracks in their order, their slices, samples, instants."""
    children: dict[int, list[int]] = {}
    for uuid, track in trace.tracks.items():
        children.setdefault(track.descriptor.parent_uuid, []).append(uuid)
    lines = [f"attribute {k} = {v}" for k, v in sorted(trace.attributes.items())]
    lines += [f"clocks {snapshot}" for snapshot in trace.snapshots]

    def one(uuid: int, indent: str) -> None:
        track = trace.tracks[uuid]
        counter = track.descriptor.counter.unit_name
        name = track.name
        if track.descriptor.HasField("thread"):
            thread = track.descriptor.thread
            name = f"thread {thread.tid} {thread.thread_name} of process {thread.pid}"
        lines.append(f"{indent}{name}" + (f" [{counter}]" if counter else ""))
        if track.descriptor.description:
            lines.append(f"{indent}  ? {track.descriptor.description.splitlines()[0]}")
        for at, value in track.samples:
            lines.append(f"{indent}  {at} = {value:g}")
        for instant in track.instants:
            lines.append(f"{indent}  {instant.at} {instant.name}{_text(instant.args)}")
        for outer in track.slices:
            lines.append(
                f"{indent}  {outer.start}+{outer.dur} {outer.category} {outer.name} "
                f"~{outer.correlation}{_text(outer.args)}"
            )
            for inner in outer.children:
                lines.append(f"{indent}    {inner.start}+{inner.dur} {inner.category} {inner.name}")
        below = children.get(uuid, [])
        below.sort(key=lambda u: trace.tracks[u].descriptor.sibling_order_rank)
        for child in below:
            one(child, indent + "  ")

    for root in children.get(0, []):
        one(root, "")
    for source, target in trace.arrows():
        ends = [f"{end.start} {end.category} {end.name}" for end in (source, target)]
        lines.append(f"arrow {ends[0]} → {ends[1]}")
    return "\n".join(lines) + "\n"


def _text(args: dict[str, Any]) -> str:
    return "".join(f" {k}={v}" for k, v in args.items())
