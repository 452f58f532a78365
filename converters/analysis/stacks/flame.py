# SPDX-License-Identifier: Apache-2.0
"""Flame graphs: call stacks as a tree from the command inwards, bounded for any log."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple
from xml.sax.saxutils import escape
from zlib import crc32

from biotrail.converters.analysis.page.data import as_json
from biotrail.converters.analysis.stacks.stacks import (
    UNKNOWN,
    WEIGHTS,
    Callers,
    Weighed,
    Weight,
    frame_text,
    shown_user,
    stack_at,
)
from biotrail.converters.events.stacks import Stack
from biotrail.recorder.schema.strings import shown

ROOM = 3_500_000
OF_EACH = 200
"""Characters of JSON that a frame has besides its name, at most."""
MOST_NAME = 500
"""Characters of a frame's name at most: C++ has longer names, and a log may hold any text."""


class Recorded(NamedTuple):
    label: str
    """Name of the recording, shown as a frame below "all"; "" if there is only one recording."""
    callers: Iterable[Callers]
    stacks: list[Stack]
    """Stacks by row, as in Trace.stacks; `Callers.stack` is the row."""


class Side(StrEnum):
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
"""Shades of each side. The name chooses one, so that a function has the same colour everywhere."""


@dataclass
class Node(Weighed):
    """One frame: a function called in one way, with the I/O that came through it."""

    name: str
    side: Side
    parent: int
    depth: int
    """Number of frames outside this one; 0 for the first node."""
    bios: int = 0
    bytes: int = 0
    latency_ns: int = 0
    below: dict[tuple[str, Side], int] = field(default_factory=dict, repr=False)
    """(name, side) of each function called → its index in the list of nodes."""

    @property
    def colour(self) -> str:
        shades = COLOURS[self.side]
        return shades[crc32(self.name.encode("utf-8", "replace")) % len(shades)]


@dataclass
class Flame:
    nodes: list[Node]
    """Depth first, siblings by name; `below` is empty."""
    left_out: int
    """Nodes for which there was no room; their I/O is still in their callers' weights."""


def flame(recorded: Iterable[Recorded], room: int = ROOM) -> Flame:
    """Return a tree: "all", recordings if labelled, commands, then functions, outermost first."""
    return flame_of(
        (
            (
                [
                    *([(label, Side.RECORDING)] if label else []),
                    *_path(caller, stack_at(stacks, caller.stack)),
                ],
                (caller.bios, caller.bytes, caller.latency_ns),
            )
            for label, callers, stacks in recorded
            for caller in callers
        ),
        room,
    )


def flame_of(
    stacks: Iterable[tuple[Sequence[tuple[str, Side]], tuple[int, int, int]]], room: int = ROOM
) -> Flame:
    """Return the tree of stacks: (frames from the outermost inwards, (bios, bytes, ns)) of each.

    room: characters of JSON for the nodes. A node ranks by the largest of its shares of all bios,
    bytes and latency, and counts as its name's JSON and OF_EACH characters. A function is never
    heavier than its caller, and of equals the caller comes first; so every kept node's caller is
    kept. The first node, "all", always is.
    """
    nodes = [Node("all", Side.ALL, -1, 0)]
    for frames, (bios, size, ns) in stacks:
        path = [0]
        for name in frames:
            parent = nodes[path[-1]]
            if name not in parent.below:
                parent.below[name] = len(nodes)
                nodes.append(Node(*name, path[-1], parent.depth + 1))
            path.append(parent.below[name])
        for at in path:
            nodes[at].bios += bios
            nodes[at].bytes += size
            nodes[at].latency_ns += ns
    whole = [max(nodes[0].weight(by), 1) for by in Weight]
    shares = [
        max(node.weight(by) / of for by, of in zip(Weight, whole, strict=True)) for node in nodes
    ]
    order = sorted(range(len(nodes)), key=lambda at: (-shares[at], at))
    used = accumulate(len(as_json(nodes[at].name)) + OF_EACH for at in order)
    kept = {0, *(at for at, sofar in zip(order, used, strict=True) if sofar <= room)}
    # Copies of the kept nodes, depth first, siblings by name.
    found: list[Node] = []
    rest = [(0, -1)]
    while rest:
        at, above = rest.pop()
        node = nodes[at]
        place = len(found)
        found.append(
            Node(node.name, node.side, above, node.depth, node.bios, node.bytes, node.latency_ns)
        )
        below = sorted(name for name, child in node.below.items() if child in kept)
        rest += [(node.below[name], place) for name in reversed(below)]
    return Flame(found, len(nodes) - len(kept))


