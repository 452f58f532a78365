# SPDX-License-Identifier: Apache-2.0
"""`biotrail stacks --flame`: call stacks as a flame graph, an SVG or a page."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from biotrail import __version__
from biotrail.converters.analysis.page.data import bounded
from biotrail.converters.analysis.page.html import page
from biotrail.converters.analysis.stacks.flame import Flame, Recorded, as_dict, flame, svg
from biotrail.converters.analysis.stacks.stacks import Weight
from biotrail.recorder.output import output
from biotrail.text import units

FORMS = (".svg", ".html")
ROOM_NOTES = 50_000
MOST_NOTES = 6
_TOLD: dict[Weight, Callable[[int], str]] = {
    Weight.COUNT: lambda bios: units.plural(bios, "bio"),
    Weight.BYTES: units.size,
    Weight.LATENCY: units.duration,
}
_WIDE = {Weight.COUNT: "bios", Weight.BYTES: "bytes", Weight.LATENCY: "time from queue to end"}


def form(target: str) -> str | None:
    ending = Path(target).suffix.lower()
    return ending if ending in FORMS else None


def write(
    target: str,
    name: str,
    recorded: Iterable[Recorded],
    by: Weight,
    notes: Sequence[str],
    force: bool,
) -> Path:
    made = text(form(target) or "", name, flame(recorded), by, notes)
    with output.replacing(target, force=force) as stream:
        stream.write(made.encode("utf-8", "replace"))
    return Path(target)


def text(form: str, name: str, tree: Flame, by: Weight, notes: Sequence[str]) -> str:
    title = f"{name}: who queued it"
    about = ", ".join(_TOLD[one](tree.nodes[0].weight(one)) for one in Weight)
    if form == ".svg":
        more = len(notes) - MOST_NOTES
        further = [f"and {more:,} more lines: biotrail stacks"] if more > 0 else []
        lines = [f"{about}; width: {_WIDE[by]}", *notes[:MOST_NOTES], *further]
        return svg(tree, by, title, lines, _TOLD)
    shown, more = bounded(notes, ROOM_NOTES)
    words = {
        "version": __version__,
        "title": title,
        "about": about,
        "notes": [*shown, *([f"and {units.count(more)} more"] if more else [])],
    }
    return page("flame", title, {**as_dict(tree, by), "words": words})
