# SPDX-License-Identifier: Apache-2.0
"""A flame graph's frames: callers as a tree from the command inwards, bounded for any log."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from biotrail.converters.analysis.page.data import as_json
from biotrail.converters.analysis.stacks.stacks import (
    UNKNOWN,
    Callers,
    Weight,
    frame_text,
    shown_user,
    stack_at,
)
from biotrail.converters.events.stacks import Stack

ROOM = 3_500_000
"""Characters of JSON that a tree may have, so that a page is below 5 MB."""
OF_EACH = 200
"""Characters of a frame beside its name, at most."""
MOST_NAME = 500
"""Characters of a function's name: C++ has longer ones, and a log may say anything."""


class Recorded(NamedTuple):
    """Callers of one recording."""

    label: str
    """The outermost frame below all, where there are several recordings; empty: none."""
    callers: Iterable[Callers]
    stacks: list[Stack]
    """By row, as the callers point to them."""


class Side(StrEnum):
    """What a frame is: its colour."""

    ALL = "all"
    RECORDING = "recording"
    COMMAND = "command"
    PROGRAM = "program"
    KERNEL = "kernel"
    MODULE = "module"
    UNKNOWN = "unknown"


COLOURS = {
    Side.ALL: ("#dfe3e8",),
    Side.RECORDING: ("#d5dbe3",),
    Side.COMMAND: ("#b9c4d2", "#c3ccd8", "#b1bdcc"),
    Side.PROGRAM: ("#8fcf9b", "#9dd6a7", "#84c792", "#a8dcb1", "#79c088"),
    Side.KERNEL: ("#f5b461", "#f2a65a", "#f7c07a", "#eeb04f", "#f3b974"),
    Side.MODULE: ("#e98a6d", "#ee9a80", "#e57f61", "#f0a58d", "#ea9077"),
    Side.UNKNOWN: ("#d7d7d7",),
}
"""Shades of each side, by the name: neighbours differ, and a function has the same everywhere."""


@dataclass
class Node:
    """One function, with all that came through it and its callers."""

    name: str
    side: Side
    parent: int
    """Place of its caller in the list of nodes; of the first, which is all of it, -1."""
    depth: int
    bios: int = 0
    bytes: int = 0
    latency_ns: int = 0
    below: dict[tuple[str, Side], int] = field(default_factory=dict, repr=False)
    """Places of the functions that it called."""

    def weight(self, by: Weight) -> int:
        """Bios, bytes, or ns."""
        return {
            Weight.COUNT: self.bios,
            Weight.BYTES: self.bytes,
            Weight.LATENCY: self.latency_ns,
        }[by]

    @property
    def colour(self) -> str:
        """A shade of its side: `#rrggbb`."""
        shades = COLOURS[self.side]
        return shades[crc32(self.name.encode("utf-8", "replace")) % len(shades)]


@dataclass
class Flame:
    """Nodes in the order in which they are drawn: callers first, siblings by name."""

    nodes: list[Node]
    left_out: int
    """Nodes that found no room; what their callers weigh has them in it."""


def flame(recorded: Iterable[Recorded], room: int = ROOM) -> Flame:
    """Return callers as a tree: all, commands, then functions from the outermost inwards.

    As in `folded`, offsets are not told apart. room: characters of JSON; a frame is never kept
    without its caller.
    """
    nodes = [Node("all", Side.ALL, -1, 0)]
    for label, callers, stacks in recorded:
        outermost = [(label, Side.RECORDING)] if label else []
        for caller in callers:
            at = 0
            _add(nodes[0], caller)
            for name in [*outermost, *_path(caller, stack_at(stacks, caller.stack))]:
                at = nodes[at].below.get(name) or _new(nodes, at, name)
                _add(nodes[at], caller)
    kept = _heaviest(nodes, room)
    return Flame(_ordered(nodes, kept), len(nodes) - len(kept))


def _path(caller: Callers, stack: Stack) -> list[tuple[str, Side]]:
    """(name, side) of each frame: the command, then functions, the outermost first."""
    user = [frame_text(frame, kernel=False) for frame in shown_user(stack.user)]
    found = [(name, Side.UNKNOWN if name == UNKNOWN else Side.PROGRAM) for name in user[::-1]]
    if stack.missing:
        found.append((f"[{stack.missing}]", Side.UNKNOWN))
    for frame in stack.kernel[::-1]:
        side = Side.MODULE if frame.where else Side.KERNEL
        found.append((frame_text(frame, kernel=True), side))
    return [(name[:MOST_NAME], side) for name, side in [(caller.comm, Side.COMMAND), *found]]


def _new(nodes: list[Node], parent: int, name: tuple[str, Side]) -> int:
    """Appends a node for a function that `parent` called, and returns its place."""
    nodes.append(Node(*name, parent, nodes[parent].depth + 1))
    nodes[parent].below[name] = len(nodes) - 1
    return len(nodes) - 1


def _add(node: Node, caller: Callers) -> None:
    node.bios += caller.bios
    node.bytes += caller.bytes
    node.latency_ns += caller.latency_ns


def _heaviest(nodes: list[Node], room: int) -> set[int]:
    """Places of the heaviest nodes that fit, by whichever weight shows most of them.

    No function is heavier than its caller, and callers come first: they are kept, too.
    """
    whole = [max(nodes[0].weight(by), 1) for by in Weight]
    shares = [
        max(node.weight(by) / of for by, of in zip(Weight, whole, strict=True)) for node in nodes
    ]
    order = sorted(range(len(nodes)), key=lambda at: (-shares[at], at))
    used = accumulate(len(as_json(nodes[at].name)) + OF_EACH for at in order)
    return {0, *(at for at, sofar in zip(order, used, strict=True) if sofar <= room)}


def _ordered(nodes: list[Node], kept: set[int]) -> list[Node]:
    """The kept nodes depth first, siblings by name, with parents by their new places."""
    found: list[Node] = []
    rest = [(0, -1)]
    while rest:
        at, parent = rest.pop()
        node = nodes[at]
        place = len(found)
        found.append(
            Node(node.name, node.side, parent, node.depth, node.bios, node.bytes, node.latency_ns)
        )
        below = sorted(name for name, child in node.below.items() if child in kept)
        rest += [(node.below[name], place) for name in reversed(below)]
    return found


def as_dict(found: Flame, by: Weight) -> dict[str, object]:
    """The tree as plain values for a page; `by`: by what its frames are wide at first."""
    return {
        "by": {Weight.COUNT: "bios", Weight.BYTES: "bytes", Weight.LATENCY: "latency_ns"}[by],
        "frames": [
            {
                "name": node.name,
                "side": node.side.value,
                "parent": node.parent,
                "depth": node.depth,
                "colour": node.colour,
                "bios": node.bios,
                "bytes": node.bytes,
                "latency_ns": node.latency_ns,
            }
            for node in found.nodes
        ],
        "left_out": found.left_out,
    }
