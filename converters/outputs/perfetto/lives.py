# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects: a track for each, with its contexts and functions in it.

followed requests                                 a group, below the log's root
  request 0xffff888000001400 life 3 (sector 2048) a slice: the life
    contexts                                      lanes: a slice per context, functions nested in it
"""

from collections.abc import Iterable, Iterator
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.outputs.perfetto.flows import life_flow
from biotrail.converters.outputs.perfetto.names import ARROW, OF_LIFE
from biotrail.converters.outputs.perfetto.packets import begin_packet, end_packet
from biotrail.converters.outputs.perfetto.tracks import Identity
from biotrail.converters.outputs.perfetto.tree import Tree
from biotrail.converters.sites.building import Followed, LifeReader
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import (
    ENDING_NAMES,
    FINISH_NAMES,
    KIND_NAMES,
    ContextKind,
    ContextRun,
    Life,
    Node,
    NodeKind,
)

FOLLOWED = "followed"
"""Category of all slices and instants of lives."""
CONTEXTS = "contexts"
"""Name of the lanes below a life."""
HELP = (
    "The slice is the life of one followed object, from its birth to its death. Below: what each "
    "thread, softirq and interrupt did with it; arrows lead from one to the next."
)
_EXPLICIT = TrackDescriptor.EXPLICIT
_BY_KEY = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY
_RANK = 5
"""Of the group, between what is of the whole log and the first device."""
_HEX = 1 << 32
"""Values from here on are shown as hexadecimal: addresses, negative numbers."""

Facts = dict[str, int | str | None]
"""Arguments of a slice: those with None are left out."""


class LifeWriter:
    """Makes the packets of the lives of a log, window after window."""

    def __init__(
        self, context: Context, identity: Identity, tree: Tree, reader: LifeReader | None = None
    ) -> None:
        """Start before the first window.

        reader: gathers the lives; None: a new one. Parts of one trace share theirs, so that a life
        is drawn whole, in the part in which it ends.
        """
        self._identity, self._tree = identity, tree
        self._reader = reader or LifeReader(context)
        self._group = 0
        """The group's uuid; 0: it has none so far."""
        self.lives = 0
        self.begin = self.end = -1
        """ns, of all lives so far; -1: there was none."""
        self.longest = 0, 0
        """Begin and end (ns) of the longest of them."""

    @property
    def kind(self) -> str:
        """Name of the struct that the log follows."""
        return self._reader.following.type

    def packets(self, window: Lifecycles) -> list[TracePacket]:
        """Return the packets of the lives that are over by the end of a window."""
        self._reader.add(window)
        return self._of(self._reader.ready())

    def rest(self) -> list[TracePacket]:
        """Return the packets of all other lives; no window follows."""
        return self._of(self._reader.rest())

    def _of(self, lives: Iterable[Followed]) -> list[TracePacket]:
        found: list[TracePacket] = []
        for one in lives:
            life = one.life
            self.lives += 1
            self.begin = life.first if self.begin < 0 else min(self.begin, life.first)
            self.end = max(self.end, life.last)
            span = life.begin, life.last
            self.longest = max(self.longest, span, key=lambda one: one[1] - one[0])
            found += self._life(life, self._reader.following, one.number)
        return found

    def _life(self, life: Life, following: Following, number: int) -> Iterator[TracePacket]:
        if not self._group:
            self._group = self._identity.uuid("followed")
            yield self._group_packet(following)
        track = self._identity.uuid(f"life {life.number}")
        yield self._track(life, following, track)
        end = life.last if life.ended == NEVER else life.ended
        facts: Facts = {
            "object": f"{life.object:#x}",
            "life": life.number,
            following.type: None if number == NEVER else number,
            (following.detail_unit or "detail").replace(" ", "_"): life.detail or None,
            "life_ns": None if life.took == NEVER else life.took,
            "ending": ENDING_NAMES[life.ending],
            "hits": life.hits,
            "unfinished": life.unfinished or None,
            "returns_alone": life.alone or None,
            "left_out": life.left_out or None,
            "lost": "records were lost meanwhile" if life.lost else None,
        }
        begin = _begin(track, life.begin, following.type, facts)
        yield begin
        if number != NEVER:
            yield from _mark(track, life.begin, life_flow(self._identity, life.number))
        yield end_packet(track, max(end, life.begin))
        yield from self._contexts(life, track)

    def _group_packet(self, following: Following) -> TracePacket:
        packet = TracePacket()
        group = packet.track_descriptor
        group.uuid, group.parent_uuid = self._group, self._tree.root
        group.name = f"followed: {following.type}"
        group.child_ordering, group.sibling_order_rank = _EXPLICIT, _RANK
        return packet

    def _track(self, life: Life, following: Following, uuid: int) -> TracePacket:
        packet = TracePacket()
        track = packet.track_descriptor
        track.uuid, track.parent_uuid = uuid, self._group
        detail = f" ({following.detail_text(life.detail)})" if life.detail else ""
        track.name = f"{following.type} {life.object:#x} life {life.number}{detail}"
        track.description = HELP
        # Lives are numbered in the order of their births; a rank has 31 bits.
        track.sibling_order_rank = life.number & 0x7FFFFFFF
        return packet

    def _contexts(self, life: Life, above: int) -> Iterator[TracePacket]:
        ends: list[int] = []
        tracks: list[int] = []
        arrows = self._arrows(life)
        for run, flows in zip(life.contexts, arrows, strict=True):
            lane = next((at for at, end in enumerate(ends) if end < run.begin), len(ends))
            if lane == len(ends):
                ends.append(0)
                tracks.append(self._identity.uuid(f"life {life.number} lane {lane}"))
                yield _lane(tracks[lane], above)
            ends[lane] = run.end
            yield from _context(life, run, tracks[lane], flows)

    def _arrows(self, life: Life) -> list[list[int]]:
        """Return per context the ids of its arrows: from the one that ended last before it began.

        What began on top of another context, as an interrupt does, has none from that one.
        """
        found: list[list[int]] = [[] for _ in life.contexts]
        for at, run in enumerate(life.contexts):
            before = [i for i in range(at) if life.contexts[i].end <= run.begin]
            if before:
                source = max(before, key=lambda i: (life.contexts[i].end, i))
                flow = self._identity.uuid(f"flow of life {life.number} to {at}")
                found[source].append(flow)
                found[at].append(flow)
        return found


