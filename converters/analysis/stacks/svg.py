# SPDX-License-Identifier: Apache-2.0
"""A flame graph as an SVG: static, without scripts, embedded fonts or external references."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from biotrail.converters.analysis.stacks.flame import Flame, Node
from biotrail.converters.analysis.stacks.stacks import Weight
from biotrail.recorder.schema.strings import shown

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


class _Place(NamedTuple):
    node: Node
    x: float
    wide: float


def svg(flame: Flame, by: Weight, title: str, notes: Sequence[str], formats: Formats) -> str:
    scale = (WIDTH - 2 * MARGIN) / max(flame.nodes[0].weight(by), 1)
    places: list[_Place] = []
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
            places.append(_Place(node, x, wide))
    less = flame.left_out + len(flame.nodes) - len(places)
    lines = [title, *notes]
    if less:
        lines.append(f"{less:,} frames too narrow to be seen are not drawn")
    top = MARGIN + LINE * len(lines)
    bottom = top + ROW * (1 + max((place.node.depth for place in places), default=0))
    height = bottom + MARGIN
    texts = []
    for at, text in enumerate(lines):
        kind = 'font-size="14" font-weight="bold"' if at == 0 else 'fill="#5b6470"'
        line = _text(_short(text, MOST_LINE))
        texts.append(f'<text x="{MARGIN}" y="{MARGIN + LINE * at + FONT}" {kind}>{line}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="{FONT}">',
            f"<title>{_text(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *texts,
            *(_frame(place, bottom, flame.nodes[0], formats) for place in places),
            "</svg>\n",
        ]
    )


def _frame(place: _Place, bottom: int, whole: Node, formats: Formats) -> str:
    node, x, wide = place
    y = bottom - ROW * (node.depth + 1)
    weights = ", ".join(
        f"{formats[by](node.weight(by))} ({100 * node.weight(by) / max(whole.weight(by), 1):.1f} %)"
        for by in formats
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
    """Escaped for XML, without control characters (by the rule of docs/names.md)."""
    return escape(shown(text))
