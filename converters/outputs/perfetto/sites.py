# SPDX-License-Identifier: Apache-2.0
"""Pairs of events, and lives of followed objects: tracks with their contexts and functions.

followed requests                                 a group, below the log's root
  request 0xffff888000001400 life 3 (sector 2048) a slice: the life
    contexts                                      lanes: a slice per context, functions nested in it
"""

from collections.abc import Iterator, Mapping

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from biotrail.converters.calls.keys import rows_among
from biotrail.converters.events.site_tables import JoinedLives, Pairs
from biotrail.converters.events.tables import I64, NEVER, Lifecycles
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.names import ARROW, OF_LIFE, PAIR, TO_LIFE, Drawing
from biotrail.converters.outputs.perfetto.packets import begin_packet, end_packet
from biotrail.converters.outputs.perfetto.tracks import Identity
from biotrail.converters.outputs.perfetto.tree import PairTrack, Tree
from biotrail.converters.sites.lives import LifeReader
from biotrail.converters.sites.pair_names import MOST_KEYS, DrawnPairs, PairNames
from biotrail.converters.sites.trees import (
    KIND_NAMES,
    ContextKind,
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
OTHERS = "other keys"
"""Name of the track of keys of pairs that have none of their own."""
_TRACK_BITS = 16
_HEX = 1 << 32
"""Values from here on are shown as hexadecimal: addresses, negative numbers."""


class SiteMaker:
    """Makes the slices of pairs, and the packets of lives, of a log's windows in their order."""

    def __init__(
        self, drawing: Drawing, identity: Identity, tree: Tree, lives: LifeReader | None
    ) -> None:
        """tree: its `pairs` are filled. lives: of all parts of a trace; None: a new one."""
        self._drawing, self._identity, self._tree = drawing, identity, tree
        self._lives = lives or LifeReader(drawing.context)
        self._group = 0
        """The uuid of the lives' group; 0: it has none so far."""
        self.lives = 0
        self.end = -1
        """ns, of all lives so far; -1: there was none."""
        self._longest_pair, self._longest_life = (0, 0), (0, 0)
        names, strings = drawing.names, drawing.strings
        self._declared = PairNames(drawing.context)
        self._drawn = DrawnPairs(
            self._declared,
            self._track,
            lambda pair: self._track(pair, MOST_KEYS, OTHERS),
            lambda _, text: names.id(text),
            strings.id,
        )

    @property
    def longest(self) -> tuple[int, int]:
        """Begin and end (ns) of the longest pair or life so far."""
        return max(self._longest_pair, self._longest_life, key=_length)

    def pairs(self, pairs: Pairs) -> Slices:
        """Return a slice per pair that ended in a window, by (start, number), on a key's track."""
        if not len(pairs):
            return Slices.none(PAIR)
        pairs = pairs.take(np.lexsort((pairs.number, pairs.began)))
        longest = int(np.argmax(pairs.ended - pairs.began))
        span = int(pairs.began[longest]), int(pairs.ended[longest])
        self._longest_pair = max(self._longest_pair, span, key=_length)
        group, shared = self._drawn.places(pairs)
        names = self._drawn.names(pairs).astype(np.uint64)
        slices = Slices.of_rows(PAIR, group, pairs.began, pairs.ended, names)
        slices.put("number", pairs.number)
        slices.put("tid", pairs.tid)
        slices.put("cpu", pairs.cpu)
        slices.text("process", self._drawing.strings.of_bytes(pairs.comm))
        if shared.any():
            slices.put("key0", pairs.key0, shared)
            slices.put("key1", pairs.key1, shared)
            slices.text("key", self._drawn.texts(pairs, shared).astype(np.uint64))
        return slices

    def _track(self, pair: int, rank: int, key: str) -> int:
        code = pair << _TRACK_BITS | rank
        track = PairTrack(pair, self._declared.name(pair), key, rank)
        self._tree.pairs.setdefault(code, track)
        return code

    def mark(self, joined: JoinedLives, bio_request: I64, bios: Slices, requests: Slices) -> None:
        """Add the argument `life`, and a mark with a flow, to slices of followed requests or bios.

        A bio whose last request was followed has the argument too. Of several lives of a request,
        its slice has the first one's number, and a flow to each.
        """
        if not len(joined):
            return
        joined = joined.take(np.lexsort((joined.life, joined.number)))
        of_requests = self._lives.following.type == "request"
        drawn = requests if of_requests else bios
        numbered = [(drawn, drawn.number)]
        if of_requests:
            numbered.append((bios, bio_request[bios.rows]))
        for slices, number in numbered:
            place = np.minimum(np.searchsorted(joined.number, number), len(joined) - 1)
            slices.put("life", joined.life[place], joined.number[place] == number)
        # The life has a mark at its begin, too: which of both is first depends on the recording.
        if len(drawn):
            at, known = rows_among(drawn.number, joined.number)
            at = at[known]
            flows = [self._flow(life) for life in joined.life[known].tolist()]
            to_life = self._drawing.names.id(TO_LIFE)
            drawn.mark(at, drawn.start[at], np.array(flows, np.uint64), to_life)

    def _flow(self, life: int) -> int:
        """Return the id of the flow between a life's slice and that of its request or bio."""
        return self._identity.uuid(f"I/O of life {life}")

    def packets(self, window: Lifecycles | None) -> list[TracePacket]:
        """Return the packets of lives that are over by a window's end; None: all, none follows."""
        if window is not None:
            self._lives.add(window)
        found: list[TracePacket] = []
        for life in self._lives.rest() if window is None else self._lives.ready():
            self.lives += 1
            self.end = max(self.end, life.last)
            self._longest_life = max(self._longest_life, (life.begin, life.last), key=_length)
            found += self._life(life)
        return found

    def _life(self, life: Life) -> Iterator[TracePacket]:
        following = self._lives.following
        if not self._group:
            self._group = self._identity.uuid("followed")
            name = f"followed: {following.type}"
            packet, group = _track(self._group, self._tree.root, name)
            group.child_ordering = TrackDescriptor.EXPLICIT
            group.sibling_order_rank = _RANK
            yield packet
        uuid = self._identity.uuid(f"life {life.number}")
        detail = f" ({following.detail_text(life.detail)})" if life.detail else ""
        name = f"{following.type} {life.object:#x} life {life.number}{detail}"
        packet, track = _track(uuid, self._group, name)
        track.description = HELP
        # Lives are numbered in the order of their births; a rank has 31 bits.
        track.sibling_order_rank = life.number & 0x7FFFFFFF
        yield packet
        yield _begin(
            uuid,
            life.begin,
            following.type,
            {
                "object": f"{life.object:#x}",
                "life": life.number,
                following.type: None if life.io == NEVER else life.io,
                (following.detail_unit or "detail").replace(" ", "_"): life.detail or None,
                "life_ns": None if life.took == NEVER else life.took,
                "ending": life.ending,
                "hits": life.hits,
                "unfinished": life.unfinished or None,
                "returns_alone": life.alone or None,
                "left_out": life.left_out or None,
                "lost": "records were lost meanwhile" if life.lost else None,
            },
        )
        if life.io != NEVER:  # a slice of no length with an arrow
            mark = begin_packet(uuid, life.begin, OF_LIFE, ARROW)
            mark.track_event.flow_ids.append(self._flow(life.number))
            yield mark
            yield end_packet(uuid, life.begin)
        end = life.last if life.ended == NEVER else life.ended
        yield end_packet(uuid, max(end, life.begin))
        yield from self._contexts(life, uuid)

    def _contexts(self, life: Life, above: int) -> Iterator[TracePacket]:
        # An arrow leads to each context from the one that ended last before it began. What began on
        # top of another context, as an interrupt does, has none from that one.
        arrows: list[list[int]] = [[] for _ in life.contexts]
        for at, run in enumerate(life.contexts):
            before = [i for i in range(at) if life.contexts[i].end <= run.begin]
            if before:
                source = max(before, key=lambda i: (life.contexts[i].end, i))
                flow = self._identity.uuid(f"flow of life {life.number} to {at}")
                arrows[source].append(flow)
                arrows[at].append(flow)
        ends: list[int] = []
        tracks: list[int] = []
        for run, flows in zip(life.contexts, arrows, strict=True):
            lane = next((at for at, end in enumerate(ends) if end < run.begin), len(ends))
            if lane == len(ends):
                ends.append(0)
                tracks.append(self._identity.uuid(f"life {life.number} lane {lane}"))
                packet, track = _track(tracks[lane], above, CONTEXTS)
                track.sibling_merge_behavior, track.sibling_merge_key = _BY_KEY, CONTEXTS
                yield packet
            ends[lane] = run.end
            # `fio 42: system call pread64`, `softirq …`
            name = f"{KIND_NAMES[run.kind]} {run.what}".rstrip()
            if run.kind in (ContextKind.TASK, ContextKind.WORKER, ContextKind.THREAD):
                what = f": {run.what}" if run.what else ""
                name = f"{run.comm or KIND_NAMES[run.kind]} {run.tid}{what}"
            begin = _begin(
                tracks[lane],
                run.begin,
                name,
                {
                    "cpu": ", ".join(map(str, run.cpus)),
                    "tid": run.tid,
                    "comm": run.comm,
                    "what": run.what or None,
                },
            )
            begin.track_event.flow_ids.extend(flows)
            yield begin
            yield from _nodes(life, run.roots, tracks[lane])
            yield end_packet(tracks[lane], run.end)


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]  # below 0: of a damaged pair