def _lane(uuid: int, above: int) -> TracePacket:
    packet = TracePacket()
    track = packet.track_descriptor
    track.uuid, track.parent_uuid, track.name = uuid, above, CONTEXTS
    track.sibling_merge_behavior, track.sibling_merge_key = _BY_KEY, CONTEXTS
    return packet


def _context(life: Life, run: ContextRun, track: int, flows: list[int]) -> Iterator[TracePacket]:
    facts: Facts = {
        "cpu": ", ".join(map(str, run.cpus)),
        "tid": run.tid,
        "comm": run.comm,
        "what": run.what or None,
    }
    begin = _begin(track, run.begin, context_name(run), facts)
    begin.track_event.flow_ids.extend(flows)
    yield begin
    for root in run.roots:
        yield from _nodes(life, root, track)
    yield end_packet(track, run.end)


def context_name(run: ContextRun) -> str:
    """Return the name of a context's slice: `fio 42: system call pread64`, `softirq …`."""
    if run.kind in (ContextKind.TASK, ContextKind.WORKER, ContextKind.THREAD):
        what = f": {run.what}" if run.what else ""
        return f"{run.comm or KIND_NAMES[run.kind]} {run.tid}{what}"
    return f"{KIND_NAMES[run.kind]} {run.what}".rstrip()


def _nodes(life: Life, root: int, track: int) -> Iterator[TracePacket]:
    rest: list[int | Node] = [root]
    while rest:
        one = rest.pop()
        if isinstance(one, Node):
            yield end_packet(track, one.end if one.end != NEVER else one.seen)
            continue
        node = life.nodes[one]
        yield _event(node, track)
        if node.kind in (NodeKind.FRAME, NodeKind.FUNCTION):
            rest.append(node)
            rest += reversed(node.below)


def _event(node: Node, track: int) -> TracePacket:
    """Return the BEGIN of a function's slice, or the instant of a tracepoint or lone return."""
    known = node.kind == NodeKind.FUNCTION and node.end != NEVER
    moved = node.cpu_end if node.cpu_end != node.cpu else None
    facts: Facts = {
        "module": node.module or None,
        "cpu": node.cpu,
        "cpu_at_return": moved,
        "self_ns": node.own if known else None,
        "returned": _value(node.value) if known else None,
        "no_return": FINISH_NAMES[node.finish] if node.kind == NodeKind.FUNCTION else None,
        "from_stack": "true" if node.kind == NodeKind.FRAME else None,
    }
    if known:
        facts["no_return"] = None
    packet = _begin(track, node.begin, node.name, facts)
    if node.kind in (NodeKind.EVENT, NodeKind.RETURN):
        packet.track_event.type = TrackEvent.TYPE_INSTANT
        if node.kind == NodeKind.RETURN:
            packet.track_event.name = f"{node.name} returned"
    return packet


def _value(value: int) -> str:
    return str(value) if value < _HEX else f"{value:#x}"


def _begin(track: int, at: int, name: str, facts: dict[str, Any]) -> TracePacket:
    packet = begin_packet(track, at, name, FOLLOWED)
    event = packet.track_event
    for key, value in facts.items():
        if isinstance(value, int):
            event.debug_annotations.add(name=key, uint_value=value)
        elif value is not None:
            event.debug_annotations.add(name=key, string_value=value)
    return packet


def _mark(track: int, at: int, flow: int) -> Iterator[TracePacket]:
    """Yield a mark: a slice of no length with an arrow."""
    begin = begin_packet(track, at, OF_LIFE, ARROW)
    begin.track_event.flow_ids.append(flow)
    yield begin
    yield end_packet(track, at)
