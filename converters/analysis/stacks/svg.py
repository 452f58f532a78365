# SPDX-License-Identifier: Apache-2.0
"""A flame graph as an SVG: static, without scripts, fonts or anything from elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from biotrail.converters.analysis.stacks.flame import Flame, Node
from biotrail.converters.analysis.stacks.stacks import Weight
from biotrail.recorder.schema.strings import shown

WIDTH = 1200
"""Pixels, as all that follows."""
MARGIN = 10
ROW = 18
FONT = 11
CHARACTER = 0.602 * FONT
"""Width of a character: the widest of the usual monospaced fonts."""
NARROWEST = 0.2
"""Frames that are narrower are not drawn."""
LINE = 17
MOST_LINE = 170
"""Characters of a line above the frames."""

Told = Mapping[Weight, Callable[[int], str]]
"""How a number of each weight is written."""


class _Place(NamedTuple):
    node: Node
    x: float
    wide: float


def svg(flame: Flame, by: Weight, title: str, notes: Sequence[str], told: Told) -> str:
    """Return the file's text. notes: lines below the title, as plain text.

    Frames are as wide as what came through them, the outermost at the bottom. Names may hold
    anything: what is not printable is replaced, the rest escaped.
    """
    places = [place for place in _places(flame.nodes, by) if place.wide >= NARROWEST]
    less = flame.left_out + len(flame.nodes) - len(places)
    lines = [title, *notes]
    if less:
        lines.append(f"{less:,} frames too narrow to be seen are not drawn")
    top = MARGIN + LINE * len(lines)
    bottom = top + ROW * (1 + max((place.node.depth for place in places), default=0))
    height = bottom + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="{FONT}">',
            f"<title>{_text(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *(_line(at, text) for at, text in enumerate(lines)),
            *(_frame(place, bottom, flame.nodes[0], told) for place in places),
            "</svg>\n",
        ]
    )


def _places(nodes: Sequence[Node], by: Weight) -> list[_Place]:
    """Where each node stands: siblings beside each other, from their caller's left edge on."""
    scale = (WIDTH - 2 * MARGIN) / max(nodes[0].weight(by), 1)
    found: list[_Place] = []
    free: list[float] = []
    """Of each node so far where the next one that it called begins."""
    for node in nodes:
        x = free[node.parent] if node.parent >= 0 else float(MARGIN)
        wide = node.weight(by) * scale
        if node.parent >= 0:
            free[node.parent] += wide
        free.append(x)
        found.append(_Place(node, x, wide))
    return found


def _line(at: int, text: str) -> str:
    y = MARGIN + LINE * at + FONT
    kind = 'font-size="14" font-weight="bold"' if at == 0 else 'fill="#5b6470"'
    return f'<text x="{MARGIN}" y="{y}" {kind}>{_text(_short(text, MOST_LINE))}</text>'


def _frame(place: _Place, bottom: int, whole: Node, told: Told) -> str:
    node, x, wide = place
    y = bottom - ROW * (node.depth + 1)
    weights = ", ".join(
        f"{told[by](node.weight(by))} ({100 * node.weight(by) / max(whole.weight(by), 1):.1f} %)"
        for by in Weight
    )
    room = int((wide - 4) / CHARACTER)
    label = ""
    if room >= 3:
        text = _text(_short(node.name, room))
        label = f'<text x="{x + 2:.1f}" y="{y + 12}">{text}</text>'
    return (
        f"<g><title>{_text(f'{node.name} [{node.side}]: {weights}')}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(wide - 0.3, 0.1):.2f}" height="{ROW - 1}" '
        f'fill="{node.colour}"/>{label}</g>'
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str) -> str:
    """Return text for XML: shown by the rule of docs/names.md, so without control characters."""
    return escape(shown(text))