def _path(caller: Callers, stack: Stack) -> list[tuple[str, Side]]:
    user = [frame_text(frame, kernel=False) for frame in shown_user(stack.user)]
    found = [(name, Side.UNKNOWN if name == UNKNOWN else Side.PROGRAM) for name in user[::-1]]
    if stack.missing:
        found.append((f"[{stack.missing}]", Side.UNKNOWN))
    for frame in stack.kernel[::-1]:
        side = Side.MODULE if frame.where else Side.KERNEL
        found.append((frame_text(frame, kernel=True), side))
    return [(name[:MOST_NAME], side) for name, side in [(caller.comm, Side.COMMAND), *found]]


def as_dict(found: Flame, by: Weight) -> dict[str, object]:
    """by: the weight that the frames' widths show at first."""
    return {
        "by": WEIGHTS[by],
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


# As an SVG: static, without scripts, embedded fonts or external references.

WIDTH = 1200
"""Width of the picture. All sizes here are in pixels."""
MARGIN = 10
ROW = 18
FONT = 11
CHARACTER = 0.602 * FONT
"""Width of a character: the widest of the usual monospaced fonts."""
NARROWEST = 0.2
"""Width below which a frame is not drawn."""
LINE = 17
MOST_LINE = 170
"""Characters of a line above the frames, at most."""

Formats = Mapping[Weight, Callable[[int], str]]
"""Weight → function that formats a number of that weight; only these are shown."""


def svg(flame: Flame, by: Weight, title: str, notes: Sequence[str], formats: Formats) -> str:
    scale = (WIDTH - 2 * MARGIN) / max(flame.nodes[0].weight(by), 1)
    places: list[tuple[Node, float, float]] = []
    """(node, its left edge, its width) of those that are drawn."""
    free: list[float] = []
    """Per node so far: the left edge of the next function that it called; siblings are side by side
    from their caller's left edge."""
    for node in flame.nodes:
        x = free[node.parent] if node.parent >= 0 else float(MARGIN)
        wide = node.weight(by) * scale
        if node.parent >= 0:
            free[node.parent] += wide
        free.append(x)
        if wide >= NARROWEST:
            places.append((node, x, wide))
    less = flame.left_out + len(flame.nodes) - len(places)
    lines = [title, *notes]
    if less:
        lines.append(f"{less:,} frames too narrow to be seen are not drawn")
    top = MARGIN + LINE * len(lines)
    bottom = top + ROW * (1 + max((node.depth for node, _, _ in places), default=0))
    height = bottom + MARGIN
    texts = []
    for at, text in enumerate(lines):
        kind = 'font-size="14" font-weight="bold"' if at == 0 else 'fill="#5b6470"'
        line = _text(text, MOST_LINE)
        texts.append(f'<text x="{MARGIN}" y="{MARGIN + LINE * at + FONT}" {kind}>{line}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="{FONT}">',
            f"<title>{_text(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *texts,
            *(_frame(*place, bottom, flame.nodes[0], formats) for place in places),
            "</svg>\n",
        ]
    )


def _frame(node: Node, x: float, wide: float, bottom: int, whole: Node, formats: Formats) -> str:
    y = bottom - ROW * (node.depth + 1)
    weights = ", ".join(
        f"{formats[by](node.weight(by))} ({100 * node.weight(by) / max(whole.weight(by), 1):.1f} %)"
        for by in formats
    )
    room = int((wide - 4) / CHARACTER)
    label = ""
    if room >= 3:
        text = _text(node.name, room)
        label = f'<text x="{x + 2:.1f}" y="{y + 12}">{text}</text>'
    return (
        f"<g><title>{_text(f'{node.name} [{node.side}]: {weights}')}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(wide - 0.3, 0.1):.2f}" height="{ROW - 1}" '
        f'fill="{node.colour}"/>{label}</g>'
    )


def _text(text: str, most: int = 0) -> str:
    """Escaped for XML, without control characters (docs/names.md). most: characters; 0: all."""
    return escape(shown(text if not most or len(text) <= most else f"{text[: most - 1]}…"))
