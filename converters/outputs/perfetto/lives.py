# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects: a track for each, with its contexts and functions in it.

followed requests                                 a group, below the log's root
  request 0xffff888000001400 life 3 (sector 2048) a slice: the life
    contexts                                      lanes: a slice per context, functions nested in it
"""

from collections.abc import Iterator
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
from biotrail.converters.sites.building import LifeReader
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
        self.following = self._reader.following
        """What the log follows."""
        self._group = 0
        """The group's uuid; 0: it has none so far."""
        self.lives = 0
        self.begin = self.end = -1
        """ns, of all lives so far; -1: there was none."""
        self.longest = 0, 0
        """Begin and end (ns) of the longest of them."""

    def packets(self, window: Lifecycles | None) -> list[TracePacket]:
        """Return the packets of the lives that are over by the end of a window.

        None: no window follows, so all are.
        """
        if window is not None:
            self._reader.add(window)
        found: list[TracePacket] = []
        for one in self._reader.rest() if window is None else self._reader.ready():
            life = one.life
            self.lives += 1
            self.begin = life.first if self.begin < 0 else min(self.begin, life.first)
            self.end = max(self.end, life.last)
            span = life.begin, life.last
            self.longest = max(self.longest, span, key=lambda one: one[1] - one[0])
            found += self._life(life, one.number)
        return found

    def _life(self, life: Life, number: int) -> Iterator[TracePacket]:
        """number: of the request or bio that it is; NEVER: not known."""
        following = self.following
        if not self._group:
            self._group = self._identity.uuid("followed")
            yield _track(
                self._group,
                self._tree.root,
                f"followed: {following.type}",
                child_ordering=TrackDescriptor.EXPLICIT,
                sibling_order_rank=_RANK,
            )
        track = self._identity.uuid(f"life {life.number}")
        detail = f" ({following.detail_text(life.detail)})" if life.detail else ""
        yield _track(
            track,
            self._group,
            f"{following.type} {life.object:#x} life {life.number}{detail}",
            description=HELP,
            # Lives are numbered in the order of their births; a rank has 31 bits.
            sibling_order_rank=life.number & 0x7FFFFFFF,
        )
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
        yield _begin(track, life.begin, following.type, facts)
        if number != NEVER:  # a mark: a slice of no length with an arrow
            mark = begin_packet(track, life.begin, OF_LIFE, ARROW)
            mark.track_event.flow_ids.append(life_flow(self._identity, life.number))
            yield mark
            yield end_packet(track, life.begin)
        yield end_packet(track, max(end, life.begin))
        yield from self._contexts(life, track)

    def _contexts(self, life: Life, above: int) -> Iterator[TracePacket]:
        """Yield the lanes of a life's contexts, with an arrow from each to the next.

        It leads from the one that ended last before the other began. What began on top of another
        context, as an interrupt does, has none from that one.
        """
        flows: list[list[int]] = [[] for _ in life.contexts]
        for at, run in enumerate(life.contexts):
            before = [i for i in range(at) if life.contexts[i].end <= run.begin]
            if before:
                source = max(before, key=lambda i: (life.contexts[i].end, i))
                flow = self._identity.uuid(f"flow of life {life.number} to {at}")
                flows[source].append(flow)
                flows[at].append(flow)
        ends: list[int] = []
        tracks: list[int] = []
        for run, ids in zip(life.contexts, flows, strict=True):
            lane = next((at for at, end in enumerate(ends) if end < run.begin), len(ends))
            if lane == len(ends):
                ends.append(0)
                tracks.append(self._identity.uuid(f"life {life.number} lane {lane}"))
                yield _track(
                    tracks[lane],
                    above,
                    CONTEXTS,
                    sibling_merge_behavior=_BY_KEY,
                    sibling_merge_key=CONTEXTS,
                )
            ends[lane] = run.end
            yield from _context(life, run, tracks[lane], ids)


def _track(uuid: int, above: int, name: str, **more: Any) -> TracePacket:
    track = TrackDescriptor(uuid=uuid, parent_uuid=above, name=name, **more)
    return TracePacket(track_descriptor=track)


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
    yield end_packet(track, run.end)


def context_name(run: ContextRun) -> str:
    """Return the name of a context's slice: `fio 42: system call pread64`, `softirq …`."""
    if run.kind in (ContextKind.TASK, ContextKind.WORKER, ContextKind.THREAD):
        what = f": {run.what}" if run.what else ""
        return f"{run.comm or KIND_NAMES[run.kind]} {run.tid}{what}"
    return f"{KIND_NAMES[run.kind]} {run.what}".rstrip()


def _event(node: Node, track: int) -> TracePacket:
    """Return the BEGIN of a function's slice, or the instant of a tracepoint or lone return."""
    function = node.kind == NodeKind.FUNCTION
    known = function and node.end != NEVER
    value = str(node.value) if node.value < _HEX else f"{node.value:#x}"
    facts: Facts = {
        "module": node.module or None,
        "cpu": node.cpu,
        "cpu_at_return": node.cpu_end if node.cpu_end != node.cpu else None,
        "self_ns": node.own if known else None,
        "returned": value if known else None,
        "no_return": FINISH_NAMES[node.finish] if function and not known else None,
        "from_stack": "true" if node.kind == NodeKind.FRAME else None,
    }
    packet = _begin(track, node.begin, node.name, facts)
    if node.kind in (NodeKind.EVENT, NodeKind.RETURN):
        packet.track_event.type = TrackEvent.TYPE_INSTANT
        if node.kind == NodeKind.RETURN:
            packet.track_event.name = f"{node.name} returned"
    return packet


def _begin(track: int, at: int, name: str, facts: Facts) -> TracePacket:
    """Return the BEGIN of a slice, with the arguments that are not None."""
    packet = begin_packet(track, at, name, FOLLOWED)
    annotations = packet.track_event.debug_annotations
    for key, value in facts.items():
        if isinstance(value, int):
            annotations.add(name=key, uint_value=value)
        elif value is not None:
            annotations.add(name=key, string_value=value)
    return packet
