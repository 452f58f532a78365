# SPDX-License-Identifier: Apache-2.0
"""`biotrail stacks --flame`: call stacks as a flame graph, an SVG or a page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from biotrail import __version__
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.recordings import InputRecording
from biotrail.converters.analysis.page.data import bounded
from biotrail.converters.analysis.page.html import page
from biotrail.converters.analysis.stacks.flame import Flame, Recorded, as_dict, flame, svg
from biotrail.converters.analysis.stacks.stacks import StackTable, Weight
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.text import units
from biotrail.text.printing import say, say_all
from biotrail.text.stacks import notes

ROOM_NOTES = 50_000
MOST_NOTES = 6
_TOLD: dict[Weight, Callable[[int], str]] = {
    Weight.COUNT: lambda bios: units.plural(bios, "bio"),
    Weight.BYTES: units.size,
    Weight.LATENCY: units.duration,
}
_WIDE = {Weight.COUNT: "bios", Weight.BYTES: "bytes", Weight.LATENCY: "time from queue to end"}


def write(
    target: str, tables: list[tuple[InputRecording, Trace, StackTable]], by: Weight, force: bool
) -> None:
    name = units.plural(len(tables), "recording")
    if len(tables) == 1:
        name = tables[0][0].file_name
    recorded = [Recorded(one.label, t.callers(), trace.stacks.all()) for one, trace, t in tables]
    lines = [
        line
        for one, trace, table in tables
        for line in one.about(notes(trace, table, trace.stacks.all()))
    ]
    with terminated_as_interrupted():
        made = text(Path(target).suffix.lower(), name, flame(recorded), by, lines)
        with output.replacing(target, force=force) as stream:
            stream.write(made.encode("utf-8", "replace"))
    size = units.size(Path(target).stat().st_size)
    say(f"wrote {Path(target)} ({size}): open it in a browser; it needs no network")
    say_all((f"biotrail: {line}" for line in lines), err=True)


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
