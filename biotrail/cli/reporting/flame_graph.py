# SPDX-License-Identifier: Apache-2.0
"""`biotrail stacks --flame`: call stacks as a flame graph, an SVG or a page."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from biotrail import __version__
from biotrail.converters.analysis.page.data import bounded
from biotrail.converters.analysis.page.html import page
from biotrail.converters.analysis.stacks.flame import Flame, Recorded, as_dict, flame
from biotrail.converters.analysis.stacks.stacks import Weight
from biotrail.converters.analysis.stacks.svg import svg
from biotrail.recorder.output import output
from biotrail.text import units

FORMS = (".svg", ".html")
ROOM_NOTES = 50_000
"""Most characters of notes in a page."""
MOST_NOTES = 6
"""Most lines of notes in an SVG."""
_TOLD: dict[Weight, Callable[[int], str]] = {
    Weight.COUNT: lambda bios: units.plural(bios, "bio"),
    Weight.BYTES: units.size,
    Weight.LATENCY: units.duration,
}
_WIDE = {Weight.COUNT: "bios", Weight.BYTES: "bytes", Weight.LATENCY: "time from queue to end"}


def form(target: str) -> str | None:
    """Return the ending of a file's name, one of FORMS; None: another ending."""
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
    """Write the flame graph as a private file and return its path. Raises OutputError.

    target: a path that ends in one of FORMS; name: the log's, for the title; notes: lines about
    what is missing.
    """
    made = text(form(target) or "", name, flame(recorded), by, notes)
    with output.replacing(target, force=force) as stream:
        stream.write(made.encode("utf-8", "replace"))
    return Path(target)


def text(form: str, name: str, tree: Flame, by: Weight, notes: Sequence[str]) -> str:
    """Return the flame graph's file contents. form: one of FORMS; name, notes: as for `write`."""
    title = f"{name}: who queued it"
    return (_svg if form == ".svg" else _page)(tree, by, title, notes)


def _svg(tree: Flame, by: Weight, title: str, notes: Sequence[str]) -> str:
    about = f"{_about(tree)}; width: {_WIDE[by]}"
    more = len(notes) - MOST_NOTES
    shown = [
        *notes[:MOST_NOTES],
        *([f"and {more:,} more lines: biotrail stacks"] if more > 0 else []),
    ]
    return svg(tree, by, title, [about, *shown], _TOLD)


def _page(tree: Flame, by: Weight, title: str, notes: Sequence[str]) -> str:
    """Return an HTML page; notes beyond ROOM_NOTES characters are left out and counted."""
    shown, more = bounded(notes, ROOM_NOTES)
    words = {
        "version": __version__,
        "title": title,
        "about": _about(tree),
        "notes": [*shown, *([f"and {units.count(more)} more"] if more else [])],
    }
    return page("flame", title, {**as_dict(tree, by), "words": words})


def _about(tree: Flame) -> str:
    whole = tree.nodes[0]
    return ", ".join(_TOLD[by](whole.weight(by)) for by in Weight)