def _nodes(life: Life, roots: list[int], track: int) -> Iterator[TracePacket]:
    """Yield functions' slices, nested, and instants of tracepoints and of lone returns."""
    rest: list[int | Node] = list(reversed(roots))
    while rest:
        one = rest.pop()
        if isinstance(one, Node):
            yield end_packet(track, one.end if one.end != NEVER else one.seen)
            continue
        node = life.nodes[one]
        entered = node.kind == NodeKind.FUNCTION
        known = entered and node.end != NEVER
        returned = str(node.value) if node.value < _HEX else f"{node.value:#x}"
        facts = {
            "module": node.module or None,
            "cpu": node.cpu,
            "cpu_at_return": node.cpu_end if node.cpu_end != node.cpu else None,
            "self_ns": node.own if known else None,
            "returned": returned if known else None,
            "no_return": node.finish if entered and not known else None,
            "from_stack": "true" if node.kind == NodeKind.FRAME else None,
        }
        packet = _begin(track, node.begin, node.name, facts)
        if node.kind in (NodeKind.EVENT, NodeKind.RETURN):
            packet.track_event.type = TrackEvent.TYPE_INSTANT
        if node.kind == NodeKind.RETURN:
            packet.track_event.name = f"{node.name} returned"
        yield packet
        if node.kind in (NodeKind.FRAME, NodeKind.FUNCTION):
            rest.append(node)
            rest += reversed(node.below)


def _track(uuid: int, above: int, name: str) -> tuple[TracePacket, TrackDescriptor]:
    packet = TracePacket()
    track = packet.track_descriptor
    track.uuid, track.parent_uuid, track.name = uuid, above, name
    return packet, track


def _begin(track: int, at: int, name: str, facts: Mapping[str, int | str | None]) -> TracePacket:
    """Return the BEGIN of a slice with arguments: those that are None are left out."""
    packet = begin_packet(track, at, name, FOLLOWED)
    event = packet.track_event
    for key, value in facts.items():
        if isinstance(value, int):
            event.debug_annotations.add(name=key, uint_value=value)
        elif value is not None:
            event.debug_annotations.add(name=key, string_value=value)
    return packet
